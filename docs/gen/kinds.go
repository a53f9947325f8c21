package main

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/api"
)

// kinds describes the fields of our own kinds.
func kinds() (string, error) {
	var out strings.Builder
	for _, set := range []fs.FS{manifests.FS(), manifests.Node()} {
		if err := kindsOf(&out, set); err != nil {
			return "", err
		}
	}
	return out.String(), nil
}

// kindsOf writes the kinds whose definitions are in a folder.
func kindsOf(out *strings.Builder, set fs.FS) error {
	names, err := fs.Glob(set, "*.crd.yaml")
	for _, name := range names {
		text, err := fs.ReadFile(set, name)
		if err != nil {
			return err
		}
		crd := apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, &crd); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if crd.Spec.Group != api.ReleaseRolloutVersion.Group {
			continue // a build adds the kinds of OpenShift
		}
		for _, version := range crd.Spec.Versions {
			schema := version.Schema.OpenAPIV3Schema
			fmt.Fprintf(out, "## %s\n\n%s\n\nAPI: `%s/%s`, resource `%s`.\n\n| field | type | description |\n|---|---|---|\n",
				crd.Spec.Names.Kind, escape(join(schema.Description)), crd.Spec.Group, version.Name, crd.Spec.Names.Plural)
			fields(out, "", schema)
			out.WriteString("\n")
		}
	}
	return err
}

// fields writes the fields of an object, and theirs.
func fields(out *strings.Builder, path string, schema *apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		at, kind, inner := path+name, field.Type, &field
		if field.XIntOrString {
			kind = "integer or string"
		}
		if field.Items != nil {
			inner = field.Items.Schema
			kind = "array of " + inner.Type
		}
		if inner.Format != "" {
			kind += " (" + inner.Format + ")"
		}
		if slices.Contains(schema.Required, name) {
			kind += ", required"
		}
		text := field.Description
		if len(inner.Enum) > 0 {
			values := make([]string, len(inner.Enum))
			for i, value := range inner.Enum {
				values[i] = strings.Trim(string(value.Raw), `"`)
			}
			text += " One of " + strings.Join(values, ", ") + "."
		}
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", at, kind, cell(text))
		if field.Items != nil {
			at += "[]"
		}
		fields(out, at+".", inner)
	}
}
