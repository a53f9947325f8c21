package schema_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/author/compare/schema"
)

func TestCompareFindsBreakingChanges(t *testing.T) {
	object := func(fields map[string]any, more ...any) map[string]any {
		out := map[string]any{"type": "object", "properties": fields}
		for i := 0; i < len(more); i += 2 {
			out[more[i].(string)] = more[i+1]
		}
		return out
	}
	text := map[string]any{"type": "string"}
	for _, tt := range []struct {
		name          string
		before, after map[string]any
		want          []schema.Change
	}{
		{"ignores equal schemas", object(map[string]any{"a": text}), object(map[string]any{"a": text}), nil},
		{
			"sorts by path", object(map[string]any{"b": text}), object(map[string]any{"a": text}),
			[]schema.Change{{Version: "v1", Path: "a", What: "added", Detail: "string"}, {Version: "v1", Path: "b", What: "removed", Detail: "string", Breaking: true}},
		},
		{
			"reports another type of an item",
			object(map[string]any{"a": map[string]any{"type": "array", "items": text}}),
			object(map[string]any{"a": map[string]any{"type": "array", "items": map[string]any{"type": "integer"}}}),
			[]schema.Change{{Version: "v1", Path: "a[]", What: "changed", Detail: "type string → integer", Breaking: true}},
		},
		{
			"breaks by a new required field", object(map[string]any{"a": text}), object(map[string]any{"a": text}, "required", []any{"a"}),
			[]schema.Change{{Version: "v1", Path: "a", What: "tightened", Detail: "is required", Breaking: true}},
		},
		{
			"ignores names that are none", object(map[string]any{"a": text}), object(map[string]any{"a": text}, "required", []any{1}), nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, schema.Compare("v1", tt.before, tt.after)) })
	}
}
