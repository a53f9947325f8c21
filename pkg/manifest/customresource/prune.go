package customresource

import (
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/internal/difference"
)

// Pruned returns the first field of the stored schema that the API server prunes if a client applies the object with another schema; empty if
// there is none. path is the path of both schemas. Of whole objects, whose path is empty, it compares the spec.
func Pruned(applied, stored map[string]any, path string) string {
	s, other := part(applied), part(stored)
	for _, name := range sets.List(sets.KeySet(other.below("properties"))) {
		if path == "" && name != "spec" {
			continue
		}
		field, inner := difference.Join(path, name), s.field(name)
		if inner == nil && !s.is("x-kubernetes-preserve-unknown-fields") && !s.is("additionalProperties") {
			return field
		}
		if found := Pruned(inner, other.field(name), field); inner != nil && found != "" {
			return found
		}
	}
	if items := s.below("items"); items != nil {
		return Pruned(items, other.below("items"), path+"[*]")
	}
	return ""
}
