// Package customresource validates custom resources against the schema of a CustomResourceDefinition without a cluster. It takes both
// objects and returns the violations of types, required fields, enumerations, patterns and limits. It accepts what it does not know: only an
// API server evaluates formats, combined schemas and the rules in x-kubernetes-validations. It also finds fields that the API server prunes.
//
// The API server's own packages do more, but add nearly a megabyte to the binary, which then exceeds its bound (docs/adr/0018).
package customresource

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/manifest/definition"
)

// Violation is a value that breaks the schema.
type Violation struct {
	// Field is the path of the value, such as spec.ports[0].name; empty for the whole object.
	Field string
	// Message is the requirement of the schema.
	Message string
	// Missing means that the object lacks the field or has too few items. The API server accepts such a manifest if another client has set
	// the rest of the object. It is false within values that only one client can own, such as atomic lists.
	Missing bool
}

// String returns the violation without the value.
func (v Violation) String() string {
	if v.Field == "" {
		return v.Message
	}
	return v.Field + ": " + v.Message
}

// isCompleted reports whether manifests of a kind may lack required fields. This operator completes a ClusterOperator, and an admission
// plugin of OpenShift's API server completes SecurityContextConstraints.
func isCompleted(gk schema.GroupKind) bool {
	return gk == schema.GroupKind{Group: "config.openshift.io", Kind: "ClusterOperator"} ||
		gk == schema.GroupKind{Group: "security.openshift.io", Kind: "SecurityContextConstraints"}
}

// Validate returns the violations of an object in the order of its fields. It returns nil if the CRD has no schema for the object's
// version. It ignores the status if that is a subresource, as the API server does.
func Validate(crd, object *unstructured.Unstructured) []Violation {
	gvk := object.GroupVersionKind()
	v := &validator{}
	for _, version := range definition.Versions(crd.Object) {
		if version.Name != gvk.Version {
			continue
		}
		content := object.Object
		if status, _, _ := unstructured.NestedFieldNoCopy(version.Fields, "subresources", "status"); status != nil {
			content = maps.Clone(content)
			delete(content, "status")
		}
		v.check(version.Schema(), content, "", true)
	}
	if isCompleted(gvk.GroupKind()) {
		return slices.DeleteFunc(v.found, func(found Violation) bool { return found.Missing })
	}
	return v.found
}

// part is a schema: of an object or a field. Without keywords, it accepts any value.
type part map[string]any

// below returns the schema in a keyword.
func (s part) below(keyword string) part {
	below, _ := s[keyword].(map[string]any)
	return below
}

// field returns the schema of a field.
func (s part) field(name string) part {
	if properties := s.below("properties"); properties[name] != nil {
		return properties.below(name)
	}
	return s.below("additionalProperties")
}

// is reports whether a keyword is set to true.
func (s part) is(keyword string) bool { return s[keyword] == true }

// hasType reports whether a value has the type of the schema.
func (s part) hasType(value any) bool {
	_, isText := value.(string)
	number, isNumber := toNumber(value)
	switch s["type"] {
	case "object":
		_, ok := value.(map[string]any)
		return ok
	case "array":
		_, ok := value.([]any)
		return ok
	case "string":
		return isText
	case "boolean":
		_, ok := value.(bool)
		return ok
	case "integer":
		return isNumber && number == math.Trunc(number)
	case "number":
		return isNumber
	}
	return !s.is("x-kubernetes-int-or-string") || isText || isNumber
}

func toNumber(value any) (number float64, ok bool) {
	switch value := value.(type) {
	case int64:
		return float64(value), true
	case float64:
		return value, true
	}
	return 0, false
}

// validator collects violations.
type validator struct{ found []Violation }

func (v *validator) add(path, format string, args ...any) {
	v.found = append(v.found, Violation{Field: path, Message: fmt.Sprintf(format, args...)})
}

// check validates a value that is not null. shared means that several clients can own its parts.
func (v *validator) check(s part, value any, path string, shared bool) {
	if !s.hasType(value) {
		if s["type"] == nil {
			v.add(path, "must be an integer or a string")
		} else {
			v.add(path, "must be of type %v", s["type"])
		}
		return
	}
	if enum, ok := s["enum"].([]any); ok && !slices.ContainsFunc(enum, func(allowed any) bool { return equal(allowed, value) }) {
		v.add(path, "must be one of %s", printable.Excerpt(fmt.Sprint(enum), 200))
	}
	switch value := value.(type) {
	case map[string]any:
		v.checkObject(s, value, path, shared && s["x-kubernetes-map-type"] != "atomic")
	case []any:
		listType := s["x-kubernetes-list-type"] // atomic if unset
		shared = shared && (listType == "set" || listType == "map")
		v.checkLength(s, len(value), path, "Items", "items", shared)
		for i, item := range value {
			if item != nil {
				v.check(s.below("items"), item, fmt.Sprintf("%s[%d]", path, i), shared)
			}
		}
	case string:
		v.checkLength(s, utf8.RuneCountInString(value), path, "Length", "characters", false)
		if text, ok := s["pattern"].(string); ok {
			if pattern, err := regexp.Compile(text); err == nil && !pattern.MatchString(value) {
				v.add(path, "must match %s", text)
			}
		}
	}
	if number, ok := toNumber(value); ok {
		v.checkNumber(s, number, path)
	}
}

// checkObject validates the fields of an object. The API server ignores nulls in fields that are not nullable, and adds defaults.
func (v *validator) checkObject(s part, value map[string]any, path string, shared bool) {
	v.checkLength(s, len(value), path, "Properties", "fields", shared)
	at := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	required, _ := s["required"].([]any)
	for _, r := range required {
		name, _ := r.(string)
		field, set := value[name]
		if property := s.field(name); field == nil && property["default"] == nil && (!set || !property.is("nullable")) {
			v.found = append(v.found, Violation{Field: at(name), Message: "is required", Missing: shared})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(value)) {
		if value[name] != nil {
			v.check(s.field(name), value[name], at(name), shared)
		}
	}
}

func (v *validator) checkLength(s part, length int, path, keyword, noun string, shared bool) {
	if least, ok := toNumber(s["min"+keyword]); ok && float64(length) < least {
		v.found = append(v.found, Violation{Field: path, Message: fmt.Sprintf("must have at least %v %s", least, noun), Missing: shared})
	}
	if most, ok := toNumber(s["max"+keyword]); ok && float64(length) > most {
		v.add(path, "must have at most %v %s", most, noun)
	}
}

func (v *validator) checkNumber(s part, number float64, path string) {
	least, bounded := toNumber(s["minimum"])
	switch {
	case bounded && s.is("exclusiveMinimum") && number <= least:
		v.add(path, "must be more than %v", least)
	case bounded && number < least:
		v.add(path, "must be at least %v", least)
	}
	most, bounded := toNumber(s["maximum"])
	switch {
	case bounded && s.is("exclusiveMaximum") && number >= most:
		v.add(path, "must be less than %v", most)
	case bounded && number > most:
		v.add(path, "must be at most %v", most)
	}
}

// equal compares two values. Numbers of different types may be equal.
func equal(a, b any) bool {
	x, isNumber := toNumber(a)
	y, isAlso := toNumber(b)
	if isNumber && isAlso {
		return x == y
	}
	return reflect.DeepEqual(a, b)
}
