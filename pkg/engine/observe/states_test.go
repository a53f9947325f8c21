package observe

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

// partial returns an object in the form that a watch delivers, with managedFields of normal size.
func partial(namespace, name, version string) *metav1.PartialObjectMetadata {
	var env strings.Builder
	for i := range 40 {
		fmt.Fprintf(&env, `"k:{\"name\":\"VARIABLE_%d\"}":{".":{},"f:name":{},"f:value":{}},`, i)
	}
	container := `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"x\"}":{"f:env":{` + strings.TrimSuffix(env.String(), ",") + `}}}}}}}`
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: strings.Clone(namespace), Name: name, UID: types.UID("uid of " + name), ResourceVersion: version, Generation: 3,
		Labels: map[string]string{api.OwnedByLabel: "version"}, Annotations: map[string]string{"description": strings.Repeat("x", 500)},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: api.FieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "apps/v1", FieldsV1: metav1.NewFieldsV1(container)},
			{Manager: "kubectl-" + "edit", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "apps/v1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:description":{}}}}`), Time: &metav1.Time{Time: time.Unix(1, 0)}},
			{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", APIVersion: "apps/v1", FieldsV1: metav1.NewFieldsV1(container), Time: &metav1.Time{Time: time.Unix(2, 0)}},
		},
	}}
}

func TestReduceKeepsTheNeededFields(t *testing.T) {
	m := partial("ns", "a", "7")
	m.Finalizers = []string{"example.com/f"}
	got := reduce(m, &names{})
	assert.Equal(t, &object{
		name: types.NamespacedName{Namespace: "ns", Name: "a"},
		State: State{
			UID: "uid of a", ResourceVersion: "7", Generation: 3, Fields: ownership.Ours(m.ManagedFields), Writer: "kubectl-edit",
		},
	}, got)

	m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{Manager: "b", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:hostPID":{},"f:hostIPC":{}}}`)})
	got = reduce(m, &names{})
	assert.True(t, got.Deleting)
	assert.Equal(t, []string{"example.com/f"}, got.Finalizers)
	assert.Equal(t, []string{"b: spec.hostIPC", "b: spec.hostPID"}, got.Loosened)
}

// TestScaledFieldIsBounded has the path of a number of replicas that a custom resource may have, and one that only costs memory.
func TestScaledFieldIsBounded(t *testing.T) {
	for name, kept := range map[string]bool{"count": true, strings.Repeat("x", maxText): false} {
		m := partial("ns", "a", "7")
		m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{Manager: "scaler", Subresource: "scale", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:size":{"f:` + name + `":{}}}}`)})
		got := reduce(m, &names{})
		if kept {
			assert.Equal(t, "scaler", got.Scaler)
			assert.Equal(t, []string{"spec", "size", name}, got.ScaledField)
		} else {
			assert.Empty(t, got.Scaler)
			assert.Empty(t, got.ScaledField)
		}
	}
}

func TestDiffersIgnoresIrrelevantChanges(t *testing.T) {
	tests := []struct {
		name   string
		change func(*State)
		want   bool
	}{
		{"ignores an equal state", func(*State) {}, false},
		{"ignores a resource version", func(s *State) { s.ResourceVersion = "8" }, false},
		{"ignores a writer", func(s *State) { s.Writer = "b" }, false},
		{"detects another object with the name", func(s *State) { s.UID = "v" }, true},
		{"detects a generation", func(s *State) { s.Generation++ }, true},
		{"detects the time of our fields", func(s *State) { s.Time++ }, true},
		{"detects our fields", func(s *State) { s.Fields[0]++ }, true},
		{"detects a deletion", func(s *State) { s.Deleting = true }, true},
		{"detects a finalizer", func(s *State) { s.Finalizers = nil }, true},
		{"detects a loosened field", func(s *State) { s.Loosened = []string{"b: spec.hostPID"} }, true},
	}
	for _, tt := range tests {
		t.Run("it "+tt.name, func(t *testing.T) {
			a := &object{State: State{UID: "u", ResourceVersion: "7", Generation: 3, Writer: "a", Finalizers: []string{"f"}}}
			b := *a
			tt.change(&b.State)
			assert.Equal(t, tt.want, differs(a, &b))
			assert.Equal(t, tt.want, differs(&b, a))
		})
	}
	a := &object{State: State{UID: "u", ResourceVersion: "7"}}
	b := *a
	b.ResourceVersion = "8"
	assert.True(t, differs(a, &b), "without generations every version counts")
}

// TestReplaceWakesForChangedObjects covers an initial state that replaces a known one.
func TestReplaceWakesForChangedObjects(t *testing.T) {
	a, b := partial("ns", "a", "1"), partial("ns", "b", "2")
	newerA := partial("ns", "a", "3")
	otherA := partial("ns", "a", "3")
	otherA.UID = "another"
	tests := []struct {
		name          string
		status, wakes bool
		list          []any
	}{
		{"does not wake for equal objects", false, false, []any{b, a}},
		{"does not wake for another version", false, false, []any{newerA, b}},
		{"wakes for another version if the status counts", true, true, []any{newerA, b}},
		{"wakes for a deleted object", false, true, []any{a}},
		{"wakes for a new object", false, true, []any{a, b, partial("ns", "c", "4")}},
		{"wakes if one object replaces another", false, true, []any{a, partial("ns", "c", "4")}},
		{"wakes for a new object with the same name", false, true, []any{otherA, b}},
		{"wakes for an empty list", false, true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			woken := 0
			s := &states{names: &names{}, status: tt.status, changed: func() { woken++ }}
			require.NoError(t, s.Replace([]any{a, b}, "5"))
			require.Equal(t, 1, woken, "synced")
			require.NoError(t, s.Replace(tt.list, "6"))
			assert.Equal(t, tt.wakes, woken == 2)
			assert.Equal(t, "6", s.look(types.NamespacedName{}).At)
			assert.Len(t, s.all(), len(tt.list))
		})
	}
}

func TestStatesRejectOtherTypes(t *testing.T) {
	s := &states{names: &names{}, changed: func() {}}
	require.Error(t, s.Add("something"))
	require.Error(t, s.Delete("something"))
	require.Error(t, s.Replace([]any{"something"}, "1"))
	assert.False(t, s.look(types.NamespacedName{}).Synced)
}

// TestInitialStateIsReducedWhileItIsCollected checks that objects are already small while the initial state is collected.
func TestInitialStateIsReducedWhileItIsCollected(t *testing.T) {
	s := &states{names: &names{}, changed: func() {}}
	got, err := s.Transformer()(partial("ns", "a", "7"))
	require.NoError(t, err)
	assert.Equal(t, reduce(partial("ns", "a", "7"), &names{}), got)
	again, err := s.Transformer()(got)
	require.NoError(t, err)
	assert.Same(t, got, again)
	_, err = s.Transformer()("something")
	require.Error(t, err)
}

func TestBookmarkChangesOnlyTheVersion(t *testing.T) {
	woken := 0
	s := &states{names: &names{}, changed: func() { woken++ }}
	require.NoError(t, s.Replace(nil, "5"))
	require.NoError(t, s.Bookmark("9"))
	assert.Equal(t, Look{Synced: true, At: "9"}, s.look(types.NamespacedName{}))
	assert.Equal(t, 1, woken)
}

func TestInternedNamesAreBounded(t *testing.T) {
	n := &names{}
	for i := range 3 * maxNames {
		assert.Equal(t, fmt.Sprint(i), n.intern(fmt.Sprint(i)))
		assert.LessOrEqual(t, len(n.interned), maxNames)
	}
}

// TestObjectsNeedLittleMemory measures the memory for one of our objects.
func TestObjectsNeedLittleMemory(t *testing.T) {
	const n = 20000
	s := &states{names: &names{}, changed: func() {}}
	require.NoError(t, s.Replace(nil, "1"))
	before := heap()
	for i := range n {
		require.NoError(t, s.Add(partial("openshift-something", fmt.Sprint("object-", i), fmt.Sprint(i))))
	}
	each := (heap() - before) / n
	t.Logf("%d bytes each", each)
	assert.Less(t, each, int64(700))
	runtime.KeepAlive(s)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkReduce(b *testing.B) {
	n := &names{}
	plain, loosened := partial("ns", "a", "7"), partial("ns", "a", "7")
	loosened.ManagedFields = append(slices.Clone(loosened.ManagedFields), metav1.ManagedFieldsEntry{Manager: "b", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:hostPID":{}}}`)})
	for name, m := range map[string]*metav1.PartialObjectMetadata{"plain": plain, "loosened": loosened} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				reduce(m, n)
			}
		})
	}
}

func BenchmarkLook(b *testing.B) {
	s := &states{names: &names{}, changed: func() {}}
	require.NoError(b, s.Replace([]any{partial("ns", "a", "7")}, "8"))
	where := Scope{Resource: definitions}
	w := &Watcher{scopes: map[Scope]*scope{where: {states: s}}}
	b.ReportAllocs()
	for b.Loop() {
		if w.Look(where, "ns", "a").State == nil {
			b.Fatal("not found")
		}
	}
}
