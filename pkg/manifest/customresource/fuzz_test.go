package customresource

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// FuzzValidate validates an object against any schema, and compares both as schemas. It must not panic, and it must not change the object.
//
//threat:custom-resources-schemas
func FuzzValidate(f *testing.F) {
	definition, err := yaml.YAMLToJSON([]byte(widgets))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(definition, []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":11,"parts":[{"name":null},{}]}}`))
	f.Fuzz(func(t *testing.T, definition, object []byte) {
		var crd, o unstructured.Unstructured
		if crd.UnmarshalJSON(definition) != nil || o.UnmarshalJSON(object) != nil {
			return
		}
		before := o.DeepCopy()
		Validate(&crd, &o)
		Pruned(crd.Object, o.Object, "")
		assert.Equal(t, before, &o)
	})
}
