package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Keys of the ConfigMap by which a release carries its trust (OpenShift library-go, package verify).
const (
	keyPrefix   = "verifier-public-key-"
	storePrefix = "store-"
)

// FromManifests returns the trust that a release carries for the releases after it: the first ConfigMap, in load
// order, with the annotation release.openshift.io/verification-config-map, whatever its value. The error is
// ErrNoPolicy if there is none.
func FromManifests(manifests []*manifest.Manifest) (Policy, error) {
	for _, m := range manifests {
		if _, ok := m.Object.GetAnnotations()[api.VerificationAnnotation]; ok && m.Is("", "ConfigMap") {
			return FromConfigMap(m)
		}
	}
	return Policy{}, ErrNoPolicy
}

// FromConfigMap reads the trust ConfigMap of a payload. Every key verifier-public-key-* is a keyring (a root of
// its own, named by the whole key, as messages of OpenShift's verifier name it) and every key store-* the URL of a
// store. Other keys are left out. Without a keyring or without a store it is refused.
func FromConfigMap(m *manifest.Manifest) (Policy, error) {
	fail := func(err error) (Policy, error) {
		return Policy{}, fmt.Errorf("reading trust from %s: %w", m, err)
	}
	if !m.Is("", "ConfigMap") {
		return fail(fmt.Errorf("it is not a ConfigMap"))
	}
	if _, ok := m.Object.GetAnnotations()[api.VerificationAnnotation]; !ok {
		return fail(fmt.Errorf("it lacks the annotation %s", api.VerificationAnnotation))
	}
	data, _, err := unstructured.NestedStringMap(m.Object.Object, "data")
	if err != nil {
		return fail(err)
	}
	var binary struct {
		BinaryData map[string][]byte `json:"binaryData"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"binaryData": m.Object.Object["binaryData"]}, &binary); err != nil {
		return fail(err)
	}
	p, _, err := fromConfigMapData(data, binary.BinaryData)
	if err != nil {
		return fail(err)
	}
	if len(p.Stores) == 0 {
		return fail(fmt.Errorf("it names no store: add a key %s<name> with a URL", storePrefix))
	}
	p.Name = fmt.Sprintf("ConfigMap %s/%s of the release", m.Object.GetNamespace(), m.Object.GetName())
	return p, nil
}

// fromConfigMapData returns the policy without a name, and the keys it does not know, sorted.
func fromConfigMapData(data map[string]string, binaryData map[string][]byte) (Policy, []string, error) {
	values := map[string][]byte{}
	for k, v := range data {
		values[k] = []byte(v)
	}
	maps.Copy(values, binaryData)
	var p Policy
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch value := values[key]; {
		case strings.HasPrefix(key, keyPrefix):
			keyring, err := NewKeyring(key, value)
			if err != nil {
				return Policy{}, nil, err
			}
			p.Keyrings = append(p.Keyrings, keyring)
		case strings.HasPrefix(key, storePrefix):
			url := strings.TrimSpace(string(value))
			if _, err := OpenStore(url, nil); err != nil {
				return Policy{}, nil, fmt.Errorf("key %s: %w", key, err)
			}
			p.Stores = append(p.Stores, url)
		default:
			unknown = append(unknown, key)
		}
	}
	if len(p.Keyrings) == 0 {
		return Policy{}, nil, fmt.Errorf("it names no key: add a key %s<name> with an armored OpenPGP keyring", keyPrefix)
	}
	return p, unknown, nil
}
