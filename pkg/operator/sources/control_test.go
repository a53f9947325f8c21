package sources

import (
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	controls "github.com/cluster-version/cvo/pkg/clusterversion/control"
	"github.com/cluster-version/cvo/pkg/kube/fence"
	"github.com/cluster-version/cvo/test/env"
)

// controlPlane is shared by all tests of the package.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// readCRD reads a CustomResourceDefinition from the API module.
func readCRD(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(env.DefinitionFile(t, file))
	require.NoError(t, err)
	crd := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(data, &crd.Object))
	return crd
}

func TestSchemaListsTheFieldsOfADefinition(t *testing.T) {
	const prefix = "0000_00_cluster-version-operator_01_clusterversions-"
	for _, test := range []struct {
		name string
		file string
		want controls.Schema
	}{
		{"finds none of the fields in the default variant", prefix + "Default.crd.yaml", controls.Schema{}},
		{
			"finds risks but no mode in the technology preview", prefix + "TechPreviewNoUpgrade.crd.yaml",
			controls.Schema{AcceptRisks: true, ConditionalUpdateRisks: true, RiskNames: true, RiskConditions: true},
		},
		{
			"finds all fields in the complete variant", prefix + "CustomNoUpgrade.crd.yaml",
			controls.Schema{Mode: true, AcceptRisks: true, ConditionalUpdateRisks: true, RiskNames: true, RiskConditions: true},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := schemaOf(readCRD(t, test.file))
			assert.True(t, got.Names("Console"))
			assert.False(t, got.Names("Tomorrow"))
			got.Capabilities = ""
			assert.Equal(t, test.want, got)
		})
	}
}

func TestInvalidDefinitionsHaveNoFields(t *testing.T) {
	for name, object := range map[string]map[string]any{
		"finds no field in an empty object":             {},
		"finds no field if versions is not a list":      {"spec": map[string]any{"versions": "v1"}},
		"finds no field if a version is not an object":  {"spec": map[string]any{"versions": []any{"v1"}}},
		"finds no field without a schema":               {"spec": map[string]any{"versions": []any{map[string]any{"name": "v1"}}}},
		"finds no field if the schema is not an object": {"spec": map[string]any{"versions": []any{map[string]any{"name": "v1", "schema": []any{}}}}},
		"finds no field if properties is a string":      {"spec": map[string]any{"versions": []any{map[string]any{"name": "v1", "schema": map[string]any{"openAPIV3Schema": map[string]any{"properties": "x"}}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, controls.Schema{}, schemaOf(&unstructured.Unstructured{Object: object}))
		})
	}
}

// TestPauseHoldsDespiteInvalidStatus uses an invalid duration, which the schema accepts.
func TestPauseHoldsDespiteInvalidStatus(t *testing.T) {
	object := func(took string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "version", "generation": int64(3)},
			"spec":     map[string]any{"paused": true},
			"status": map[string]any{"history": []any{map[string]any{
				"to": "1.0.0", "runlevels": []any{map[string]any{"runlevel": int64(10), "manifests": int64(1), "took": took}},
			}}},
		}}
	}
	for took, history := range map[string]int{"3s": 1, "soon": 0} {
		rollout := releaseRolloutOf(object(took))
		require.NotNil(t, rollout, took)
		assert.True(t, rollout.Spec.Paused)
		assert.EqualValues(t, 3, rollout.Generation)
		assert.Len(t, rollout.Status.History, history)
	}
	assert.Nil(t, releaseRolloutOf(nil))
	assert.Nil(t, releaseRolloutOf(&unstructured.Unstructured{Object: map[string]any{"spec": "paused"}}))
}

// TestReleaseRolloutIsRecreatedWithinBounds deletes the ReleaseRollout repeatedly. It is recreated at once, but without endless writes and
// without reads.
func TestReleaseRolloutIsRecreatedWithinBounds(t *testing.T) {
	_, err := envtest.InstallCRDs(controlPlane.For(t).Config("test"), envtest.CRDInstallOptions{
		ErrorIfPathMissing: true, Paths: []string{"../../../manifests/0000_00_cluster-version-operator_02_releaserollouts.crd.yaml"},
	})
	require.NoError(t, err)
	admin := dynamic.NewForConfigOrDie(controlPlane.For(t).Config("test")).Resource(releaseRollouts())

	var writes, reads atomic.Int64
	cfg := controlPlane.For(t).Config("test")
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			switch {
			case req.Method != http.MethodGet:
				writes.Add(1)
			case req.URL.Query().Get("watch") == "":
				reads.Add(1)
			}
			return next.RoundTrip(req)
		})
	})
	clk := testingclock.NewFakePassiveClock(time.Now())
	c := newControl(clk, dynamic.NewForConfigOrDie(cfg), "deleted")
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	require.NoError(t, c.Start(t.Context(), queue))
	require.NoError(t, c.WaitForSync(t.Context()))
	listed := reads.Load()
	require.Eventually(t, func() bool { return c.Look().Served }, time.Minute, 10*time.Millisecond)

	// changed waits until a reconcile is requested, because reconciles write the object.
	changed := func(there bool) {
		t.Helper()
		for {
			request, ended := queue.Get()
			require.False(t, ended)
			queue.Done(request)
			if (c.Look().Rollout != nil) == there {
				return
			}
		}
	}
	status := api.ReleaseRolloutStatus{
		Conditions: []metav1.Condition{{Type: api.RolloutPaused, Status: metav1.ConditionFalse, Reason: api.ReasonNotAsked, LastTransitionTime: metav1.NewTime(clk.Now())}},
		History:    []api.CompletedRollout{{To: "1.1.0", StartedAt: metav1.NewTime(clk.Now()), CompletedAt: metav1.NewTime(clk.Now())}},
	}
	remove := func() {
		t.Helper()
		require.NoError(t, admin.Delete(t.Context(), "deleted", metav1.DeleteOptions{}))
		changed(false)
	}
	for i := range fence.RepairsAtOnce {
		require.NoError(t, c.Put(t.Context(), status))
		changed(true)
		made, err := admin.Get(t.Context(), "deleted", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Len(t, releaseRolloutOf(made).Status.History, 1)
		assert.Zero(t, releaseRolloutOf(made).Spec, "the recreated object requests no pause")
		assert.EqualValues(t, 3*(i+1), writes.Load(), "a failed write, a create and a status write")
		remove()
	}
	require.ErrorIs(t, c.Put(t.Context(), status), fence.ErrTooMany)
	assert.EqualValues(t, 3*fence.RepairsAtOnce, writes.Load(), "no request is sent beyond the limit")
	clk.SetTime(clk.Now().Add(fence.RepairsEvery))
	require.NoError(t, c.Put(t.Context(), status))
	changed(true)
	before := writes.Load()
	require.NoError(t, c.Put(t.Context(), status), "the status of an existing object is always written")
	assert.Equal(t, before+1, writes.Load())

	remove()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"paused": true}}}
	u.SetGroupVersionKind(api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind))
	u.SetName("deleted")
	_, err = admin.Create(t.Context(), u, metav1.CreateOptions{})
	require.NoError(t, err)
	changed(true)
	require.NoError(t, c.Put(t.Context(), status), "an object that another client creates does not count against the limit")
	made, err := admin.Get(t.Context(), "deleted", metav1.GetOptions{})
	require.NoError(t, err)
	assert.True(t, releaseRolloutOf(made).Spec.Paused)
	remove()
	assert.LessOrEqual(t, reads.Load(), listed+1, "at most one list of the kind, none if the API server streams it")
}
