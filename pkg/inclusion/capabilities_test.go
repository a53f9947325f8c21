package inclusion_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
)

type caps = []configv1.ClusterVersionCapability

func TestKnownCapabilitiesAreSorted(t *testing.T) {
	known := inclusion.KnownCapabilities()
	assert.Len(t, known, 19)
	assert.Contains(t, known, inclusion.CapabilityClusterAPI)
	assert.IsIncreasing(t, known)
}

func TestBaselineSetsHaveTheirCapabilities(t *testing.T) {
	for set, want := range map[configv1.ClusterVersionCapabilitySet]int{
		"None": 0, "v4.11": 4, "v4.12": 8, "v4.13": 9, "v4.14": 12, "v4.15": 14, "v4.16": 16, "v4.17": 16, "v4.18": 17, "vCurrent": 19, "": 19,
	} {
		got, ok := inclusion.BaselineCapabilities(set)
		require.True(t, ok, set)
		assert.Len(t, got, want, set)
	}
	_, ok := inclusion.BaselineCapabilities("v9.9")
	assert.False(t, ok)
}

func TestEnabledCapabilitiesFollowTheSpec(t *testing.T) {
	spec := func(set configv1.ClusterVersionCapabilitySet, more ...configv1.ClusterVersionCapability) *configv1.ClusterVersionCapabilitiesSpec {
		return &configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: set, AdditionalEnabledCapabilities: more}
	}
	without := func(drop ...configv1.ClusterVersionCapability) caps {
		return sets.List(sets.New(inclusion.KnownCapabilities()...).Delete(drop...))
	}
	for _, tt := range []struct {
		name                     string
		spec                     *configv1.ClusterVersionCapabilitiesSpec
		gates                    []string
		mustStay                 caps
		known, enabled, implicit caps
	}{
		{"enables all that the gates allow if there is no spec", nil, nil, nil, without("ClusterAPI", "CompatibilityRequirements"), without("ClusterAPI", "CompatibilityRequirements"), caps{}},
		{"enables a capability by one of two gates", nil, []string{"CRDCompatibilityRequirementOperator"}, nil, without("ClusterAPI"), without("ClusterAPI"), caps{}},
		{"enables both capabilities by the other gate", nil, []string{"ClusterAPIMachineManagement"}, nil, without(), without(), caps{}},
		{"adds to the baseline", spec("None", "Console"), nil, nil, without("ClusterAPI", "CompatibilityRequirements"), caps{"Console"}, caps{}},
		{"keeps enabled capabilities", spec("None", "Console"), nil, caps{"Ingress", "Console"}, without("ClusterAPI", "CompatibilityRequirements"), caps{"Console", "Ingress"}, caps{"Ingress"}},
		{"drops capabilities without an enabled gate, even if they were enabled", spec("None"), nil, caps{"ClusterAPI"}, without("ClusterAPI", "CompatibilityRequirements"), caps{}, caps{}},
		{
			"keeps capabilities that a newer release enabled", spec("None"), nil,
			caps{"Tomorrow"},
			sets.List(sets.New(without("ClusterAPI", "CompatibilityRequirements")...).Insert("Tomorrow")),
			caps{"Tomorrow"},
			caps{"Tomorrow"},
		},
		{"treats an unknown baseline as the current one", spec("v9.9"), []string{"ClusterAPIMachineManagement"}, nil, without(), without(), caps{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, implicit := inclusion.EnabledCapabilities(tt.spec, sets.New(tt.gates...), sets.New(tt.mustStay...))
			assert.Equal(t, tt.known, sets.List(got.Known))
			assert.Equal(t, tt.enabled, sets.List(got.Enabled))
			assert.Equal(t, tt.implicit, implicit)
		})
	}
}

func TestNewCapabilitiesOfAppliedManifestsAreEnabled(t *testing.T) {
	on := inclusion.Capabilities{Known: sets.New(inclusion.KnownCapabilities()...), Enabled: sets.New(caps{"Console"}...)}
	for _, tt := range []struct {
		name          string
		before, after *manifest.Manifest
		want          caps
	}{
		{"enables an object's new capabilities", included(), included(capability, "Ingress+Build"), caps{"Build", "Ingress"}},
		{"ignores an object's earlier capabilities", included(capability, "Console"), included(capability, "Console+Ingress"), caps{"Ingress"}},
		{"enables unknown names", included(), included(capability, "Tomorrow"), caps{"Tomorrow"}},
		{"ignores an object that the old release deletes", included(api.DeleteAnnotation, "true"), included(capability, "Ingress"), caps{}},
		{"ignores an object that stays included", included(), included(capability, "Console"), caps{}},
		{"ignores an object that no longer has a capability", included(capability, "Console"), included(), caps{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, inclusion.ImplicitCapabilities(on, []*manifest.Manifest{tt.before}, []*manifest.Manifest{tt.after}))
			assert.Empty(t, inclusion.ImplicitCapabilities(on, nil, []*manifest.Manifest{tt.after}), "objects that were not in the cluster are ignored")
		})
	}
}

func TestCapabilityGatesAreListed(t *testing.T) {
	assert.Equal(t, []string{"CRDCompatibilityRequirementOperator", "ClusterAPIMachineManagement"}, sets.List(inclusion.CapabilityGates()))
}
