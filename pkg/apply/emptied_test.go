package apply_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// TestLastEntryOfAForeignMapIsRemoved removes our entry from a map that another writer created, when it is the last entry. The server would
// leave null in its place, which the schema rejects.
func TestLastEntryOfAForeignMapIsRemoved(t *testing.T) {
	serveCRD(t, parse(t, formsCRD))
	ns := namespace(t)
	for _, tt := range []struct{ name, theirs, ours, next, want string }{
		{"a map", `text: t, map: {ours: x}`, `map: {ours: two}`, `number: 1`, `spec: {text: t, number: 1, map: null}`},
		{"a map with an entry of another writer", `text: t, map: {ours: x, theirs: x}`, `map: {ours: two}`, `number: 1`, `spec: {text: t, number: 1, map: {ours: null, theirs: x}}`},
		{"an object in an object", `text: t, object: {b: {c: x}}`, `object: {b: {c: two}}`, `number: 1`, `spec: {text: t, number: 1, object: null}`},
		{"a set", `text: t, set: [ours]`, `set: [ours]`, `number: 1`, `spec: {text: t, number: 1}`},
		{"a list", `text: t, keyed: [{name: a, value: x}]`, `keyed: [{name: a, value: two}]`, `number: 1`, `spec: {text: t, number: 1}`},
		{"all of the spec", `map: {ours: x}`, `map: {ours: two}`, ``, ``},
	} {
		for i, writer := range writers {
			t.Run("it empties "+tt.name+" by "+writer.name, func(t *testing.T) {
				a, record := connect(t, owner)
				parsed := func(spec string) *manifest.Manifest {
					m := parse(t, inNamespace(ns, widgetText(spec)))
					m.Object.SetName(slug(tt.name) + "-" + string(rune('a'+i)))
					if spec == "" {
						delete(m.Object.Object, "spec")
					}
					return m
				}
				if !writer.before {
					must(t, a, parsed(tt.ours))
				}
				writer.write(t, parsed(tt.theirs))
				must(t, a, parsed(tt.ours))
				next := parsed(tt.next)
				predicted, err := a.Predict(t.Context(), next, release.Updating)
				require.NoError(t, err)
				record.drain()
				assert.Equal(t, apply.Applied, must(t, a, next).Action)
				assert.LessOrEqual(t, len(record.drain()), 7)
				obj := live(t, next)
				assert.Nil(t, at(obj.Object, "spec.map.ours"))
				if tt.want != "" {
					assertMatches(t, tt.want, obj.Object)
				}
				assert.Equal(t, stored(obj), stored(predicted.Object))
				must(t, a, next)
				assert.Len(t, record.drain(), 1)
			})
		}
	}
}
