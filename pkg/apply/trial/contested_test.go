package trial

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ownedBy returns an object with an entry in managedFields.
func ownedBy(manager, fields string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}})
	return object
}

// TestOthersIgnoresPathsWithoutAField has paths of another client, which the server stores unchanged.
func TestOthersIgnoresPathsWithoutAField(t *testing.T) {
	found := others(rejectedAs("a", "spec"), map[string]any{}, ownedBy("other", `{"k:{\"a\":\"b\"}":{},"v:1":{},"i:0":{},"f:spec":{"f:x":{}}}`))
	assert.Len(t, found, 1)
	assert.Equal(t, "spec of other", found[0].String())
}

func TestOthersPrefersTheRejectedField(t *testing.T) {
	body := map[string]any{"spec": map[string]any{"a": int64(1)}}
	found := others(rejectedAs("a", "spec.max"), body, ownedBy("other", `{"f:spec":{"f:max":{"f:x":{}},"f:maxSurge":{},"f:y":{}}}`))
	assert.Len(t, found, 1)
	assert.Equal(t, "spec.max of other", found[0].String())
	assert.Len(t, others(rejectedAs("a", "spec.z"), body, ownedBy("other", `{"f:spec":{"f:maxSurge":{},"f:y":{}}}`)), 2)
}

func TestOthersIsBounded(t *testing.T) {
	var members strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&members, `,"v:\"m%d\"":{}`, i)
	}
	body := map[string]any{"spec": map[string]any{"set": []any{"a"}}}
	assert.Len(t, others(rejectedAs("a", "spec.set"), body, ownedBy("other", `{"f:spec":{"f:set":{".":{}`+members.String()+`}}}`)), maxOthers)
}
