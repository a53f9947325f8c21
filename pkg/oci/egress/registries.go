package egress

import (
	"context"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/clusterconfig"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/oci/registry/location"
	"github.com/cluster-version/cvo/pkg/oci/registry/mirrorset"
)

// Registries are the settings in ConfigMap openshift-config/cluster-version-operator-registries. 'cvo install' writes them for registries
// that the operator could not reach otherwise, such as the registry of a kind cluster.
type Registries struct {
	// Insecure lists registries (host or host:port) without TLS, or with certificates that are not checked.
	Insecure []string
	// MirrorSets are the documents of mirror sets, in YAML or JSON.
	MirrorSets []byte
}

// Keys of the ConfigMap.
const (
	insecureKey   = "insecure-registries" // one registry per line
	mirrorSetsKey = "mirror-sets.yaml"
)

// Data returns the data of the ConfigMap, nil for the zero value.
func (r Registries) Data() map[string]string {
	var data map[string]string
	set := func(key, value string) {
		if value == "" {
			return
		}
		if data == nil {
			data = map[string]string{}
		}
		data[key] = value
	}
	set(insecureKey, strings.Join(r.Insecure, "\n"))
	set(mirrorSetsKey, string(r.MirrorSets))
	return data
}

// parseRegistries returns the settings in the data of the ConfigMap. It fails for other keys, because a misspelled one would silently have
// no effect.
func parseRegistries(data map[string]string) (insecure []string, mirrorSets []runtime.Object, err error) {
	for key := range data {
		if key != insecureKey && key != mirrorSetsKey {
			return nil, nil, fmt.Errorf("unknown key %q: use %s or %s", key, insecureKey, mirrorSetsKey)
		}
	}
	insecure = strings.Fields(data[insecureKey])
	for _, host := range insecure {
		if err := location.CheckHost(host); err != nil {
			return nil, nil, fmt.Errorf("key %s: %w", insecureKey, err)
		}
	}
	if documents := data[mirrorSetsKey]; documents != "" {
		if mirrorSets, err = mirrorset.Parse([]byte(documents)); err != nil {
			return nil, nil, fmt.Errorf("key %s: %w", mirrorSetsKey, err)
		}
	}
	return insecure, mirrorSets, nil
}

// Insecure returns the registries that the operator contacts without TLS or without checking their certificates. given are the registries
// from flags.
func Insecure(ctx context.Context, reader client.Reader, given []string) ([]string, error) {
	insecure, _, err := clusterRegistries(ctx, reader)
	if err != nil {
		return nil, err
	}
	return union(given, insecure), nil
}

func union(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// clusterRegistries reads the insecure registries of a cluster, and the mirror sets in the ConfigMap.
func clusterRegistries(ctx context.Context, reader client.Reader) (insecure []string, mirrorSets []runtime.Object, err error) {
	key := client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.RegistriesConfigMap}
	data, err := ConfigMapData(ctx, reader, key)
	if err != nil {
		return nil, nil, err
	}
	if insecure, mirrorSets, err = parseRegistries(data); err != nil {
		return nil, nil, fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	image, err := clusterconfig.Get(ctx, reader, &configv1.Image{})
	if err != nil || image == nil {
		return insecure, mirrorSets, err
	}
	for _, host := range image.Spec.RegistrySources.InsecureRegistries {
		if location.CheckHost(host) == nil { // nodes also accept wildcards and repositories, which are not registries
			insecure = append(insecure, host)
		}
	}
	return insecure, mirrorSets, nil
}
