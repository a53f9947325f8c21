package failure

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/manifest/definition"
)

// StoredVersionsRemedy returns the remedy for a CRD in a release that lacks versions in which the cluster may store objects. live is the
// existing CRD.
func StoredVersionsRemedy(crd map[string]any, live *unstructured.Unstructured) string {
	var names, rest, lacking []string
	for _, v := range definition.Versions(crd) {
		names = append(names, v.Name)
		if v.Storage {
			rest = []string{v.Name}
		}
	}
	for _, v := range definition.Versions(live.Object) {
		if v.Storage && !slices.Contains(names, v.Name) { // dropping it now would make the objects unreadable
			return fmt.Sprintf("the cluster stores the objects as %s: keep this version in spec.versions of the release with served: false", v.Name)
		}
	}
	stored, _, _ := unstructured.NestedStringSlice(live.Object, "status", "storedVersions")
	for _, name := range stored {
		switch {
		case !slices.Contains(names, name):
			lacking = append(lacking, name)
		case !slices.Contains(rest, name):
			rest = append(rest, name)
		}
	}
	patch, _ := json.Marshal(map[string]any{"status": map[string]any{"storedVersions": rest}}) // strings cannot fail
	return fmt.Sprintf("keep %s in spec.versions of the release with served: false; or store another version, rewrite all objects of the kind, "+
		"and run: kubectl patch crd %s --subresource status --type merge -p '%s'", strings.Join(lacking, ", "), live.GetName(), patch)
}
