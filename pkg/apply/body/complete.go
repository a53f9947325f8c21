package body

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/apply/builtin"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// complete adds required fields that real manifests lack because typed clients always send them. It rewrites or omits fields that the
// server or a controller would otherwise revert after every apply.
func complete(m *manifest.Manifest, object map[string]any) {
	switch {
	case IsClusterOperator(m):
		// A ClusterOperator's spec has no fields. The server would prune fields in a manifest, but increment the generation first.
		object["spec"] = map[string]any{}
	case m.Is("security.openshift.io", "SecurityContextConstraints"):
		for field, zero := range sccZeroValues() {
			if _, ok := object[field]; !ok {
				object[field] = zero
			}
		}
	case m.Is("rbac.authorization.k8s.io", "ClusterRole") && object["aggregationRule"] != nil:
		// A controller aggregates the rules from other roles and would undo applied rules
		// (https://github.com/openshift/cluster-version-operator/pull/993).
		delete(object, "rules")
	case m.Is("", "Secret"):
		stringDataAsData(object)
	case m.Is("networking.k8s.io", "NetworkPolicy"):
		policyTypes(object)
	}
}

// policyTypes sets a NetworkPolicy's default for the directions that it restricts, as the server would (Kubernetes API reference,
// NetworkPolicySpec.policyTypes). The server sets the default only once. So if a release added the first egress rules, they would not be
// enforced, because the earlier default would still apply.
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

// stringDataAsData moves a Secret's stringData to data, where it overrides existing entries. The server does the same but never stores
// stringData. If we sent stringData, we would not own its entries, and entries that a release drops would stay.
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
			data[key] = value // the server will report the error
		}
	}
	secret["data"] = data
}

// storedForm rewrites the empty lists and maps of a built-in kind to the form that the server stores, and keeps them ours. The server
// stores these kinds without them. It compares the stored object literally with the applied one, and would count a change at every apply.
// An empty struct, such as `emptyDir: {}`, is different: the server stores it, and it has a meaning. Only the Go type of a field can
// distinguish the two. The server stores custom resources unchanged, except for the metadata of objects inside them. The result shares
// parts without empty values with the given object.
func storedForm(gvk schema.GroupVersionKind, object map[string]any) {
	t := builtin.Type(gvk)
	if t == nil {
		for field, value := range object {
			if field != "metadata" {
				object[field], _ = withoutEmptyMetadata(value)
			}
		}
		return
	}
	s := structs{}
	fields := s.fields(t)
	for field, value := range object {
		if t, ok := fields[field]; ok {
			object[field], _ = s.inStoredForm(t, value)
		}
	}
}

// structs caches the fields of the structs in one object: the schema of a CRD contains thousands of one type.
type structs map[reflect.Type]map[string]reflect.Type

func (s structs) fields(t reflect.Type) map[string]reflect.Type {
	fields, known := s[t]
	if !known {
		fields = builtin.Fields(t)
		s[t] = fields
	}
	return fields
}

// withoutEmptyMetadata removes empty parts from the metadata of objects inside a value.
func withoutEmptyMetadata(value any) (next any, changed bool) {
	switch v := value.(type) {
	case map[string]any:
		out := v
		for key, item := range v {
			item, itemChanged := withoutEmptyMetadata(item)
			if metadata, ok := item.(map[string]any); ok && key == "metadata" && v["apiVersion"] != nil && v["kind"] != nil {
				before := len(metadata)
				metadata = maps.Clone(metadata)
				maps.DeleteFunc(metadata, func(_ string, value any) bool { return manifest.IsEmpty(value) })
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

// inStoredForm returns the stored form of a value for a field of type t, and whether it differs from the value.
func (s structs) inStoredForm(t reflect.Type, value any) (next any, changed bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := value.(type) {
	case map[string]any:
		return s.mapInStoredForm(t, v)
	case []any:
		return s.listInStoredForm(t, v)
	}
	return value, false
}

func (s structs) mapInStoredForm(t reflect.Type, value map[string]any) (next any, changed bool) {
	typeOf := func(string) reflect.Type { return nil }
	switch {
	case t == reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrArray](), t == reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrBool]():
		return s.mapInStoredForm(reflect.TypeFor[apiextensionsv1.JSONSchemaProps](), value)
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return value, false // the content is free-form
	case t.Kind() == reflect.Struct:
		fields := s.fields(t)
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
		item, itemChanged := s.inStoredForm(itemType, item)
		if item == nil && t.Kind() == reflect.Map && isText(itemType) {
			item, itemChanged = "", true // as a typed client reads null
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

func (s structs) listInStoredForm(t reflect.Type, value []any) (next any, changed bool) {
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
		if item, itemChanged := s.inStoredForm(t.Elem(), item); itemChanged && item != nil {
			if !changed {
				out, changed = slices.Clone(value), true
			}
			out[i] = item
		}
	}
	return out, changed
}

// isText reports whether values of the type are strings in JSON.
func isText(t reflect.Type) bool {
	return t.Kind() == reflect.String || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

// sccZeroValues returns the required fields of SecurityContextConstraints with the values that typed clients send.
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
