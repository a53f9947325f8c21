package permission

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Account is the service account that the operator runs as.
type Account struct{ Namespace, Name string }

// OperatorAccount is the one that the operator's own manifests bring.
func OperatorAccount() Account {
	return Account{Namespace: api.OperatorNamespace, Name: api.OperatorServiceAccount}
}

// File is the name that a release has for its role among its manifests. It is of the last runlevel: what the release
// before it took is given up when nothing of it is needed any more.
const File = "0000_90_cluster-version-operator_90_release-role.yaml"

// Role returns a role of the operator with what it is allowed.
func Role(name, description string, rules []rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{descriptionAnnotation: description}},
		Rules:      rules,
	}
}

// Binding returns what gives an account the role of that name.
func Binding(role string, account Account) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: role, Annotations: map[string]string{descriptionAnnotation: "Lets the version operator do what the ClusterRole of the same name says."}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacGroup, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}
}

const descriptionAnnotation = "kubernetes.io/description"

// What the two roles are for.
const (
	ReleaseDescription = "What applying the release takes that the cluster runs, object by object. Made from its manifests."
	UpdateDescription  = "What an update or a preflight that is under way takes beyond the running release. Written by the version operator; empty at rest."
)

// ReleaseManifest returns the file with the role and its binding that a release of those manifests brings. The role covers
// itself. Clusters get it whichever of the profiles they have that the manifests are for.
func ReleaseManifest(manifests []*manifest.Manifest) ([]byte, error) {
	own := grants{}
	role, binding := newResources(nil).of(roleKind), newResources(nil).of(bindingKind)
	own.add(role, api.ReleaseRole, "get", "create", "update", "patch", "escalate", "bind")
	own.add(binding, api.ReleaseRole, "get", "create", "update", "patch")
	own.add(role, all, "list", "watch")
	own.add(binding, all, "list", "watch")
	rules := Union(Rules(manifests), own.rules())

	r, b := Role(api.ReleaseRole, ReleaseDescription, rules), Binding(api.ReleaseRole, OperatorAccount())
	for _, annotation := range includes(manifests) {
		r.Annotations[annotation], b.Annotations[annotation] = "true", "true"
	}
	return YAML(r, b)
}

// includes returns the annotations by which the manifests say which profiles they are for, sorted; those of the default
// profile are always among them.
func includes(manifests []*manifest.Manifest) []string {
	found := map[string]bool{api.IncludePrefix + api.DefaultProfile: true}
	for _, m := range manifests {
		for name, value := range m.Object.GetAnnotations() {
			if strings.HasPrefix(name, api.IncludePrefix) && value == "true" {
				found[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// YAML writes objects as documents of one file.
func YAML(objects ...any) ([]byte, error) {
	var out bytes.Buffer
	for i, object := range objects {
		data, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("writing a role: %w", err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(data)
	}
	return out.Bytes(), nil
}

// RulesOf reads the rules of a role from its manifest.
func RulesOf(m *manifest.Manifest) ([]rbacv1.PolicyRule, error) {
	var role rbacv1.ClusterRole
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m.Object.Object, &role); err != nil {
		return nil, fmt.Errorf("reading the rules of %s: %w", m, err)
	}
	return role.Rules, nil
}
