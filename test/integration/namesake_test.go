package integration_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
)

// attacked is a ClusterRole with the same content in both releases of these tests.
const attacked = "example-dns-operator"

// widen sets the rules of the ClusterRole to everything, as this command does:
//
//	kubectl apply --server-side --field-manager=cluster-version-operator --force-conflicts
//
// The set of our fields does not change, so only the time of our managedFields entry can show the edit.
func (p *platform) widen() *unstructured.Unstructured {
	p.t.Helper()
	role := p.clusterRole()
	forged := &unstructured.Unstructured{Object: map[string]any{
		"rules": []any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"*"}}},
	}}
	forged.SetGroupVersionKind(role.GroupVersionKind())
	forged.SetName(attacked)
	forged.SetLabels(role.GetLabels())
	forged.SetAnnotations(role.GetAnnotations())
	forged.SetOwnerReferences(role.GetOwnerReferences())
	require.NoError(p.t, p.client.Apply(p.t.Context(), client.ApplyConfigurationFromUnstructured(forged),
		client.FieldOwner(api.FieldManager), client.ForceOwnership))
	require.Equal(p.t, ownership.Ours(role.GetManagedFields()), ownership.Ours(forged.GetManagedFields()), "the field manager owns the same fields")
	return forged
}

func (p *platform) clusterRole() *unstructured.Unstructured {
	p.t.Helper()
	role := p.object("rbac.authorization.k8s.io/v1", "ClusterRole", "", attacked)
	require.NotNil(p.t, role)
	return role
}

func isWidened(role *unstructured.Unstructured) bool {
	rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
	return slices.ContainsFunc(rules, func(rule any) bool {
		verbs, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "verbs")
		return slices.Contains(verbs, "*")
	})
}

// awaitRepair waits until the ClusterRole has the rules of its manifest again and returns it.
func (p *platform) awaitRepair(what string) *unstructured.Unstructured {
	p.t.Helper()
	role := p.clusterRole()
	require.Eventually(p.t, func() bool {
		role = p.clusterRole()
		return !isWidened(role)
	}, patience, 10*time.Millisecond, what)
	return role
}

// installExample installs 1.0.0 of the example platform and builds a 1.0.1 that changes few objects.
func (p *platform) installExample() (first, second string, operator *process) {
	p.t.Helper()
	img := p.build("../../examples/platform/1.0.0", "1.0.0")
	lean := filepath.Join(p.t.TempDir(), "1.0.1")
	require.NoError(p.t, os.CopyFS(lean, os.DirFS("../../examples/platform/1.0.0")))
	require.NoError(p.t, os.RemoveAll(filepath.Join(lean, "example-backup")))
	next := p.build(lean, "1.0.1", "--previous", "1.0.0")
	_, err := p.run("install", "--no-operator", "--release-image", img.ByDigest(), "--trust", p.trust)
	require.NoError(p.t, err)
	p.start("operators")
	operator = p.operator(img.ByDigest())
	p.await("1.0.0 to complete", 2*time.Minute, completed("1.0.0"))
	p.awaitRecords("1.0.0", time.Time{})
	p.rest()
	return img.ByDigest(), next.ByDigest(), operator
}

// TestGrantsWithOurFieldManagerAreReverted grants a ClusterRole all permissions with our field manager's name: while the operator runs,
// within the second of the operator's own write, and while no operator runs. It uses the records of this version and of the version before.
//
//threat:writer-uses-operator
func TestGrantsWithOurFieldManagerAreReverted(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	image, _, operator := p.installExample()

	p.widen()
	repaired := p.awaitRepair("the repair by a running operator")
	caught := false
	for i := range 30 { // a repair sometimes falls at the end of a second, and a busy machine is slow
		if i > 1 {
			time.Sleep(10 * time.Second) // ten repairs per minute would count as a fight
		}
		forged := p.widen()
		caught = ownership.Time(forged.GetManagedFields()) == ownership.Time(repaired.GetManagedFields())
		repaired = p.awaitRepair("the repair of a write in the same second")
		if caught {
			break
		}
	}
	assert.True(t, caught, "a write falls into the second of our own")

	p.awaitRecords("1.0.0", time.Time{})
	p.rest()
	operator.end(t)
	p.widen()
	begin := time.Now()
	operator = p.operator(image)
	p.awaitRepair("the repair by a starting operator")
	p.rest()
	for _, o := range p.appliedSince(begin) {
		assert.Equal(t, attacked, o.name, "a restart rewrites only the attacked object")
	}

	operator.end(t)
	p.forgetTimes()
	p.widen()
	begin = time.Now()
	operator = p.operator(image)
	p.awaitRepair("the repair by an operator with records without times")
	require.Eventually(t, func() bool { return p.recorded(func(r inventory.Record) bool { return r.UID != "" }) },
		time.Minute, 200*time.Millisecond, "waiting for all records to be complete")
	p.rest()
	counts := map[object]int{}
	for _, o := range p.appliedSince(begin) {
		counts[o]++
	}
	for o, n := range counts {
		assert.Equal(t, 1, n, "%v is applied once without a change", o)
	}

	operator.end(t)
	begin = time.Now()
	address := freeAddress(t)
	operator = p.operator(image, append([]string{"--listen", address}, shortLease...)...)
	require.Eventually(t, func() bool { return p.passComplete(address) }, time.Minute, 100*time.Millisecond)
	assert.Empty(t, p.appliedSince(begin), "a restart without pending work writes nothing")

	second := p.operator(image, "--payload-cache", filepath.Join(p.dir, "second"))
	second.logged(t, "Attempting to acquire leader lease")
	operator.kill()
	p.widen()
	p.awaitRepair("the repair by a second replica")
}

// TestGrantsWithOurFieldManagerAreRevertedDuringAnUpdate grants a ClusterRole all permissions while no operator runs. The next operator
// starts with an update that does not change the object.
//
//threat:writer-uses-operator
func TestGrantsWithOurFieldManagerAreRevertedDuringAnUpdate(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	first, second, operator := p.installExample()
	operator.end(t)
	p.widen()
	p.update(configv1.Update{Version: "1.0.1", Image: second})
	p.operator(first)
	p.await("1.0.1 to complete", 2*time.Minute, completed("1.0.1"))
	assert.False(t, isWidened(p.clusterRole()), "the grant is reverted when the update is complete")
}

// records returns the inventory's store.
func (p *platform) records() *inventory.Store {
	p.t.Helper()
	core, err := corev1client.NewForConfig(p.env.Config("integration"))
	require.NoError(p.t, err)
	return inventory.NewStore(core, api.OperatorNamespace, "version")
}

// forgetTimes turns the records into those of the previous version, which recorded neither UID nor time.
func (p *platform) forgetTimes() {
	p.t.Helper()
	store := p.records()
	inv, err := store.Load(p.t.Context())
	require.NoError(p.t, err)
	for id, r := range inv.Records {
		r.UID, r.Time, r.Generation, r.ResourceVersion = "", 0, 0, ""
		inv.Records[id] = r
	}
	require.NoError(p.t, store.Save(p.t.Context(), inv))
}

// recorded reports whether every record satisfies the condition.
func (p *platform) recorded(condition func(inventory.Record) bool) bool {
	p.t.Helper()
	inv, err := p.records().Load(p.t.Context())
	if err != nil || len(inv.Records) == 0 {
		return false
	}
	for _, r := range inv.Records {
		if !condition(r) {
			return false
		}
	}
	return true
}
