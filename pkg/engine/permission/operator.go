package permission

import (
	"io/fs"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// OperatorRoles returns the operator's own roles and bindings from its set of manifests, with account as the subject.
func OperatorRoles(set fs.FS, account Account) ([]any, error) {
	names, err := fs.Glob(set, "*_roles.yaml")
	if err != nil {
		return nil, err
	}
	var out []any
	for _, name := range names {
		data, err := fs.ReadFile(set, name)
		if err != nil {
			return nil, err
		}
		list, err := manifest.Parse(name, data, manifest.Limits{})
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			if object := forAccount(m.Object, list, account); object != nil {
				out = append(out, object)
			}
		}
	}
	return out, nil
}

// forAccount returns a binding of the operator's account with account as its subject, or a role that such a binding refers to. It returns
// nil for any other object.
func forAccount(object *unstructured.Unstructured, all []*manifest.Manifest, account Account) any {
	if strings.HasSuffix(object.GetKind(), "Binding") {
		if !bindsOperator(object) {
			return nil
		}
		copied := object.DeepCopy()
		copied.Object["subjects"] = []any{map[string]any{"kind": rbacv1.ServiceAccountKind, "namespace": account.Namespace, "name": account.Name}}
		return withoutProfiles(copied)
	}
	bound := slices.ContainsFunc(all, func(m *manifest.Manifest) bool {
		kind, _, _ := unstructured.NestedString(m.Object.Object, "roleRef", "kind")
		name, _, _ := unstructured.NestedString(m.Object.Object, "roleRef", "name")
		return bindsOperator(m.Object) && kind == object.GetKind() && name == object.GetName() && m.Object.GetNamespace() == object.GetNamespace()
	})
	if !bound {
		return nil
	}
	return withoutProfiles(object.DeepCopy())
}

func bindsOperator(object *unstructured.Unstructured) bool {
	subjects, _, _ := unstructured.NestedSlice(object.Object, "subjects")
	return slices.ContainsFunc(subjects, func(s any) bool {
		subject, _ := s.(map[string]any)
		return subject["name"] == api.OperatorServiceAccount && subject["namespace"] == api.OperatorNamespace
	})
}

// withoutProfiles returns the object without the annotations that matter only inside a release.
func withoutProfiles(object *unstructured.Unstructured) map[string]any {
	annotations := object.GetAnnotations()
	for name := range annotations {
		if strings.HasPrefix(name, api.IncludePrefix) {
			delete(annotations, name)
		}
	}
	object.SetAnnotations(annotations)
	object.SetCreationTimestamp(metav1.Time{})
	return object.Object
}
