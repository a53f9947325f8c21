package ownership_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

var configMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// wrote returns an entry of a manager that wrote by update.
func wrote(manager, version, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: version, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fields),
	}
}

// applied returns an entry of our own apply.
func applied(fields string) metav1.ManagedFieldsEntry {
	e := wrote(api.FieldManager, "v1", fields)
	e.Operation = metav1.ManagedFieldsOperationApply
	return e
}

func status(e metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
	e.Subresource = "status"
	return e
}

func entries(list ...metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry { return list }

func TestFormerManagersAreRecognized(t *testing.T) {
	for _, tt := range []struct {
		name  string
		entry metav1.ManagedFieldsEntry
		want  bool
	}{
		{"adopts updates by OpenShift's operator", wrote(api.FieldManager, "v1", "{}"), true},
		{"adopts the updates of the bootstrap", wrote("cluster-bootstrap", "v1", "{}"), true},
		{"keeps status entries of OpenShift's operator", status(wrote(api.FieldManager, "v1", "{}")), false},
		{"keeps our own applies", applied("{}"), false},
		{"keeps fields that the server sets", wrote("before-first-apply", "v1", "{}"), false},
		{"keeps entries of other managers", wrote("kubectl-edit", "v1", "{}"), false},
	} {
		t.Run("it "+tt.name, func(t *testing.T) { assert.Equal(t, tt.want, ownership.IsFormerManager(&tt.entry)) })
	}
}

func TestAdoptMovesFieldsOfFormerManagers(t *testing.T) {
	theirs := wrote("kubectl-edit", "v1", `{"f:data":{"f:theirs":{}}}`)
	for _, tt := range []struct {
		name    string
		gvk     schema.GroupVersionKind
		entries []metav1.ManagedFieldsEntry
		want    []metav1.ManagedFieldsEntry // nil if unchanged
	}{
		{"changes nothing without an earlier writer", configMaps, entries(theirs, applied(`{"f:data":{"f:a":{}}}`)), nil},
		{"changes nothing without entries", configMaps, nil, nil},
		{
			"merges the fields and drops the old entry", configMaps,
			entries(theirs, applied(`{"f:data":{"f:a":{}}}`), wrote(api.FieldManager, "v1", `{"f:data":{".":{},"f:a":{},"f:old":{}}}`)),
			entries(theirs, applied(`{"f:data":{".":{},"f:a":{},"f:old":{}}}`)),
		},
		{
			"merges the fields of both managers", configMaps,
			entries(applied(`{"f:data":{"f:a":{}}}`), wrote(api.FieldManager, "v1", `{"f:data":{"f:b":{}}}`), wrote("cluster-bootstrap", "v1", `{"f:data":{"f:c":{}}}`)),
			entries(applied(`{"f:data":{"f:a":{},"f:b":{},"f:c":{}}}`)),
		},
		{
			"creates an entry if we have none", configMaps, entries(wrote(api.FieldManager, "v1", `{"f:data":{"f:b":{}}}`)),
			entries(applied(`{"f:data":{"f:b":{}}}`)),
		},
		{
			"waits while we own all fields anyway", configMaps,
			entries(applied(`{"f:metadata":{"f:labels":{"f:l":{}}},"f:data":{"f:a":{}}}`),
				wrote(api.FieldManager, "v1", `{"f:metadata":{"f:labels":{".":{},"f:l":{}}},"f:data":{".":{},"f:a":{}}}`)), nil,
		},
		{
			"does not wait for a list or map that is not ours", configMaps,
			entries(applied(`{"f:data":{"f:a":{}}}`), wrote(api.FieldManager, "v1", `{"f:binaryData":{".":{}}}`)),
			entries(applied(`{"f:binaryData":{},"f:data":{"f:a":{}}}`)),
		},
		{
			"does not adopt the map of labels itself", configMaps,
			entries(applied(`{"f:data":{"f:a":{}}}`), wrote(api.FieldManager, "v1", `{"f:metadata":{"f:labels":{".":{},"f:l":{}}}}`)),
			entries(applied(`{"f:data":{"f:a":{}},"f:metadata":{"f:labels":{"f:l":{}}}}`)),
		},
		{
			"adopts only metadata of another version", configMaps,
			entries(applied(`{"f:data":{"f:a":{}}}`), wrote(api.FieldManager, "v0", `{"f:metadata":{"f:labels":{"f:l":{}}},"f:spec":{"f:x":{}}}`)),
			entries(applied(`{"f:data":{"f:a":{}},"f:metadata":{"f:labels":{"f:l":{}}}}`)),
		},
		{
			"does not adopt the spec of another version", configMaps,
			entries(applied(`{"f:data":{"f:a":{}}}`), wrote(api.FieldManager, "v0", `{"f:spec":{"f:x":{}}}`)), nil,
		},
		{
			"does not adopt status", configMaps,
			entries(applied(`{"f:data":{"f:a":{}}}`), wrote(api.FieldManager, "v1", `{"f:status":{"f:x":{}}}`)), nil,
		},
		{
			"does not adopt the spec of claims",
			schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"},
			entries(applied(`{"f:spec":{"f:a":{}}}`), wrote(api.FieldManager, "v1", `{"f:metadata":{"f:labels":{"f:l":{}}},"f:spec":{"f:x":{}}}`)),
			entries(applied(`{"f:metadata":{"f:labels":{"f:l":{}}},"f:spec":{"f:a":{}}}`)),
		},
		{"keeps unreadable entries", configMaps, entries(wrote(api.FieldManager, "v1", `{"x`)), nil},
		{
			"keeps unreadable entries next to readable ones", configMaps,
			entries(wrote(api.FieldManager, "v1", `{"x`), wrote("cluster-bootstrap", "v1", `{"f:data":{"f:b":{}}}`)),
			entries(wrote(api.FieldManager, "v1", `{"x`), applied(`{"f:data":{"f:b":{}}}`)),
		},
		{"keeps entries without fields", configMaps, entries(metav1.ManagedFieldsEntry{Manager: api.FieldManager, Operation: "Update"}), nil},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			before := make([]metav1.ManagedFieldsEntry, len(tt.entries))
			for i := range tt.entries {
				tt.entries[i].DeepCopyInto(&before[i])
			}
			got, changed := ownership.Adopt(tt.gvk, tt.entries)
			assert.Equal(t, tt.want != nil, changed)
			if tt.want == nil {
				assert.Equal(t, tt.entries, got)
			} else {
				same(t, tt.want, got)
			}
			for i := range before {
				same(t, before[i:i+1], tt.entries[i:i+1])
			}
			if changed {
				_, again := ownership.Adopt(tt.gvk, got)
				assert.False(t, again)
			}
		})
	}
}

// same compares the content of entries.
func same(t *testing.T, want, got []metav1.ManagedFieldsEntry) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		assert.Equal(t, want[i].FieldsV1.GetRawString(), got[i].FieldsV1.GetRawString())
		a, b := want[i], got[i]
		a.FieldsV1, b.FieldsV1 = nil, nil
		assert.Equal(t, a, b)
	}
}

func TestTakeAddsThePathOnce(t *testing.T) {
	path := fieldpath.MakePathOrDie("spec", "strategy", "rollingUpdate")
	got, changed := ownership.Take(configMaps, entries(applied(`{"f:data":{"f:a":{}}}`)), []fieldpath.Path{path})
	assert.True(t, changed)
	same(t, entries(applied(`{"f:data":{"f:a":{}},"f:spec":{"f:strategy":{"f:rollingUpdate":{}}}}`)), got)
	again, changed := ownership.Take(configMaps, got, []fieldpath.Path{path})
	assert.False(t, changed)
	same(t, got, again)
	got, changed = ownership.Take(configMaps, nil, []fieldpath.Path{path})
	assert.True(t, changed)
	same(t, entries(applied(`{"f:spec":{"f:strategy":{"f:rollingUpdate":{}}}}`)), got)
	_, changed = ownership.Take(configMaps, nil, nil)
	assert.False(t, changed)
}

func TestTakeFromOthersRemovesTheirFields(t *testing.T) {
	strategy := fieldpath.MakePathOrDie("spec", "strategy", "rollingUpdate")
	port := fieldpath.MakePathOrDie("spec", "ports", fieldpath.KeyByFields("port", 80))
	before := entries(
		applied(`{"f:spec":{"f:strategy":{"f:rollingUpdate":{}}}}`),
		wrote("below", "v1", `{"f:spec":{"f:strategy":{"f:rollingUpdate":{"f:maxSurge":{}},"f:type":{}}}}`),
		wrote("all", "v2", `{"f:spec":{"f:strategy":{"f:rollingUpdate":{}}}}`),
		wrote("item", "v1", `{"f:spec":{"f:ports":{"k:{\"port\":80}":{".":{},"f:name":{}},"k:{\"port\":81}":{".":{}}}}}`),
		wrote("broken", "v1", `{"x`),
		wrote("none", "v1", `{"f:data":{}}`),
	)
	got, changed := ownership.Take(configMaps, before, []fieldpath.Path{strategy, port})
	assert.True(t, changed)
	same(t, entries(
		applied(`{"f:spec":{"f:ports":{"k:{\"port\":80}":{}},"f:strategy":{"f:rollingUpdate":{}}}}`),
		wrote("below", "v1", `{"f:spec":{"f:strategy":{"f:type":{}}}}`),
		wrote("item", "v1", `{"f:spec":{"f:ports":{"k:{\"port\":81}":{}}}}`),
		wrote("broken", "v1", `{"x`),
		wrote("none", "v1", `{"f:data":{}}`),
	), got)
	_, changed = ownership.Take(configMaps, got, []fieldpath.Path{strategy, port})
	assert.False(t, changed, "only we own the field")
}

func TestSplitSeparatesOurFields(t *testing.T) {
	own, others := ownership.Split(entries(applied(`{"f:spec":{"f:a":{}}}`), wrote("x", "v1", `{"f:spec":{"f:b":{"f:c":{}}}}`),
		wrote("y", "v1", `{"f:data":{}}`), wrote("broken", "v1", `{"x`)))
	assert.Equal(t, ".spec.a", own.String())
	assert.Equal(t, ".data\n.spec.b.c", others.String())
	b, c := fieldpath.MakePathOrDie("spec", "b"), fieldpath.MakePathOrDie("spec", "b", "c")
	assert.True(t, ownership.Reaches(others, b))
	assert.False(t, ownership.Reaches(own, b))
	assert.False(t, ownership.Whole(others, b))
	assert.True(t, ownership.Whole(others, c))
}

func TestRestoreReplacesOnlyOurEntry(t *testing.T) {
	other := wrote("x", "v1", "{}")
	same(t, entries(other, applied(`{"f:a":{}}`)), ownership.Restore(entries(applied(`{"f:b":{}}`), other), entries(applied(`{"f:a":{}}`))))
	same(t, entries(other), ownership.Restore(entries(applied(`{"f:b":{}}`), other), nil))
}

func TestHoldersListsTheManagersOfAField(t *testing.T) {
	list := entries(
		wrote("b", "v1", `{"f:spec":{"f:strategy":{"f:rollingUpdate":{"f:maxSurge":{}}}}}`),
		wrote("a", "v1", `{"f:spec":{"f:strategy":{"f:rollingUpdate":{}}}}`),
		wrote("atom", "v1", `{"f:spec":{"f:strategy":{}}}`),
		wrote("type", "v1", `{"f:spec":{"f:strategy":{".":{},"f:type":{}}}}`),
		status(wrote("a", "v1", `{"f:spec":{"f:strategy":{"f:rollingUpdate":{}}}}`)),
		wrote(api.FieldManager, "v1", `{"f:spec":{"f:strategy":{"f:rollingUpdate":{}}}}`),
		applied(`{"f:spec":{"f:strategy":{"f:rollingUpdate":{}}}}`),
		wrote("broken", "v1", `{"x`),
	)
	assert.Equal(t, []string{"a", "atom", "b"}, ownership.Holders(list, fieldpath.MakePathOrDie("spec", "strategy", "rollingUpdate")))
	assert.Empty(t, ownership.Holders(list, fieldpath.MakePathOrDie("data")))
}

func TestStatusWrittenFindsAnyWriterOfTheStatus(t *testing.T) {
	assert.False(t, ownership.StatusWritten(nil))
	assert.False(t, ownership.StatusWritten(entries(applied(`{"f:spec":{}}`), wrote("a", "v1", `{"f:metadata":{"f:labels":{}}}`))))
	assert.True(t, ownership.StatusWritten(entries(status(wrote("a", "v1", "{}")))))
	assert.True(t, ownership.StatusWritten(entries(wrote("a", "v1", `{"f:status":{"f:x":{}}}`))))
	assert.True(t, ownership.StatusWritten(entries(wrote("before-first-apply", "v1", `{"f:metadata":{"f:labels":{}}}`))))
}

// FuzzAdopt uses arbitrary entries. It must not panic, and no entry may remain to be adopted.
//
//threat:managed-fields
func FuzzAdopt(f *testing.F) {
	f.Add(`{"f:data":{"f:a":{}}}`, `{"f:data":{".":{},"f:a":{},"k:{\"name\":\"x\"}":{".":{}},"v:\"y\"":{},"i:3":{}}}`, "v1")
	f.Add(`{"f:data":{}}`, `{".":{}}`, "v2")
	f.Fuzz(func(t *testing.T, own, theirs, version string) {
		next, changed := ownership.Adopt(configMaps, entries(applied(own), wrote(api.FieldManager, version, theirs)))
		if changed {
			_, again := ownership.Adopt(configMaps, next)
			require.False(t, again)
		}
		ownership.StatusWritten(next)
		ownership.Holders(next, fieldpath.MakePathOrDie("data", "a"))
	})
}
