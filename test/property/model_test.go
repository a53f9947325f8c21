package property

import (
	"maps"
	"slices"
	"strings"
)

// engine is the owner of fields that releases set, whatever the kind of write.
const engine = "the engine"

// owned is a leaf with its owners: all writers that set its current value.
type owned struct {
	leaf
	owners map[string]bool
}

// state is the expected state of an object.
type state struct {
	exists bool
	// terminating reports that the object is deleted but kept by a finalizer.
	terminating bool
	// contested reports that the object can match its manifest only if it loses fields of another writer.
	contested bool
	// left reports that the object was removed from the history, see leave.
	left   bool
	fields map[string]owned
	// sent has the leaves of the last applied manifest of the object. ever has the leaves of all of them.
	sent, ever map[string]leaf
}

func newState() *state {
	return &state{fields: map[string]owned{}, sent: map[string]leaf{}, ever: map[string]leaf{}}
}

// object returns the state as an API object without status.
func (s *state) object() map[string]any {
	leaves := map[string]leaf{}
	for name, f := range s.fields {
		if f.at[0] != "status" {
			leaves[name] = f.leaf
		}
	}
	return unflatten(leaves)
}

// deleteObject sets the state after a deletion without finalizers.
func (s *state) deleteObject() {
	s.exists, s.terminating = false, false
	s.fields, s.sent = map[string]owned{}, map[string]leaf{}
}

// apply models a server-side apply, which declares all fields that its owner wants. Fields that the owner no longer declares are removed
// unless another owner has them too. Declared fields get the declared values, and other owners lose a field whose value changes.
func (s *state) apply(k kind, by string, want map[string]leaf) {
	s.exists = true
	for name, f := range s.fields {
		if _, keeps := want[name]; keeps || !f.owners[by] {
			continue
		}
		delete(f.owners, by)
		if len(f.owners) == 0 {
			delete(s.fields, name)
		}
	}
	s.dropBroken(k)
	for name, l := range want {
		s.endOthers(k, l)
		if f, ok := s.fields[name]; ok && same(f.value, l.value) {
			f.owners[by] = true
			continue
		}
		s.fields[name] = owned{leaf: l, owners: map[string]bool{by: true}}
	}
	s.normalizeKeys(k)
}

// update models a write of the whole object. The writer owns the fields that it changed, removed fields are gone, and all others keep their
// owners. A removed field with a default gets the default, owned by the writer that removed it.
func (s *state) update(k kind, by string, next map[string]leaf) {
	s.exists = true
	for name, f := range s.fields {
		if _, ok := next[name]; ok {
			continue
		}
		delete(s.fields, name)
		if fallback := k.fallback(f.at); fallback != nil && holds(next, f.at) {
			if same(fallback, f.value) {
				s.fields[name] = f
			} else {
				s.fields[name] = owned{leaf: leaf{f.at, fallback}, owners: map[string]bool{by: true}}
			}
		}
	}
	for name, l := range next {
		if f, ok := s.fields[name]; !ok || !same(f.value, l.value) {
			s.fields[name] = owned{leaf: l, owners: map[string]bool{by: true}}
		}
	}
	s.normalizeKeys(k)
}

// fallback returns the default of the field at a path, nil if it has none.
func (k kind) fallback(at path) any {
	for _, s := range k.slots {
		if slices.Equal(s.at, at) {
			return s.fallback
		}
	}
	return nil
}

// holds reports whether the innermost item around a path exists.
func holds(leaves map[string]leaf, at path) bool {
	for end := len(at) - 1; end > 0; end-- {
		if !isItem(at[end]) {
			continue
		}
		for _, l := range leaves {
			if l.at.within(at[:end+1]) {
				return true
			}
		}
		return false
	}
	return true
}

// endOthers removes the leaves that a new leaf excludes.
func (s *state) endOthers(k kind, l leaf) {
	for depth := len(l.at) - 1; depth > 0; depth-- {
		parent := l.at[:depth]
		members, ok := k.shape.unions[parent.pattern()]
		if !ok {
			continue
		}
		mine := slices.IndexFunc(members, func(m string) bool { return isMember(m, l, depth) })
		if mine < 0 {
			continue
		}
		for name, f := range s.fields {
			if !f.at.within(parent) || len(f.at) <= depth {
				continue
			}
			other := slices.IndexFunc(members, func(m string) bool { return isMember(m, f.leaf, depth) })
			if other >= 0 && other != mine {
				s.lose(name)
			}
		}
	}
}

// isMember reports whether a leaf belongs to a member of a union, which is a field or a field with a certain value.
func isMember(member string, l leaf, depth int) bool {
	name, value, hasValue := strings.Cut(member, "=")
	return l.at[depth] == name && (!hasValue || l.value == value)
}

// dropBroken removes items without a required part.
func (s *state) dropBroken(k kind) {
	for _, f := range maps.Clone(s.fields) {
		for depth := 1; depth <= len(f.at); depth++ {
			item := f.at[:depth]
			for _, need := range k.shape.needs[item.pattern()] {
				if s.within(item.join(need)) {
					continue
				}
				for name, other := range s.fields {
					if other.at.within(item) {
						s.lose(name)
					}
				}
			}
		}
	}
}

// lose removes a field with any owners.
func (s *state) lose(name string) {
	for by := range s.fields[name].owners {
		s.contested = s.contested || by != engine
	}
	delete(s.fields, name)
}

// within reports whether a field is at a path or below it.
func (s *state) within(at path) bool {
	for _, f := range s.fields {
		if f.at.within(at) {
			return true
		}
	}
	return false
}

// normalizeKeys removes the keys of items whose only fields are keys without owners, and adds the keys to every other item.
func (s *state) normalizeKeys(k kind) {
	items := map[string]path{}
	for _, f := range s.fields {
		for i, step := range f.at {
			if isItem(step) && !strings.HasPrefix(step, "[=") && k.shape.lists[f.at[:i].pattern()] != nil {
				items[f.at[:i+1].String()] = f.at[:i+1]
			}
		}
	}
	for _, at := range items {
		keys := itemKeys(at[len(at)-1])
		lives := false
		for _, f := range s.fields {
			if f.at.within(at) && len(f.owners) > 0 {
				lives = true
			}
		}
		for key, value := range keys {
			name := at.join(key).String()
			f, ok := s.fields[name]
			switch {
			case lives && !ok:
				s.fields[name] = owned{leaf{at.join(key), value}, map[string]bool{}}
			case !lives && ok && len(f.owners) == 0:
				delete(s.fields, name)
			}
		}
	}
}

// leaves returns the leaves of all fields except status.
func (s *state) leaves() map[string]leaf {
	out := map[string]leaf{}
	for name, f := range s.fields {
		if f.at[0] != "status" {
			out[name] = f.leaf
		}
	}
	return out
}

// setStatus models a write of a part of the status.
func (s *state) setStatus(k kind, by string, status map[string]any) {
	for name, l := range flatten(k.shape, object{"status": status}) {
		s.fields[name] = owned{leaf: l, owners: map[string]bool{by: true}}
	}
}

// ownerNames lists the owners of a field for people.
func (f owned) ownerNames() string { return strings.Join(slices.Sorted(maps.Keys(f.owners)), ", ") }

// marks returns the engine's additions to every object: a label and a reference to the owning ClusterVersion. The reference is a controller
// reference unless the object is create-only.
func marks(createOnly bool) map[string]any {
	reference := object{"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "name": ownerName, "uid": ownerUID}
	if !createOnly {
		reference["controller"] = true
	}
	return object{
		"labels":          object{"cvo.cluster-version.github.io/owned-by": ownerName},
		"ownerReferences": []any{reference},
	}
}

const (
	ownerName = "version"
	ownerUID  = "5b5c5d5e-0000-4000-8000-00000000000a"
)

// roll models the rollout of a release. It applies every manifest, but create-only ones only if the object does not exist. Tombstones
// delete their object. Overridden objects do not change.
func roll(states map[string]*state, rel releaseData) {
	for _, m := range rel.manifests {
		s := states[m.id()]
		switch {
		case m.overridden:
		case m.tombstone():
			if rel.installs || !s.exists {
				break
			}
			if s.held() {
				s.terminating = true
			} else {
				s.deleteObject()
			}
		case m.createOnly() && s.exists:
		default:
			want := flatten(m.kind.shape, m.marked())
			s.contested = false
			s.giveUpScale(m.kind, want)
			s.apply(m.kind, engine, want)
			s.sent = want
			maps.Copy(s.ever, want)
		}
	}
}

// giveUpScale models that a manifest without replicas keeps the number that an earlier one has set. It belongs to no release from then on.
func (s *state) giveUpScale(k kind, want map[string]leaf) {
	name := parsePath("spec.replicas").String()
	if _, sets := want[name]; sets || !k.scales || !s.fields[name].owners[engine] {
		return
	}
	owners := s.fields[name].owners
	delete(owners, engine)
	if len(owners) == 0 {
		owners["no one (kept scale)"] = true
	}
}

// held reports whether a finalizer would delay the deletion of the object.
func (s *state) held() bool {
	for _, f := range s.fields {
		if f.at[0] == "metadata" && f.at[1] == "finalizers" {
			return true
		}
	}
	return false
}
