package customresource

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/pkg/manifest/definition"
)

// Default adds the defaults of a CRD's version to an object, as the API server does. It does nothing if the CRD has no schema for the version.
func Default(crd *unstructured.Unstructured, version string, object *unstructured.Unstructured) {
	for _, v := range definition.Versions(crd.Object) {
		if v.Name == version {
			part(v.Schema()).addDefaults(object.Object)
		}
	}
}

// addDefaults adds the defaults of the schema to the fields of a value. The API server replaces nulls, too, if a field is not nullable.
func (s part) addDefaults(value any) {
	switch value := value.(type) {
	case map[string]any:
		for name := range s.below("properties") {
			property := s.field(name)
			field, set := value[name]
			if fallback, ok := property["default"]; ok && field == nil && (!set || !property.is("nullable")) {
				value[name] = runtime.DeepCopyJSONValue(fallback)
			}
		}
		for name := range value {
			s.field(name).addDefaults(value[name])
		}
	case []any:
		for _, item := range value {
			s.below("items").addDefaults(item)
		}
	}
}
