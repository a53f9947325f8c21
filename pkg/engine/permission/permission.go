// Package permission derives the permissions that applying a release needs. From the manifests for a cluster it returns the RBAC rules for
// applying and watching them, or the part that given rules lack. It does not access a cluster: it reads the resource names of kinds from
// the release's own CRDs, and knows or guesses all others. The operator's own role contains the permissions that every release needs.
//
// A rule lists object names wherever the request contains one. Only POST requests, and the list and watch of all our objects of a kind,
// have no name. Secrets are never listed as a kind; each one is watched by name.
package permission

import (
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/manifest"
)

const (
	rbacGroup      = rbacv1.GroupName
	admissionGroup = "admissionregistration.k8s.io"
)

// Rules returns the permissions needed to apply manifests, to watch their objects, and to make dry runs. The result does not depend on the
// order of the manifests.
func Rules(manifests []*manifest.Manifest) []rbacv1.PolicyRule {
	g := grants{}
	resources := newResources(manifests)
	for _, m := range manifests {
		g.manifest(resources, m)
	}
	return g.rules()
}

// Union merges sets of rules and removes duplicates.
func Union(sets ...[]rbacv1.PolicyRule) []rbacv1.PolicyRule {
	g := grants{}
	for _, set := range sets {
		for _, rule := range set {
			g.rule(rule)
		}
	}
	return g.rules()
}

// Orphan is an object that the release no longer contains.
type Orphan struct {
	Group, Kind, Name string
}

// Prune returns the permissions needed to delete orphans. For a CustomResourceDefinition this includes listing the objects of its kind,
// because they would be deleted with it.
func Prune(orphans []Orphan) []rbacv1.PolicyRule {
	g := grants{}
	resources := newResources(nil)
	for _, o := range orphans {
		gk := schema.GroupKind{Group: o.Group, Kind: o.Kind}
		if _, irreplaceable := manifest.Irreplaceable(gk); irreplaceable {
			continue // such an object is never pruned
		}
		g.add(resources.resourceOf(gk), o.Name, "get", "delete")
		if plural, group, ok := strings.Cut(o.Name, "."); ok && o.Group == definitionGroup && o.Kind == definitionKind {
			g.add(schema.GroupResource{Group: group, Resource: plural}, all, "list")
		}
	}
	return g.rules()
}

// manifest adds the permissions needed for one manifest.
func (g grants) manifest(resources resources, m *manifest.Manifest) {
	r, name := resources.resourceOf(m.GVK().GroupKind()), m.Object.GetName()
	if m.Tombstone() {
		g.add(r, name, "get", "delete", "list", "watch")
		return
	}
	// A server-side apply is a patch and, if the object does not exist, a create; both contain the name. Some dry runs are updates, because
	// a dry-run apply would not show the result.
	g.add(r, name, "get", "create", "update", "patch")
	if r == (schema.GroupResource{Resource: "secrets"}) {
		g.add(r, name, "list", "watch")
	} else {
		g.add(r, all, "list", "watch")
	}
	recreated := m.Recreated() || m.Is("batch", "Job")
	if m.CreateOnly() || m.Is("config.openshift.io", "ClusterOperator") || recreated {
		g.add(r, all, "create") // by POST, which contains the name only in its body
	}
	if recreated {
		g.add(r, name, "delete")
	}
	if m.Workload() && !manifest.IsOperatorDeployment(m.Object) {
		// While a rollout waits for a workload, the operator reports why its pods do not run. Its own role covers its own pods.
		g.add(schema.GroupResource{Resource: "pods"}, all, "list", "watch")
	}
	g.addForContent(resources, r, m)
}

// addForContent adds the permissions that the API server requires because of an object's content.
func (g grants) addForContent(resources resources, r schema.GroupResource, m *manifest.Manifest) {
	object := m.Object.Object
	switch {
	case m.Is("config.openshift.io", "ClusterOperator"):
		g.add(schema.GroupResource{Group: r.Group, Resource: r.Resource + "/status"}, m.Object.GetName(), "patch")
	case m.Is(rbacGroup, "Role"), m.Is(rbacGroup, "ClusterRole"):
		if !m.CreateOnly() {
			g.add(r, m.Object.GetName(), "escalate")
			return
		}
		// RBAC ignores the name of a role that is created by POST. It is safer to hold this role's permissions than to be allowed to create
		// every role.
		role := rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &role); err == nil {
			for _, rule := range role.Rules {
				g.rule(rule)
			}
		}
	case m.Is(rbacGroup, "RoleBinding"), m.Is(rbacGroup, "ClusterRoleBinding"):
		kind, _, _ := unstructured.NestedString(object, "roleRef", "kind")
		name, _, _ := unstructured.NestedString(object, "roleRef", "name")
		if kind != "" && name != "" {
			g.add(resources.resourceOf(schema.GroupKind{Group: rbacGroup, Kind: kind}), name, "bind")
		}
	case m.GVK().Group == admissionGroup && strings.HasSuffix(m.GVK().Kind, "AdmissionPolicy"):
		// The author of a policy with parameters must be allowed to read all parameters of their kind.
		version, _, _ := unstructured.NestedString(object, "spec", "paramKind", "apiVersion")
		kind, _, _ := unstructured.NestedString(object, "spec", "paramKind", "kind")
		if gv, err := schema.ParseGroupVersion(version); err == nil && kind != "" {
			g.add(resources.resourceOf(schema.GroupKind{Group: gv.Group, Kind: kind}), all, "get")
		}
	case m.Is("route.openshift.io", "Route"):
		if host, _, _ := unstructured.NestedString(object, "spec", "host"); host != "" {
			g.add(schema.GroupResource{Group: r.Group, Resource: r.Resource + "/custom-host"}, all, "create", "update")
		}
	}
}

const (
	definitionGroup = "apiextensions.k8s.io"
	definitionKind  = "CustomResourceDefinition"
)

var (
	roleKind    = schema.GroupKind{Group: rbacGroup, Kind: "ClusterRole"}
	bindingKind = schema.GroupKind{Group: rbacGroup, Kind: "ClusterRoleBinding"}
)

// resources maps kinds to their names in requests.
type resources map[schema.GroupKind]string

// newResources reads the CRDs among manifests.
func newResources(manifests []*manifest.Manifest) resources {
	known := resources{
		// Irregular plurals.
		{Kind: "Endpoints"}: "endpoints",
		{Group: "security.openshift.io", Kind: "SecurityContextConstraints"}: "securitycontextconstraints",
		{Group: "k8s.cni.cncf.io", Kind: "NetworkAttachmentDefinition"}:      "network-attachment-definitions",
	}
	for _, m := range manifests {
		kind, ok := m.Defines()
		plural, _, _ := unstructured.NestedString(m.Object.Object, "spec", "names", "plural")
		if ok && kind.Kind != "" && plural != "" {
			known[kind] = plural
		}
	}
	return known
}

// resourceOf returns the resource of a kind. It guesses the name by the rules of API servers if the kind is regular and the release has no
// CRD for it.
func (r resources) resourceOf(gk schema.GroupKind) schema.GroupResource {
	if plural, ok := r[gk]; ok {
		return schema.GroupResource{Group: gk.Group, Resource: plural}
	}
	plural, _ := meta.UnsafeGuessKindToResource(gk.WithVersion(runtime.APIVersionInternal))
	return plural.GroupResource()
}

// all stands for objects with any name.
const all = ""

// grants contains permissions: for each resource and verb, the allowed names.
type grants map[schema.GroupResource]map[string]map[string]bool

func (g grants) add(r schema.GroupResource, name string, verbs ...string) {
	byVerb := g[r]
	if byVerb == nil {
		byVerb = map[string]map[string]bool{}
		g[r] = byVerb
	}
	for _, verb := range verbs {
		if byVerb[verb] == nil {
			byVerb[verb] = map[string]bool{}
		}
		byVerb[verb][name] = true
	}
}

// rule adds the permissions of a rule. It ignores paths that are not resources.
func (g grants) rule(rule rbacv1.PolicyRule) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{all}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, name := range names {
				g.add(schema.GroupResource{Group: group, Resource: resource}, name, rule.Verbs...)
			}
		}
	}
}

// allows reports whether the grants allow a verb for a name.
func (g grants) allows(r schema.GroupResource, verb, name string) bool {
	_, subresource, _ := strings.Cut(r.Resource, "/")
	names := []string{r.Resource, rbacv1.ResourceAll}
	if subresource != "" {
		names = append(names, rbacv1.ResourceAll+"/"+subresource)
	}
	for _, group := range []string{r.Group, rbacv1.APIGroupAll} {
		for _, resource := range names {
			for _, v := range []string{verb, rbacv1.VerbAll} {
				if allowed := g[schema.GroupResource{Group: group, Resource: resource}][v]; allowed[all] || allowed[name] {
					return true
				}
			}
		}
	}
	return false
}

// Missing returns the part of wanted that granted does not allow.
func Missing(granted, wanted []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	have, want, missing := grants{}, grants{}, grants{}
	for _, rule := range granted {
		have.rule(rule)
	}
	for _, rule := range wanted {
		want.rule(rule)
	}
	for r, byVerb := range want {
		for verb, names := range byVerb {
			for name := range names {
				if !have.allows(r, verb, name) {
					missing.add(r, name, verb)
				}
			}
		}
	}
	return missing.rules()
}

// rules returns the smallest equivalent set of rules, sorted.
func (g grants) rules() []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	// Permissions for any name, by group and verbs. Several resources share such a rule.
	shared := map[string]*rbacv1.PolicyRule{}
	for _, r := range slices.SortedFunc(maps.Keys(g), compareResources) {
		var unnamed []string
		byName := map[string][]string{} // verbs by name
		for _, verb := range slices.Sorted(maps.Keys(g[r])) {
			names := g[r][verb]
			if names[all] {
				unnamed = append(unnamed, verb)
				continue
			}
			for name := range names {
				byName[name] = append(byName[name], verb)
			}
		}
		if len(unnamed) > 0 {
			key := r.Group + " " + strings.Join(unnamed, ",")
			if rule := shared[key]; rule != nil {
				rule.Resources = append(rule.Resources, r.Resource)
			} else {
				shared[key] = &rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: unnamed}
			}
		}
		byVerbs := map[string][]string{} // names by verbs
		for name, verbs := range byName {
			byVerbs[strings.Join(verbs, ",")] = append(byVerbs[strings.Join(verbs, ",")], name)
		}
		for verbs, names := range byVerbs {
			slices.Sort(names)
			out = append(out, rbacv1.PolicyRule{
				APIGroups: []string{r.Group}, Resources: []string{r.Resource}, ResourceNames: names, Verbs: strings.Split(verbs, ","),
			})
		}
	}
	for _, rule := range shared {
		out = append(out, *rule)
	}
	sorted.By(out, compareRules)
	return out
}

func compareResources(a, b schema.GroupResource) int {
	if c := strings.Compare(a.Group, b.Group); c != 0 {
		return c
	}
	return strings.Compare(a.Resource, b.Resource)
}

func compareRules(a, b rbacv1.PolicyRule) int {
	for _, lists := range [][2][]string{{a.APIGroups, b.APIGroups}, {a.Resources, b.Resources}, {a.ResourceNames, b.ResourceNames}, {a.Verbs, b.Verbs}} {
		if c := slices.Compare(lists[0], lists[1]); c != 0 {
			return c
		}
	}
	return 0
}

// Each splits rules into single permissions, each with one verb, one resource and at most one name.
func Each(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	g := grants{}
	for _, rule := range rules {
		g.rule(rule)
	}
	var out []rbacv1.PolicyRule
	for r, byVerb := range g {
		for verb, names := range byVerb {
			for name := range names {
				rule := rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{verb}}
				if name != all {
					rule.ResourceNames = []string{name}
				}
				out = append(out, rule)
			}
		}
	}
	sorted.By(out, compareRules)
	return out
}

// Subresource splits the resource in a rule, such as clusteroperators/status.
func Subresource(name string) (resource, subresource string) {
	resource, subresource, _ = strings.Cut(name, "/")
	return resource, subresource
}
