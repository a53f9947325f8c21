package manifest_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/manifest"
)

type caps = []configv1.ClusterVersionCapability

func TestKnownCapabilities(t *testing.T) {
	known := manifest.KnownCapabilities()
	assert.Len(t, known, 19)
	assert.Contains(t, known, manifest.CapabilityClusterAPI)
	assert.IsIncreasing(t, known)
}

func TestBaselineCapabilities(t *testing.T) {
	for set, want := range map[configv1.ClusterVersionCapabilitySet]int{
		"None": 0, "v4.11": 4, "v4.12": 8, "v4.13": 9, "v4.14": 12, "v4.15": 14, "v4.16": 16, "v4.17": 16, "v4.18": 17, "vCurrent": 19, "": 19,
	} {
		got, ok := manifest.BaselineCapabilities(set)
		require.True(t, ok, set)
		assert.Len(t, got, want, set)
	}
	_, ok := manifest.BaselineCapabilities("v9.9")
	assert.False(t, ok)
}

func TestEnabledCapabilities(t *testing.T) {
	spec := func(set configv1.ClusterVersionCapabilitySet, more ...configv1.ClusterVersionCapability) *configv1.ClusterVersionCapabilitiesSpec {
		return &configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: set, AdditionalEnabledCapabilities: more}
	}
	without := func(drop ...configv1.ClusterVersionCapability) caps {
		return sets.List(sets.New(manifest.KnownCapabilities()...).Delete(drop...))
	}
	for _, tt := range []struct {
		name                     string
		spec                     *configv1.ClusterVersionCapabilitiesSpec
		gates                    []string
		mustStay                 caps
		known, enabled, implicit caps
	}{
		{"enables all that gates allow without a spec", nil, nil, nil, without("ClusterAPI", "CompatibilityRequirements"), without("ClusterAPI", "CompatibilityRequirements"), caps{}},
		{"has a gate of two enable one", nil, []string{"CRDCompatibilityRequirementOperator"}, nil, without("ClusterAPI"), without("ClusterAPI"), caps{}},
		{"has the other gate enable both", nil, []string{"ClusterAPIMachineManagement"}, nil, without(), without(), caps{}},
		{"adds to the baseline", spec("None", "Console"), nil, nil, without("ClusterAPI", "CompatibilityRequirements"), caps{"Console"}, caps{}},
		{"keeps on what was on", spec("None", "Console"), nil, caps{"Ingress", "Console"}, without("ClusterAPI", "CompatibilityRequirements"), caps{"Console", "Ingress"}, caps{"Ingress"}},
		{"drops what no gate enables, even if it was on", spec("None"), nil, caps{"ClusterAPI"}, without("ClusterAPI", "CompatibilityRequirements"), caps{}, caps{}},
		{
			"keeps on what a newer release switched on", spec("None"), nil,
			caps{"Tomorrow"},
			sets.List(sets.New(without("ClusterAPI", "CompatibilityRequirements")...).Insert("Tomorrow")),
			caps{"Tomorrow"},
			caps{"Tomorrow"},
		},
		{"takes an unknown baseline for the current one", spec("v9.9"), []string{"ClusterAPIMachineManagement"}, nil, without(), without(), caps{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, implicit := manifest.EnabledCapabilities(tt.spec, sets.New(tt.gates...), sets.New(tt.mustStay...))
			assert.Equal(t, tt.known, sets.List(got.Known))
			assert.Equal(t, tt.enabled, sets.List(got.Enabled))
			assert.Equal(t, tt.implicit, implicit)
		})
	}
}

func TestImplicitCapabilities(t *testing.T) {
	on := manifest.Capabilities{Known: sets.New(manifest.KnownCapabilities()...), Enabled: sets.New(caps{"Console"}...)}
	for _, tt := range []struct {
		name          string
		before, after *manifest.Manifest
		want          caps
	}{
		{"enables what an object now belongs to", included(), included(capability, "Ingress+Build"), caps{"Build", "Ingress"}},
		{"leaves out what the object belonged to before", included(capability, "Console"), included(capability, "Console+Ingress"), caps{"Ingress"}},
		{"enables names that are not known", included(), included(capability, "Tomorrow"), caps{"Tomorrow"}},
		{"leaves alone what stays included", included(), included(capability, "Console"), caps{}},
		{"leaves alone what belongs to none any more", included(capability, "Console"), included(), caps{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, manifest.ImplicitCapabilities(on, []*manifest.Manifest{tt.before}, []*manifest.Manifest{tt.after}))
			assert.Empty(t, manifest.ImplicitCapabilities(on, nil, []*manifest.Manifest{tt.after}), "what the cluster did not have is left alone")
		})
	}
}

func TestCapabilityGates(t *testing.T) {
	assert.Equal(t, []string{"CRDCompatibilityRequirementOperator", "ClusterAPIMachineManagement"}, sets.List(manifest.CapabilityGates()))
}
