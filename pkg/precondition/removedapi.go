package precondition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// shownAPIs is how many APIs a refusal names.
const shownAPIs = 5

// removedAPI refuses a release with an object of an API that the server knows, but not in this version or not this kind of
// it, and that the release does not bring either: its rollout would wait at that object for ever. An API that the server
// does not know at all may come with an operator of the release, and what cannot be asked may well be served: both pass.
func removedAPI(in Input) *Objection {
	if in.Server.Err != nil {
		return unknownServer(in.Server.Err)
	}
	missing := missingAPIs(in)
	if len(missing) == 0 {
		return nil
	}
	texts := make([]string, 0, shownAPIs+1)
	for i, m := range missing {
		if i == shownAPIs {
			texts = append(texts, fmt.Sprintf("and %d more APIs", len(missing)-i))
			break
		}
		texts = append(texts, m.text(in.Server))
	}
	return &Objection{
		Reason: "APINotServed",
		Message: fmt.Sprintf("Release %s uses APIs that the API server, Kubernetes %s, does not serve: %s. Choose a release that is made for this server, or have the server serve them (%s).",
			in.Target.Version, cmp.Or(in.Server.Version, "of unknown version"), strings.Join(texts, "; "), docs("removedapi")),
	}
}

// missingAPI is an API that is not served, and the manifests of it.
type missingAPI struct {
	gvk   schema.GroupVersionKind
	file  string
	count int
}

// missingAPIs are in the order of the first manifest that uses each.
func missingAPIs(in Input) []missingAPI {
	groups := map[string]bool{}
	for gvk := range in.Server.Kinds {
		groups[gvk.Group] = true
	}
	kinds, versions := brought(in.Manifests)
	at := map[schema.GroupVersionKind]int{}
	var missing []missingAPI
	for _, m := range in.Manifests {
		gvk := m.GVK()
		gv := gvk.GroupVersion()
		if m.Tombstone() || !groups[gvk.Group] || in.Server.Kinds[gvk] || in.Server.Unknown[gv] || kinds[gvk] || versions[gv] {
			continue
		}
		i, known := at[gvk]
		if !known {
			i = len(missing)
			at[gvk] = i
			missing = append(missing, missingAPI{gvk: gvk, file: m.File})
		}
		missing[i].count++
	}
	return missing
}

// brought are the kinds that CRDs among manifests define, and the versions of groups that APIServices bring.
func brought(manifests []*manifest.Manifest) (kinds map[schema.GroupVersionKind]bool, versions map[schema.GroupVersion]bool) {
	kinds, versions = map[schema.GroupVersionKind]bool{}, map[schema.GroupVersion]bool{}
	for _, m := range manifests {
		if m.Tombstone() {
			continue
		}
		group, _, _ := unstructured.NestedString(m.Object.Object, "spec", "group")
		switch {
		case m.Is("apiextensions.k8s.io", "CustomResourceDefinition"):
			kind, _, _ := unstructured.NestedString(m.Object.Object, "spec", "names", "kind")
			list, _, _ := unstructured.NestedSlice(m.Object.Object, "spec", "versions")
			for _, entry := range list {
				version, _ := entry.(map[string]any)
				name, _ := version["name"].(string)
				if served, _ := version["served"].(bool); served {
					kinds[schema.GroupVersionKind{Group: group, Version: name, Kind: kind}] = true
				}
			}
		case m.Is("apiregistration.k8s.io", "APIService"):
			version, _, _ := unstructured.NestedString(m.Object.Object, "spec", "version")
			versions[schema.GroupVersion{Group: group, Version: version}] = true
		}
	}
	return kinds, versions
}

// text reads like `policy/v1beta1 PodDisruptionBudget in 0000_50_dns_10.yaml (it serves policy/v1)`.
func (m missingAPI) text(server Server) string {
	text := fmt.Sprintf("%s %s in %s", m.gvk.GroupVersion(), m.gvk.Kind, m.file)
	if m.count > 1 {
		text += fmt.Sprintf(" and %d more", m.count-1)
	}
	var served []string
	for gvk := range server.Kinds {
		if gvk.GroupKind() == m.gvk.GroupKind() {
			served = append(served, gvk.GroupVersion().String())
		}
	}
	if len(served) == 0 {
		return text + " (it serves no " + m.gvk.GroupKind().String() + ")"
	}
	slices.Sort(served)
	return text + " (it serves " + strings.Join(served, ", ") + ")"
}
