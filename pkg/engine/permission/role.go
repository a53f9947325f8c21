package permission

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Account is the operator's service account.
type Account struct{ Namespace, Name string }

// operatorAccount returns the account in the operator's own manifests.
func operatorAccount() Account {
	return Account{Namespace: api.OperatorNamespace, Name: api.OperatorServiceAccount}
}

// File is the role's file name in a release. It is in the last runlevel, so the permissions for the earlier release are removed only after
// the update.
const File = "0000_90_cluster-version-operator_90_release-role.yaml"

// Role returns a role of the operator with the given rules.
func Role(name, description string, rules []rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{descriptionAnnotation: description}},
		Rules:      rules,
	}
}

// Binding returns a binding of an account to the role with the same name.
func Binding(role string, account Account) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: role, Annotations: map[string]string{descriptionAnnotation: "Grants the version operator the ClusterRole of the same name."}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacGroup, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}
}

const descriptionAnnotation = "kubernetes.io/description"

// Descriptions of the two roles.
const (
	ReleaseDescription = "Permissions to apply the running release, object by object. Generated from its manifests."
	UpdateDescription  = "Additional permissions for a running update or preflight. Written by the version operator; empty at rest."
)

// ReleaseManifest returns the file with the role and its binding for a release with the given manifests. The role includes the permissions
// for itself. The file is for clusters with any profile of the manifests.
func ReleaseManifest(manifests []*manifest.Manifest) ([]byte, error) {
	own := grants{}
	role, binding := newResources(nil).resourceOf(roleKind), newResources(nil).resourceOf(bindingKind)
	own.add(role, api.ReleaseRole, "get", "create", "update", "patch", "escalate", "bind")
	own.add(binding, api.ReleaseRole, "get", "create", "update", "patch")
	own.add(role, all, "list", "watch")
	own.add(binding, all, "list", "watch")
	rules := Union(Rules(manifests), own.rules())

	r, b := Role(api.ReleaseRole, ReleaseDescription, rules), Binding(api.ReleaseRole, operatorAccount())
	for _, annotation := range includes(manifests) {
		r.Annotations[annotation], b.Annotations[annotation] = "true", "true"
	}
	return YAML(r, b)
}

// includes returns the sorted annotations for the profiles of the manifests, including the default profile.
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

// YAML encodes objects as the documents of one file.
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
