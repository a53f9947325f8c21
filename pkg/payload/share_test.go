package payload

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/manifest"
)

func TestShareKeepsValues(t *testing.T) {
	negative := math.Copysign(0, -1)
	for _, tt := range []struct {
		name   string
		values []any
		maps   int // distinct maps and lists that remain
		lists  int
	}{
		{name: "merges equal maps", values: []any{m("a", int64(1)), m("a", int64(1))}, maps: 1},
		{name: "merges equal nested maps", values: []any{m("x", m("a", "b")), m("y", m("a", "b"))}, maps: 3},
		{name: "merges equal lists", values: []any{[]any{"a", m("b", nil)}, []any{"a", m("b", nil)}}, maps: 1, lists: 1},
		{name: "keeps lists in different order", values: []any{[]any{"a", "b"}, []any{"b", "a"}}, lists: 2},
		{name: "keeps maps with swapped values", values: []any{m("a", "x", "b", "y"), m("a", "y", "b", "x")}, maps: 2},
		{name: "distinguishes a map from a list", values: []any{m(), []any{}}, maps: 1, lists: 1},
		{name: "distinguishes null from empty", values: []any{m("a", nil), m("a", ""), m("a", m()), m("a", []any{}), m()}, maps: 5, lists: 1},
		{name: "distinguishes numbers by type", values: []any{m("a", int64(1)), m("a", 1.5), m("a", "1"), m("a", true)}, maps: 4},
		{name: "distinguishes -0 from 0", values: []any{m("a", 0.0), m("a", negative)}, maps: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want, err := json.Marshal(tt.values)
			require.NoError(t, err)
			s := newSharer()
			shared := make([]any, len(tt.values))
			for i, v := range tt.values {
				shared[i], _ = s.share(v)
			}
			got, err := json.Marshal(shared)
			require.NoError(t, err)
			assert.Equal(t, string(want), string(got))
			places := map[uintptr]bool{}
			for _, v := range shared {
				collect(v, places)
			}
			assert.Len(t, places, tt.maps)
			assert.Len(t, s.lists, tt.lists)
		})
	}
}

// m makes a map of alternating keys and values.
func m(pairs ...any) map[string]any {
	out := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i].(string)] = pairs[i+1]
	}
	return out
}

// collect records the addresses of the maps in a value.
func collect(value any, places map[uintptr]bool) {
	switch v := value.(type) {
	case map[string]any:
		places[address(v)] = true
		for _, item := range v {
			collect(item, places)
		}
	case []any:
		for _, item := range v {
			collect(item, places)
		}
	}
}

func places(p *Payload) map[uintptr]bool {
	all := map[uintptr]bool{}
	for _, m := range p.Manifests {
		collect(m.Object.Object, all)
	}
	for _, e := range p.Excluded {
		collect(e.Manifest.Object.Object, all)
	}
	return all
}

func definition(kind string, fields int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: %s.example.com}\nspec:\n  properties:\n", kind)
	for i := range fields {
		fmt.Fprintf(&b, "    f%d: {type: string, description: field %d, items: [{n: %d}]}\n", i, i, i)
	}
	return b.String()
}

func tree(version string, files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{
		"manifests/.gitkeep": {},
		MetadataFile:         {Data: fmt.Appendf(nil, `{kind: cincinnati-metadata-v0, version: %s}`, version)},
		ReferencesFile:       {Data: fmt.Appendf(nil, `{kind: ImageStream, apiVersion: image.openshift.io/v1, metadata: {name: %s}}`, version)},
	}
	for name, text := range files {
		fsys["release-manifests/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

func TestLoadSharesWithTheRunningRelease(t *testing.T) {
	first, err := Load(tree("1.0.0", map[string]string{
		"0000_10_a_00.yaml": definition("a", 50), "0000_10_b_00.yaml": definition("b", 50),
	}), "", Options{})
	require.NoError(t, err)
	// Both CRDs have the same 50 fields, each with a list of one map.
	held := places(first)
	assert.LessOrEqual(t, len(held), 100+10)
	before := text(t, first)

	second := tree("1.1.0", map[string]string{
		"0000_10_a_00.yaml": definition("a", 50), "0000_10_b_00.yaml": definition("b", 51),
	})
	alone, err := Load(second, "", Options{})
	require.NoError(t, err)
	beside, err := Load(second, "", Options{Running: first})
	require.NoError(t, err)
	assert.Equal(t, text(t, alone), text(t, beside))
	assert.Equal(t, alone.Hash, beside.Hash)
	assert.Equal(t, before, text(t, first), "the running release must not change")

	added := 0
	for place := range places(beside) {
		if !held[place] {
			added++
		}
	}
	assert.LessOrEqual(t, added, 10, "only new values and their containers may be added")
}

func text(t *testing.T, p *Payload) string {
	t.Helper()
	var b strings.Builder
	for _, m := range p.Manifests {
		data, err := m.Object.MarshalJSON()
		require.NoError(t, err)
		fmt.Fprintf(&b, "%s %x\n%s", m, m.Content, data)
	}
	return b.String()
}

// Values are shared as far as possible even if a release was loaded without sharing or its objects were merged.
func TestLearnSharesMostUnsharedValues(t *testing.T) {
	p := &Payload{Manifests: []*manifest.Manifest{parseOne(t, definition("a", 3)), parseOne(t, definition("a", 3))}}
	before := places(p)
	s := newSharer()
	s.learn(p)
	assert.Equal(t, before, places(p), "learn must not move any value")
	shared, _ := s.share(parseOne(t, definition("a", 3)).Object.Object)
	assert.Equal(t, p.Manifests[0].Object.Object, shared)
	found := map[uintptr]bool{}
	collect(shared, found)
	for place := range found {
		assert.True(t, before[place])
	}
}

func parseOne(t *testing.T, text string) *manifest.Manifest {
	t.Helper()
	list, err := manifest.Parse("0000_10_a_00.yaml", []byte(text), manifest.Limits{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func TestInOrderYieldsResultsInOrder(t *testing.T) {
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint(i))
	}
	t.Run("keeps the order and does not read too far ahead", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const width = 3
			begun := make(chan struct{}, len(names))
			got, most := []string{}, 0
			for r := range inOrder(names, width, func(name string) result {
				begun <- struct{}{}
				return result{skipped: &Skip{File: name}}
			}) {
				synctest.Wait()
				got = append(got, r.skipped.File)
				most = max(most, len(begun)-len(got))
			}
			assert.Equal(t, names, got)
			assert.Positive(t, most)
			assert.LessOrEqual(t, most, 3*width+1)
		})
	})
	t.Run("stops when its caller stops", func(t *testing.T) {
		synctest.Test(t, func(*testing.T) {
			for r := range inOrder(names, 2, func(name string) result { return result{skipped: &Skip{File: name}} }) {
				if r.skipped.File == "5" {
					break
				}
			}
		})
	})
	t.Run("yields nothing without names", func(t *testing.T) {
		for range inOrder(nil, 2, nil) {
			t.Fail()
		}
	})
}
