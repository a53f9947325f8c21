package api_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	"github.com/cluster-version/cvo/pkg/api"
)

// TestPolicyIsCopiedDeeply fails if a new field is shared with the copy, such as an object in the cache.
func TestPolicyIsCopiedDeeply(t *testing.T) {
	list := &api.NodeRolloutPolicyList{}
	randfill.New().NilChance(0).NumElements(1, 1).Funcs(func(*metav1.Time, randfill.Continue) {}).Fill(list)
	require.NotNil(t, list.Items[0].Status.NodeDuration)
	next := list.DeepCopyObject()
	assert.Equal(t, list, next)
	assertNotShared(t, reflect.ValueOf(list), reflect.ValueOf(next), "list")
}

// assertNotShared fails for each pointer, slice and map below a that b contains, too.
func assertNotShared(t *testing.T, a, b reflect.Value, path string) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if a.IsNil() {
			return
		}
		assert.NotEqual(t, a.Pointer(), b.Pointer(), "%s is shared", path)
	}
	switch a.Kind() {
	case reflect.Pointer:
		assertNotShared(t, a.Elem(), b.Elem(), path)
	case reflect.Slice:
		for i := range a.Len() {
			assertNotShared(t, a.Index(i), b.Index(i), path)
		}
	case reflect.Struct:
		for i := range a.NumField() {
			assertNotShared(t, a.Field(i), b.Field(i), path+"."+a.Type().Field(i).Name)
		}
	}
}
