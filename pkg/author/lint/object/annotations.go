package object

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
	"github.com/cluster-version/cvo/pkg/inclusion"
)

func annotationPath(key string) source.Path { return source.Path{"metadata", "annotations", key} }

// checkAnnotations checks the annotations that select clusters and control how an object is applied.
func checkAnnotations(r *source.Release, o *source.Object) {
	annotations := o.Object.GetAnnotations()
	checkInclusion(o, annotations)
	checkFeatures(r, o, annotations)
	checkMajor(r, o, annotations)
	for _, name := range inclusion.CapabilitiesOf(o.Manifest) {
		if !slices.Contains(inclusion.KnownCapabilities(), name) {
			o.Find("unknown-capability", annotationPath(api.CapabilityAnnotation), "unknown capability %q", name)
		}
	}
	checkTreatment(o, annotations)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		domain, name, _ := strings.Cut(key, "/")
		switch {
		case domain == "feature-gate.release.openshift.io":
			o.Find("unknown-annotation", annotationPath(key), "unknown annotation %s has no effect: use %s: %s",
				key, api.FeatureGateAnnotation, name)
		case domain == "release.openshift.io" && !isReleaseAnnotation(key), domain == "capability.openshift.io" && key != api.CapabilityAnnotation:
			o.Find("unknown-annotation", annotationPath(key), "unknown annotation %s has no effect", key)
		}
	}
}

// checkInclusion checks the annotations about profiles.
func checkInclusion(o *source.Object, annotations map[string]string) {
	named := false
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		profile, ok := strings.CutPrefix(key, api.IncludePrefix)
		if !ok {
			continue
		}
		named = true
		value := annotations[key]
		if value != "true" {
			o.Find("include-value", annotationPath(key), "the value is %q, so profile %s does not include the object: only \"true\" includes it", value, profile)
		}
		if !slices.Contains(inclusion.KnownProfiles(), profile) {
			o.Find("unknown-profile", annotationPath(key), "unknown profile %q: the known profiles are %s", profile, strings.Join(inclusion.KnownProfiles(), ", "))
		}
	}
	if !named {
		o.Find("never-included", nil, "the object has no annotation %s<profile>, so it will never be installed", api.IncludePrefix)
	}
}

// checkFeatures checks feature sets and gates.
func checkFeatures(r *source.Release, o *source.Object, annotations map[string]string) {
	setValue, hasSet := annotations[api.FeatureSetAnnotation]
	gateValue, hasGate := annotations[api.FeatureGateAnnotation]
	gatePath := annotationPath(api.FeatureGateAnnotation)
	if hasSet && hasGate {
		o.Find("feature-annotations", gatePath, "%s and %s exclude each other: no cluster gets the object", api.FeatureSetAnnotation, api.FeatureGateAnnotation)
	}
	if hasSet {
		for set := range strings.SplitSeq(setValue, ",") {
			if slices.Contains(inclusion.KnownFeatureSets(), set) {
				continue
			}
			hint := ""
			if slices.Contains(inclusion.KnownFeatureSets(), strings.TrimSpace(set)) {
				hint = " (spaces are part of the name)"
			}
			o.Find("unknown-feature-set", annotationPath(api.FeatureSetAnnotation),
				"unknown feature set %q%s: no cluster gets the object", set, hint)
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
			o.Find("empty-entry", gatePath, "%q has an entry without a name, which has no effect", gateValue)
			continue
		}
		if negated {
			off.Insert(name)
		} else {
			on.Insert(name)
		}
		if r.KnownGates.Len() > 0 && !r.KnownGates.Has(name) {
			o.Find("unknown-feature-gate", gatePath, "no FeatureGate in the release has the gate %q", name)
		}
	}
	for _, name := range sets.List(on.Intersection(off)) {
		o.Find("feature-annotations", gatePath, "gate %s must be both on and off: no cluster gets the object", name)
	}
}

// checkMajor checks the list of major versions.
func checkMajor(r *source.Release, o *source.Object, annotations map[string]string) {
	value, ok := annotations[api.MajorVersionAnnotation]
	if !ok {
		return
	}
	at := annotationPath(api.MajorVersionAnnotation)
	if !o.Is("config.openshift.io", "FeatureGate") && !o.Is("apiextensions.k8s.io", "CustomResourceDefinition") {
		o.Find("major-version", at, "the annotation is allowed only on FeatureGates and CustomResourceDefinitions: no cluster gets the object")
		return
	}
	positive := false
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			o.Find("empty-entry", at, "%q has an empty entry, which has no effect", value)
			continue
		}
		digits, negated := strings.CutPrefix(entry, "-")
		if _, err := strconv.ParseUint(digits, 10, 64); err != nil {
			o.Find("major-version", at, "%q is not a major version: no cluster gets the object", entry)
			return
		}
		positive = positive || !negated
	}
	major := r.Major()
	switch {
	case !inclusion.ForMajor(o.Manifest, major):
		o.Find("major-version-list", at, "%q excludes the release's own major version, %d", value, *major)
	case positive:
		o.Find("major-version-list", at, "%q lists major versions, so releases with a later major version lose the object", value)
	}
}

// checkTreatment checks the annotations that control how an object is applied.
func checkTreatment(o *source.Object, annotations map[string]string) {
	if value, ok := annotations[api.DeleteAnnotation]; ok && value != "true" {
		o.Find("delete-value", annotationPath(api.DeleteAnnotation), "the value is %q, but only \"true\" deletes the object", value)
	}
	if value, ok := annotations[api.CreateOnlyAnnotation]; ok && value != "true" {
		o.Find("create-only-value", annotationPath(api.CreateOnlyAnnotation), "the value is %q, but only \"true\" always has an effect", value)
	}
	if value, ok := annotations[api.OnImmutableAnnotation]; ok && value != "recreate" {
		o.Find("on-immutable-value", annotationPath(api.OnImmutableAnnotation), "the value is %q, but only \"recreate\" has an effect", value)
	}
	if value, ok := annotations[api.WaitAnnotation]; ok {
		checkWait(o, value)
	}
	if !o.Tombstone() {
		return
	}
	for _, key := range []string{api.CreateOnlyAnnotation, api.OnImmutableAnnotation, api.VerificationAnnotation, api.WaitAnnotation} {
		if _, ok := annotations[key]; ok {
			o.Find("tombstone-annotation", annotationPath(key), "the object is deleted, so %s has no effect", key)
		}
	}
	if o.Is("config.openshift.io", "ClusterVersion") {
		o.Find("tombstone-contradiction", nil, "deleting the ClusterVersion also removes the update")
	}
}

// checkWait checks the annotation that makes rollouts not wait for a workload.
func checkWait(o *source.Object, value string) {
	path := annotationPath(api.WaitAnnotation)
	switch {
	case value != "false":
		o.Find("wait-value", path, "the value is %q, but only \"false\" has an effect", value)
	case !o.Workload():
		o.Find("wait-value", path, "the annotation has no effect on a %s, only on a Deployment, DaemonSet or StatefulSet", o.GVK().Kind)
	}
}

// releaseAnnotations returns the annotations that have an effect.
func releaseAnnotations() []string {
	return []string{
		api.FeatureSetAnnotation, api.FeatureGateAnnotation, api.MajorVersionAnnotation, api.CreateOnlyAnnotation,
		api.DeleteAnnotation, api.OnImmutableAnnotation, api.VerificationAnnotation,
		"release.openshift.io/bootstrap-required",
	}
}

func isReleaseAnnotation(key string) bool { return slices.Contains(releaseAnnotations(), key) }
