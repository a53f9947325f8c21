package inclusion_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
)

const (
	include    = "include.release.openshift.io/self-managed-high-availability"
	featureSet = "release.openshift.io/feature-set"
	gate       = "release.openshift.io/feature-gate"
	major      = "release.openshift.io/major-version"
	capability = "capability.openshift.io/name"
)

// annotated returns a manifest of a kind with the annotations keyValues: key, value, key, value.
func annotated(apiVersion, kind string, keyValues ...string) *manifest.Manifest {
	meta := map[string]any{"name": "a", "namespace": "ns"}
	if len(keyValues) > 0 {
		annotations := map[string]any{}
		for i := 0; i < len(keyValues); i += 2 {
			annotations[keyValues[i]] = keyValues[i+1]
		}
		meta["annotations"] = annotations
	}
	return &manifest.Manifest{Object: &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": meta}}}
}

func deployment(keyValues ...string) *manifest.Manifest {
	return annotated("apps/v1", "Deployment", keyValues...)
}

func included(keyValues ...string) *manifest.Manifest {
	return deployment(append([]string{include, "true"}, keyValues...)...)
}

func TestFilterExcludesWithAReason(t *testing.T) {
	crd := func(majors string) *manifest.Manifest {
		return annotated("apiextensions.k8s.io/v1", "CustomResourceDefinition", include, "true", major, majors)
	}
	capabilities := func(enabled ...configv1.ClusterVersionCapability) inclusion.Filter {
		return inclusion.Filter{Capabilities: inclusion.Capabilities{
			Known: sets.New(inclusion.KnownCapabilities()...), Enabled: sets.New(enabled...),
		}}
	}
	override := func(group, kind, namespace, name string, unmanaged bool) inclusion.Filter {
		return inclusion.Filter{Overrides: []configv1.ComponentOverride{{Group: group, Kind: kind, Namespace: namespace, Name: name, Unmanaged: unmanaged}}}
	}
	clusterScoped := included()
	clusterScoped.Object.SetNamespace("")
	gates := inclusion.Filter{Gates: sets.New("A", "B")}
	for _, tt := range []struct {
		name     string
		filter   inclusion.Filter
		manifest *manifest.Manifest
		want     string // empty if included
	}{
		{"excludes a manifest without annotations", inclusion.Filter{}, deployment(), "no annotations"},
		{"includes the default profile", inclusion.Filter{}, included(), ""},
		{"reports a missing include annotation", inclusion.Filter{}, deployment("x", "y"), "no annotation " + include},
		{"accepts only true", inclusion.Filter{}, deployment(include, "false-except-for-the-config-operator"), `annotation ` + include + ` is "false-except-for-the-config-operator", not true`},
		{"looks for the cluster's profile", inclusion.Filter{Profile: "hypershift"}, included(), "no annotation include.release.openshift.io/hypershift"},
		{"includes another profile", inclusion.Filter{Profile: "hypershift"}, deployment("include.release.openshift.io/hypershift", "true"), ""},

		{"excludes by ID", inclusion.Filter{ExcludeID: "internal-openshift-hosted"}, included("exclude.release.openshift.io/internal-openshift-hosted", "true"), "annotation exclude.release.openshift.io/internal-openshift-hosted is true"},
		{"keeps manifests that another ID excludes", inclusion.Filter{ExcludeID: "other"}, included("exclude.release.openshift.io/internal-openshift-hosted", "true"), ""},
		{"ignores exclusion with another value", inclusion.Filter{ExcludeID: "x"}, included("exclude.release.openshift.io/x", "yes"), ""},

		{"rejects feature set and gate together", inclusion.Filter{}, included(featureSet, "Default", gate, "A"), "annotations release.openshift.io/feature-set and release.openshift.io/feature-gate are mutually exclusive"},
		{"spells the empty feature set Default", inclusion.Filter{}, included(featureSet, "Default"), ""},
		{"treats Default as the empty feature set", inclusion.Filter{FeatureSet: "Default"}, included(featureSet, "Default"), ""},
		{"finds its feature set in a list", inclusion.Filter{FeatureSet: "TechPreviewNoUpgrade"}, included(featureSet, "CustomNoUpgrade,TechPreviewNoUpgrade"), ""},
		{"excludes other feature sets", inclusion.Filter{}, included(featureSet, "TechPreviewNoUpgrade,CustomNoUpgrade"), "feature set Default is not in TechPreviewNoUpgrade,CustomNoUpgrade"},
		{"accepts OKD", inclusion.Filter{FeatureSet: "OKD"}, included(featureSet, "OKD"), ""},
		{"accepts CustomNoUpgrade", inclusion.Filter{FeatureSet: "CustomNoUpgrade"}, included(featureSet, "DevPreviewNoUpgrade,CustomNoUpgrade"), ""},
		{"excludes unknown feature sets even if its own is listed", inclusion.Filter{}, included(featureSet, "Default,Tomorrow"), `unknown feature set "Tomorrow" in annotation release.openshift.io/feature-set`},
		{"does not trim feature sets", inclusion.Filter{}, included(featureSet, "OKD, Default"), `unknown feature set " Default" in annotation release.openshift.io/feature-set`},

		{"includes with the gate on", gates, included(gate, "A"), ""},
		{"excludes with the gate off", gates, included(gate, "C"), "feature gate C is not enabled"},
		{"requires every gate of a list", gates, included(gate, "A, C"), "feature gate C is not enabled"},
		{"trims gates", gates, included(gate, " A , B "), ""},
		{"excludes with a negated gate that is on", gates, included(gate, "-A"), "feature gate A is enabled"},
		{"includes with a negated gate that is off", gates, included(gate, "-C,-D"), ""},
		{"includes with an empty list of gates", gates, included(gate, ""), ""},
		{"skips empty gates", gates, included(gate, ","), ""},
		{"skips an empty gate after another", gates, included(gate, "A, "), ""},
		{"skips a negation without a gate", gates, included(gate, "-"), ""},
		{"checks the gates next to an empty one", gates, included(gate, ",C"), "feature gate C is not enabled"},
		{"ignores the other spelling", inclusion.Filter{}, included("feature-gate.release.openshift.io/X", "true"), ""},

		{"includes its major version", inclusion.Filter{MajorVersion: new(uint64(4))}, crd("4,5,6"), ""},
		{"includes a FeatureGate by major version", inclusion.Filter{MajorVersion: new(uint64(4))}, annotated("config.openshift.io/v1", "FeatureGate", include, "true", major, "4"), ""},
		{"excludes another major version", inclusion.Filter{MajorVersion: new(uint64(3))}, crd("4,5"), `major version 3 is not in "4,5"`},
		{"excludes a negated major version", inclusion.Filter{MajorVersion: new(uint64(4))}, crd("-4"), `major version 4 is excluded by "-4"`},
		{"includes if only other versions are excluded", inclusion.Filter{MajorVersion: new(uint64(4))}, crd("-5"), ""},
		{"rejects a version that is both included and excluded", inclusion.Filter{MajorVersion: new(uint64(4))}, crd("4,-4"), "annotation release.openshift.io/major-version: major version 4 is both included and excluded"},
		{"rejects text that is not a number", inclusion.Filter{MajorVersion: new(uint64(4))}, crd("4,v5"), `annotation release.openshift.io/major-version: "v5" is not a major version`},
		{"rejects major versions on other kinds", inclusion.Filter{MajorVersion: new(uint64(4))}, included(major, "4"), "annotation release.openshift.io/major-version is allowed only on FeatureGates and CustomResourceDefinitions"},
		{"includes with an empty list of major versions", inclusion.Filter{MajorVersion: new(uint64(4))}, crd(""), ""},
		{"skips an empty major version", inclusion.Filter{MajorVersion: new(uint64(4))}, crd("4,"), ""},
		{"skips a blank major version", inclusion.Filter{MajorVersion: new(uint64(4))}, crd("-5, ,4"), ""},
		{"checks the major versions next to an empty one", inclusion.Filter{MajorVersion: new(uint64(3))}, crd("4,"), `major version 3 is not in "4,"`},
		{"rejects a negation without a major version", inclusion.Filter{MajorVersion: new(uint64(4))}, crd("-"), `annotation release.openshift.io/major-version: "-" is not a major version`},
		{"excludes major versions other than 0", inclusion.Filter{MajorVersion: new(uint64(0))}, crd("4"), `major version 0 is not in "4"`},
		{"includes major version 0", inclusion.Filter{MajorVersion: new(uint64(0))}, crd("0"), ""},
		{"skips the rule if the release's version is unknown", inclusion.Filter{}, included(major, "junk"), ""},

		{"includes an enabled capability", capabilities("Console"), included(capability, "Console"), ""},
		{"treats an empty capability as none", capabilities(), included(capability, ""), ""},
		{"requires all capabilities", capabilities("Storage"), included(capability, "Storage+CloudCredential"), "capability not enabled: CloudCredential"},
		{"excludes unknown capabilities first", capabilities("New"), included(capability, "Console+New"), "unknown capability New"},
		{"skips the check without known capabilities", inclusion.Filter{}, included(capability, "New"), ""},

		{"excludes unmanaged objects", override("apps", "Deployment", "ns", "a", true), included(), "spec.overrides marks it as unmanaged"},
		{"keeps objects overridden as managed", override("apps", "Deployment", "ns", "a", false), included(), ""},
		{"keeps objects of other namespaces", override("apps", "Deployment", "other", "a", true), included(), ""},
		{"keeps objects of other groups", override("", "Deployment", "ns", "a", true), included(), ""},
		{"ignores an override's namespace for cluster-scoped objects", override("apps", "Deployment", "whatever", "a", true), clusterScoped, "spec.overrides marks it as unmanaged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reason, excluded := tt.filter.Exclude(tt.manifest)
			assert.Equal(t, tt.want, reason)
			assert.Equal(t, tt.want != "", excluded)
		})
	}
}

// TestFilterReportsTheFirstReason breaks every rule at once and fixes them one by one. The reasons follow the order of the rules.
func TestFilterReportsTheFirstReason(t *testing.T) {
	f := inclusion.Filter{
		ExcludeID: "x", MajorVersion: new(uint64(4)), Capabilities: inclusion.Capabilities{Known: sets.New[configv1.ClusterVersionCapability]()},
		Overrides: []configv1.ComponentOverride{{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Namespace: "ns", Name: "a", Unmanaged: true}},
	}
	annotations := map[string]string{
		"exclude.release.openshift.io/x": "true", featureSet: "Tomorrow", gate: "A", major: "5", include: "no", capability: "New",
	}
	for _, step := range []struct{ want, remove, set string }{
		{"annotation exclude.release.openshift.io/x is true", "exclude.release.openshift.io/x", ""},
		{"annotations release.openshift.io/feature-set and release.openshift.io/feature-gate are mutually exclusive", gate, ""},
		{`unknown feature set "Tomorrow" in annotation release.openshift.io/feature-set`, featureSet, ""},
		{`major version 4 is not in "5"`, major, ""},
		{`annotation ` + include + ` is "no", not true`, include, "true"},
		{"unknown capability New", capability, ""},
		{"spec.overrides marks it as unmanaged", "", ""},
	} {
		m := annotated("apiextensions.k8s.io/v1", "CustomResourceDefinition")
		m.Object.SetAnnotations(annotations)
		reason, excluded := f.Exclude(m)
		assert.True(t, excluded)
		assert.Equal(t, step.want, reason)
		delete(annotations, step.remove)
		if step.set != "" {
			annotations[step.remove] = step.set
		}
	}
}

func TestKnownFeatureSetsAreListed(t *testing.T) {
	assert.Equal(t, []string{"CustomNoUpgrade", "Default", "DevPreviewNoUpgrade", "OKD", "TechPreviewNoUpgrade"}, inclusion.KnownFeatureSets())
}
