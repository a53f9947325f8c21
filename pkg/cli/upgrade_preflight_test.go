package cli_test

import (
	"encoding/json"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/update/request"
	"github.com/cluster-version/cvo/pkg/view/overview"
	"github.com/cluster-version/cvo/test/clusterversions"
)

// preflights tests "cvo upgrade --preflight".
func (c *requestCluster) preflights(t *testing.T) {
	asksFor := func(version, image string) string {
		return `{"desiredUpdate":{"architecture":"","force":false,"image":"` + image + `","mode":"Preflight","version":"` + version + `"}}`
	}
	const hint = "; 'cvo upgrade' shows its result\n"
	for _, test := range []struct {
		name   string
		change func(*configv1.ClusterVersion)
		args   []string
		out    string
		errs   string
		spec   string
	}{
		{
			name: "requests a version", args: []string{"--to=4.14.3"},
			out: "Requested preflight of 4.14.3" + hint, spec: asksFor("4.14.3", clusterversions.Release("", "3").Image),
		},
		{
			name: "requests the newest version", args: []string{"--to-latest"},
			out: "Requested preflight of 4.14.10" + hint, spec: asksFor("4.14.10", clusterversions.Release("", "a").Image),
		},
		{
			name: "requests an unlisted image", args: []string{"--to-image=" + clusterversions.Mirrored("e"), "--allow-explicit-upgrade"},
			out: "Requested preflight of " + clusterversions.Mirrored("e") + hint, spec: asksFor("", clusterversions.Mirrored("e")),
			errs: "warning: The requested upgrade image is not one of the available updates. You have used --allow-explicit-upgrade for the update to proceed anyway\n",
		},
		{
			name: "lets a running update continue", args: []string{"--to=4.14.3"},
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.1"}
				cv.Status.History[0].State, cv.Status.History[0].CompletionTime = configv1.PartialUpdate, nil
				clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working towards 4.14.1")
			},
			out: "Requested preflight of 4.14.3" + hint, spec: asksFor("4.14.3", clusterversions.Release("", "3").Image),
			errs: "warning: This replaces the requested update to 4.14.1; the cluster continues with 4.14.1 until you request the update again\n",
		},
		{
			name: "was requested before", args: []string{"--to=4.14.3"},
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.3", Image: clusterversions.Release("", "3").Image, Mode: configv1.UpdateModePreflight}
			},
			out:  "The preflight of 4.14.3 was requested before; 'cvo upgrade' shows its result. To repeat it, first run 'cvo upgrade --clear'\n",
			spec: asksFor("4.14.3", clusterversions.Release("", "3").Image),
		},
		{
			name: "was requested before during an update", args: []string{"--to=4.14.3"},
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.3", Image: clusterversions.Release("", "3").Image, Mode: configv1.UpdateModePreflight}
				cv.Status.Desired.Version = "4.14.1"
				cv.Status.History[0].State, cv.Status.History[0].CompletionTime = configv1.PartialUpdate, nil
			},
			out:  "The preflight of 4.14.3 was requested before; 'cvo upgrade' shows its result. To repeat it, first request the update to 4.14.1 again\n",
			spec: asksFor("4.14.3", clusterversions.Release("", "3").Image),
		},
	} {
		t.Run("preflight "+test.name, func(t *testing.T) {
			cv := clusterversions.WithUpdates(clusterversions.Resting())
			if test.change != nil {
				test.change(cv)
			}
			c.put(t, cv)
			out, errs, code := c.cvo(t, append(test.args, "--preflight")...)
			assert.Equal(t, test.out, out)
			assert.Equal(t, test.errs, errs)
			assert.Zero(t, code)
			patches := c.sent()
			require.Len(t, patches, 2)
			assert.Equal(t, "All", patches[0].DryRun, "a dry run shows that the API server keeps the mode")
			assert.Empty(t, patches[1].DryRun)
			for _, patch := range patches {
				assert.JSONEq(t, test.spec, patch.spec(t))
			}
			require.NotNil(t, c.get(t).Spec.DesiredUpdate)
			assert.Equal(t, configv1.UpdateModePreflight, c.get(t).Spec.DesiredUpdate.Mode)
		})
	}
	t.Run("preflight supports --dry-run", func(t *testing.T) {
		c.put(t, clusterversions.WithUpdates(clusterversions.Resting()))
		out, _, code := c.cvo(t, "--to=4.14.3", "--preflight", "--dry-run", "-o", "json")
		assert.Zero(t, code)
		var got request.Request
		require.NoError(t, json.Unmarshal([]byte(out), &got))
		assert.Equal(t, "preflight", got.Action)
		assert.Equal(t, "Preflight", got.To.Mode)
		assert.Nil(t, c.get(t).Spec.DesiredUpdate)
	})
	t.Run("an update ends the preflight", func(t *testing.T) {
		cv := clusterversions.WithUpdates(clusterversions.Resting())
		cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.3", Mode: configv1.UpdateModePreflight}
		c.put(t, cv)
		_, _, code := c.cvo(t, "--to=4.14.3")
		assert.Zero(t, code)
		assert.Empty(t, c.get(t).Spec.DesiredUpdate.Mode)
	})
	t.Run("the running update is requested again after a preflight", func(t *testing.T) {
		cv := clusterversions.WithUpdates(clusterversions.Resting())
		cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.3", Mode: configv1.UpdateModePreflight}
		cv.Status.Desired.Version = "4.14.1"
		cv.Status.History[0].State, cv.Status.History[0].CompletionTime = configv1.PartialUpdate, nil
		c.put(t, cv)
		out, errs, code := c.cvo(t, "--to=4.14.1")
		assert.Zero(t, code, errs)
		assert.Equal(t, "Requested the running update to 4.14.1 again, instead of the preflight of 4.14.3\n", out)
		assert.Equal(t, &configv1.Update{Version: "4.14.1", Image: cv.Status.Desired.Image}, c.get(t).Spec.DesiredUpdate)
	})
	t.Run("preflight requires a release", func(t *testing.T) {
		for _, args := range [][]string{{"--preflight"}, {"--preflight", "--clear"}, {"--preflight", "--to-multi-arch"}} {
			_, errs, code := c.cvo(t, args...)
			assert.Equal(t, command.ExitUsage, code)
			assert.Contains(t, errs, "--preflight examines a release: add --to, --to-latest or --to-image")
		}
	})
	c.preflightOverview(t)
}

// preflightOverview tests the overview of a preflight.
func (c *requestCluster) preflightOverview(t *testing.T) {
	cv := clusterversions.WithUpdates(clusterversions.Resting())
	cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.3", Mode: configv1.UpdateModePreflight}
	c.put(t, cv)
	t.Run("the overview explains an unknown preflight", func(t *testing.T) {
		out, errs, code := c.cvo(t)
		assert.Zero(t, code)
		assert.Contains(t, out, "\nA preflight of 4.14.3 is requested and has not started yet.\n")
		assert.Contains(t, errs, "warning: Cannot read the preflight's result: the cluster does not serve releaserollouts")
	})
	_, err := envtest.InstallCRDs(c.env.Config("tests"), envtest.CRDInstallOptions{
		Paths: []string{"../../manifests/0000_00_cluster-version-operator_02_releaserollouts.crd.yaml"}, ErrorIfPathMissing: true,
	})
	require.NoError(t, err)
	rollouts, err := client.New(c.env.Config("tests"), client.Options{Scheme: runtime.NewScheme()})
	require.NoError(t, err)
	object := clusterversions.Rollout()
	object.SetName(api.ClusterVersionName)
	require.NoError(t, rollouts.Create(t.Context(), object))
	c.change(func(cv *configv1.ClusterVersion) { cv.Status.ObservedGeneration = cv.Generation })
	t.Run("the overview reports that no preflight ran yet", func(t *testing.T) {
		out, errs, _ := c.cvo(t)
		assert.Contains(t, out, "\nA preflight of 4.14.3 is requested and has not started yet.\n")
		assert.Empty(t, errs)
	})
	require.NoError(t, unstructured.SetNestedMap(object.Object, map[string]any{
		"version": "4.14.3", "image": clusterversions.Release("", "3").Image, "state": api.PreflightPassed, "step": api.PreflightDryRun,
		"message": "2 objects would be created", "startedAt": "2026-01-02T10:00:00Z", "endedAt": "2026-01-02T10:01:00Z",
	}, "status", "preflight"))
	require.NoError(t, rollouts.Status().Update(t.Context(), object))
	const result = "\nPreflight of 4.14.3: Passed\n\n  Ended: 2026-01-02T10:01:00Z\n  Step: DryRun\n  Message: 2 objects would be created\n"
	t.Run("the overview reports the preflight's result", func(t *testing.T) {
		out, errs, _ := c.cvo(t)
		assert.Contains(t, out, result)
		assert.NotContains(t, out, "has not started yet")
		assert.Empty(t, errs)
		out, _, _ = c.cvo(t, "-o", "json")
		var got overview.Overview
		require.NoError(t, json.Unmarshal([]byte(out), &got))
		assert.Equal(t, configv1.UpdateModePreflight, got.Requested.Mode)
		require.NotNil(t, got.Preflight)
		assert.Equal(t, api.PreflightPassed, got.Preflight.State)
	})
	t.Run("the overview reports the result until the cluster updates to the release", func(t *testing.T) {
		cv := clusterversions.WithUpdates(clusterversions.Resting())
		cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.3"}
		c.put(t, cv)
		out, _, _ := c.cvo(t)
		assert.Contains(t, out, result)
		cv = clusterversions.WithUpdates(clusterversions.Resting())
		cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.3"}
		cv.Status.Desired = clusterversions.Release("4.14.3", "3")
		c.put(t, cv)
		out, _, _ = c.cvo(t)
		assert.NotContains(t, out, "reflight")
	})
	t.Run("the overview omits the result after another request", func(t *testing.T) {
		for _, asked := range []*configv1.Update{
			nil, {Version: "4.14.10", Image: clusterversions.Release("", "a").Image}, {AcceptRisks: []configv1.AcceptRisk{{Name: "SlowDisks"}}},
		} {
			cv := clusterversions.WithUpdates(clusterversions.Resting())
			cv.Spec.DesiredUpdate = asked
			c.put(t, cv)
			out, _, _ := c.cvo(t)
			assert.NotContains(t, out, "reflight", "%v", asked)
		}
	})
	t.Run("the overview distinguishes two preflights", func(t *testing.T) {
		cv := clusterversions.WithUpdates(clusterversions.Resting())
		cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.10", Image: clusterversions.Release("", "a").Image, Mode: configv1.UpdateModePreflight}
		c.put(t, cv)
		out, _, _ := c.cvo(t)
		assert.Contains(t, out, "\nA preflight of 4.14.10 is requested and has not started yet.\n")
		assert.NotContains(t, out, result)
	})
}

//threat:preflight-becomes-update
func TestUpgradePreflightIsRejectedIfTheCRDLacksTheMode(t *testing.T) {
	c := newRequestCluster(t, "config/v1/zz_generated.crd-manifests/*_clusterversions-Default.crd.yaml")
	c.put(t, clusterversions.WithUpdates(clusterversions.Resting()))
	for _, args := range [][]string{{"--to=4.14.3", "--preflight"}, {"--to=4.14.3", "--preflight", "--dry-run"}} {
		out, errs, code := c.cvo(t, args...)
		assert.Empty(t, out)
		assert.Contains(t, errs, "error: Unable to request a preflight: the API server drops spec.desiredUpdate.mode")
		assert.Contains(t, errs, "ClusterUpdatePreflight")
		assert.Equal(t, command.ExitRefused, code)
	}
	for _, patch := range c.sent() {
		assert.Equal(t, "All", patch.DryRun, "without the mode it would be an update")
	}
	assert.Nil(t, c.get(t).Spec.DesiredUpdate)
}
