package precondition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/manifest/definition"
)

// shownAPIs is the maximum number of APIs in a message.
const shownAPIs = 5

// removedAPI rejects a release with an object whose version or kind is not served, although the server knows the API group and the release
// does not add the API either. The rollout would wait at that object forever. Two cases pass: one of the release's operators may add a
// group that the server does not know, and an API whose server does not respond may still be served.
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
		Message: fmt.Sprintf("Release %s uses APIs that the API server, Kubernetes %s, does not serve: %s. Choose a release for this Kubernetes version, or enable the APIs on the server (%s).",
			in.Target.Version, cmp.Or(in.Server.Version, "of unknown version"), strings.Join(texts, "; "), docs("removedapi")),
	}
}

// missingAPI is an API that is not served, and the manifests that use it.
type missingAPI struct {
	gvk   schema.GroupVersionKind
	file  string
	count int
}

// missingAPIs returns the missing APIs in the order of their first manifest.
func missingAPIs(in Input) []missingAPI {
	groups := map[string]bool{}
	for gvk := range in.Server.Kinds {
		groups[gvk.Group] = true
	}
	kinds, versions := provided(in.Manifests)
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

// provided returns the kinds of the CRDs among manifests, and the group versions of the APIServices.
func provided(manifests []*manifest.Manifest) (kinds map[schema.GroupVersionKind]bool, versions map[schema.GroupVersion]bool) {
	kinds, versions = map[schema.GroupVersionKind]bool{}, map[schema.GroupVersion]bool{}
	for _, m := range manifests {
		if m.Tombstone() {
			continue
		}
		defined, isDefinition := m.Defines()
		switch {
		case isDefinition:
			for _, v := range definition.Versions(m.Object.Object) {
				if v.Served {
					kinds[defined.WithVersion(v.Name)] = true
				}
			}
		case m.Is("apiregistration.k8s.io", "APIService"):
			group, _, _ := unstructured.NestedString(m.Object.Object, "spec", "group")
			version, _, _ := unstructured.NestedString(m.Object.Object, "spec", "version")
			versions[schema.GroupVersion{Group: group, Version: version}] = true
		}
	}
	return kinds, versions
}

// text returns a text such as `policy/v1beta1 PodDisruptionBudget in 0000_50_dns_10.yaml (served: policy/v1)`.
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
		return text + " (no version of " + m.gvk.GroupKind().String() + " is served)"
	}
	slices.Sort(served)
	return text + " (served: " + strings.Join(served, ", ") + ")"
}
