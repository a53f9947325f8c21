package clusterversion

import (
	"fmt"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// annotated is a ConfigMap with one more annotation.
func annotated(name, key, value string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: %s, annotations: {%s: %q, `+
		`include.release.openshift.io/self-managed-high-availability: "true"}}}`, name, key, value)
}

func gated(gate, name string) string { return annotated(name, api.FeatureGateAnnotation, gate) }

func namesOf(manifests []*manifest.Manifest) []string {
	var names []string
	for _, m := range manifests {
		names = append(names, m.Object.GetName())
	}
	return names
}

func TestSettingsOf(t *testing.T) {
	assert.Equal(t, Settings{}, SettingsOf(nil))
	gates := &configv1.FeatureGate{}
	gates.Spec.FeatureSet = configv1.TechPreviewNoUpgrade
	gates.Status.FeatureGates = []configv1.FeatureGateDetails{
		{Version: "1.0.0", Enabled: []configv1.FeatureGateAttributes{{Name: "A"}, {Name: "B"}}, Disabled: []configv1.FeatureGateAttributes{{Name: "C"}}},
		{Version: "1.1.0"},
	}
	assert.Equal(t, Settings{FeatureSet: "TechPreviewNoUpgrade", Gates: map[string]sets.Set[string]{"1.0.0": sets.New("A", "B"), "1.1.0": sets.New[string]()}}, SettingsOf(gates))
}

func TestGatesOfARelease(t *testing.T) {
	s := Settings{Gates: map[string]sets.Set[string]{"1.0.0": sets.New("old"), "1.1.0": sets.New("new"), "1.3.0": sets.New[string]()}}
	for _, tt := range []struct {
		name    string
		cv      *configv1.ClusterVersion
		version string
		want    []string
	}{
		{"are those written for it", clusterAt(completed("1.0.0")), "1.1.0", []string{"new"}},
		{"may be none", clusterAt(completed("1.0.0")), "1.3.0", nil},
		{"are those of the running release before its operator has written any", clusterAt(completed("1.0.0")), "1.2.0", []string{"old"}},
		{"and after a restart in the middle of the update", clusterAt(partial("1.2.0"), completed("1.0.0")), "1.2.0", []string{"old"}},
		{"are those of the newest release that has any", clusterAt(partial("1.2.0"), partial("1.1.0"), completed("1.0.0")), "1.2.0", []string{"new"}},
		{"are those of what runs if the version is not known yet", clusterAt(completed("1.0.0")), "", []string{"old"}},
		{"are none on a new cluster", clusterAt(), "1.2.0", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.ElementsMatch(t, tt.want, sets.List(s.gates(tt.cv, tt.version)))
			assert.ElementsMatch(t, tt.want, sets.List(s.Filter(tt.cv, tt.version).Gates))
		})
	}
}

func TestFilterOfSettings(t *testing.T) {
	cv := clusterAt(completed("1.0.0"))
	cv.Spec.Capabilities = &configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: "None", AdditionalEnabledCapabilities: []configv1.ClusterVersionCapability{"Console"}}
	cv.Status.Capabilities.EnabledCapabilities = []configv1.ClusterVersionCapability{"Storage"}
	cv.Spec.Overrides = []configv1.ComponentOverride{{Kind: "x"}}
	s := Settings{Profile: "p", ExcludeID: "e", FeatureSet: "f", AlwaysEnable: []configv1.ClusterVersionCapability{"Ingress"}}
	f := s.Filter(cv, "1.0.0", "Build")
	assert.Equal(t, []string{"p", "e", "f"}, []string{f.Profile, f.ExcludeID, f.FeatureSet})
	assert.Equal(t, []configv1.ClusterVersionCapability{"Build", "Console", "Ingress", "Storage"}, sets.List(f.Capabilities.Enabled))
	assert.Equal(t, cv.Spec.Overrides, f.Overrides)
}

// TestImplicitlyEnabledByAnUpdate follows an object that moves to a capability that is off.
func TestImplicitlyEnabledByAnUpdate(t *testing.T) {
	s := newShelf("1.0.0", "1.1.0")
	moved := func(capability string) string {
		if capability == "" {
			return annotated("b", "x", "y")
		}
		return annotated("b", api.CapabilityAnnotation, capability)
	}
	for _, tt := range []struct {
		name         string
		before, then string
		asked        configv1.ClusterVersionCapability
		manifests    []string
		implicit     string
	}{
		{"switches it on", "", "Ingress", "", []string{"a", "b", "c"}, "True|CapabilitiesImplicitlyEnabled|The following capabilities could not be disabled: Ingress"},
		{"switches on several", "", "Ingress+Build", "", []string{"a", "b", "c"}, "True|CapabilitiesImplicitlyEnabled|The following capabilities could not be disabled: Build, Ingress"},
		{"switches on what this operator has never heard of", "", "Tomorrow", "", []string{"a", "b"}, "True|CapabilitiesImplicitlyEnabled|The following capabilities could not be disabled: Tomorrow"},
		{"finds it on", "", "Ingress", "Ingress", []string{"a", "b", "c"}, "False|AsExpected|Capabilities match configured spec"},
		{"leaves alone what the cluster did not have", "Ingress", "Ingress", "", []string{"a"}, "False|AsExpected|Capabilities match configured spec"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cv := clusterAt(completed("1.0.0"))
			cv.Spec.Capabilities = &configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: "None"}
			if tt.asked != "" {
				cv.Spec.Capabilities.AdditionalEnabledCapabilities = append(cv.Spec.Capabilities.AdditionalEnabledCapabilities, tt.asked)
			}
			const file = "release-manifests/0000_20_b_01.yaml"
			s.images[string(digestOf("1.0.0"))] = files("1.0.0", file, moved(tt.before))
			s.images[string(digestOf("1.1.0"))] = files("1.1.0", file, moved(tt.then),
				"release-manifests/0000_20_c_01.yaml", annotated("c", api.CapabilityAnnotation, "Ingress"))
			in := acceptInput{Stages: s.stages(), cv: cv}
			running, _ := try(t, in, Target{Image: imageOf("1.0.0"), Own: true})
			require.NoError(t, running.Err)
			in.running = &running
			a, _ := try(t, in, Target{Image: imageOf("1.1.0")})
			require.NoError(t, a.Err)
			assert.Equal(t, tt.manifests, namesOf(a.Payload.Manifests))
			status, _ := nextStatus(cv, observed{accepted: &a, latest: a, target: a.Target, now: now})
			assert.Equal(t, tt.implicit, said(status, api.ImplicitlyEnabledCapabilities))

			// Nothing of it is a new question, and after a restart nothing has changed.
			q := newQuestion(cv, a.Target, in.settings)
			cv.Status = status
			assert.True(t, newQuestion(cv, a.Target, in.settings).answeredBy(cv, q, a))
			in.running = nil
			again, _ := try(t, in, Target{Image: imageOf("1.1.0"), Own: true})
			assert.Equal(t, tt.manifests, namesOf(again.Payload.Manifests))
		})
	}
}

func TestQuestion(t *testing.T) {
	answer := acceptedRelease("1.1.0")
	answer.filter.Capabilities.Enabled = sets.New[configv1.ClusterVersionCapability]("Console", "Ingress")
	pending := Acceptance{Target: answer.Target, Step: api.ReasonRetrievePayload}
	refused := answer
	refused.Done, refused.Step, refused.Err = false, api.ReasonPreconditionChecks, errUnsigned
	base := Settings{Gates: map[string]sets.Set[string]{"1.0.0": sets.New("A"), "1.1.0": sets.New("A")}}
	gates := func(version, gate string) Settings {
		s := Settings{Gates: map[string]sets.Set[string]{"1.0.0": sets.New("A"), "1.1.0": sets.New("A")}}
		s.Gates[version] = sets.New(gate)
		return s
	}
	cluster := func(asked ...configv1.ClusterVersionCapability) *configv1.ClusterVersion {
		cv := clusterAt(completed("1.0.0"))
		cv.Spec.Capabilities = &configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: "None", AdditionalEnabledCapabilities: asked}
		return cv
	}
	for _, tt := range []struct {
		name     string
		answer   Acceptance
		settings Settings
		cv       *configv1.ClusterVersion
		want     bool
	}{
		{"is answered if nothing changes", answer, base, cluster("Console"), true},
		{"is answered while it is worked on", pending, base, cluster("Console"), true},
		{"is another with another feature set", answer, Settings{FeatureSet: "x", Gates: base.Gates}, cluster("Console"), false},
		{"is another with another gate of the release", answer, gates("1.1.0", "B"), cluster("Console"), false},
		{"is the same with another gate of another release", answer, gates("1.0.0", "B"), cluster("Console"), true},
		{"is another with a gate of any release until it is known which counts", pending, gates("1.0.0", "B"), cluster("Console"), false},
		{"is another with one more capability", answer, base, cluster("Console", "Storage"), false},
		{"is the same with a capability that the release has switched on", answer, base, cluster("Console", "Ingress"), true},
		{"is the same with one capability less, which stays on", answer, base, cluster(), true},
		{"is another with one capability less before it is accepted", refused, base, cluster(), false},
		{"is the same for a refused release", refused, base, cluster("Console"), true},
		{"is another if the capability that a gate allows is asked for", answer, base, cluster("Console", manifest.CapabilityClusterAPI), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			earlier := newQuestion(cluster("Console"), answer.Target, base)
			assert.Equal(t, tt.want, newQuestion(tt.cv, answer.Target, tt.settings).answeredBy(tt.cv, earlier, tt.answer))
		})
	}
}

// TestAsk follows the memory of the reconciler through questions.
func TestAsk(t *testing.T) {
	cv := clusterAt(completed("1.0.0"))
	r := &round{cv: cv, original: cv, target: Target{Image: imageOf("1.1.0")}}
	m := &memory{}
	ask := func() string {
		m.ask(r)
		return m.acceptKey
	}
	assert.Equal(t, "1", ask())
	assert.Equal(t, "1", ask())
	m.latest = acceptedRelease("1.1.0")
	assert.Equal(t, "1", ask(), "it is answered")
	r.settings.FeatureSet = "TechPreviewNoUpgrade"
	assert.Equal(t, "2", ask())
	assert.True(t, m.latest.Done, "until it is answered again the last answer stands")
	r.target = Target{Image: imageOf("1.2.0")}
	assert.Equal(t, "3", ask())
	assert.Empty(t, m.latest.Step, "another release has no answer")

	m.latest = acceptedRelease("1.2.0")
	m.latest.Done, m.latest.Step, m.latest.Err = false, api.ReasonPreconditionChecks, errUnsigned
	assert.False(t, m.ask(r))
	cv.Generation++
	assert.True(t, m.ask(r), "any change of the spec has a refused release weighed again")
	assert.False(t, m.ask(r), "once")

	m.latest.Err = nil
	cv.Generation++
	assert.False(t, m.ask(r), "it is being weighed")
	m.latest.Err = errUnsigned
	assert.True(t, m.ask(r), "what changed meanwhile may not have been looked at")
	assert.False(t, m.ask(r), "once")
	assert.Equal(t, "3", m.acceptKey)
}
