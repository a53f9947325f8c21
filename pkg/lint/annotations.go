package lint

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

func annotationPath(key string) fieldPath { return fieldPath{"metadata", "annotations", key} }

// checkAnnotations looks at what decides who gets an object and what is done with it.
func (c *check) checkAnnotations(o *object) {
	annotations := o.Object.GetAnnotations()
	c.checkInclusion(o, annotations)
	c.checkFeatures(o, annotations)
	c.checkMajor(o, annotations)
	for _, name := range o.Capabilities() {
		if !slices.Contains(manifest.KnownCapabilities(), name) {
			o.file.found.field("unknown-capability", o, annotationPath(api.CapabilityAnnotation), "the capability %q is not known", name)
		}
	}
	checkTreatment(o, annotations)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		domain, name, _ := strings.Cut(key, "/")
		switch {
		case domain == "feature-gate.release.openshift.io":
			o.file.found.field("unknown-annotation", o, annotationPath(key), "nobody reads %s: it has no effect; the annotation is %s: %s",
				key, api.FeatureGateAnnotation, name)
		case domain == "release.openshift.io" && !isReleaseAnnotation(key), domain == "capability.openshift.io" && key != api.CapabilityAnnotation:
			o.file.found.field("unknown-annotation", o, annotationPath(key), "nobody reads %s: it has no effect", key)
		}
	}
}

// checkInclusion looks at the annotations that name profiles.
func (c *check) checkInclusion(o *object, annotations map[string]string) {
	named := false
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		profile, ok := strings.CutPrefix(key, api.IncludePrefix)
		if !ok {
			continue
		}
		named = true
		value := annotations[key]
		if value != "true" {
			o.file.found.field("include-value", o, annotationPath(key), "the value is %q, so profile %s does not get it: only \"true\" includes", value, profile)
		}
		if !slices.Contains(manifest.KnownProfiles(), profile) {
			o.file.found.field("unknown-profile", o, annotationPath(key), "the profile %q is not one of %s", profile, strings.Join(manifest.KnownProfiles(), ", "))
		}
	}
	if !named {
		o.file.found.object("never-included", o, "no annotation %s<profile>: no cluster ever gets it", api.IncludePrefix)
	}
}

// checkFeatures looks at feature sets and gates.
func (c *check) checkFeatures(o *object, annotations map[string]string) {
	setValue, hasSet := annotations[api.FeatureSetAnnotation]
	gateValue, hasGate := annotations[api.FeatureGateAnnotation]
	found, gatePath := &o.file.found, annotationPath(api.FeatureGateAnnotation)
	if hasSet && hasGate {
		found.field("feature-annotations", o, gatePath, "%s and %s exclude each other: no cluster gets it", api.FeatureSetAnnotation, api.FeatureGateAnnotation)
	}
	if hasSet {
		for set := range strings.SplitSeq(setValue, ",") {
			if slices.Contains(manifest.KnownFeatureSets(), set) {
				continue
			}
			hint := ""
			if slices.Contains(manifest.KnownFeatureSets(), strings.TrimSpace(set)) {
				hint = " (spaces count)"
			}
			found.field("unknown-feature-set", o, annotationPath(api.FeatureSetAnnotation),
				"the feature set %q is not known%s, so no cluster gets the object", set, hint)
		}
	}
	if !hasGate {
		return
	}
	on, off := sets.New[string](), sets.New[string]()
	for gate := range strings.SplitSeq(gateValue, ",") {
		gate = strings.TrimSpace(gate)
		name, negated := strings.CutPrefix(gate, "-")
		if name == "" {
			found.field("feature-annotations", o, gatePath, "%q holds an empty name: no cluster gets the object", gateValue)
			continue
		}
		if negated {
			off.Insert(name)
		} else {
			on.Insert(name)
		}
		if c.knownGates.Len() > 0 && !c.knownGates.Has(name) {
			found.field("unknown-feature-gate", o, gatePath, "no FeatureGate of the release names the gate %q", name)
		}
	}
	for _, name := range sets.List(on.Intersection(off)) {
		found.field("feature-annotations", o, gatePath, "gate %s must be on and off: no cluster gets the object", name)
	}
}

// checkMajor looks at the list of major versions.
func (c *check) checkMajor(o *object, annotations map[string]string) {
	value, ok := annotations[api.MajorVersionAnnotation]
	if !ok {
		return
	}
	found, at := &o.file.found, annotationPath(api.MajorVersionAnnotation)
	if !o.Is("config.openshift.io", "FeatureGate") && !o.Is("apiextensions.k8s.io", "CustomResourceDefinition") {
		found.field("major-version", o, at, "it is allowed on FeatureGates and CustomResourceDefinitions only: no cluster gets the object")
		return
	}
	positive := false
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		digits, negated := strings.CutPrefix(entry, "-")
		if _, err := strconv.ParseUint(digits, 10, 64); err != nil {
			found.field("major-version", o, at, "%q is not a major version: no cluster gets the object", entry)
			return
		}
		positive = positive || !negated
	}
	major := c.major()
	switch {
	case !o.ForMajor(major):
		found.field("major-version-list", o, at, "%q leaves out the release's own major version, %d", value, major)
	case positive:
		found.field("major-version-list", o, at, "%q lists major versions, and releases after them lose the object", value)
	}
}

// checkTreatment looks at how an object is applied.
func checkTreatment(o *object, annotations map[string]string) {
	found := &o.file.found
	if value, ok := annotations[api.DeleteAnnotation]; ok && value != "true" {
		found.field("delete-value", o, annotationPath(api.DeleteAnnotation), "the value is %q, and only \"true\" deletes", value)
	}
	if value, ok := annotations[api.CreateOnlyAnnotation]; ok && value != "true" {
		found.field("create-only-value", o, annotationPath(api.CreateOnlyAnnotation), "the value is %q, and only \"true\" has an effect everywhere", value)
	}
	if value, ok := annotations[api.OnImmutableAnnotation]; ok && value != "recreate" {
		found.field("on-immutable-value", o, annotationPath(api.OnImmutableAnnotation), "the value is %q, and only \"recreate\" is known", value)
	}
	if !o.Tombstone() {
		return
	}
	for _, key := range []string{api.CreateOnlyAnnotation, api.OnImmutableAnnotation, api.VerificationAnnotation} {
		if _, ok := annotations[key]; ok {
			found.field("tombstone-annotation", o, annotationPath(key), "the object is deleted, so %s means nothing", key)
		}
	}
	if o.Is("config.openshift.io", "ClusterVersion") {
		found.object("tombstone-contradiction", o, "it deletes the ClusterVersion, and with it the update")
	}
}
