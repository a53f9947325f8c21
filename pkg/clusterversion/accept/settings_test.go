package accept_test

import (
	"fmt"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// annotated returns a ConfigMap with one additional annotation.
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

func TestSettingsAreReadFromTheFeatureGate(t *testing.T) {
	assert.Equal(t, accept.Settings{}, accept.Settings{}.With(nil))
	gates := &configv1.FeatureGate{}
	gates.Spec.FeatureSet = configv1.TechPreviewNoUpgrade
	gates.Status.FeatureGates = []configv1.FeatureGateDetails{
		{Version: "1.0.0", Enabled: []configv1.FeatureGateAttributes{{Name: "A"}, {Name: "B"}}, Disabled: []configv1.FeatureGateAttributes{{Name: "C"}}},
		{Version: "1.1.0"},
	}
	assert.Equal(t, accept.Settings{FeatureSet: "TechPreviewNoUpgrade", Gates: map[string]sets.Set[string]{"1.0.0": sets.New("A", "B"), "1.1.0": sets.New[string]()}}, accept.Settings{}.With(gates))
}

func TestGatesOfRunningReleaseApplyUntilNewOnesAreWritten(t *testing.T) {
	s := accept.Settings{Gates: map[string]sets.Set[string]{"1.0.0": sets.New("old"), "1.1.0": sets.New("new"), "1.3.0": sets.New[string]()}}
	for _, tt := range []struct {
		name    string
		cv      *configv1.ClusterVersion
		version string
		want    []string
	}{
		{"returns the gates written for the release", clusterAt(completed("1.0.0")), "1.1.0", []string{"new"}},
		{"returns no gates if the release has none", clusterAt(completed("1.0.0")), "1.3.0", nil},
		{"returns the running release's gates until the new operator writes its own", clusterAt(completed("1.0.0")), "1.2.0", []string{"old"}},
		{"returns the running release's gates after a restart during an update", clusterAt(partial("1.2.0"), completed("1.0.0")), "1.2.0", []string{"old"}},
		{"returns the gates of the newest release that has any", clusterAt(partial("1.2.0"), partial("1.1.0"), completed("1.0.0")), "1.2.0", []string{"new"}},
		{"returns the running release's gates if the version is unknown", clusterAt(completed("1.0.0")), "", []string{"old"}},
		{"returns no gates on a new cluster", clusterAt(), "1.2.0", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.ElementsMatch(t, tt.want, sets.List(s.GatesOf(tt.cv, tt.version)))
			assert.ElementsMatch(t, tt.want, sets.List(s.Filter(tt.cv, tt.version).Gates))
		})
	}
}

func TestFilterAppliesTheSettings(t *testing.T) {
	cv := clusterAt(completed("1.0.0"))
	cv.Spec.Capabilities = &configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: "None", AdditionalEnabledCapabilities: []configv1.ClusterVersionCapability{"Console"}}
	cv.Status.Capabilities.EnabledCapabilities = []configv1.ClusterVersionCapability{"Storage"}
	cv.Spec.Overrides = []configv1.ComponentOverride{{Kind: "x"}}
	s := accept.Settings{Profile: "p", ExcludeID: "e", FeatureSet: "f", AlwaysEnable: []configv1.ClusterVersionCapability{"Ingress"}}
	f := s.Filter(cv, "1.0.0", "Build")
	assert.Equal(t, []string{"p", "e", "f"}, []string{f.Profile, f.ExcludeID, f.FeatureSet})
	assert.Equal(t, []configv1.ClusterVersionCapability{"Build", "Console", "Ingress", "Storage"}, sets.List(f.Capabilities.Enabled))
	assert.Equal(t, cv.Spec.Overrides, f.Overrides)
}

// TestUpdateEnablesCapabilitiesOfRunningObjects updates a cluster to a release that moves an object to a disabled capability.
func TestUpdateEnablesCapabilitiesOfRunningObjects(t *testing.T) {
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
		{"enables a new capability", "", "Ingress", "", []string{"a", "b", "c"}, "True|CapabilitiesImplicitlyEnabled|The following capabilities could not be disabled: Ingress"},
		{"enables several capabilities", "", "Ingress+Build", "", []string{"a", "b", "c"}, "True|CapabilitiesImplicitlyEnabled|The following capabilities could not be disabled: Build, Ingress"},
		{"enables an unknown capability", "", "Tomorrow", "", []string{"a", "b"}, "True|CapabilitiesImplicitlyEnabled|The following capabilities could not be disabled: Tomorrow"},
		{"keeps an enabled capability", "", "Ingress", "Ingress", []string{"a", "b", "c"}, "False|AsExpected|Capabilities match configured spec"},
		{"ignores objects that the cluster did not have", "Ingress", "Ingress", "", []string{"a"}, "False|AsExpected|Capabilities match configured spec"},
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
			in := accept.Input{Stages: s.stages(), ClusterVersion: cv}
			running, _ := try(t, in, request.Target{Image: imageOf("1.0.0"), Own: true})
			require.NoError(t, running.Err)
			in.Running = &running
			a, _ := try(t, in, request.Target{Image: imageOf("1.1.0")})
			require.NoError(t, a.Err)
			assert.Equal(t, tt.manifests, namesOf(a.Payload.Manifests))
			_, implicit := inclusion.EnabledCapabilities(cv.Spec.Capabilities, a.Filter.Gates, a.Filter.Capabilities.Enabled)
			assert.Equal(t, tt.implicit, implicitText(implicit))

			// This is not a new question, and nothing has changed after a restart.
			q := accept.NewQuestion(cv, a.Target, 1, in.Settings)
			cv.Status.Capabilities.EnabledCapabilities = sets.List(a.Filter.Capabilities.Enabled)
			assert.True(t, accept.NewQuestion(cv, a.Target, 1, in.Settings).SettingsStand(cv, q, a))
			in.Running = nil
			again, _ := try(t, in, request.Target{Image: imageOf("1.1.0"), Own: true})
			assert.Equal(t, tt.manifests, namesOf(again.Payload.Manifests))
		})
	}
}

func TestAnswerIsKeptUntilRelevantSettingsChange(t *testing.T) {
	answer := acceptedRelease("1.1.0")
	answer.Filter.Capabilities.Enabled = sets.New[configv1.ClusterVersionCapability]("Console", "Ingress")
	pending := accept.Acceptance{Target: answer.Target, Step: api.ReasonRetrievePayload}
	refused := answer
	refused.Done, refused.Step, refused.Err = false, api.ReasonPreconditionChecks, errUnsigned
	base := accept.Settings{Gates: map[string]sets.Set[string]{"1.0.0": sets.New("A"), "1.1.0": sets.New("A")}}
	gates := func(version, gate string) accept.Settings {
		s := accept.Settings{Gates: map[string]sets.Set[string]{"1.0.0": sets.New("A"), "1.1.0": sets.New("A")}}
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
		answer   accept.Acceptance
		settings accept.Settings
		cv       *configv1.ClusterVersion
		want     bool
	}{
		{"keeps the answer without a change", answer, base, cluster("Console"), true},
		{"keeps the answer while the answer is computed", pending, base, cluster("Console"), true},
		{"drops the answer with another feature set", answer, accept.Settings{FeatureSet: "x", Gates: base.Gates}, cluster("Console"), false},
		{"drops the answer with another gate of the release", answer, gates("1.1.0", "B"), cluster("Console"), false},
		{"keeps the answer with another gate of another release", answer, gates("1.0.0", "B"), cluster("Console"), true},
		{"drops the answer with another gate of any release until the version is known", pending, gates("1.0.0", "B"), cluster("Console"), false},
		{"drops the answer with an additional capability", answer, base, cluster("Console", "Storage"), false},
		{"keeps the answer with a capability that the release has enabled", answer, base, cluster("Console", "Ingress"), true},
		{"keeps the answer with a removed capability, which stays enabled", answer, base, cluster(), true},
		{"drops the answer with a removed capability before the acceptance", refused, base, cluster(), false},
		{"keeps the answer for a rejected release", refused, base, cluster("Console"), true},
		{"drops the answer with a requested capability that a gate allows", answer, base, cluster("Console", inclusion.CapabilityClusterAPI), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			earlier := accept.NewQuestion(cluster("Console"), answer.Target, 1, base)
			assert.Equal(t, tt.want, accept.NewQuestion(tt.cv, answer.Target, 1, tt.settings).SettingsStand(tt.cv, earlier, tt.answer))
		})
	}
}

// implicitText returns condition ImplicitlyEnabledCapabilities as "status|reason|message".
func implicitText(implicit []configv1.ClusterVersionCapability) string {
	if len(implicit) == 0 {
		return "False|AsExpected|Capabilities match configured spec"
	}
	names := make([]string, len(implicit))
	for i, name := range implicit {
		names[i] = string(name)
	}
	return "True|CapabilitiesImplicitlyEnabled|The following capabilities could not be disabled: " + strings.Join(names, ", ")
}
