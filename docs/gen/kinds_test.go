package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestFieldsHaveTheirTypes(t *testing.T) {
	var out strings.Builder
	fields(&out, "spec.", &apiextensionsv1.JSONSchemaProps{
		Required: []string{"budget"},
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"budget": {XIntOrString: true, Description: "A budget."},
			"count":  {Type: "integer", Format: "int32"},
			"days":   {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}},
		},
	})
	assert.Equal(t, "| `spec.budget` | integer or string, required | A budget. |\n| `spec.count` | integer (int32) |  |\n| `spec.days` | array of string |  |\n", out.String())
}
