package kinds

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	kjson "sigs.k8s.io/json"

	"github.com/cluster-version/cvo/pkg/author/lint/finding"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/manifest/customresource"
)

// Rules checks kinds for one release.
type Rules struct {
	release, from *source.Release
	kubernetes    Version
}

// New returns the rules for a release and a version of Kubernetes. from is the release that clusters update from; may be nil.
func New(release, from *source.Release, kubernetes Version) Rules {
	return Rules{release: release, from: from, kubernetes: kubernetes}
}

// Check adds findings about an object's kind, API version, namespace and fields.
func (c Rules) Check(o *source.Object) {
	if clusterScoped, known := c.checkKind(o); known {
		checkNamespace(o, clusterScoped)
	}
	if !o.Tombstone() { // only the identity of a tombstone matters
		checkFields(o)
		c.checkSchema(o)
		c.checkPruning(o)
	}
}

// Identity returns the identity of an object in a cluster. It drops the namespace of cluster-scoped kinds.
func Identity(r *source.Release, o *source.Object) manifest.ID {
	id := o.ID()
	gk := o.GVK().GroupKind()
	for _, v := range servedKinds().versions[gk] {
		if servedKinds().byGVK[gk.WithVersion(v)].clusterScoped {
			id.Namespace = ""
		}
	}
	if all := r.CRDs[gk]; len(all) > 0 && all[0].ClusterScoped {
		id.Namespace = ""
	}
	return id
}

// checkKind checks whether an API server serves the kind. If known, it returns the kind's scope.
func (c Rules) checkKind(o *source.Object) (clusterScoped, known bool) {
	gvk := o.GVK()
	if versions, ok := servedKinds().versions[gvk.GroupKind()]; ok {
		return c.checkBuiltIn(o, versions), true
	}
	definitions := c.release.Serving(o)
	if len(definitions) == 0 {
		switch {
		case servedKinds().groups[gvk.Group]:
			o.Find("unknown-kind", source.Path{"kind"}, "the API group %q has no kind %s", gvk.Group, gvk.Kind)
		case c.retired(o):
		case o.Tombstone():
			o.Find("tombstone-kind", source.Path{"kind"}, "no CRD in the release defines %s of %s: if no API server serves it either, nothing is deleted", gvk.Kind, gvk.GroupVersion())
		default:
			o.Find("unknown-kind", source.Path{"kind"}, "no API server serves %s of %s: it is not a built-in kind, and no CRD in the release defines it", gvk.Kind, gvk.GroupVersion())
		}
		return false, false
	}
	c.checkServed(o, definitions)
	return definitions[0].ClusterScoped, true
}

// checkServed checks that the CRDs serve the object's version. Each cluster gets one of the CRDs, so all of them must. If no cluster gets the
// object with a CRD, one of them is enough.
func (c Rules) checkServed(o *source.Object, definitions []*source.Definition) {
	version := o.GVK().Version
	serves := func(d *source.Definition) bool { return d.Versions[version].Served }
	if !c.release.Meet(definitions[0].CRD, o) && slices.ContainsFunc(definitions, serves) {
		return
	}
	for _, d := range definitions {
		switch at := (source.Path{"apiVersion"}); {
		case serves(d):
		case !o.Tombstone():
			o.Find("unserved-version", at, "the CRD in %s serves %s, not %s", d.CRD.File, d.Served(), version)
			return
		case d.CRD.Precedes(o):
			o.FindAs(finding.Warning, &o.In.Found, "unserved-version", at, "the CRD in %s serves %s, not %s: nothing is deleted", d.CRD.File, d.Served(), version)
			return
		}
	}
}

func listed(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// checkBuiltIn checks the version of a kind served without a CRD.
func (c Rules) checkBuiltIn(o *source.Object, versions []string) (clusterScoped bool) {
	gvk := o.GVK()
	at := source.Path{"apiVersion"}
	k, ok := servedKinds().byGVK[gvk]
	if !ok {
		var served []string
		for _, v := range versions {
			other := servedKinds().byGVK[schema.GroupVersionKind{Group: gvk.Group, Version: v, Kind: gvk.Kind}]
			if clusterScoped = other.clusterScoped; other.served(c.kubernetes) {
				served = append(served, v)
			}
		}
		o.Find("unserved-version", at, "%s of %s is not served by Kubernetes %s: available versions: %s", gvk.Kind, gvk.GroupVersion(), c.kubernetes, listed(served))
		return clusterScoped
	}
	replacement := ""
	if k.replacement != "" {
		replacement = ": use " + k.replacement
	}
	switch {
	case !k.removed.zero() && c.kubernetes.atLeast(k.removed):
		o.Find("removed-api", at, "%s of %s was removed in Kubernetes %s%s", gvk.Kind, gvk.GroupVersion(), k.removed, replacement)
	case !c.kubernetes.atLeast(k.introduced):
		o.Find("unserved-version", at, "%s of %s requires Kubernetes %s, but the release is for %s", gvk.Kind, gvk.GroupVersion(), k.introduced, c.kubernetes)
	case k.offByDefault(gvk.Version):
		o.Find("api-off-by-default", at, "%s of %s is served only by API servers that enable it", gvk.Kind, gvk.GroupVersion())
	case !k.deprecated.zero() && c.kubernetes.atLeast(k.deprecated):
		o.Find("deprecated-api", at, "%s of %s has been deprecated since Kubernetes %s and is removed in %s%s", gvk.Kind, gvk.GroupVersion(), k.deprecated, k.removed, replacement)
	}
	return k.clusterScoped
}

// checkNamespace checks that the object's namespace matches its kind's scope.
func checkNamespace(o *source.Object, clusterScoped bool) {
	namespace := o.Object.GetNamespace()
	at := source.Path{"metadata", "namespace"}
	switch {
	case clusterScoped && namespace != "":
		o.Find("stray-namespace", at, "%s is not namespaced, so the namespace %q has no effect", o.GVK().Kind, namespace)
	case clusterScoped:
	case namespace == "":
		o.Find("missing-namespace", source.Path{"metadata"}, "%s is namespaced but has no metadata.namespace", o.GVK().Kind)
	}
}

var wrongType = regexp.MustCompile(`^json: cannot unmarshal (\S+)(?: \S+)? into Go struct field \S*?\.(\S+) of type (.+)$`)

// checkFields decodes an object of a built-in kind strictly.
func checkFields(o *source.Object) {
	k := servedKinds().byGVK[o.GVK()]
	if k.goType == nil {
		return
	}
	strict, err := kjson.UnmarshalStrict(o.Raw, reflect.New(k.goType).Interface(), kjson.DisallowUnknownFields)
	if err != nil {
		at := source.Path{}
		if match := wrongType.FindStringSubmatch(err.Error()); match != nil {
			at = source.ParsePath(match[2])
			err = fmt.Errorf("%s: type %s is wrong for this field of %s", match[2], match[1], o.GVK().Kind)
		}
		o.Find("wrong-type", at, "%s", err)
	}
	for _, e := range strict {
		at := source.Path{}
		if _, name, ok := strings.Cut(e.Error(), `unknown field "`); ok {
			at = source.ParsePath(strings.TrimSuffix(name, `"`))
		}
		o.Find("unknown-field", at, "%s has no field %s: the API server drops it", o.GVK().Kind, at)
	}
}

// checkSchema validates a custom resource against the CRDs of its kind in the release. It reports a violation of several CRDs once.
func (c Rules) checkSchema(o *source.Object) {
	reported := sets.New[customresource.Violation]()
	for _, d := range c.release.Serving(o) {
		for _, v := range customresource.Validate(d.CRD.Object, o.Object) {
			if reported.Has(v) {
				continue
			}
			reported.Insert(v)
			id := "invalid-custom-resource"
			if v.Missing {
				id = "incomplete-custom-resource"
			}
			o.Find(id, source.ParsePath(v.Field), "%s (CRD in %s)", v, d.CRD.File)
		}
	}
}

// checkPruning finds custom resources in a version that lacks fields of the storage version.
func (c Rules) checkPruning(o *source.Object) {
	if o.CreateOnly() {
		return // it is never applied to an existing object
	}
	for _, d := range c.release.Serving(o) {
		applied, stored := d.Versions[o.GVK().Version], d.Versions[d.Storage]
		strategy, _, _ := unstructured.NestedString(d.CRD.Object.Object, "spec", "conversion", "strategy")
		if strategy == "Webhook" || !applied.Served || !stored.Served || applied.Schema() == nil {
			continue
		}
		if field := customresource.Pruned(applied.Schema(), stored.Schema(), ""); field != "" {
			o.Find("pruning-version", source.Path{"apiVersion"}, "lacks %s, which clients can set in the storage version %s", field, d.Storage)
			return
		}
	}
}

// retired reports whether an object is a tombstone of a kind whose CRD was in the earlier release.
func (c Rules) retired(o *source.Object) bool {
	return o.Tombstone() && c.from != nil && len(c.from.CRDs[o.GVK().GroupKind()]) > 0
}
