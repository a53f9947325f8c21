package cli_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/test/clusterversions"
)

// rollsBack tests "cvo upgrade rollback".
func (c *requestCluster) rollsBack(t *testing.T) {
	back := `{"desiredUpdate":{"architecture":"","force":false,"image":"` + clusterversions.Release("", "0").Image + `","version":"4.14.0"}}`
	const busy = "unable to rollback while an update is Progressing=True: Busy: working."
	allows := func(version, image string) string {
		return "\n\nThe cluster allows a rollback to " + version + ", which it has not completed: cvo upgrade --to-image " + image + " --allow-explicit-upgrade\n"
	}
	// The releases of these tests are in no registry. Integration tests roll back to real ones.
	mirrors := mirrored(t, "127.0.0.1:1")
	progressing := func(cv *configv1.ClusterVersion) {
		clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "Busy", "working")
	}
	from := func(version string) func(*configv1.ClusterVersion) {
		return func(cv *configv1.ClusterVersion) { cv.Status.History[1].Version = version }
	}
	for _, test := range []struct {
		name   string
		change func(*configv1.ClusterVersion)
		args   []string
		out    string
		errs   string
		spec   string
		code   int
	}{
		{name: "returns to the previous release", out: "Requested rollback from 4.14.1 to 4.14.0\n", spec: back},
		{
			name: "returns only to the newest entry", code: command.ExitRefused,
			change: func(cv *configv1.ClusterVersion) {
				cv.Status.History = append([]configv1.UpdateHistory{
					cv.Status.History[0],
					{State: configv1.CompletedUpdate, Version: "4.13.9", Image: clusterversions.Release("", "9").Image, StartedTime: metav1.Unix(500, 0), CompletionTime: new(metav1.Unix(600, 0))},
				}, cv.Status.History[1])
			},
			errs: "error: LowDesiredVersion: 4.13.9 is less than the current target 4.14.1 and matches the cluster's previous version, " +
				"but rollbacks that change major or minor versions are not recommended, so the cluster refuses this one\n",
		},
		{
			name: "keeps accepted risks",
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.1", Force: true, AcceptRisks: accepting("A")}
			},
			out:  "Requested rollback from 4.14.1 to 4.14.0\n",
			spec: `{"desiredUpdate":{"acceptRisks":[{"name":"A"}],"architecture":"","force":false,"image":"` + clusterversions.Release("", "0").Image + `","version":"4.14.0"}}`,
		},
		{
			name: "names the whole command while the cluster updates", code: command.ExitRefused,
			change: func(cv *configv1.ClusterVersion) {
				progressing(cv)
				cv.Status.History[1].State = configv1.PartialUpdate
			},
			errs: "error: no previous completed version found in ClusterVersion's status.history besides the current 4.14.1 (" + clusterversions.Release("", "1").Image + ")" +
				strings.TrimSuffix(allows("4.14.0", clusterversions.Release("", "0").Image), "\n") + " --allow-upgrade-with-warnings\n",
		},
		{
			name: "does not return to a release that never completed", code: command.ExitRefused,
			change: func(cv *configv1.ClusterVersion) { cv.Status.History[1].State = configv1.PartialUpdate },
			errs: "error: no previous completed version found in ClusterVersion's status.history besides the current 4.14.1 (" + clusterversions.Release("", "1").Image + ")" +
				allows("4.14.0", clusterversions.Release("", "0").Image),
		},
		{
			name: "names the allowed release if the completed one has another minor version", code: command.ExitRefused,
			change: func(cv *configv1.ClusterVersion) {
				cv.Status.History[1].State = configv1.PartialUpdate
				cv.Status.History = append(cv.Status.History, configv1.UpdateHistory{
					State: configv1.CompletedUpdate, Version: "4.13.9", Image: clusterversions.Release("", "9").Image, StartedTime: metav1.Unix(50, 0), CompletionTime: new(metav1.Unix(60, 0)),
				})
			},
			errs: "error: LowDesiredVersion: 4.13.9 is less than the current target 4.14.1 and matches the cluster's previous version, " +
				"but rollbacks that change major or minor versions are not recommended, so the cluster refuses this one" + allows("4.14.0", clusterversions.Release("", "0").Image),
		},
		{
			name: "names no release of an install", code: command.ExitRefused,
			change: func(cv *configv1.ClusterVersion) {
				for i := range cv.Status.History {
					cv.Status.History[i].State = configv1.PartialUpdate
				}
			},
			errs: "error: no previous completed version found in ClusterVersion's status.history besides the current 4.14.1 (" + clusterversions.Release("", "1").Image + ")\n",
		},
		{
			name: "skips a release that never completed", out: "Requested rollback from 4.14.1 to 4.14.0\n", spec: back,
			change: func(cv *configv1.ClusterVersion) {
				cv.Status.History = append([]configv1.UpdateHistory{
					cv.Status.History[0],
					{State: configv1.PartialUpdate, Version: "4.14.0", Image: clusterversions.Release("", "9").Image, StartedTime: metav1.Unix(500, 0), CompletionTime: new(metav1.Unix(600, 0))},
				}, cv.Status.History[1])
			},
		},
		{name: "does not return while an update runs", change: progressing, code: command.ExitRefused, errs: "error: " + busy + "\n\nIf you want to roll back anyway, use --allow-upgrade-with-warnings.\n"},
		{
			name: "does not return while an update runs without a reason", code: command.ExitRefused,
			change: func(cv *configv1.ClusterVersion) {
				clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working towards 4.14.1")
			},
			errs: "error: unable to rollback while an update is Progressing=True: Working towards 4.14.1.\n\nIf you want to roll back anyway, use --allow-upgrade-with-warnings.\n",
		},
		{
			name: "returns during an update if allowed", change: progressing, args: []string{"--allow-upgrade-with-warnings"},
			out: "Requested rollback from 4.14.1 to 4.14.0\n", spec: back,
			errs: "warning: --allow-upgrade-with-warnings is bypassing: Progressing=True: Busy: working\n",
		},
		{
			name: "does not return if the cluster does not report its progress", change: func(cv *configv1.ClusterVersion) { clusterversions.Unset(cv, configv1.OperatorProgressing) }, code: command.ExitRefused,
			errs: "error: the ClusterVersion has no condition Progressing, so it is unknown whether an update is running: see 'kubectl describe clusterversion'; to roll back anyway, use --allow-upgrade-with-warnings\n",
		},
		{
			name: "rejects a rollback without an earlier release", change: func(cv *configv1.ClusterVersion) { cv.Status.History = cv.Status.History[:1] }, code: command.ExitRefused,
			errs: "error: no previous completed version found in ClusterVersion's status.history besides the current 4.14.1 (" + clusterversions.Release("", "1").Image + ")\n",
		},
		{
			name: "rejects a newer release", change: from("4.14.2"), code: command.ExitRefused,
			errs: "error: previous version 4.14.2 (" + clusterversions.Release("", "0").Image + ") is greater than or equal to current version 4.14.1 (" + clusterversions.Release("", "1").Image +
				").  Use 'cvo upgrade --to-image' to update, and not this rollback command\n",
		},
		{name: "rejects an invalid older version", change: from("best"), code: command.ExitRefused, errs: "error: previous version \"best\" invalid SemVer: No Major.Minor.Patch elements found\n"},
		{
			name: "rejects an invalid current version", change: func(cv *configv1.ClusterVersion) { cv.Status = configv1.ClusterVersionStatus{} }, code: command.ExitRefused,
			errs: "error: invalid ClusterVersion status.desired.version \"\": Version string empty\n",
		},
	} {
		t.Run("rollback "+test.name, func(t *testing.T) {
			cv := clusterversions.Resting()
			if test.change != nil {
				test.change(cv)
			}
			c.put(t, cv)
			out, errs, code := c.cvo(t, append([]string{"rollback", "--idms-file", mirrors}, test.args...)...)
			assert.Equal(t, test.out, out)
			if test.spec != "" {
				var unknown string
				unknown, errs, _ = strings.Cut(errs, "\n")
				assert.Contains(t, unknown, "warning: cannot check whether the cluster accepts the objects of 4.14.0: ")
			}
			assert.Equal(t, test.errs, errs)
			assert.Equal(t, test.code, code)
			if test.spec == "" {
				assert.Empty(t, c.sent())
				return
			}
			require.Len(t, c.sent(), 1)
			assert.JSONEq(t, test.spec, c.sent()[0].spec(t))
		})
	}
	t.Run("rollback checks the objects once, also after conflicts", func(t *testing.T) {
		c.put(t, clusterversions.Resting())
		var round atomic.Int32
		c.onPatch(func() {
			c.change(func(cv *configv1.ClusterVersion) {
				clusterversions.Set(cv, "Other", configv1.ConditionTrue, "", strings.Repeat("x", int(round.Add(1))))
			})
		})
		_, errs, code := c.cvo(t, "rollback", "--idms-file", mirrors)
		assert.Equal(t, command.ExitFailed, code)
		assert.Greater(t, len(c.sent()), 1)
		assert.Equal(t, 1, strings.Count(errs, "cannot check whether the cluster accepts"), errs)
	})
	t.Run("rollback also checks the objects of a release that it plans after a conflict", func(t *testing.T) {
		c.put(t, clusterversions.Resting())
		var once sync.Once
		c.onPatch(func() {
			once.Do(func() {
				c.change(func(cv *configv1.ClusterVersion) {
					cv.Status.Desired.Version, cv.Status.History[0].Version = "4.14.2", "4.14.2"
					cv.Status.History[1].Version, cv.Status.History[1].Image = "4.14.1", clusterversions.Release("", "9").Image
				})
			})
		})
		out, errs, _ := c.cvo(t, "rollback", "--idms-file", mirrors)
		assert.Equal(t, "Requested rollback from 4.14.2 to 4.14.1\n", out)
		assert.Contains(t, errs, "cannot check whether the cluster accepts the objects of 4.14.0: ")
		assert.Contains(t, errs, "cannot check whether the cluster accepts the objects of 4.14.1: ")
	})
	t.Run("rollback sends its request after a change during the check", func(t *testing.T) {
		c.put(t, clusterversions.Resting())
		var round atomic.Int32
		registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c.change(func(cv *configv1.ClusterVersion) {
				clusterversions.Set(cv, "Other", configv1.ConditionTrue, "", strings.Repeat("x", int(round.Add(1))))
			})
			w.WriteHeader(http.StatusForbidden)
		}))
		t.Cleanup(registry.Close)
		_, errs, code := c.cvo(t, "rollback", "--idms-file", mirrored(t, strings.TrimPrefix(registry.URL, "http://")))
		assert.Zero(t, code, errs)
		assert.NotZero(t, round.Load())
	})
}

// mirrored returns a file that replaces the registry of the test releases with a mirror.
func mirrored(t *testing.T, mirror string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mirrors.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`apiVersion: config.openshift.io/v1
kind: ImageDigestMirrorSet
metadata: {name: none}
spec: {imageDigestMirrors: [{source: registry.example, mirrors: ["`+mirror+`"], mirrorSourcePolicy: NeverContactSource}]}
`), 0o600))
	return file
}
