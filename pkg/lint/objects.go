package lint

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// definition is a CRD of the release.
type definition struct {
	*object
	clusterScoped bool
	// versions lead to whether they are served.
	versions map[string]bool
}

// collect gathers the objects of all files and what the checks of single objects ask about the others.
func (c *check) collect() {
	c.crds = map[groupKind][]*definition{}
	for _, f := range c.files {
		c.objects = append(c.objects, f.objects...)
	}
	for _, o := range c.objects {
		o.reach = o.Reach()
		if o.Is("apiextensions.k8s.io", "CustomResourceDefinition") && !o.Tombstone() {
			c.define(o)
		}
		if o.Is("", "Namespace") && !o.Tombstone() {
			c.namespaces.Insert(o.Object.GetName())
		}
	}
	manifests := make([]*manifest.Manifest, 0, len(c.objects))
	c.knownGates = sets.New[string]()
	for _, o := range c.objects {
		manifests = append(manifests, o.Manifest)
		enabled, disabled := o.FeatureGates()
		c.knownGates.Insert(enabled...).Insert(disabled...)
	}
	c.gates = manifest.ReadGates(manifests, c.major())
}

func (c *check) define(o *object) {
	d := &definition{object: o, versions: map[string]bool{}}
	group, _, _ := unstructured.NestedString(o.Object.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(o.Object.Object, "spec", "names", "kind")
	scope, _, _ := unstructured.NestedString(o.Object.Object, "spec", "scope")
	d.clusterScoped = scope == "Cluster"
	spec, _ := o.Object.Object["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, entry := range versions {
		fields, _ := entry.(map[string]any)
		name, _ := fields["name"].(string)
		served, _ := fields["served"].(bool)
		d.versions[name] = served
	}
	key := groupKind{Group: group, Kind: kind}
	c.crds[key] = append(c.crds[key], d)
}

// serving finds the CRDs for an object that a cluster can have together with it; if there is none such, all for its kind.
func (c *check) serving(o *object) []*definition {
	all := c.crds[o.GVK().GroupKind()]
	var meeting []*definition
	for _, d := range all {
		if c.meet(d.object, o) {
			meeting = append(meeting, d)
		}
	}
	if len(meeting) == 0 {
		return all
	}
	return meeting
}

// checkObjects looks at every object of a file.
func (c *check) checkObjects(f *file) {
	for _, o := range f.objects {
		c.checkAnnotations(o)
		clusterScoped, known := c.checkKind(o)
		if known {
			c.checkNamespace(o, clusterScoped)
		}
		checkMeta(o)
		if len(o.Raw) > warnObjectBytes {
			f.found.object("object-size", o, "%d bytes as JSON: etcd refuses requests above %d, and the fields' owners are stored besides",
				len(o.Raw), maxObjectBytes)
		}
		if o.Tombstone() {
			continue // only its identity counts
		}
		c.checkFields(o)
		checkWorkload(o)
		c.checkClusterOperator(o)
		checkVerification(o)
	}
}

const (
	// maxObjectBytes is what etcd takes in one request by default.
	maxObjectBytes = 3 << 19
	// warnObjectBytes leaves room for managedFields, which can be as large as a third of an object of many fields.
	warnObjectBytes = 1 << 20
)

// checkKind finds out whether anybody serves the kind, and returns its scope if so.
func (c *check) checkKind(o *object) (clusterScoped, known bool) {
	gvk := o.GVK()
	found, at := &o.file.found, fieldPath{"apiVersion"}
	if versions, ok := c.served.versions[gvk.GroupKind()]; ok {
		return c.checkBuiltIn(o, versions), true
	}
	definitions := c.serving(o)
	if len(definitions) == 0 {
		if c.served.groups[gvk.Group] {
			found.field("unknown-kind", o, fieldPath{"kind"}, "the API group %q has no kind %s", gvk.Group, gvk.Kind)
		} else {
			found.field("unknown-kind", o, fieldPath{"kind"}, "nobody serves %s of %s: it is not built in, and no CRD of the release defines it", gvk.Kind, gvk.GroupVersion())
		}
		return false, false
	}
	served := sets.New[string]()
	for _, d := range definitions {
		for version, on := range d.versions {
			if on {
				served.Insert(version)
			}
		}
	}
	if !served.Has(gvk.Version) && !o.Tombstone() {
		found.field("unserved-version", o, at, "the CRD in %s serves %s, not %s", definitions[0].File, listed(sets.List(served)), gvk.Version)
	}
	return definitions[0].clusterScoped, true
}

func listed(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// checkBuiltIn looks at the version of a kind that is served without a CRD.
func (c *check) checkBuiltIn(o *object, versions []string) (clusterScoped bool) {
	gvk := o.GVK()
	found, at := &o.file.found, fieldPath{"apiVersion"}
	k, ok := c.served.byGVK[gvk]
	if !ok {
		var served []string
		for _, v := range versions {
			other := c.served.byGVK[schema.GroupVersionKind{Group: gvk.Group, Version: v, Kind: gvk.Kind}]
			if clusterScoped = other.clusterScoped; other.served(c.kubernetes) {
				served = append(served, v)
			}
		}
		found.field("unserved-version", o, at, "%s of %s is not served by Kubernetes %s: there is %s", gvk.Kind, gvk.GroupVersion(), c.kubernetes, listed(served))
		return clusterScoped
	}
	replacement := ""
	if k.replacement != "" {
		replacement = ": use " + k.replacement
	}
	switch {
	case !k.removed.zero() && c.kubernetes.atLeast(k.removed):
		found.field("removed-api", o, at, "%s of %s is gone since Kubernetes %s%s", gvk.Kind, gvk.GroupVersion(), k.removed, replacement)
	case !c.kubernetes.atLeast(k.introduced):
		found.field("unserved-version", o, at, "%s of %s is served from Kubernetes %s on, and the release is for %s", gvk.Kind, gvk.GroupVersion(), k.introduced, c.kubernetes)
	case k.offByDefault(gvk.Version):
		found.field("api-off-by-default", o, at, "%s of %s is served only by API servers that are told to", gvk.Kind, gvk.GroupVersion())
	case !k.deprecated.zero() && c.kubernetes.atLeast(k.deprecated):
		found.field("deprecated-api", o, at, "%s of %s is deprecated since Kubernetes %s and gone with %s%s", gvk.Kind, gvk.GroupVersion(), k.deprecated, k.removed, replacement)
	}
	return k.clusterScoped
}

// checkNamespace compares the object's namespace with its kind's scope.
func (c *check) checkNamespace(o *object, clusterScoped bool) {
	namespace := o.Object.GetNamespace()
	found, at := &o.file.found, fieldPath{"metadata", "namespace"}
	switch {
	case clusterScoped && namespace != "":
		found.field("stray-namespace", o, at, "%s is not namespaced, so the namespace %q means nothing", o.GVK().Kind, namespace)
	case clusterScoped:
	case namespace == "":
		found.field("missing-namespace", o, fieldPath{"metadata"}, "%s is namespaced and has no metadata.namespace", o.GVK().Kind)
	}
}

// givenNamespaces are there before a release is applied.
func givenNamespaces() []string {
	return []string{"default", "kube-node-lease", "kube-public", "kube-system"}
}

// pathSegment is what the API server asks of names that need be no domain names.
func pathSegment(name string, _ bool) []string { return content.IsPathSegmentName(name) }

// checkMeta lets Kubernetes' own rules look at name, labels, annotations, finalizers and owners.
func checkMeta(o *object) {
	gvk := o.GVK()
	names := validation.NameIsDNSSubdomain
	switch {
	case gvk.Group == "rbac.authorization.k8s.io", strings.HasSuffix(gvk.Group, ".openshift.io"):
		names = pathSegment // "system:admin" is a name there
	case gvk.Group == "" && gvk.Kind == "Namespace":
		names = validation.NameIsDNSLabel
	case gvk.Group == "" && gvk.Kind == "Service":
		names = validation.NameIsDNSLabel
	}
	requiresNamespace := o.Object.GetNamespace() != ""
	for _, err := range validation.ValidateObjectMetaAccessor(o.Object, requiresNamespace, names, field.NewPath("metadata")) {
		o.file.found.field("invalid-metadata", o, parseFieldPath(err.Field), "%s", err.Error())
	}
}

var wrongType = regexp.MustCompile(`^json: cannot unmarshal (\S+)(?: \S+)? into Go struct field \S*?\.(\S+) of type (.+)$`)

// checkFields reads a built-in kind into its type, strictly.
func (c *check) checkFields(o *object) {
	k := c.served.byGVK[o.GVK()]
	if k.goType == nil {
		return
	}
	strict, err := kjson.UnmarshalStrict(o.Raw, reflect.New(k.goType).Interface(), kjson.DisallowUnknownFields)
	if err != nil {
		at := fieldPath{}
		if match := wrongType.FindStringSubmatch(err.Error()); match != nil {
			at = parseFieldPath(match[2])
			err = fmt.Errorf("%s: is a %s, not what %s takes there", match[2], match[1], o.GVK().Kind)
		}
		o.file.found.field("wrong-type", o, at, "%s", err)
	}
	for _, e := range strict {
		at := fieldPath{}
		if _, name, ok := strings.Cut(e.Error(), `unknown field "`); ok {
			at = parseFieldPath(strings.TrimSuffix(name, `"`))
		}
		o.file.found.field("unknown-field", o, at, "%s has no field %s: the API server drops it", o.GVK().Kind, at)
	}
}

// podTemplate is where a kind has its pods; nil for kinds without.
func podTemplate(o *object) fieldPath {
	switch gk := o.GVK().GroupKind(); gk.Group {
	case "":
		switch gk.Kind {
		case "Pod":
			return fieldPath{}
		case "ReplicationController":
			return fieldPath{"spec", "template"}
		}
	case "apps":
		switch gk.Kind {
		case "Deployment", "DaemonSet", "StatefulSet", "ReplicaSet":
			return fieldPath{"spec", "template"}
		}
	case "batch":
		switch gk.Kind {
		case "Job":
			return fieldPath{"spec", "template"}
		case "CronJob":
			return fieldPath{"spec", "jobTemplate", "spec", "template"}
		}
	}
	return nil
}

// at returns what a path leads to.
func at(value any, steps fieldPath) any {
	for _, step := range steps {
		fields, _ := value.(map[string]any)
		value = fields[step.(string)]
	}
	return value
}

// checkWorkload looks at what the API server would refuse or a rollout would trip over.
func checkWorkload(o *object) {
	template := podTemplate(o)
	if template == nil {
		return
	}
	if o.Is("batch", "Job") && at(o.Object.Object, fieldPath{"spec", "ttlSecondsAfterFinished"}) != nil {
		o.file.found.field("job-ttl", o, fieldPath{"spec", "ttlSecondsAfterFinished"}, "the Job goes once it is done, and runs again each time it is missed")
	}
	labels, _ := at(o.Object.Object, append(slices.Clone(template), "metadata", "labels")).(map[string]any)
	if o.GVK().Group == "apps" {
		selector, _ := at(o.Object.Object, fieldPath{"spec", "selector", "matchLabels"}).(map[string]any)
		for _, key := range slices.Sorted(keys(selector)) {
			if labels[key] != selector[key] {
				o.file.found.field("selector", o, fieldPath{"spec", "selector", "matchLabels", key},
					"the pods' labels do not have %s=%v, which the selector asks for: the API server refuses that", key, selector[key])
			}
		}
	}
	pod := append(slices.Clone(template), "spec")
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := at(o.Object.Object, append(slices.Clone(pod), list)).([]any)
		for i, entry := range containers {
			container, _ := entry.(map[string]any)
			image, _ := container["image"].(string)
			where := append(slices.Clone(pod), list, i, "image")
			if image == "" {
				o.file.found.field("image-by-tag", o, where[:len(where)-1], "container %v has no image", container["name"])
			} else if digestOf(image) == "" && !placeholderImage(image) {
				o.file.found.field("image-by-tag", o, where, "%q does not name its content by digest", image)
			}
		}
	}
}

func keys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// checkClusterOperator looks at the versions by which an operator says that it has arrived.
func (c *check) checkClusterOperator(o *object) {
	if !o.Is("config.openshift.io", "ClusterOperator") {
		return
	}
	list, _ := at(o.Object.Object, fieldPath{"status", "versions"}).([]any)
	versions := map[string]string{}
	for i, entry := range list {
		fields, _ := entry.(map[string]any)
		name, _ := fields["name"].(string)
		value, _ := fields["version"].(string)
		where := fieldPath{"status", "versions", i}
		switch {
		case name == "" || value == "":
			o.file.found.field("operator-versions", o, where, "status.versions[%d]: needs a name and a version", i)
		case versions[name] != "":
			o.file.found.field("operator-versions", o, where, "status.versions: %q is there twice", name)
		}
		versions[name] = value
		if name == "operator" && c.metadata != nil && value != "" && value != c.metadata.Version && !strings.Contains(value, manifest.VersionPlaceholder) {
			o.file.found.field("operator-version", o, append(where, "version"),
				"the version of the operator is %q, that of the release %s: who reports the release's version never settles", value, c.metadata.Version)
		}
	}
	switch _, ok := versions["operator"]; {
	case len(list) == 0:
		o.file.found.object("operator-versions", o, "has no status.versions: nobody can tell when the operator has arrived, and the rollout fails at it")
	case !ok:
		o.file.found.field("operator-versions", o, fieldPath{"status", "versions"}, "status.versions has no entry named operator")
	}
}

// meet reports whether some cluster gets both.
func (c *check) meet(a, b *object) bool { return len(c.gates.Clusters(a.reach, b.reach)) > 0 }
