package ownership_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

func TestTimeReturnsTheTimeOfOurEntry(t *testing.T) {
	at := func(e metav1.ManagedFieldsEntry, seconds int64) metav1.ManagedFieldsEntry {
		e.Time = &metav1.Time{Time: time.Unix(seconds, 0)}
		return e
	}
	status := at(ours("{}"), 9)
	status.Subresource = "status"
	update := at(entry(api.FieldManager, metav1.ManagedFieldsOperationUpdate, "{}"), 9)
	for _, tt := range []struct {
		name    string
		entries []metav1.ManagedFieldsEntry
		want    int64
	}{
		{"is 0 without entries", nil, 0},
		{"is 0 without a time", []metav1.ManagedFieldsEntry{ours("{}")}, 0},
		{"is the time of our entry", []metav1.ManagedFieldsEntry{at(theirs("{}"), 9), at(ours("{}"), 7)}, 7},
		{"ignores an update under our name", []metav1.ManagedFieldsEntry{update, at(ours("{}"), 7)}, 7},
		{"ignores a subresource", []metav1.ManagedFieldsEntry{status, at(ours("{}"), 7)}, 7},
	} {
		t.Run("it "+tt.name, func(t *testing.T) { assert.Equal(t, tt.want, ownership.Time(tt.entries)) })
	}
}

// TestWritersWithOurNameAreRecordedByTheServer shows how a real API server records writers that use our field manager's name. Drift detection
// relies on these facts.
//
//threat:writer-uses-operator
//threat:client-may-patch any writer of an object can restore our entry
func TestWritersWithOurNameAreRecordedByTheServer(t *testing.T) {
	us, them := as(t, api.FieldManager), as(t, "kubectl-edit")
	marks := func(obj *unstructured.Unstructured) (ownership.Hash, int64) {
		return ownership.Ours(obj.GetManagedFields()), ownership.Time(obj.GetManagedFields())
	}
	configMap := func(t *testing.T, name, value string) *unstructured.Unstructured {
		t.Helper()
		return object(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {k: %q}}", name, value))
	}
	// later applies other values to the same fields until the API server's clock has passed the second of the first apply.
	later := func(t *testing.T, w writer, name string, first *unstructured.Unstructured) *unstructured.Unstructured {
		t.Helper()
		var got *unstructured.Unstructured
		n := 0
		require.Eventually(t, func() bool {
			n++
			got = w.apply(t, configMap(t, name, fmt.Sprint("forged ", n)))
			return ownership.Time(got.GetManagedFields()) != ownership.Time(first.GetManagedFields())
		}, time.Minute, 10*time.Millisecond)
		return got
	}
	t.Run("an apply of the same values changes nothing", func(t *testing.T) {
		first := us.apply(t, configMap(t, "by-our-name-1", "v"))
		fields, at := marks(first)
		require.NotZero(t, at)
		later(t, us, "by-our-name-clock", us.apply(t, configMap(t, "by-our-name-clock", "v")))
		again := us.apply(t, configMap(t, "by-our-name-1", "v"))
		assert.Equal(t, first.GetResourceVersion(), again.GetResourceVersion())
		againFields, againAt := marks(again)
		assert.Equal(t, fields, againFields)
		assert.Equal(t, at, againAt)
	})
	t.Run("an apply of other values keeps the fields and renews the time", func(t *testing.T) {
		first := us.apply(t, configMap(t, "by-our-name-2", "v"))
		fields, _ := marks(first)
		forged := later(t, us, "by-our-name-2", first)
		forgedFields, _ := marks(forged)
		assert.Equal(t, fields, forgedFields)
	})
	t.Run("an apply of other values within the same second changes only the resource version", func(t *testing.T) {
		require.Eventually(t, func() bool {
			first := us.apply(t, configMap(t, "by-our-name-3", fmt.Sprint(time.Now().UnixNano())))
			forged := us.apply(t, configMap(t, "by-our-name-3", "forged"))
			fields, at := marks(first)
			forgedFields, forgedAt := marks(forged)
			return fields == forgedFields && at == forgedAt && first.GetResourceVersion() != forged.GetResourceVersion() &&
				first.GetGeneration() == 0 && forged.GetGeneration() == 0
		}, time.Minute, 10*time.Millisecond)
	})
	t.Run("an update takes the field from our entry", func(t *testing.T) {
		fields, at := marks(us.apply(t, configMap(t, "by-our-name-4", "v")))
		updated := us.patch(t, configMap(t, "by-our-name-4", "v"), "{data: {k: forged}}")
		updatedFields, updatedAt := marks(updated)
		assert.NotEqual(t, fields, updatedFields)
		assert.Zero(t, updatedAt, "we must not own any field")
		assert.NotZero(t, at)
	})
	t.Run("a write by another manager does not change our time", func(t *testing.T) {
		fields, at := marks(us.apply(t, configMap(t, "by-our-name-5", "v")))
		later(t, us, "by-our-name-clock", us.apply(t, configMap(t, "by-our-name-clock", "v")))
		theirFields, theirAt := marks(them.patch(t, configMap(t, "by-our-name-5", "v"), "{data: {other: v}}"))
		assert.Equal(t, fields, theirFields)
		assert.Equal(t, at, theirAt)
	})
	t.Run("an apply to a subresource has a separate entry", func(t *testing.T) {
		text := "{apiVersion: apps/v1, kind: Deployment, metadata: {name: by-our-name-6}, spec: {selector: {matchLabels: {a: b}}, " +
			"template: {metadata: {labels: {a: b}}, spec: {containers: [{name: x, image: x}]}}}}"
		fields, at := marks(us.apply(t, object(t, text)))
		status := us.apply(t, object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: by-our-name-6}, status: {observedGeneration: 1}}"), "status")
		assert.Len(t, status.GetManagedFields(), 2)
		statusFields, statusAt := marks(status)
		assert.Equal(t, fields, statusFields)
		assert.Equal(t, at, statusAt)
	})
	t.Run("an apply to scale takes replicas from our entry", func(t *testing.T) {
		text := "{apiVersion: apps/v1, kind: Deployment, metadata: {name: by-our-name-7}, spec: {replicas: 1, selector: {matchLabels: {a: b}}, " +
			"template: {metadata: {labels: {a: b}}, spec: {containers: [{name: x, image: x}]}}}}"
		fields, _ := marks(us.apply(t, object(t, text)))
		scale := object(t, "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: by-our-name-7}, spec: {replicas: 7}}")
		_, err := us.on(object(t, text)).Apply(t.Context(), "by-our-name-7", scale, metav1.ApplyOptions{FieldManager: us.manager, Force: true}, "scale")
		require.NoError(t, err)
		scaled, err := us.on(object(t, text)).Get(t.Context(), "by-our-name-7", metav1.GetOptions{})
		require.NoError(t, err)
		scaledFields, _ := marks(scaled)
		assert.NotEqual(t, fields, scaledFields)
	})
	t.Run("an apply in another API version uses the same entry", func(t *testing.T) {
		text := "kind: HorizontalPodAutoscaler, metadata: {name: by-our-name-8}, spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: x}}}"
		fields, _ := marks(us.apply(t, object(t, "{apiVersion: autoscaling/v2, "+text)))
		other := us.apply(t, object(t, "{apiVersion: autoscaling/v1, "+text))
		otherFields, _ := marks(other)
		assert.NotEqual(t, fields, otherFields)
		assert.Len(t, other.GetManagedFields(), 1)
	})
	t.Run("any writer of an object can restore our entry", func(t *testing.T) {
		first := us.apply(t, configMap(t, "by-our-name-9", "v"))
		edited := them.patch(t, first, "{data: {k: forged}}")
		edited.SetManagedFields(first.GetManagedFields())
		forged, err := them.on(edited).Update(t.Context(), edited, metav1.UpdateOptions{FieldManager: them.manager})
		require.NoError(t, err)
		fields, at := marks(first)
		forgedFields, forgedAt := marks(forged)
		assert.Equal(t, fields, forgedFields)
		assert.Equal(t, at, forgedAt)
		value, _, _ := unstructured.NestedString(forged.Object, "data", "k")
		assert.Equal(t, "forged", value)
		assert.NotEqual(t, first.GetResourceVersion(), forged.GetResourceVersion(), "the resource version must change")
	})
}
