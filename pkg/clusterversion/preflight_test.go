package clusterversion

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/difference"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/preview"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestWithoutPreflight(t *testing.T) {
	asked := func(mode configv1.UpdateMode) *configv1.ClusterVersion {
		cv := underUpdate()
		cv.Spec.DesiredUpdate = &configv1.Update{Image: "r@2", Version: "1.2.0", Mode: mode}
		return cv
	}
	t.Run("leaves a normal update alone", func(t *testing.T) {
		cv := asked("")
		rest, preflight := withoutPreflight(cv, "r@1.0.0")
		assert.Same(t, cv, rest)
		assert.Nil(t, preflight)
	})
	t.Run("looks at another release while the update under way goes on", func(t *testing.T) {
		cv := asked(configv1.UpdateModePreflight)
		rest, preflight := withoutPreflight(cv, "r@1.0.0")
		require.NotNil(t, preflight)
		assert.Equal(t, Target{Image: "r@2", Version: "1.2.0"}, *preflight)
		assert.NotNil(t, cv.Spec.DesiredUpdate, "the spec itself stays")
		target := chooseTarget(rest, "r@1.0.0", true)
		assert.Equal(t, "r@1.1.0", target.Image, "not even turned around, as it is when nothing is asked for")
	})
	t.Run("never makes its release the target, whatever is forced", func(t *testing.T) {
		cv := asked(configv1.UpdateModePreflight)
		cv.Spec.DesiredUpdate.Force = true
		for _, own := range []string{"r@1.0.0", "r@1.1.0", "r@2", "r@other"} {
			rest, _ := withoutPreflight(cv, own)
			assert.Equal(t, "r@1.1.0", chooseTarget(rest, own, true).Image)
		}
	})
	t.Run("waits for a cluster without a history", func(t *testing.T) {
		cv := asked(configv1.UpdateModePreflight)
		cv.Status.History = nil
		rest, preflight := withoutPreflight(cv, "r@1.0.0")
		assert.Nil(t, preflight)
		assert.Equal(t, "r@1.0.0", chooseTarget(rest, "r@1.0.0", true).Image)
	})
}

func TestChangesOf(t *testing.T) {
	report := &preview.Report{Totals: preview.Totals{Created: 3, Changed: 60, Refused: 1, Unknown: 2, NotAsked: 1}}
	for range 60 {
		report.Objects = append(report.Objects, preview.Object{
			ID: manifest.ID{Kind: "ConfigMap", Name: "c"}, Runlevel: 10, Verdict: preview.Modify,
			Fields: []difference.Field{{Path: "data.a"}, {Path: "data." + strings.Repeat("ä", 1000)}},
		})
	}
	report.Objects = append(report.Objects, preview.Object{
		ID: manifest.ID{Kind: "Secret", Name: "s"}, Runlevel: 90, Verdict: preview.Refuse, Message: "no", Remedy: "raise the quota",
	})
	got := changesOf(report)
	assert.EqualValues(t, 61, got.ObjectCount)
	assert.EqualValues(t, 3, got.Unknown)
	require.Len(t, got.Objects, api.ReleaseRolloutObjects)
	assert.Equal(t, api.PreflightObject{Object: "Secret s", Runlevel: 90, Verdict: "refused", Message: "no, raise the quota"}, got.Objects[0])
	for _, o := range got.Objects {
		assert.LessOrEqual(t, len(o.Message), maxObjectMessage)
		assert.True(t, utf8.ValidString(o.Message))
	}
}

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		name     string
		totals   preview.Totals
		blocking bool
		state    string
		again    bool
	}{
		{"passes what nothing speaks against", preview.Totals{Created: 1, Unknown: 4}, false, api.PreflightPassed, false},
		{"objects to what would be refused", preview.Totals{Refused: 1}, false, api.PreflightObjected, false},
		{"objects where a precondition does", preview.Totals{}, true, api.PreflightObjected, false},
		{"fails, and tries again, where it could not look", preview.Totals{NotAsked: 2, Refused: 1}, true, api.PreflightFailed, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := flight{account: api.Preflight{Preconditions: []api.PreflightObjection{{Name: "A", Blocking: test.blocking}}}}
			assert.Equal(t, test.again, f.judge(&preview.Report{Totals: test.totals}))
			assert.Equal(t, test.state, f.account.State)
			assert.NotEmpty(t, f.account.Message)
		})
	}
}

// TestAskedForWithModeStays: an update that was asked for as a preflight is none that anybody wants to have begun, even if
// another definition of ClusterVersion has the API server forget the mode.
func TestAskedForWithModeStays(t *testing.T) {
	chosen := func(c *Reconciler, cv *configv1.ClusterVersion, schema Schema) *round {
		r := &round{original: cv, cv: cv.DeepCopy(), control: control{schema: schema}}
		require.NoError(t, c.choose(t.Context(), r))
		return r
	}
	asked := func(generation int64, mode configv1.UpdateMode) *configv1.ClusterVersion {
		cv := clusterAt(completed("1.0.0"))
		cv.Generation = generation
		cv.Spec.DesiredUpdate = &configv1.Update{Image: imageOf("1.1.0"), Mode: mode}
		return cv
	}
	lacking := everyField()
	lacking.Mode = false
	for _, tt := range []struct {
		name   string
		cv     *configv1.ClusterVersion
		schema Schema
		want   string
	}{
		{"looks ahead still where the mode went from the same spec", asked(8, ""), lacking, "1.0.0"},
		{"does so before it is told of the other definition", asked(8, ""), everyField(), "1.0.0"},
		{"does so when something else of the spec changes", asked(9, ""), lacking, "1.0.0"},
		{"updates where the mode is taken back", asked(9, ""), everyField(), "1.1.0"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			c := &Reconciler{options: Options{ReleaseImage: imageOf("1.0.0")}}
			first := chosen(c, asked(8, configv1.UpdateModePreflight), everyField())
			assert.Equal(t, imageOf("1.0.0"), first.target.Image)
			r := chosen(c, tt.cv, tt.schema)
			assert.Equal(t, imageOf(tt.want), r.target.Image)
			assert.Equal(t, tt.want == "1.0.0", r.control.preflight != nil)
		})
	}
	t.Run("it updates where the request is made anew", func(t *testing.T) {
		c := &Reconciler{options: Options{ReleaseImage: imageOf("1.0.0")}}
		chosen(c, asked(8, configv1.UpdateModePreflight), everyField())
		none := asked(9, "")
		none.Spec.DesiredUpdate = nil
		chosen(c, none, lacking)
		assert.Equal(t, imageOf("1.1.0"), chosen(c, asked(10, ""), lacking).target.Image)
	})
}

func TestPreflightThatWasCancelledTellsNothing(t *testing.T) {
	c := &Reconciler{runner: idle{}}
	ctx, cancel := context.WithCancel(t.Context())
	c.preflightChanged(ctx, api.Preflight{State: api.PreflightRunning})
	require.NotNil(t, c.memory.control.preflight)
	cancel()
	c.preflightEnded()
	c.preflightChanged(ctx, api.Preflight{State: api.PreflightRunning})
	assert.Nil(t, c.memory.control.preflight, "nobody would bring it to an end")
}

// TestPreflightIsBounded: what is asked for and who signed may be longer than a ReleaseRollout takes.
func TestPreflightIsBounded(t *testing.T) {
	f := flight{acceptance: acceptedRelease("1.1.0")}
	f.acceptance.Target = Target{Image: strings.Repeat("i", 5000), Version: "1.1.0-" + strings.Repeat("a", 300)}
	f.acceptance.Verified = release.Verified{Evidence: make([]release.Evidence, 40)}
	f.learn()
	assert.LessOrEqual(t, len(f.account.Version), 256)
	assert.LessOrEqual(t, len(f.account.Image), api.ReleaseRolloutText)
	assert.LessOrEqual(t, len(f.account.VerifiedBy), 32)
}

// slots keeps what was started last, by slot.
type slots map[string]struct {
	key  string
	step func(context.Context) Next
}

func (s slots) Start(slot, key string, step func(context.Context) Next) {
	if s[slot].key != key || s[slot].step == nil {
		s[slot] = struct {
			key  string
			step func(context.Context) Next
		}{key, step}
	}
}

func (slots) Wake(string) {}

// TestPreflightAfterARestart: a thousand dry runs are not made again because the operator was restarted.
func TestPreflightAfterARestart(t *testing.T) {
	target, a := Target{Image: imageOf("1.1.0")}, acceptedRelease("1.0.0")
	round := func(preflight *Target) *round {
		return &round{cv: clusterAt(completed("1.0.0")), accepted: &a, control: control{preflight: preflight}}
	}
	for _, tt := range []struct {
		name  string
		told  api.Preflight
		again bool
	}{
		{"leaves what has passed", api.Preflight{Image: target.Image, State: api.PreflightPassed}, false},
		{"leaves what was objected to", api.Preflight{Image: target.Image, State: api.PreflightObjected}, false},
		{"goes on with what was under way", api.Preflight{Image: target.Image, State: api.PreflightRunning}, true},
		{"tries again what failed", api.Preflight{Image: target.Image, State: api.PreflightFailed}, true},
		{"looks at another release", api.Preflight{Image: imageOf("1.2.0"), State: api.PreflightPassed}, true},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			c := &Reconciler{options: Options{Control: &puts{}}}
			c.memory.control.preflight = &tt.told
			assert.False(t, c.knownAhead(&target, false), "nothing is looked at before a release is accepted")
			assert.Equal(t, tt.again, !c.knownAhead(&target, true))
			assert.False(t, c.knownAhead(&target, true), "what is asked for later is looked at")
		})
	}
	t.Run("it begins anew with other feature gates", func(t *testing.T) {
		runner := slots{}
		c := &Reconciler{runner: runner, options: Options{Control: &puts{}}}
		r := round(&target)
		require.NoError(t, c.lookAhead(t.Context(), r))
		first := runner[SlotPreflight].key
		r.settings = Settings{Gates: map[string]sets.Set[string]{"1.0.0": sets.New("New")}}
		require.NoError(t, c.lookAhead(t.Context(), r))
		assert.NotEqual(t, first, runner[SlotPreflight].key)
		again := runner[SlotPreflight].key
		require.NoError(t, c.lookAhead(t.Context(), r))
		assert.Equal(t, again, runner[SlotPreflight].key)
	})
}
