package plan

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Environment returns the choices that survive updates, as environment variables.
func (s Settings) Environment() []any {
	if s.Retrieval == "" {
		return nil
	}
	return []any{map[string]any{"name": retrievalVariable, "value": s.Retrieval}}
}

// ChoicesOf returns the fields of the Deployment that the installer owns.
func ChoicesOf(m *manifest.Manifest, environment []any) *unstructured.Unstructured {
	part := &unstructured.Unstructured{}
	part.SetGroupVersionKind(m.GVK())
	part.SetNamespace(m.Object.GetNamespace())
	part.SetName(m.Object.GetName())
	_ = unstructured.SetNestedSlice(part.Object, []any{map[string]any{"name": target.Operator, "env": environment}}, "spec", "template", "spec", "containers")
	return part
}

// WithEnvironment returns a copy of a Deployment with environment added to the operator's container. It replaces variables of the same
// name.
func WithEnvironment(m *manifest.Manifest, environment []any) (*manifest.Manifest, error) {
	with := *m
	with.Object = m.Object.DeepCopy()
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(with.Object.Object, path...)
	if err != nil {
		return nil, err
	}
	for _, item := range containers {
		container, ok := item.(map[string]any)
		if !ok || container["name"] != target.Operator {
			continue
		}
		container["env"] = mergeEnvironment(container["env"], environment)
		return &with, unstructured.SetNestedSlice(with.Object.Object, containers, path...)
	}
	return nil, errors.New("it has no container " + target.Operator)
}

func mergeEnvironment(have any, more []any) []any {
	var merged []any
	set := map[any]bool{}
	for _, item := range more {
		set[item.(map[string]any)["name"]] = true
	}
	list, _ := have.([]any)
	for _, item := range list {
		if variable, ok := item.(map[string]any); ok && !set[variable["name"]] {
			merged = append(merged, item)
		}
	}
	return append(merged, more...)
}

// CheckPullSecret returns an error if the credentials in a file are invalid.
func CheckPullSecret(data []byte) error {
	var config struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("it is not a dockerconfigjson: %w", err)
	}
	if len(config.Auths) == 0 {
		return errors.New("it has no credentials under auths: use a file written by 'docker login' or 'podman login --authfile'")
	}
	return nil
}
