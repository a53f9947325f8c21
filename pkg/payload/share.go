package payload

import (
	"hash/maphash"
	"math"
	"reflect"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// sharer stores equal values only once in memory. In a real release, two of three maps have a duplicate, mostly in the schemas of CRDs. In
// the next release, nineteen of twenty maps also occur in the earlier release. Sharing is safe because objects of a payload are never
// modified.
type sharer struct {
	seed maphash.Seed
	// maps and lists hold the unique copies by hash. The content of a unique copy is unique as well, so comparing two of them takes only
	// one level. Of several values with the same hash, only the first is shared: a release has some hundred thousand values.
	maps  map[uint64]map[string]any
	lists map[uint64][]any
}

func newSharer() *sharer {
	return &sharer{seed: maphash.MakeSeed(), maps: map[uint64]map[string]any{}, lists: map[uint64][]any{}}
}

// manifest makes a manifest's object share its values. The object must not be in use yet.
func (s *sharer) manifest(m *manifest.Manifest) {
	for key, value := range m.Object.Object {
		m.Object.Object[key], _ = s.share(value)
	}
}

// share returns the unique copy of a value and the value's hash. The first of several equal values becomes the unique copy. share modifies
// the content of value.
func (s *sharer) share(value any) (any, uint64) {
	switch v := value.(type) {
	case map[string]any:
		hash := uint64(len(v))
		for key, item := range v {
			shared, h := s.share(item)
			v[key] = shared
			hash += s.entry(key, h)
		}
		return s.sharedMap(hash, v), hash
	case []any:
		hash := uint64(len(v)) + 1
		for i, item := range v {
			var h uint64
			v[i], h = s.share(item)
			hash = maphash.Comparable(s.seed, [2]uint64{hash, h})
		}
		return s.sharedList(hash, v), hash
	}
	return value, s.scalar(value)
}

func (s *sharer) sharedMap(hash uint64, v map[string]any) map[string]any {
	known, found := s.maps[hash]
	if !found {
		s.maps[hash] = v
	}
	if found && sameMap(known, v) {
		return known
	}
	return v
}

func (s *sharer) sharedList(hash uint64, v []any) []any {
	known, found := s.lists[hash]
	if !found {
		s.lists[hash] = v
	}
	if found && sameList(known, v) {
		return known
	}
	return v
}

// entry returns the contribution of a map entry to the map's hash. The contributions are added, because a map has no order.
func (s *sharer) entry(key string, value uint64) uint64 {
	return maphash.Comparable(s.seed, struct {
		key   string
		value uint64
	}{key, value})
}

func (s *sharer) scalar(value any) uint64 {
	if value == nil {
		return 0
	}
	return maphash.Comparable(s.seed, value)
}

// learn makes later values share the values of p. It does not modify p, because others may read it concurrently.
func (s *sharer) learn(p *Payload) {
	l := learner{sharer: s, seen: map[uintptr]learned{}}
	for _, m := range p.Manifests {
		l.learn(m.Object.Object)
	}
	for _, e := range p.Excluded {
		l.learn(e.Manifest.Object.Object)
	}
}

// learner walks values that already share parts. It visits each part once.
type learner struct {
	*sharer
	seen map[uintptr]learned
}

type learned struct {
	hash uint64
	// one is true if the value and all its content are unique copies.
	one bool
}

func (l *learner) learn(value any) learned {
	switch v := value.(type) {
	case map[string]any:
		at := address(v)
		if known, ok := l.seen[at]; ok {
			return known
		}
		result := learned{hash: uint64(len(v)), one: true}
		for key, item := range v {
			inner := l.learn(item)
			result.hash += l.entry(key, inner.hash)
			result.one = result.one && inner.one
		}
		// A value that contains copies cannot be found by the addresses of its content.
		result.one = result.one && address(l.sharedMap(result.hash, v)) == at
		l.seen[at] = result
		return result
	case []any:
		result := learned{hash: uint64(len(v)) + 1, one: true}
		for _, item := range v {
			inner := l.learn(item)
			result.hash = maphash.Comparable(l.seed, [2]uint64{result.hash, inner.hash})
			result.one = result.one && inner.one
		}
		result.one = result.one && same(l.sharedList(result.hash, v), v)
		return result
	}
	return learned{hash: l.scalar(value), one: true}
}

func address(value any) uintptr { return reflect.ValueOf(value).Pointer() }

func sameMap(a, b map[string]any) bool {
	if len(a) != len(b) || (a == nil) != (b == nil) {
		return false
	}
	for key, x := range a {
		if y, ok := b[key]; !ok || !same(x, y) {
			return false
		}
	}
	return true
}

func sameList(a, b []any) bool {
	if len(a) != len(b) || (a == nil) != (b == nil) {
		return false
	}
	for i := range a {
		if !same(a[i], b[i]) {
			return false
		}
	}
	return true
}

// same compares values whose maps and lists are unique copies: maps and lists by address, scalars by value.
func same(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && address(x) == address(y)
	case []any:
		y, ok := b.([]any)
		return ok && len(x) == len(y) && (x == nil) == (y == nil) && (len(x) == 0 || &x[0] == &y[0])
	case float64:
		y, ok := b.(float64)
		return ok && math.Float64bits(x) == math.Float64bits(y) // JSON distinguishes -0 from 0
	}
	if _, ok := b.(map[string]any); ok {
		return false
	}
	if _, ok := b.([]any); ok {
		return false
	}
	return a == b
}
