package cli

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// goesBack tests "cvo upgrade rollback".
func (c *requestCluster) goesBack(t *testing.T) {
	back := `{"desiredUpdate":{"architecture":"","force":false,"image":"` + releaseOf("", "0").Image + `","version":"4.14.0"}}`
	const busy = "unable to rollback while an update is Progressing=True: Busy: working."
	progressing := func(cv *configv1.ClusterVersion) {
		set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "Busy", "working")
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
		{name: "goes back", out: "Requested rollback from 4.14.1 to 4.14.0\n", spec: back},
		{
			name: "goes to the newest entry only", code: ExitRefused,
			change: func(cv *configv1.ClusterVersion) {
				cv.Status.History = append([]configv1.UpdateHistory{
					cv.Status.History[0],
					{State: configv1.CompletedUpdate, Version: "4.13.9", Image: releaseOf("", "9").Image, StartedTime: metav1.Unix(500, 0), CompletionTime: new(metav1.Unix(600, 0))},
				}, cv.Status.History[1])
			},
			errs: "error: LowDesiredVersion: 4.13.9 is less than the current target 4.14.1 and matches the cluster's previous version, " +
				"but rollbacks that change major or minor versions are not recommended\n",
		},
		{
			name: "keeps accepted risks",
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.1", Force: true, AcceptRisks: accepting("A")}
			},
			out:  "Requested rollback from 4.14.1 to 4.14.0\n",
			spec: `{"desiredUpdate":{"acceptRisks":[{"name":"A"}],"architecture":"","force":false,"image":"` + releaseOf("", "0").Image + `","version":"4.14.0"}}`,
		},
		{
			name: "tells that the older one was never reached", out: "Requested rollback from 4.14.1 to 4.14.0\n", spec: back,
			change: func(cv *configv1.ClusterVersion) { cv.Status.History[1].State = configv1.PartialUpdate },
			errs:   "warning: The cluster never got to the end of the update to 4.14.0\n",
		},
		{name: "does not go back while an update runs", change: progressing, code: ExitRefused, errs: "error: " + busy + "\n\nIf you want to go back anyway, use --allow-upgrade-with-warnings.\n"},
		{
			name: "does if allowed", change: progressing, args: []string{"--allow-upgrade-with-warnings"},
			out: "Requested rollback from 4.14.1 to 4.14.0\n", spec: back,
			errs: "warning: --allow-upgrade-with-warnings is bypassing: Progressing=True: Busy: working\n",
		},
		{
			name: "does not if the cluster does not tell", change: func(cv *configv1.ClusterVersion) { unset(cv, configv1.OperatorProgressing) }, code: ExitRefused,
			errs: "error: no current Progressing info, see `oc describe clusterversion` for more details; to go back anyway, use --allow-upgrade-with-warnings\n",
		},
		{
			name: "has nowhere to go", change: func(cv *configv1.ClusterVersion) { cv.Status.History = cv.Status.History[:1] }, code: ExitRefused,
			errs: "error: no previous version found in ClusterVersion's status.history besides the current 4.14.1 (" + releaseOf("", "1").Image + ")\n",
		},
		{
			name: "does not go forward", change: from("4.14.2"), code: ExitRefused,
			errs: "error: previous version 4.14.2 (" + releaseOf("", "0").Image + ") is greater than or equal to current version 4.14.1 (" + releaseOf("", "1").Image +
				").  Use 'cvo upgrade --to-image' to update, and not this rollback command\n",
		},
		{name: "does not understand the older version", change: from("best"), code: ExitRefused, errs: "error: previous version \"best\" invalid SemVer: No Major.Minor.Patch elements found\n"},
		{
			name: "does not understand the current version", change: func(cv *configv1.ClusterVersion) { cv.Status = configv1.ClusterVersionStatus{} }, code: ExitRefused,
			errs: "error: invalid ClusterVersion status.desired.version \"\": Version string empty\n",
		},
	} {
		t.Run("rollback "+test.name, func(t *testing.T) {
			cv := restingCluster()
			if test.change != nil {
				test.change(cv)
			}
			c.put(t, cv)
			out, errs, code := c.cvo(t, append([]string{"rollback"}, test.args...)...)
			assert.Equal(t, test.out, out)
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
	t.Run("rollback asks what the operator asks", func(t *testing.T) {
		cv := restingCluster()
		require.NoError(t, operatorAllowsRollback(cv, "4.14.0"))
		err := operatorAllowsRollback(cv, "4.13.0")
		require.ErrorContains(t, err, "the only supported rollback is to the cluster's previous version 4.14.0")
		assert.Equal(t, ExitRefused, ExitCode(err))
	})
}
