package manifest_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/manifest"
)

const (
	include    = "include.release.openshift.io/self-managed-high-availability"
	featureSet = "release.openshift.io/feature-set"
	gate       = "release.openshift.io/feature-gate"
	major      = "release.openshift.io/major-version"
	capability = "capability.openshift.io/name"
)

// annotated makes a manifest of a kind with annotations given as key, value, key, value.
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

func TestFilterExclude(t *testing.T) {
	crd := func(majors string) *manifest.Manifest {
		return annotated("apiextensions.k8s.io/v1", "CustomResourceDefinition", include, "true", major, majors)
	}
	capabilities := func(allowUnknown bool, enabled ...configv1.ClusterVersionCapability) manifest.Filter {
		return manifest.Filter{Capabilities: manifest.Capabilities{
			Known: sets.New(manifest.KnownCapabilities()...), Enabled: sets.New(enabled...), AllowUnknown: allowUnknown,
		}}
	}
	override := func(group, kind, namespace, name string, unmanaged bool) manifest.Filter {
		return manifest.Filter{Overrides: []configv1.ComponentOverride{{Group: group, Kind: kind, Namespace: namespace, Name: name, Unmanaged: unmanaged}}}
	}
	clusterScoped := included()
	clusterScoped.Object.SetNamespace("")
	gates := manifest.Filter{Gates: sets.New("A", "B")}
	for _, tt := range []struct {
		name     string
		filter   manifest.Filter
		manifest *manifest.Manifest
		want     string // empty: included
	}{
		{"leaves out what has no annotations", manifest.Filter{}, deployment(), "no annotations"},
		{"includes the default profile", manifest.Filter{}, included(), ""},
		{"reports a missing include annotation", manifest.Filter{}, deployment("x", "y"), "no annotation " + include},
		{"takes true alone for true", manifest.Filter{}, deployment(include, "false-except-for-the-config-operator"), `annotation ` + include + ` is "false-except-for-the-config-operator", not true`},
		{"looks for the cluster's profile", manifest.Filter{Profile: "hypershift"}, included(), "no annotation include.release.openshift.io/hypershift"},
		{"includes another profile", manifest.Filter{Profile: "hypershift"}, deployment("include.release.openshift.io/hypershift", "true"), ""},

		{"leaves out by id", manifest.Filter{ExcludeID: "internal-openshift-hosted"}, included("exclude.release.openshift.io/internal-openshift-hosted", "true"), "annotation exclude.release.openshift.io/internal-openshift-hosted is true"},
		{"keeps what another id excludes", manifest.Filter{ExcludeID: "other"}, included("exclude.release.openshift.io/internal-openshift-hosted", "true"), ""},
		{"keeps what excludes with another value", manifest.Filter{ExcludeID: "x"}, included("exclude.release.openshift.io/x", "yes"), ""},

		{"refuses feature set and gate together", manifest.Filter{}, included(featureSet, "Default", gate, "A"), "annotations release.openshift.io/feature-set and release.openshift.io/feature-gate exclude each other"},
		{"spells the empty feature set Default", manifest.Filter{}, included(featureSet, "Default"), ""},
		{"takes Default for the empty one", manifest.Filter{FeatureSet: "Default"}, included(featureSet, "Default"), ""},
		{"finds its feature set in a list", manifest.Filter{FeatureSet: "TechPreviewNoUpgrade"}, included(featureSet, "CustomNoUpgrade,TechPreviewNoUpgrade"), ""},
		{"leaves out other feature sets", manifest.Filter{}, included(featureSet, "TechPreviewNoUpgrade,CustomNoUpgrade"), "feature set Default is not in TechPreviewNoUpgrade,CustomNoUpgrade"},
		{"knows OKD", manifest.Filter{FeatureSet: "OKD"}, included(featureSet, "OKD"), ""},
		{"knows CustomNoUpgrade", manifest.Filter{FeatureSet: "CustomNoUpgrade"}, included(featureSet, "DevPreviewNoUpgrade,CustomNoUpgrade"), ""},
		{"leaves out unknown feature sets, though its own is listed", manifest.Filter{}, included(featureSet, "Default,Tomorrow"), `unknown feature set "Tomorrow" in annotation release.openshift.io/feature-set`},
		{"does not trim feature sets", manifest.Filter{}, included(featureSet, "OKD, Default"), `unknown feature set " Default" in annotation release.openshift.io/feature-set`},

		{"includes with the gate on", gates, included(gate, "A"), ""},
		{"leaves out with the gate off", gates, included(gate, "C"), "feature gate C is not enabled"},
		{"wants every gate of a list", gates, included(gate, "A, C"), "feature gate C is not enabled"},
		{"trims gates", gates, included(gate, " A , B "), ""},
		{"negates", gates, included(gate, "-A"), "feature gate A is enabled"},
		{"includes what is negated and off", gates, included(gate, "-C,-D"), ""},
		{"refuses an empty gate", gates, included(gate, "A,"), `empty name in annotation release.openshift.io/feature-gate: "A,"`},
		{"ignores the other spelling", manifest.Filter{}, included("feature-gate.release.openshift.io/X", "true"), ""},

		{"includes its major version", manifest.Filter{MajorVersion: 4}, crd("4,5,6"), ""},
		{"includes a FeatureGate by major version", manifest.Filter{MajorVersion: 4}, annotated("config.openshift.io/v1", "FeatureGate", include, "true", major, "4"), ""},
		{"leaves out another major version", manifest.Filter{MajorVersion: 3}, crd("4,5"), `major version 3 is not in "4,5"`},
		{"leaves out a negated major version", manifest.Filter{MajorVersion: 4}, crd("-4"), `major version 4 is excluded by "-4"`},
		{"includes what only others are excluded from", manifest.Filter{MajorVersion: 4}, crd("-5"), ""},
		{"refuses a version both in and out", manifest.Filter{MajorVersion: 4}, crd("4,-4"), "annotation release.openshift.io/major-version: major version 4 is both included and excluded"},
		{"refuses what is no number", manifest.Filter{MajorVersion: 4}, crd("4,v5"), `annotation release.openshift.io/major-version: "v5" is not a major version`},
		{"refuses major versions on other kinds", manifest.Filter{MajorVersion: 4}, included(major, "4"), "annotation release.openshift.io/major-version is allowed on FeatureGates and CustomResourceDefinitions only"},
		{"leaves the rule out without a version", manifest.Filter{}, included(major, "junk"), ""},

		{"includes an enabled capability", capabilities(false, "Console"), included(capability, "Console"), ""},
		{"takes the empty capability for none", capabilities(false), included(capability, ""), ""},
		{"wants all capabilities", capabilities(false, "Storage"), included(capability, "Storage+CloudCredential"), "capability not enabled: CloudCredential"},
		{"leaves out unknown capabilities first", capabilities(false, "New"), included(capability, "Console+New"), "unknown capability New"},
		{"allows unknown capabilities that are enabled", capabilities(true, "New"), included(capability, "New"), ""},
		{"leaves out unknown ones that are not", capabilities(true), included(capability, "New"), "capability not enabled: New"},
		{"checks nothing without known capabilities", manifest.Filter{}, included(capability, "New"), ""},

		{"leaves out what is overridden", override("apps", "Deployment", "ns", "a", true), included(), "overridden: spec.overrides sets it unmanaged"},
		{"keeps what is overridden as managed", override("apps", "Deployment", "ns", "a", false), included(), ""},
		{"keeps objects of other namespaces", override("apps", "Deployment", "other", "a", true), included(), ""},
		{"keeps objects of other groups", override("", "Deployment", "ns", "a", true), included(), ""},
		{"ignores an override's namespace for cluster-scoped objects", override("apps", "Deployment", "whatever", "a", true), clusterScoped, "overridden: spec.overrides sets it unmanaged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reason, excluded := tt.filter.Exclude(tt.manifest)
			assert.Equal(t, tt.want, reason)
			assert.Equal(t, tt.want != "", excluded)
		})
	}
}

// TestFilterOrder breaks every rule at once and mends them one after the other: the reasons come in the rules' order.
func TestFilterOrder(t *testing.T) {
	f := manifest.Filter{
		ExcludeID: "x", MajorVersion: 4, Capabilities: manifest.Capabilities{Known: sets.New[configv1.ClusterVersionCapability]()},
		Overrides: []configv1.ComponentOverride{{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Namespace: "ns", Name: "a", Unmanaged: true}},
	}
	annotations := map[string]string{
		"exclude.release.openshift.io/x": "true", featureSet: "Tomorrow", gate: "A", major: "5", include: "no", capability: "New",
	}
	for _, step := range []struct{ want, remove, set string }{
		{"annotation exclude.release.openshift.io/x is true", "exclude.release.openshift.io/x", ""},
		{"annotations release.openshift.io/feature-set and release.openshift.io/feature-gate exclude each other", gate, ""},
		{`unknown feature set "Tomorrow" in annotation release.openshift.io/feature-set`, featureSet, ""},
		{`major version 4 is not in "5"`, major, ""},
		{`annotation ` + include + ` is "no", not true`, include, "true"},
		{"unknown capability New", capability, ""},
		{"overridden: spec.overrides sets it unmanaged", "", ""},
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

func TestKnownFeatureSets(t *testing.T) {
	assert.Equal(t, []string{"CustomNoUpgrade", "Default", "DevPreviewNoUpgrade", "OKD", "TechPreviewNoUpgrade"}, manifest.KnownFeatureSets())
}
