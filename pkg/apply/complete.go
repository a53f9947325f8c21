package apply

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// complete adds required fields that real manifests leave out, because typed clients always send them, and words or
// leaves out those that the server or a controller would have otherwise, for a change at every apply.
func complete(m *manifest.Manifest, object map[string]any) {
	switch {
	case isClusterOperator(m):
		// Its spec has no fields. Any that a manifest gives are pruned, but the server counts a generation first.
		object["spec"] = map[string]any{}
	case m.Is("security.openshift.io", "SecurityContextConstraints"):
		for field, zero := range sccZeroValues() {
			if _, ok := object[field]; !ok {
				object[field] = zero
			}
		}
	case m.Is("rbac.authorization.k8s.io", "ClusterRole") && object["aggregationRule"] != nil:
		// A controller gathers the rules from other roles; whatever is applied it undoes
		// (https://github.com/openshift/cluster-version-operator/pull/993).
		delete(object, "rules")
	case m.Is("", "Secret"):
		stringDataAsData(object)
	case m.Is("networking.k8s.io", "NetworkPolicy"):
		policyTypes(object)
	}
}

// policyTypes says which directions a NetworkPolicy restricts if its manifest leaves that out, as the server would
// (Kubernetes API reference, NetworkPolicySpec.policyTypes). The server does so only once: a release that adds the first
// rules for outgoing traffic would not have them enforced, because the default of the time before still stands.
func policyTypes(policy map[string]any) {
	spec, _ := policy["spec"].(map[string]any)
	if _, said := spec["policyTypes"]; said || spec == nil {
		return
	}
	types := []any{"Ingress"}
	if rules, _ := spec["egress"].([]any); len(rules) > 0 {
		types = append(types, "Egress")
	}
	spec = maps.Clone(spec)
	spec["policyTypes"] = types
	policy["spec"] = spec
}

// stringDataAsData moves the texts of a Secret to its data, over which they win. The server does the same, but
// stringData is never stored: sent as it is, it could not be ours, and an entry that is dropped would stay.
func stringDataAsData(secret map[string]any) {
	texts, ok := secret["stringData"].(map[string]any)
	if !ok {
		return
	}
	delete(secret, "stringData")
	data, _ := secret["data"].(map[string]any)
	data = maps.Clone(data)
	if data == nil {
		data = map[string]any{}
	}
	for key, value := range texts {
		switch value := value.(type) {
		case nil:
			data[key] = ""
		case string:
			data[key] = base64.StdEncoding.EncodeToString([]byte(value))
		default:
			data[key] = value // the server says what is wrong with it
		}
	}
	secret["data"] = data
}

// storedForm words the empty lists and maps of a built-in kind so that they are still ours, but are what the server
// stores. It keeps those kinds in a form that has none, compares what it stored with what is applied to the letter, and
// would count a change at every apply. An empty struct, such as `emptyDir: {}`, is another thing: it is stored, and says
// something. Only the Go type behind a field can tell the two apart. Of custom resources, which are stored as they come,
// only the metadata of objects inside them has that form. What has nothing empty in it is shared with the object given.
func storedForm(gvk schema.GroupVersionKind, object map[string]any) {
	t := goType(gvk)
	if t == nil {
		for field, value := range object {
			if field != "metadata" {
				object[field], _ = withoutEmptyMetadata(value)
			}
		}
		return
	}
	fields := jsonFields(t)
	for field, value := range object {
		if t, ok := fields[field]; ok {
			object[field], _ = inStoredForm(t, value)
		}
	}
}

// withoutEmptyMetadata leaves out what is empty in the metadata of objects inside a value.
func withoutEmptyMetadata(value any) (next any, changed bool) {
	switch v := value.(type) {
	case map[string]any:
		out := v
		for key, item := range v {
			item, itemChanged := withoutEmptyMetadata(item)
			if metadata, ok := item.(map[string]any); ok && key == "metadata" && v["apiVersion"] != nil && v["kind"] != nil {
				before := len(metadata)
				metadata = maps.Clone(metadata)
				maps.DeleteFunc(metadata, func(_ string, value any) bool { return isEmpty(value) })
				item, itemChanged = metadata, itemChanged || len(metadata) < before
			}
			if itemChanged {
				if !changed {
					out, changed = maps.Clone(v), true
				}
				out[key] = item
			}
		}
		return out, changed
	case []any:
		out := v
		for i, item := range v {
			if item, itemChanged := withoutEmptyMetadata(item); itemChanged {
				if !changed {
					out, changed = slices.Clone(v), true
				}
				out[i] = item
			}
		}
		return out, changed
	}
	return value, false
}

func goType(gvk schema.GroupVersionKind) reflect.Type {
	if gvk == apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition") {
		return reflect.TypeFor[apiextensionsv1.CustomResourceDefinition]()
	}
	if t, err := clientgoscheme.Scheme.New(gvk); err == nil {
		return reflect.TypeOf(t).Elem()
	}
	return nil
}

// inStoredForm returns a value of a field of type t in the form in which it is stored, and whether that is another.
func inStoredForm(t reflect.Type, value any) (next any, changed bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := value.(type) {
	case map[string]any:
		return mapInStoredForm(t, v)
	case []any:
		return listInStoredForm(t, v)
	}
	return value, false
}

func mapInStoredForm(t reflect.Type, value map[string]any) (next any, changed bool) {
	typeOf := func(string) reflect.Type { return nil }
	switch {
	case t == reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrArray](), t == reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrBool]():
		return mapInStoredForm(reflect.TypeFor[apiextensionsv1.JSONSchemaProps](), value)
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return value, false // what is in it is its own affair
	case t.Kind() == reflect.Struct:
		fields := jsonFields(t)
		typeOf = func(key string) reflect.Type { return fields[key] }
	case t.Kind() == reflect.Map && len(value) == 0:
		return nil, true
	case t.Kind() == reflect.Map:
		typeOf = func(string) reflect.Type { return t.Elem() }
	}
	out := value
	for key, item := range value {
		itemType := typeOf(key)
		if itemType == nil {
			continue
		}
		item, itemChanged := inStoredForm(itemType, item)
		if item == nil && t.Kind() == reflect.Map && isText(itemType) {
			item, itemChanged = "", true // that is what null is to a typed client
		}
		if itemChanged {
			if !changed {
				out, changed = maps.Clone(value), true
			}
			out[key] = item
		}
	}
	return out, changed
}

func listInStoredForm(t reflect.Type, value []any) (next any, changed bool) {
	if t == reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrArray]() {
		t = reflect.TypeFor[[]apiextensionsv1.JSONSchemaProps]()
	}
	if t.Kind() != reflect.Slice || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return value, false
	}
	if len(value) == 0 {
		return nil, true
	}
	out := value
	for i, item := range value {
		if item, itemChanged := inStoredForm(t.Elem(), item); itemChanged && item != nil {
			if !changed {
				out, changed = slices.Clone(value), true
			}
			out[i] = item
		}
	}
	return out, changed
}

// isText reports whether JSON carries values of the type as text.
func isText(t reflect.Type) bool {
	return t.Kind() == reflect.String || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

// jsonFields maps the names that fields of a struct have in JSON to their types.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := make(map[string]reflect.Type, t.NumField())
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous {
			maps.Copy(fields, jsonFields(f.Type))
			continue
		}
		fields[name] = f.Type
	}
	return fields
}

// sccZeroValues are the required fields of a SecurityContextConstraints as a typed client fills them.
func sccZeroValues() map[string]any {
	return map[string]any{
		"allowHostDirVolumePlugin": false,
		"allowHostIPC":             false,
		"allowHostNetwork":         false,
		"allowHostPID":             false,
		"allowHostPorts":           false,
		"allowPrivilegedContainer": false,
		"allowedCapabilities":      nil,
		"defaultAddCapabilities":   nil,
		"priority":                 nil,
		"readOnlyRootFilesystem":   false,
		"requiredDropCapabilities": nil,
		"volumes":                  nil,
	}
}
