package overlay

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// Lists describes the lists of a custom resource whose items have keys, and its sets. managedFields do not show the defaults of keys, and
// nothing if they are empty. Lists is a part of a schema, because a whole one may take megabytes.
type Lists struct {
	fields map[string]*Lists
	// others is for the fields of a map.
	others *Lists
	items  *Lists
	// keys is nil for other values, and empty for a set.
	keys     []string
	defaults map[string]any
}

// NewLists returns the lists in the schema of a CustomResourceDefinition, or nil if there are none.
func NewLists(schema *apiextensionsv1.JSONSchemaProps) *Lists {
	if schema == nil {
		return nil
	}
	l := &Lists{fields: map[string]*Lists{}, defaults: map[string]any{}}
	for name, field := range schema.Properties {
		if inner := NewLists(&field); inner != nil {
			l.fields[name] = inner
		}
	}
	if schema.AdditionalProperties != nil {
		l.others = NewLists(schema.AdditionalProperties.Schema)
	}
	if schema.Items != nil {
		l.items = NewLists(schema.Items.Schema)
	}
	if t := schema.XListType; t != nil && *t == "set" {
		l.keys = []string{}
	} else if t != nil && *t == "map" {
		l.keys = schema.XListMapKeys
	}
	for _, key := range l.keys {
		var value any
		if d := schema.Items.Schema.Properties[key].Default; d != nil && json.Unmarshal(d.Raw, &value) == nil {
			l.defaults[key] = value
		}
	}
	if len(l.fields) == 0 && l.others == nil && l.items == nil && l.keys == nil {
		return nil
	}
	return l
}

func (l *Lists) field(name string) *Lists {
	if l == nil {
		return nil
	}
	if inner, ok := l.fields[name]; ok {
		return inner
	}
	return l.others
}

// With adds the lists of the schema to an overlay. If managedFields are not empty, they decide which lists have keys, because lists may have
// been owned as a whole before.
func (o *Overlay) With(lists *Lists) *Overlay {
	o.lists = lists
	return o
}
