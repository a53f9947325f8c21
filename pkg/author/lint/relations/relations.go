// Package relations contains the rules about several objects of a release: duplicates, deletions that delete other objects, namespaces,
// autoscalers, order, Jobs, keys for the next release, and kinds of the release that clusters update from. It takes a release and adds
// findings to it.
package relations

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/lint/kinds"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// check checks a release.
type check struct {
	*source.Release
	// from is the release that clusters update from; nil if unknown.
	from *source.Release
}

// Check adds findings about objects that contradict each other. from is the release that clusters update from; nil if unknown.
func Check(r, from *source.Release) {
	c := check{Release: r, from: from}
	c.checkFolders()
	c.checkDuplicates()
	c.checkTombstones()
	c.checkFrom()
	c.checkNamespaces()
	c.checkOperators()
	c.checkAutoscalers()
	c.checkOrder()
	c.checkTrust()
}

// checkFolders finds missing folders.
func (c check) checkFolders() {
	for _, dir := range []string{payload.OperatorDir, payload.ReleaseDir} {
		if !slices.ContainsFunc(c.Files, func(f *source.Parsed) bool { return path.Dir(f.Name) == dir }) {
			c.Found.File("folder", dir, 0, "the folder is missing or empty")
		}
	}
}

// maxVariants is the maximum number of objects with the same identity that are compared with each other.
const maxVariants = 64

// checkDuplicates finds objects with the same identity that some cluster gets together. Variants of an object for different profiles,
// feature sets or gates are common, and not duplicates.
func (c check) checkDuplicates() {
	byID := map[manifest.ID][]*source.Object{}
	for _, o := range c.Objects {
		id := kinds.Identity(c.Release, o)
		for _, first := range byID[id] {
			if first.Is("image.openshift.io", "ImageStream") && first.Tombstone() == o.Tombstone() {
				continue // their tags are merged
			}
			if first.In == o.In && first.ID() == o.ID() {
				continue // the parser reports this duplicate
			}
			if !inclusion.ForMajor(first.Manifest, c.Major()) || !inclusion.ForMajor(o.Manifest, c.Major()) {
				continue
			}
			if where := c.Gates.Clusters(first.Reach(), o.Reach()); len(where) > 0 {
				what := "also in"
				switch {
				case first.Tombstone() != o.Tombstone() && o.Tombstone():
					what = "deleted here and applied by"
				case first.Tombstone() != o.Tombstone():
					what = "applied here and deleted by"
				}
				o.FindIn(&c.Found, "duplicate-object", nil, "%s is %s %s for profile %s with feature set %s", id, what, first.Place(),
					where[0].Profile, where[0].FeatureSet)
				break
			}
		}
		if len(byID[id]) < maxVariants {
			byID[id] = append(byID[id], o)
		}
	}
}

// checkTombstones finds deletions that would delete other objects in the release.
func (c check) checkTombstones() {
	inside := map[string][]*source.Object{} // by namespace
	ofKind := map[schema.GroupKind][]*source.Object{}
	for _, o := range c.Objects {
		if !o.Tombstone() {
			inside[o.Object.GetNamespace()] = append(inside[o.Object.GetNamespace()], o)
			ofKind[o.GVK().GroupKind()] = append(ofKind[o.GVK().GroupKind()], o)
		}
	}
	for _, o := range c.Objects {
		var lost []*source.Object
		switch {
		case !o.Tombstone():
		case o.Is("", "Namespace"):
			lost = inside[o.Object.GetName()]
		case o.Is("apiextensions.k8s.io", "CustomResourceDefinition"):
			plural, group, _ := strings.Cut(o.Object.GetName(), ".")
			for gk, objects := range ofKind {
				if gk.Group == group && strings.HasPrefix(plural, strings.ToLower(gk.Kind)) {
					lost = objects
				}
			}
		}
		for _, l := range lost {
			if c.Meet(o, l) {
				o.FindIn(&c.Found, "tombstone-contradiction", nil, "deleting the object also deletes %s in %s", l.ID(), l.Place())
				break
			}
		}
	}
}

// checkNamespaces finds namespaces that objects use but the release does not contain. It reports each namespace only once.
func (c check) checkNamespaces() {
	users := map[string][]*source.Object{}
	for _, o := range c.Objects {
		namespace := kinds.Identity(c.Release, o).Namespace
		if namespace != "" && !o.Tombstone() && !o.Reach().Never() && !c.Namespaces.Has(namespace) &&
			!slices.Contains(builtInNamespaces(), namespace) {
			users[namespace] = append(users[namespace], o)
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(users)) {
		objects, more := users[namespace], ""
		if n := len(objects) - 1; n > 0 {
			more = fmt.Sprintf(" (other objects that use it: %d)", n)
		}
		objects[0].FindIn(&c.Found, "unknown-namespace", source.Path{"metadata", "namespace"},
			"no file of the release contains the namespace %q%s", namespace, more)
	}
}

// builtInNamespaces returns the namespaces that every cluster has, and those that cvo install creates.
func builtInNamespaces() []string {
	return []string{"default", "kube-node-lease", "kube-public", "kube-system", api.ConfigNamespace, api.ConfigManagedNamespace}
}

// checkOperators finds ClusterOperators whose component has no workload that could update their status.
func (c check) checkOperators() {
	running := map[string]bool{}
	for _, o := range c.Objects {
		if o.PodTemplate() != nil && !o.Tombstone() {
			running[o.Component] = true
		}
	}
	for _, o := range c.Objects {
		if o.Is("config.openshift.io", "ClusterOperator") && !o.Tombstone() && !running[o.Component] {
			o.FindIn(&c.Found, "operator-alone", nil, "component %s has this ClusterOperator but no workload", o.Component)
		}
	}
}

// checkAutoscalers finds workloads with a number of replicas that an autoscaler of the release also sets.
func (c check) checkAutoscalers() {
	autoscalers := map[manifest.ID][]*source.Object{} // by target
	for _, o := range c.Objects {
		if !o.Is("autoscaling", "HorizontalPodAutoscaler") || o.Tombstone() {
			continue
		}
		target, _ := source.Path{"spec", "scaleTargetRef"}.Value(o.Object.Object).(map[string]any)
		apiVersion, _ := target["apiVersion"].(string)
		kind, _ := target["kind"].(string)
		name, _ := target["name"].(string)
		id := manifest.ID{Group: schema.FromAPIVersionAndKind(apiVersion, kind).Group, Kind: kind, Namespace: o.Object.GetNamespace(), Name: name}
		autoscalers[id] = append(autoscalers[id], o)
	}
	at := source.Path{"spec", "replicas"}
	for _, o := range c.Objects {
		if o.Tombstone() || o.CreateOnly() || at.Value(o.Object.Object) == nil {
			continue
		}
		meets := func(autoscaler *source.Object) bool { return c.Meet(o, autoscaler) }
		if i := slices.IndexFunc(autoscalers[o.ID()], meets); i >= 0 {
			autoscaler := autoscalers[o.ID()][i]
			o.FindIn(&c.Found, "autoscaled-replicas", at, "%s (%s) also sets the number of replicas", autoscaler.ID(), autoscaler.Place())
		}
	}
}

// checkTrust finds the ConfigMap for verifying later releases.
func (c check) checkTrust() {
	var first *source.Object
	for _, o := range c.Objects {
		if _, ok := o.Object.GetAnnotations()[api.VerificationAnnotation]; !ok || !o.Is("", "ConfigMap") || o.Reach().Never() {
			continue
		}
		if first == nil {
			first = o
			continue
		}
		if c.Meet(first, o) && kinds.Identity(c.Release, first) != kinds.Identity(c.Release, o) {
			o.FindIn(&c.Found, "verification", nil, "only the first such ConfigMap is used, which is in %s", first.Place())
		}
	}
	if first == nil && len(c.Objects) > 0 {
		c.Found.File("verification-missing", payload.ReleaseDir, 0, "no ConfigMap with the annotation %s: clusters need --trust to accept the next release (ignore this if they use --trust)",
			api.VerificationAnnotation)
	}
}
