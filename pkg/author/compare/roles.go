package compare

import (
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/manifest"
)

const rbacGroup = "rbac.authorization.k8s.io"

// RoleChange is a Role or ClusterRole with changed permissions, or a binding with new cluster-admin subjects.
type RoleChange struct {
	Object    manifest.ID `json:"object"`
	Component string      `json:"component"`
	// Widened are the added permissions and Narrowed the removed ones, such as `deployments.apps: create, delete`.
	Widened  []string `json:"widened,omitempty"`
	Narrowed []string `json:"narrowed,omitempty"`
}

// everything is the name of the role with all permissions.
const everything = "cluster-admin"

// compareRole adds the changed permissions of an RBAC object.
func (c *Result) compareRole(object ObjectChange, a, b *manifest.Manifest) {
	change := RoleChange{Object: object.Object, Component: object.Component}
	switch kind := object.Object.Kind; {
	case object.Object.Group != rbacGroup:
		return
	case a != nil && b != nil && (kind == "Role" || kind == "ClusterRole") && !b.Tombstone():
		old, now := grantsOf(a), grantsOf(b)
		change.Widened, change.Narrowed = now.notCoveredBy(old), old.notCoveredBy(now)
	case kind == "ClusterRoleBinding" && b != nil && !b.Tombstone():
		change.Widened = newAdmins(a, b)
	}
	if len(change.Widened)+len(change.Narrowed) == 0 {
		return
	}
	if len(change.Widened) > 0 {
		c.Totals.WidenedRoles++
	}
	c.Roles = append(c.Roles, change)
}

// newAdmins returns the subjects that are newly bound to cluster-admin.
func newAdmins(a, b *manifest.Manifest) []string {
	admins := func(m *manifest.Manifest) sets.Set[string] {
		out := sets.New[string]()
		if m == nil || m.Tombstone() {
			return out
		}
		if ref, _ := m.Object.Object["roleRef"].(map[string]any); ref["name"] != everything {
			return out
		}
		list, _ := m.Object.Object["subjects"].([]any)
		for _, entry := range list {
			fields, _ := entry.(map[string]any)
			kind, _ := fields["kind"].(string)
			namespace, _ := fields["namespace"].(string)
			name, _ := fields["name"].(string)
			out.Insert(strings.TrimSpace(kind + " " + strings.TrimPrefix(namespace+"/"+name, "/")))
		}
		return out
	}
	var out []string
	for _, subject := range sets.List(admins(b).Difference(admins(a))) {
		out = append(out, subject+": everything ("+everything+")")
	}
	return out
}

// grant is a single permission: a verb on a resource, on a named object, or on a URL.
type grant struct{ target, name, verb string }

type grants map[grant]bool

// maxGrants is the maximum number of single permissions of a role.
const maxGrants = 100_000

func grantsOf(m *manifest.Manifest) grants {
	out := grants{}
	rules, _ := m.Object.Object["rules"].([]any)
	for _, entry := range rules {
		rule, _ := entry.(map[string]any)
		var targets []string
		for group := range texts(rule["apiGroups"]) {
			for resource := range texts(rule["resources"]) {
				targets = append(targets, strings.TrimSuffix(resource+"."+group, "."))
			}
		}
		targets = append(targets, sets.List(texts(rule["nonResourceURLs"]))...)
		names := sets.List(texts(rule["resourceNames"]))
		if len(names) == 0 {
			names = []string{""}
		}
		for _, target := range targets {
			for _, name := range names {
				for verb := range texts(rule["verbs"]) {
					if len(out) < maxGrants {
						out[grant{target, name, verb}] = true
					}
				}
			}
		}
	}
	return out
}

// covers reports whether the grants include x or a broader permission.
func (g grants) covers(x grant) bool {
	resource, group, _ := strings.Cut(x.target, ".")
	targets := []string{x.target, resource + ".*", "*.*"}
	if group == "" {
		targets = append(targets, "*")
	} else {
		targets = append(targets, "*."+group)
	}
	if main, _, sub := strings.Cut(resource, "/"); sub {
		targets = append(targets, strings.TrimSuffix(main+"/*."+group, "."), "*/"+strings.TrimPrefix(resource, main+"/"))
	}
	for _, target := range targets {
		for _, name := range []string{x.name, ""} {
			for _, verb := range []string{x.verb, "*"} {
				if g[grant{target, name, verb}] {
					return true
				}
			}
		}
	}
	return false
}

// notCoveredBy returns the grants that others do not cover, as texts by target.
func (g grants) notCoveredBy(others grants) []string {
	verbs := map[string][]string{}
	for x := range g {
		if others.covers(x) {
			continue
		}
		target := x.target
		if x.name != "" {
			target += " " + x.name
		}
		verbs[target] = append(verbs[target], x.verb)
	}
	var out []string
	for target, list := range verbs {
		slices.Sort(list)
		out = append(out, target+": "+strings.Join(list, ", "))
	}
	slices.Sort(out)
	return out
}

// major returns the release's major version, which was validated when the metadata was read.
func (s *side) major() *uint64 { return new(semver.MustParse(s.metadata.Version).Major) }
