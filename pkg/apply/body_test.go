package apply_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestBodyHasOwnerAndLabel(t *testing.T) {
	ns := namespace(t)
	config := configMap(t, ns, "other", "{}", "{}")
	a, _ := connect(t, owner)
	other := must(t, a, config)
	controlled := true
	us := metav1.OwnerReference{
		APIVersion: "config.openshift.io/v1", Kind: "ClusterVersion", Name: "version", UID: owner.UID, Controller: &controlled,
	}
	them := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: other.UID}
	former := metav1.OwnerReference{APIVersion: "config.openshift.io/v1", Kind: "ClusterVersion", Name: "version", UID: "x"}
	label := map[string]string{api.OwnedByLabel: "version", "mine": "1"}

	for _, tt := range []struct {
		name   string
		by     body.Owner
		owners []metav1.OwnerReference
		labels map[string]string
		want   []metav1.OwnerReference
	}{
		{"marks objects as ours", owner, nil, label, []metav1.OwnerReference{us}},
		{"keeps the manifest's own owners", owner, []metav1.OwnerReference{them}, label, []metav1.OwnerReference{them}},
		{"keeps all owners if one is not a ClusterVersion", owner, []metav1.OwnerReference{former, them}, label, []metav1.OwnerReference{former, them}},
		{"replaces a ClusterVersion that the manifest names", owner, []metav1.OwnerReference{former}, label, []metav1.OwnerReference{us}},
		{"adds no label without an owner", body.Owner{}, nil, map[string]string{"mine": "1"}, nil},
		{"keeps other owners if there is no owner", body.Owner{}, []metav1.OwnerReference{them}, map[string]string{"mine": "1"}, []metav1.OwnerReference{them}},
		{"removes a ClusterVersion if there is no owner", body.Owner{}, []metav1.OwnerReference{former}, map[string]string{"mine": "1"}, nil},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			a, _ := connect(t, tt.by)
			m := configMap(t, ns, "a", "{}", "{}")
			m.Object.SetOwnerReferences(tt.owners)
			m.Object.SetLabels(map[string]string{"mine": "1"})
			before := m.Object.DeepCopy()
			must(t, a, m)
			obj := live(t, m)
			assert.Equal(t, tt.want, obj.GetOwnerReferences())
			assert.Equal(t, tt.labels, obj.GetLabels())
			assert.Equal(t, before, m.Object, "the manifest must not change")
			require.NoError(t, otherClient(t).Delete(t.Context(), obj))
		})
	}
}

func TestBodyOmitsServerFields(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	m := parse(t, `apiVersion: apps/v1
kind: Deployment
metadata:
  namespace: `+ns+`
  name: a
  creationTimestamp: null
  generation: 77
  resourceVersion: "1"
  selfLink: /x
  uid: 00000000-0000-4000-8000-000000000000
  managedFields: [{manager: x}]
  deletionTimestamp: "2026-01-01T00:00:00Z"
spec:
  selector: {matchLabels: {app: a}}
  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: a, image: b}]}}
status: {replicas: 7}
`)
	change := must(t, a, m)
	assert.EqualValues(t, 1, change.Generation)
	_, found, _ := unstructured.NestedInt64(live(t, m).Object, "status", "replicas")
	assert.False(t, found)
	assert.Equal(t, change.ResourceVersion, must(t, a, m).ResourceVersion)
}

func TestSecurityContextConstraintsGetAllFields(t *testing.T) {
	serveCRD(t, fromAPI(t, "security/v1/zz_generated.crd-manifests/0000_03_config-operator_01_securitycontextconstraints.crd.yaml"))
	a, _ := connect(t, owner)
	m := parse(t, `apiVersion: security.openshift.io/v1
kind: SecurityContextConstraints
metadata: {name: sparse}
allowHostPorts: true
volumes: [secret]
runAsUser: {type: RunAsAny}
`)
	change := must(t, a, m)
	assert.Equal(t, apply.Created, change.Action)
	assert.Empty(t, change.Dropped)
	obj := live(t, m).Object
	assert.Equal(t, true, obj["allowHostPorts"], "the manifest's values are kept")
	assert.Equal(t, []any{"secret"}, obj["volumes"])
	assert.Equal(t, false, obj["allowPrivilegedContainer"])
	assert.Contains(t, obj, "requiredDropCapabilities")
	assert.NotContains(t, m.Object.Object, "allowHostPID", "the manifest must not change")
	assert.Equal(t, change.ResourceVersion, must(t, a, m).ResourceVersion)

	change, err := a.Apply(t.Context(), m, release.Reconciling)
	require.NoError(t, err)
	assert.Equal(t, apply.Applied, change.Action)
}
