package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

// Keys of the ConfigMap with a release's trust (OpenShift library-go, package verify).
const (
	keyPrefix   = "verifier-public-key-"
	storePrefix = "store-"
)

// FromManifests returns the trust that a release ships for its successors: the first ConfigMap, in load order, that has the annotation
// release.openshift.io/verification-config-map with any value. The error is ErrNone if there is none.
func FromManifests(manifests []*manifest.Manifest) (Policy, error) {
	for _, m := range manifests {
		if _, ok := m.Object.GetAnnotations()[api.VerificationAnnotation]; ok && m.Is("", "ConfigMap") {
			return FromConfigMap(m)
		}
	}
	return Policy{}, ErrNone
}

// FromConfigMap parses the trust ConfigMap of a payload. Every key verifier-public-key-* contains a keyring, which is a separate root named
// by the whole key, as in messages of OpenShift's verifier. Every key store-* contains the URL of a store. Other keys are ignored. At least
// one keyring and one store are required.
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
		return fail(fmt.Errorf("it lists no store: add a key %s<name> with a URL", storePrefix))
	}
	p.Name = fmt.Sprintf("ConfigMap %s/%s of the release", m.Object.GetNamespace(), m.Object.GetName())
	return p, nil
}

// fromConfigMapData returns the policy without a name, and the unknown keys in order.
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
			keyring, err := openpgp.NewKeyring(key, value)
			if err != nil {
				return Policy{}, nil, err
			}
			p.Keyrings = append(p.Keyrings, keyring)
		case strings.HasPrefix(key, storePrefix):
			url := strings.TrimSpace(string(value))
			if _, err := store.Open(url, nil); err != nil {
				return Policy{}, nil, fmt.Errorf("key %s: %w", key, err)
			}
			p.Stores = append(p.Stores, url)
		default:
			unknown = append(unknown, key)
		}
	}
	if len(p.Keyrings) == 0 {
		return Policy{}, nil, fmt.Errorf("it lists no key: add a key %s<name> with an armored OpenPGP keyring", keyPrefix)
	}
	return p, unknown, nil
}
