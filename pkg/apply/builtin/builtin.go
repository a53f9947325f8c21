// Package builtin provides the Go types of the kinds that are built into the API server, including CustomResourceDefinition. The types
// contain information that manifests lack: whether an empty value is a struct or a map, and which fields are mutually exclusive.
package builtin

import (
	"maps"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// Type returns the Go type of a built-in kind, or nil for other kinds.
func Type(gvk schema.GroupVersionKind) reflect.Type {
	if gvk == apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition") {
		return reflect.TypeFor[apiextensionsv1.CustomResourceDefinition]()
	}
	if t, err := clientgoscheme.Scheme.New(gvk); err == nil {
		return reflect.TypeOf(t).Elem()
	}
	return nil
}

// Fields returns the types of a struct's fields by JSON name.
func Fields(t reflect.Type) map[string]reflect.Type {
	fields := make(map[string]reflect.Type, t.NumField())
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous {
			maps.Copy(fields, Fields(f.Type))
			continue
		}
		fields[name] = f.Type
	}
	return fields
}
