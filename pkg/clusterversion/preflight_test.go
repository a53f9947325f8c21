package clusterversion

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/control"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// TestPreflightModeIsKept shows that an update requested as a preflight never starts, even if another definition of ClusterVersion makes
// the API server drop the mode.
//
//threat:preflight-becomes-update
func TestPreflightModeIsKept(t *testing.T) {
	process := func() *Reconciler {
		return New(clock.RealClock{}, nil, nil, idle{}, accept.Stages{}, blank{}, nil, func() {}, Options{ReleaseImage: imageOf("1.0.0")})
	}
	chosen := func(c *Reconciler, cv *configv1.ClusterVersion, schema control.Schema) *round {
		r := &round{original: cv, cv: cv.DeepCopy(), schema: schema}
		require.NoError(t, c.choose(t.Context(), r))
		return r
	}
	asked := func(generation int64, mode configv1.UpdateMode) *configv1.ClusterVersion {
		cv := clusterAt(completed("1.0.0"))
		cv.Generation = generation
		cv.Spec.DesiredUpdate = &configv1.Update{Image: imageOf("1.1.0"), Mode: mode}
		return cv
	}
	everyField := func() control.Schema {
		return control.Schema{Mode: true, AcceptRisks: true, ConditionalUpdateRisks: true, RiskNames: true, RiskConditions: true}
	}
	lacking := everyField()
	lacking.Mode = false
	for _, tt := range []struct {
		name   string
		cv     *configv1.ClusterVersion
		schema control.Schema
		want   string
	}{
		{"stays a preflight if the same spec loses the mode", asked(8, ""), lacking, "1.0.0"},
		{"stays a preflight before the other definition is known", asked(8, ""), everyField(), "1.0.0"},
		{"stays a preflight if another field changes", asked(9, ""), lacking, "1.0.0"},
		{"updates if the mode is removed", asked(9, ""), everyField(), "1.1.0"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			c := process()
			first := chosen(c, asked(8, configv1.UpdateModePreflight), everyField())
			assert.Equal(t, imageOf("1.0.0"), first.target.Image)
			r := chosen(c, tt.cv, tt.schema)
			assert.Equal(t, imageOf(tt.want), r.target.Image)
			assert.Equal(t, tt.want == "1.0.0", r.preflight != nil)
		})
	}
	t.Run("it updates after a new request", func(t *testing.T) {
		c := process()
		chosen(c, asked(8, configv1.UpdateModePreflight), everyField())
		none := asked(9, "")
		none.Spec.DesiredUpdate = nil
		chosen(c, none, lacking)
		assert.Equal(t, imageOf("1.1.0"), chosen(c, asked(10, ""), lacking).target.Image)
	})
}

// slots records the last step started in each slot.
type slots map[string]struct {
	key  string
	step func(context.Context) background.Next
}

func (s slots) Start(slot, key string, step func(context.Context) background.Next) {
	if s[slot].key != key || s[slot].step == nil {
		s[slot] = struct {
			key  string
			step func(context.Context) background.Next
		}{key, step}
	}
}

func (slots) Wake(string) {}

func (s slots) Stop() { clear(s) }

// TestPreflightRequestIsStoredInItsReconcile has background work that runs as soon as a reconcile wakes it, and not when it starts.
func TestPreflightRequestIsStoredInItsReconcile(t *testing.T) {
	runner, stored := woken{slots{}}, &storedControl{}
	c := New(clock.RealClock{}, nil, record.NewFakeRecorder(1), runner, accept.Stages{}, blank{}, nil, func() {}, Options{Control: stored, ReleaseImage: imageOf("1.0.0")})
	cv := clusterAt(completed("1.0.0"))
	cv.Spec.DesiredUpdate = &configv1.Update{Image: imageOf("1.1.0"), Mode: configv1.UpdateModePreflight}
	r := &round{original: cv, cv: cv.DeepCopy()}
	require.NoError(t, c.readControl(t.Context(), r))
	require.NoError(t, c.choose(t.Context(), r))
	require.NotNil(t, stored.status.PreflightRequest)
	assert.Equal(t, imageOf("1.1.0"), stored.status.PreflightRequest.Image)
}

// woken runs a step of a slot when it is woken.
type woken struct{ slots }

func (w woken) Wake(slot string) { w.slots[slot].step(context.Background()) }

// storedControl keeps the status of the ReleaseRollout.
type storedControl struct{ status api.ReleaseRolloutStatus }

func (*storedControl) Look() control.Look { return control.Look{Served: true} }

func (s *storedControl) Put(_ context.Context, status api.ReleaseRolloutStatus) error {
	s.status = status
	return nil
}

// TestPreflightRestartsWithOtherManifests changes everything that decides the manifests of the cluster.
func TestPreflightRestartsWithOtherManifests(t *testing.T) {
	runner := slots{}
	c := New(clock.RealClock{}, nil, nil, runner, accept.Stages{}, blank{}, nil, func() {}, Options{Control: nothing{}})
	a := acceptedRelease("1.0.0")
	r := &round{cv: clusterAt(completed("1.0.0")), accepted: &a, preflight: &request.Target{Image: imageOf("1.1.0")}}
	start := func() string {
		require.NoError(t, c.startPreflight(t.Context(), r))
		return runner[background.SlotPreflight].key
	}
	before := start()
	for what, change := range map[string]func(){
		"a feature gate": func() { r.settings.Gates = map[string]sets.Set[string]{"1.0.0": sets.New("New")} },
		"a feature set":  func() { r.settings.FeatureSet = "TechPreviewNoUpgrade" },
		"a capability": func() {
			r.cv.Spec.Capabilities = &configv1.ClusterVersionCapabilitiesSpec{
				BaselineCapabilitySet: configv1.ClusterVersionCapabilitySetNone,
			}
		},
		"an override": func() {
			r.cv.Spec.Overrides = []configv1.ComponentOverride{{Kind: "ConfigMap", Namespace: "a", Name: "settings", Unmanaged: true}}
		},
	} {
		change()
		after := start()
		assert.NotEqual(t, before, after, what)
		assert.Equal(t, after, start(), "the same manifests")
		before = after
	}
}

// TestPreflightWaitsForPendingObstacles starts a preflight right after a restart, before the rollout has looked for the objects that the
// release deletes.
func TestPreflightWaitsForPendingObstacles(t *testing.T) {
	s, work := restarted(t, shelfWith(tombstone()))
	work[background.SlotAccept].step(t.Context())
	s.later(t)
	s.options.Preview = func(context.Context, *configv1.ClusterVersion, []*manifest.Manifest, *payload.Payload) (*preview.Report, error) {
		return &preview.Report{}, nil
	}
	var next background.Next
	results := func(step func(context.Context) background.Next, times int) (events []string) {
		for len(s.recorder.Events) > 0 {
			<-s.recorder.Events
		}
		for range times {
			next = step(t.Context())
		}
		for len(s.recorder.Events) > 0 {
			events = append(events, strings.Fields(<-s.recorder.Events)[1])
		}
		return events
	}
	start := func() func(context.Context) background.Next {
		return s.preflightStep(logr.Discard(), &round{}, request.Target{Image: imageOf("1.1.0")})
	}
	step := start()
	assert.Equal(t, []string{api.EventPreflightStarted}, results(step, pendingChecks))
	assert.Equal(t, []string{api.EventPreflightFailed}, results(step, 2), "it is reported once, and does not count as an objection")
	assert.Equal(t, acceptRetry.After(2), next.After, "the checks of pending obstacles do not count as failures")
	step = start()
	results(step, 1)
	s.progresses(progressOf("1.0.0", 4, 4))
	assert.Equal(t, []string{api.EventPreflightPassed}, results(step, 1))
	s.progresses(deleting("1.0.0"))
	assert.Equal(t, []string{api.EventPreflightStarted, api.EventPreflightObjected}, results(start(), 1))
}

// nothing is a cluster without a ReleaseRollout.
type nothing struct{}

func (nothing) Look() control.Look { return control.Look{} }

func (nothing) Put(context.Context, api.ReleaseRolloutStatus) error { return nil }
