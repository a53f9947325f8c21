package permission_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/engine/permission"
)

const shippedRoles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: operator, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: viewer}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: operator}
subjects: [{kind: ServiceAccount, namespace: openshift-cluster-version, name: cluster-version-operator}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: viewers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: viewer}
subjects: [{kind: Group, name: viewers}]
`

func TestOperatorRolesAreBoundToTheAccount(t *testing.T) {
	set := fstest.MapFS{
		"0000_00_x_03_roles.yaml": &fstest.MapFile{Data: []byte(shippedRoles)},
		"0000_00_x_30_other.yaml": &fstest.MapFile{Data: []byte("not a manifest")},
	}
	objects, err := permission.OperatorRoles(set, permission.Account{Namespace: "ops", Name: "updater"})
	require.NoError(t, err)
	require.Len(t, objects, 2)
	role := unstructured.Unstructured{Object: objects[0].(map[string]any)}
	assert.Equal(t, "ClusterRole operator", role.GetKind()+" "+role.GetName())
	assert.Empty(t, role.GetAnnotations(), "annotations for releases have no effect in a cluster")
	binding := unstructured.Unstructured{Object: objects[1].(map[string]any)}
	subjects, _, err := unstructured.NestedSlice(binding.Object, "subjects")
	require.NoError(t, err)
	assert.Equal(t, []any{map[string]any{"kind": "ServiceAccount", "namespace": "ops", "name": "updater"}}, subjects)
}
