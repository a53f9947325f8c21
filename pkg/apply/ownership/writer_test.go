package ownership_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

func TestWriterIsTheLatestForeignManager(t *testing.T) {
	const update, apply = metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	at := func(e metav1.ManagedFieldsEntry, seconds int64) metav1.ManagedFieldsEntry {
		e.Time = &metav1.Time{Time: time.Unix(seconds, 0)}
		return e
	}
	of := func(subresource string, e metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
		e.Subresource = subresource
		return e
	}
	tests := []struct {
		name    string
		entries []metav1.ManagedFieldsEntry
		want    string
	}{
		{"is empty without entries", nil, ""},
		{"is empty if only we wrote", []metav1.ManagedFieldsEntry{at(ours("{}"), 9)}, ""},
		{"is the other writer", []metav1.ManagedFieldsEntry{at(ours("{}"), 9), at(entry("a", update, "{}"), 1)}, "a"},
		{"is the latest writer", []metav1.ManagedFieldsEntry{at(entry("a", update, "{}"), 2), at(entry("b", apply, "{}"), 3), at(entry("c", update, "{}"), 1)}, "b"},
		{"is the last writer of the same second", []metav1.ManagedFieldsEntry{at(entry("a", update, "{}"), 2), at(entry("b", update, "{}"), 2)}, "b"},
		{"ignores a writer of status", []metav1.ManagedFieldsEntry{at(entry("a", update, "{}"), 2), at(of("status", entry("kube-controller-manager", update, "{}")), 9)}, "a"},
		{"is a client that scales the workload", []metav1.ManagedFieldsEntry{at(entry("a", update, "{}"), 2), at(of("scale", entry("kubectl", update, "{}")), 9)}, "kubectl"},
		{"ignores the entry of a number that we gave up", []metav1.ManagedFieldsEntry{at(entry("a", update, "{}"), 2), at(of("scale", entry("kept-scale", update, "{}")), 9)}, "a"},
		{"is our name if the write was not an apply", []metav1.ManagedFieldsEntry{at(ours("{}"), 9), at(entry(api.FieldManager, update, "{}"), 1)}, api.FieldManager},
		{"works without times", []metav1.ManagedFieldsEntry{entry("a", update, "{}"), entry("b", update, "{}")}, "b"},
		{"prefers an entry with a time", []metav1.ManagedFieldsEntry{at(entry("a", update, "{}"), 1), entry("b", update, "{}")}, "a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, ownership.Writer(tt.entries)) })
	}
}

func TestScalerTookTheNumberOfReplicas(t *testing.T) {
	const update, replicas = metav1.ManagedFieldsOperationUpdate, `{"f:spec":{"f:replicas":{}}}`
	const size = `{"f:spec":{"f:pool":{"f:size":{}}}}`
	scale := func(manager, fields string) metav1.ManagedFieldsEntry {
		e := entry(manager, update, fields)
		e.Subresource = "scale"
		return e
	}
	tests := []struct {
		name    string
		entries []metav1.ManagedFieldsEntry
		want    string
		field   []string
	}{
		{"is empty without entries", nil, "", nil},
		{"is the client that scaled", []metav1.ManagedFieldsEntry{ours("{}"), scale("a", replicas)}, "a", []string{"spec", "replicas"}},
		{"is the last client that scaled", []metav1.ManagedFieldsEntry{ours("{}"), scale("a", replicas), scale("b", replicas)}, "b", []string{"spec", "replicas"}},
		{"is not a client that wrote our number", []metav1.ManagedFieldsEntry{ours(replicas), scale("a", replicas)}, "", nil},
		{"is not a client of the object itself", []metav1.ManagedFieldsEntry{ours("{}"), entry("a", update, replicas)}, "", nil},
		{"is not the entry of a number that we gave up", []metav1.ManagedFieldsEntry{ours("{}"), scale("kept-scale", replicas)}, "", nil},
		{"is the client that scaled a custom resource", []metav1.ManagedFieldsEntry{ours(replicas), scale("a", size)}, "a", []string{"spec", "pool", "size"}},
		{"is not a client that wrote our number in a custom resource", []metav1.ManagedFieldsEntry{ours(size), scale("a", size)}, "", nil},
		{"is not an entry without fields", []metav1.ManagedFieldsEntry{ours("{}"), scale("a", "{}")}, "", nil},
		{"is not an entry with another kind of field", []metav1.ManagedFieldsEntry{ours("{}"), scale("a", `{"f:spec":{"v:1":{}}}`)}, "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			manager, field := ownership.Scaler(tt.entries)
			assert.Equal(t, tt.want, manager)
			assert.Equal(t, tt.field, field)
		})
	}
}
