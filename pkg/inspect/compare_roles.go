package inspect

import (
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/manifest"
)

const rbacGroup = "rbac.authorization.k8s.io"

// RoleChange is a Role or ClusterRole that allows more or less than before, or a binding to one that allows everything.
type RoleChange struct {
	Object    manifest.ID `json:"object"`
	Component string      `json:"component"`
	// Widened and Narrowed read like `deployments.apps: create, delete`.
	Widened  []string `json:"widened,omitempty"`
	Narrowed []string `json:"narrowed,omitempty"`
}

// everything is the role that allows everything.
const everything = "cluster-admin"

// compareRole tells what a change of RBAC allows.
func (c *Comparison) compareRole(object ObjectChange, a, b *manifest.Manifest) {
	change := RoleChange{Object: object.Object, Component: object.Component}
	switch kind := object.Object.Kind; {
	case object.Object.Group != rbacGroup:
		return
	case a != nil && b != nil && (kind == "Role" || kind == "ClusterRole") && !b.Tombstone():
		old, now := grantsOf(a), grantsOf(b)
		change.Widened, change.Narrowed = now.beyond(old), old.beyond(now)
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

// newAdmins are subjects that may do everything now.
func newAdmins(a, b *manifest.Manifest) []string {
	admins := func(m *manifest.Manifest) sets.Set[string] {
		out := sets.New[string]()
		if m == nil || m.Tombstone() {
			return out
		}
		if ref := child(m.Object.Object, "roleRef"); ref["name"] != everything {
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

// grant is one thing that a role allows: a verb on a resource, on one object of it by name, or on a URL.
type grant struct{ target, name, verb string }

type grants map[grant]bool

// maxGrants bounds how many single grants a role is taken apart into.
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

// covers reports whether a grant is among those, or part of a wider one.
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

// beyond words what is granted beyond others, by target.
func (g grants) beyond(others grants) []string {
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

// major is the release's major version; its metadata was read with it.
func (s *side) major() uint64 { return semver.MustParse(s.metadata.Version).Major }
