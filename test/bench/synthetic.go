package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// syntheticVersion is the version of the synthetic release.
const syntheticVersion = "1.0.0"

// componentObjects is how many objects a component of the synthetic release has, its CRD, Deployment and
// ClusterOperator among them.
const componentObjects = 100

// synthesize writes n objects as components for `cvo release new --from-dir`: as a real release has them, every kind in
// every component, spread over the runlevels from 10 to 80, each ClusterOperator spoken for by a Deployment.
func synthesize(dir string, n int) error {
	components := (n + componentObjects - 1) / componentObjects
	for i := range components {
		c := component{name: fmt.Sprintf("synthetic-%04d", i), runlevel: 10 + 10*(i*8/components), schema: 10 + i%40}
		objects := c.objects(min(componentObjects, n-i*componentObjects))
		if err := c.write(filepath.Join(dir, c.name), objects); err != nil {
			return fmt.Errorf("writing a synthetic release: %w", err)
		}
	}
	return os.WriteFile(filepath.Join(dir, "image-references"), []byte(syntheticImages), 0o644)
}

const syntheticImages = `{"apiVersion": "image.openshift.io/v1", "kind": "ImageStream", "metadata": {"name": "images"}, "spec": {"tags": [
  {"name": "operator", "from": {"kind": "DockerImage", "name": "registry.example/operator@sha256:` +
	`0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}}]}}`

// component is one component of the synthetic release.
type component struct {
	name     string
	runlevel int
	// schema is how many fields its CRD has.
	schema int
}

// item is an object with the place of its file in the component's order.
type item struct {
	place  int
	object map[string]any
}

// objects makes n objects: what a component needs first, then more of the kinds that releases have most of.
func (c component) objects(n int) []item {
	kind := fmt.Sprintf("Widget%s", strings.TrimPrefix(c.name, "synthetic-"))
	group := c.name + ".example.com"
	items := []item{
		{0, c.object("v1", "Namespace", "", c.name, nil)},
		{9, c.object("config.openshift.io/v1", "ClusterOperator", "", c.name, obj{
			"spec": obj{}, "status": obj{
				"versions":       []any{obj{"name": "operator", "version": "0.0.1-snapshot"}},
				"relatedObjects": []any{obj{"group": "apps", "resource": "deployments", "namespace": c.name, "name": "operator"}},
			},
		})},
		{5, c.deployment("operator")},
		{1, c.definition(group, kind)},
		{3, c.object("v1", "ServiceAccount", c.name, "operator", nil)},
		{3, c.object("rbac.authorization.k8s.io/v1", "ClusterRole", "", c.name, obj{"rules": rules()})},
		{3, c.object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", c.name, c.binding("ClusterRole", c.name))},
	}
	for i := 0; len(items) < n; i++ {
		name := fmt.Sprintf("object-%03d", i)
		var it item
		switch i % 8 {
		case 0, 1:
			it = item{2, c.object("v1", "ConfigMap", c.name, name, obj{"data": obj{"config.yaml": c.text(name, 20), "name": name}})}
		case 2:
			it = item{2, c.object("v1", "Secret", c.name, name, obj{"type": "Opaque", "stringData": obj{"token": c.text(name, 1)}})}
		case 3:
			it = item{3, c.object("rbac.authorization.k8s.io/v1", "Role", c.name, name, obj{"rules": rules()})}
		case 4:
			it = item{3, c.object("rbac.authorization.k8s.io/v1", "RoleBinding", c.name, name, c.binding("Role", fmt.Sprintf("object-%03d", i-1)))}
		case 5:
			it = item{4, c.object("v1", "Service", c.name, name, obj{"spec": obj{
				"selector": obj{"app": name}, "ports": []any{obj{"name": "https", "port": 443, "targetPort": 8443}},
			}})}
		case 6:
			it = item{6, c.object(group+"/v1", kind, c.name, name, obj{"spec": obj{"field00": c.text(name, 2)}})}
		case 7:
			it = item{4, c.object("networking.k8s.io/v1", "NetworkPolicy", c.name, name, obj{"spec": obj{
				"podSelector": obj{"matchLabels": obj{"app": name}}, "policyTypes": []any{"Ingress"},
			}})}
		}
		items = append(items, it)
	}
	return items[:n]
}

type obj = map[string]any

func (c component) object(apiVersion, kind, namespace, name string, body obj) obj {
	metadata := obj{
		"name":        name,
		"annotations": obj{"include.release.openshift.io/self-managed-high-availability": "true"},
		"labels":      obj{"app.kubernetes.io/part-of": c.name},
	}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	out := obj{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
	maps.Copy(out, body)
	return out
}

func (c component) deployment(name string) obj {
	return c.object("apps/v1", "Deployment", c.name, name, obj{"spec": obj{
		"replicas": 2, "selector": obj{"matchLabels": obj{"app": name}},
		"template": obj{
			"metadata": obj{"labels": obj{"app": name}},
			"spec": obj{"serviceAccountName": "operator", "containers": []any{obj{
				"name": "operator", "image": "registry.example/" + c.name + ":latest", "args": []any{"--listen=:8443"},
				"env":       []any{obj{"name": "RELEASE_VERSION", "value": "0.0.1-snapshot"}},
				"resources": obj{"requests": obj{"cpu": "10m", "memory": "32Mi"}},
			}}},
		},
	}})
}

func (c component) definition(group, kind string) obj {
	fields := obj{}
	for i := range c.schema {
		fields[fmt.Sprintf("field%02d", i)] = obj{"type": "string", "description": c.text(fmt.Sprintf("field %d", i), 3)}
	}
	plural := strings.ToLower(kind) + "s"
	return c.object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", plural+"."+group, obj{"spec": obj{
		"group": group, "scope": "Namespaced",
		"names": obj{"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind)},
		"versions": []any{obj{"name": "v1", "served": true, "storage": true, "schema": obj{"openAPIV3Schema": obj{
			"type": "object", "properties": obj{"spec": obj{"type": "object", "properties": fields}},
		}}}},
	}})
}

func (c component) binding(kind, name string) obj {
	return obj{
		"roleRef":  obj{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
		"subjects": []any{obj{"kind": "ServiceAccount", "name": "operator", "namespace": c.name}},
	}
}

func rules() []any {
	return []any{obj{"apiGroups": []any{""}, "resources": []any{"configmaps", "secrets"}, "verbs": []any{"get", "list", "watch"}}}
}

// text is some lines that differ from object to object.
func (c component) text(name string, lines int) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "line %d of %s in %s: some words of a setting\n", i, name, c.name)
	}
	return b.String()
}

// write puts each place's objects into one file. JSON is YAML, and quicker to write.
func (c component) write(dir string, items []item) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files := map[int]*strings.Builder{}
	for _, it := range items {
		data, err := json.Marshal(it.object)
		if err != nil {
			return err
		}
		if files[it.place] == nil {
			files[it.place] = &strings.Builder{}
		}
		fmt.Fprintf(files[it.place], "---\n%s\n", data)
	}
	for place, text := range files {
		name := fmt.Sprintf("0000_%02d_%s_%02d.yaml", c.runlevel, c.name, place)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
