package cli

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
)

// preflights tests "cvo upgrade --preflight".
func (c *requestCluster) preflights(t *testing.T) {
	asksFor := func(version, image string) string {
		return `{"desiredUpdate":{"architecture":"","force":false,"image":"` + image + `","mode":"Preflight","version":"` + version + `"}}`
	}
	const told = "; 'cvo upgrade' tells what comes of it\n"
	for _, test := range []struct {
		name   string
		change func(*configv1.ClusterVersion)
		args   []string
		out    string
		errs   string
		spec   string
	}{
		{
			name: "of a version", args: []string{"--to=4.14.3"},
			out: "Requested preflight of 4.14.3" + told, spec: asksFor("4.14.3", releaseOf("", "3").Image),
		},
		{
			name: "of the newest", args: []string{"--to-latest"},
			out: "Requested preflight of 4.14.10" + told, spec: asksFor("4.14.10", releaseOf("", "a").Image),
		},
		{
			name: "of an image that the cluster does not list", args: []string{"--to-image=" + mirrored("e"), "--allow-explicit-upgrade"},
			out: "Requested preflight of " + mirrored("e") + told, spec: asksFor("", mirrored("e")),
			errs: "warning: The requested upgrade image is not one of the available updates. You have used --allow-explicit-upgrade for the update to proceed anyway\n",
		},
		{
			name: "in the middle of an update, which goes on", args: []string{"--to=4.14.3"},
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.1"}
				cv.Status.History[0].State, cv.Status.History[0].CompletionTime = configv1.PartialUpdate, nil
				set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working towards 4.14.1")
			},
			out: "Requested preflight of 4.14.3" + told, spec: asksFor("4.14.3", releaseOf("", "3").Image),
			errs: "warning: The request for 4.14.1 is replaced; the cluster goes on with 4.14.1, and comes back to the request only when it is made again\n",
		},
	} {
		t.Run("preflight "+test.name, func(t *testing.T) {
			cv := withUpdates(restingCluster())
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
			assert.Equal(t, "All", patches[0].DryRun, "the API server shows first that it keeps the mode")
			assert.Empty(t, patches[1].DryRun)
			for _, patch := range patches {
				assert.JSONEq(t, test.spec, patch.spec(t))
			}
			require.NotNil(t, c.get(t).Spec.DesiredUpdate)
			assert.Equal(t, configv1.UpdateModePreflight, c.get(t).Spec.DesiredUpdate.Mode)
		})
	}
	t.Run("preflight is tried without being asked for", func(t *testing.T) {
		c.put(t, withUpdates(restingCluster()))
		out, _, code := c.cvo(t, "--to=4.14.3", "--preflight", "--dry-run", "-o", "json")
		assert.Zero(t, code)
		var got request
		require.NoError(t, json.Unmarshal([]byte(out), &got))
		assert.Equal(t, "preflight", got.Action)
		assert.Equal(t, "Preflight", got.To.Mode)
		assert.Nil(t, c.get(t).Spec.DesiredUpdate)
	})
	t.Run("preflight ends with an update", func(t *testing.T) {
		cv := withUpdates(restingCluster())
		cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.3", Mode: configv1.UpdateModePreflight}
		c.put(t, cv)
		_, _, code := c.cvo(t, "--to=4.14.3")
		assert.Zero(t, code)
		assert.Empty(t, c.get(t).Spec.DesiredUpdate.Mode)
	})
	t.Run("preflight needs a release", func(t *testing.T) {
		for _, args := range [][]string{{"--preflight"}, {"--preflight", "--clear"}, {"--preflight", "--to-multi-arch"}} {
			_, errs, code := c.cvo(t, args...)
			assert.Equal(t, ExitUsage, code)
			assert.Contains(t, errs, "--preflight looks at a release: add --to, --to-latest or --to-image")
		}
	})
	c.preflightOverview(t)
}

// preflightOverview tests what the overview tells.
func (c *requestCluster) preflightOverview(t *testing.T) {
	cv := withUpdates(restingCluster())
	cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.3", Mode: configv1.UpdateModePreflight}
	c.put(t, cv)
	t.Run("the overview tells why it knows nothing of the preflight", func(t *testing.T) {
		out, errs, code := c.cvo(t)
		assert.Zero(t, code)
		assert.Contains(t, out, "\nA preflight of 4.14.3 is requested, and nothing is known of it yet.\n")
		assert.Contains(t, errs, "warning: what came of the preflight is not known: the cluster does not serve releaserollouts")
	})
	_, err := envtest.InstallCRDs(c.env.Config("tests"), envtest.CRDInstallOptions{
		Paths: []string{"../../manifests/0000_00_cluster-version-operator_02_releaserollouts.crd.yaml"}, ErrorIfPathMissing: true,
	})
	require.NoError(t, err)
	rollouts, err := client.New(c.env.Config("tests"), client.Options{Scheme: runtime.NewScheme()})
	require.NoError(t, err)
	object := rolloutObject()
	object.SetName(api.ClusterVersionName)
	require.NoError(t, rollouts.Create(t.Context(), object))
	t.Run("the overview knows of no preflight yet", func(t *testing.T) {
		out, errs, _ := c.cvo(t)
		assert.Contains(t, out, "\nA preflight of 4.14.3 is requested, and nothing is known of it yet.\n")
		assert.Empty(t, errs)
	})
	require.NoError(t, unstructured.SetNestedMap(object.Object, map[string]any{
		"version": "4.14.3", "image": releaseOf("", "3").Image, "state": api.PreflightPassed, "step": api.PreflightDryRun,
		"message": "2 objects would be created", "startedAt": "2026-01-02T10:00:00Z", "endedAt": "2026-01-02T10:01:00Z",
	}, "status", "preflight"))
	require.NoError(t, rollouts.Status().Update(t.Context(), object))
	const result = "\nPreflight of 4.14.3: Passed\n\n  Step: DryRun\n  Message: 2 objects would be created\n"
	t.Run("the overview tells what came of the preflight", func(t *testing.T) {
		out, errs, _ := c.cvo(t)
		assert.Contains(t, out, result)
		assert.NotContains(t, out, "nothing is known of it")
		assert.Empty(t, errs)
		out, _, _ = c.cvo(t, "-o", "json")
		var got upgradeOverview
		require.NoError(t, json.Unmarshal([]byte(out), &got))
		assert.Equal(t, configv1.UpdateModePreflight, got.Requested.Mode)
		require.NotNil(t, got.Preflight)
		assert.Equal(t, api.PreflightPassed, got.Preflight.State)
	})
	t.Run("the overview tells it as long as the cluster is at another release", func(t *testing.T) {
		c.put(t, withUpdates(restingCluster()))
		out, _, _ := c.cvo(t)
		assert.Contains(t, out, result)
		cv := withUpdates(restingCluster())
		cv.Status.Desired = releaseOf("4.14.3", "3")
		c.put(t, cv)
		out, _, _ = c.cvo(t)
		assert.NotContains(t, out, "reflight")
	})
	t.Run("the overview does not take one preflight for another", func(t *testing.T) {
		cv := withUpdates(restingCluster())
		cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.10", Image: releaseOf("", "a").Image, Mode: configv1.UpdateModePreflight}
		c.put(t, cv)
		out, _, _ := c.cvo(t)
		assert.Contains(t, out, "\nA preflight of 4.14.10 is requested, and nothing is known of it yet.\n")
		assert.NotContains(t, out, result)
	})
}

func TestUpgradePreflightIsRefusedWhereItWouldBeAnUpdate(t *testing.T) {
	c := newRequestCluster(t, "config/v1/zz_generated.crd-manifests/*_clusterversions-Default.crd.yaml")
	c.put(t, withUpdates(restingCluster()))
	for _, args := range [][]string{{"--to=4.14.3", "--preflight"}, {"--to=4.14.3", "--preflight", "--dry-run"}} {
		out, errs, code := c.cvo(t, args...)
		assert.Empty(t, out)
		assert.Contains(t, errs, "error: Unable to ask for a preflight: the API server drops spec.desiredUpdate.mode")
		assert.Contains(t, errs, "ClusterUpdatePreflight")
		assert.Equal(t, ExitRefused, code)
	}
	for _, patch := range c.sent() {
		assert.Equal(t, "All", patch.DryRun, "without the mode it would be an update")
	}
	assert.Nil(t, c.get(t).Spec.DesiredUpdate)
}
