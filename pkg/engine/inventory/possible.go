package inventory

import (
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// possible reports whether an API server may contain an object with this identity. Groups, kinds and namespaces become annotations of the
// first shard. The API server rejects them, for example, if they contain a control character.
func possible(id manifest.ID) bool {
	return possibleKind(schema.GroupKind{Group: id.Group, Kind: id.Kind}) &&
		(id.Namespace == "" || possibleNamespace(id.Namespace)) &&
		id.Name != "" && len(content.IsPathSegmentName(id.Name)) == 0 && !strings.ContainsFunc(id.Name, unicode.IsControl)
}

func possibleKind(kind schema.GroupKind) bool {
	return (kind.Group == "" || len(validation.IsDNS1123Subdomain(kind.Group)) == 0) &&
		len(validation.IsDNS1035Label(strings.ToLower(kind.Kind))) == 0
}

func possibleNamespace(name string) bool { return len(validation.IsDNS1123Label(name)) == 0 }

// dropImpossible returns the records whose object an API server may contain. dropped describes the other records; it is empty if there are
// none.
func dropImpossible(records []Record) (kept []Record, dropped string) {
	kept = make([]Record, 0, len(records))
	first := ""
	for _, r := range records {
		switch {
		case possible(r.ID):
			kept = append(kept, r)
		case first == "":
			first = fmt.Sprintf("%.200q", r.ID)
		}
	}
	if n := len(records) - len(kept); n > 0 {
		dropped = fmt.Sprintf("dropped %d of %d records because no API server accepts their objects, for example %s", n, len(records), first)
	}
	return kept, dropped
}
