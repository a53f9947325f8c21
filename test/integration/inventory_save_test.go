package integration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/archive"
)

// refusal is an admission policy that rejects every write of the inventory.
const refusal = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-inventory}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  validations: [{expression: '!object.metadata.name.startsWith("version-inventory-")', message: the inventory is refused}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-inventory}
spec: {policyName: no-inventory, validationActions: [Deny]}
`

// refuseInventory makes every save of the inventory fail until the returned function is called.
func (p *platform) refuseInventory() (admit func()) {
	p.t.Helper()
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(refusal, "\n---") {
		obj := &unstructured.Unstructured{}
		require.NoError(p.t, yaml.Unmarshal([]byte(document), &obj.Object))
		require.NoError(p.t, p.client.Create(p.t.Context(), obj))
		objects = append(objects, obj)
	}
	shard := &unstructured.Unstructured{}
	shard.SetAPIVersion("v1")
	shard.SetKind("ConfigMap")
	shard.SetNamespace("default")
	shard.SetName("version-inventory-refused")
	require.Eventually(p.t, func() bool { // the policy takes effect with a delay
		err := p.client.Create(p.t.Context(), shard.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "the inventory is refused")
	}, time.Minute, 100*time.Millisecond)
	return func() {
		for _, obj := range objects {
			require.NoError(p.t, p.client.Delete(p.t.Context(), obj))
		}
	}
}

// TestUnsavableInventoryIsReported makes every save of the inventory fail for a while.
//
//threat:inventory-record-makes
func TestUnsavableInventoryIsReported(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	image, _, first := p.installExample()
	first.end(t)
	saved := func() *metav1.Condition {
		status, err := archive.ReadReleaseStatus(t.Context(), p.client, "version")
		require.NoError(t, err)
		require.NotNil(t, status)
		return meta.FindStatusCondition(status.Status.Conditions, api.ConditionInventorySaved)
	}
	assert.Nil(t, saved(), "no condition while every save succeeds")
	admit := p.refuseInventory()
	address := freeAddress(t)
	p.operator(image, "--listen", address)
	role := p.clusterRole()
	require.Eventually(t, func() bool { // a repair is recorded
		err := p.client.Delete(t.Context(), role.DeepCopy())
		require.NoError(t, client.IgnoreNotFound(err))
		c := saved()
		return c != nil && c.Status == metav1.ConditionFalse
	}, time.Minute, 500*time.Millisecond)
	assert.Equal(t, api.ReasonSaveFailed, saved().Reason)
	assert.Contains(t, saved().Message, "the inventory is refused")
	out, err := p.run("status", "--server", "https://"+address)
	require.NoError(t, err)
	assert.Contains(t, out, "Inventory not saved: saving the inventory:")
	out, err = p.run("status", "--server", "https://"+freeAddress(t))
	require.Error(t, err)
	assert.Contains(t, out, "\nInventory not saved: The record of the applied objects is not saved", "the ReleaseStatus also has the reason")

	admit()
	require.Eventually(t, func() bool { return saved().Status == metav1.ConditionTrue }, time.Minute, 500*time.Millisecond,
		"the next attempt succeeds")
	out, err = p.run("status", "--server", "https://"+address)
	require.NoError(t, err)
	assert.NotContains(t, out, "Inventory not saved")
}
