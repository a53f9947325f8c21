// Package permission works out what it takes to apply a release. It takes the manifests that a cluster gets and returns
// the rules of RBAC that applying and watching them needs, or what is missing of them where some are given already. It
// asks no cluster: what kinds are called as resources it reads from the release's own definitions, and knows or guesses
// of the others. What the operator needs whatever the release is left to its own role.
//
// Rules name objects wherever a request does. A request that cannot be told apart by name is one to create by POST, and
// the list and the watch of all that is ours of a kind. Secrets are never listed as a kind: each is watched by its name.
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

	"github.com/cluster-version/cvo/pkg/manifest"
)

const (
	rbacGroup      = rbacv1.GroupName
	admissionGroup = "admissionregistration.k8s.io"
)

// Rules returns what it takes to apply manifests, to watch what became of them, and to ask by dry runs what applying them
// would do. The answer is the same for the same manifests in any order.
func Rules(manifests []*manifest.Manifest) []rbacv1.PolicyRule {
	g := grants{}
	resources := newResources(manifests)
	for _, m := range manifests {
		g.manifest(resources, m)
	}
	return g.rules()
}

// Union returns what several sets of rules allow together, each thing once.
func Union(sets ...[]rbacv1.PolicyRule) []rbacv1.PolicyRule {
	g := grants{}
	for _, set := range sets {
		for _, rule := range set {
			g.rule(rule)
		}
	}
	return g.rules()
}

// Orphan is an object that a release leaves behind.
type Orphan struct {
	Group, Kind, Name string
}

// Prune returns what it takes to delete orphans. Of a CustomResourceDefinition that is also to look for objects of its
// kind, which would go with it.
func Prune(orphans []Orphan) []rbacv1.PolicyRule {
	g := grants{}
	resources := newResources(nil)
	for _, o := range orphans {
		gk := schema.GroupKind{Group: o.Group, Kind: o.Kind}
		if manifest.HoldsMore(gk) {
			continue // such an object is never pruned
		}
		g.add(resources.of(gk), o.Name, "get", "delete")
		if plural, group, ok := strings.Cut(o.Name, "."); ok && o.Group == definitionGroup && o.Kind == definitionKind {
			g.add(schema.GroupResource{Group: group, Resource: plural}, all, "list")
		}
	}
	return g.rules()
}

// manifest adds what one manifest takes.
func (g grants) manifest(resources resources, m *manifest.Manifest) {
	r, name := resources.of(m.GVK().GroupKind()), m.Object.GetName()
	if m.Tombstone() {
		g.add(r, name, "get", "delete", "list", "watch")
		return
	}
	// A server-side apply is a patch and, where the object is not there, a creation, both by name. Dry runs of what cannot
	// be foretold by an apply are updates.
	g.add(r, name, "get", "create", "update", "patch")
	if r == (schema.GroupResource{Resource: "secrets"}) {
		g.add(r, name, "list", "watch")
	} else {
		g.add(r, all, "list", "watch")
	}
	recreated := m.Recreated() || m.Is("batch", "Job")
	if m.CreateOnly() || m.Is("config.openshift.io", "ClusterOperator") || recreated {
		g.add(r, all, "create") // by POST, which names its object in the body alone
	}
	if recreated {
		g.add(r, name, "delete")
	}
	g.beyond(resources, r, m)
}

// beyond adds what the API server asks for because of what an object says.
func (g grants) beyond(resources resources, r schema.GroupResource, m *manifest.Manifest) {
	object := m.Object.Object
	switch {
	case m.Is("config.openshift.io", "ClusterOperator"):
		g.add(schema.GroupResource{Group: r.Group, Resource: r.Resource + "/status"}, m.Object.GetName(), "patch")
	case m.Is(rbacGroup, "Role"), m.Is(rbacGroup, "ClusterRole"):
		if !m.CreateOnly() {
			g.add(r, m.Object.GetName(), "escalate")
			return
		}
		// The name of a role that is created by POST is not looked at, and to let every role be created would be worse than
		// to hold what this one says.
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
			g.add(resources.of(schema.GroupKind{Group: rbacGroup, Kind: kind}), name, "bind")
		}
	case m.GVK().Group == admissionGroup && strings.HasSuffix(m.GVK().Kind, "AdmissionPolicy"):
		// Whoever has a policy read parameters must be allowed to read them, all of their kind.
		version, _, _ := unstructured.NestedString(object, "spec", "paramKind", "apiVersion")
		kind, _, _ := unstructured.NestedString(object, "spec", "paramKind", "kind")
		if gv, err := schema.ParseGroupVersion(version); err == nil && kind != "" {
			g.add(resources.of(schema.GroupKind{Group: gv.Group, Kind: kind}), all, "get")
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

// resources lead from kinds to what they are called in requests.
type resources map[schema.GroupKind]string

// newResources reads the definitions among manifests.
func newResources(manifests []*manifest.Manifest) resources {
	known := resources{
		// What the rules of English for the others get wrong.
		{Kind: "Endpoints"}: "endpoints",
		{Group: "security.openshift.io", Kind: "SecurityContextConstraints"}: "securitycontextconstraints",
		{Group: "k8s.cni.cncf.io", Kind: "NetworkAttachmentDefinition"}:      "network-attachment-definitions",
	}
	for _, m := range manifests {
		if !m.Is(definitionGroup, definitionKind) {
			continue
		}
		group, _, _ := unstructured.NestedString(m.Object.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(m.Object.Object, "spec", "names", "kind")
		plural, _, _ := unstructured.NestedString(m.Object.Object, "spec", "names", "plural")
		if kind != "" && plural != "" {
			known[schema.GroupKind{Group: group, Kind: kind}] = plural
		}
	}
	return known
}

// of is the resource of a kind. That of a kind which is neither defined by the release nor irregular is guessed as API
// servers name their own.
func (r resources) of(gk schema.GroupKind) schema.GroupResource {
	if plural, ok := r[gk]; ok {
		return schema.GroupResource{Group: gk.Group, Resource: plural}
	}
	plural, _ := meta.UnsafeGuessKindToResource(gk.WithVersion(runtime.APIVersionInternal))
	return plural.GroupResource()
}

// all stands for objects of any name.
const all = ""

// grants are what is allowed: of each resource each verb with the names that it is allowed for.
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

// rule adds what a rule allows. Rules about paths that are no resources are none of ours.
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

// Missing returns what of the wanted rules those that are there do not allow.
func Missing(there, wanted []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	have, want, missing := grants{}, grants{}, grants{}
	for _, rule := range there {
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

// rules writes the grants as few rules as say neither more nor less, sorted.
func (g grants) rules() []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	// What is allowed for any name, by group and verbs: resources share such a rule.
	shared := map[string]*rbacv1.PolicyRule{}
	for _, r := range slices.SortedFunc(maps.Keys(g), compareResources) {
		var unnamed []string
		byName := map[string][]string{} // of names to verbs
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
		byVerbs := map[string][]string{} // of verbs to names
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
	slices.SortFunc(out, compareRules)
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

// Each splits rules into one for each access: of one verb, one resource, and one name if there are any.
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
	slices.SortFunc(out, compareRules)
	return out
}

// Subresource splits a resource of a rule, such as clusteroperators/status.
func Subresource(name string) (resource, subresource string) {
	resource, subresource, _ = strings.Cut(name, "/")
	return resource, subresource
}
