package egress_test

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/oci/egress"
	"github.com/cluster-version/cvo/pkg/oci/registry"
)

func registriesConfigMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.RegistriesConfigMap}, Data: data}
}

func imageConfig(insecure ...string) *configv1.Image {
	image := &configv1.Image{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	image.Spec.RegistrySources.InsecureRegistries = insecure
	return image
}

const kindMirrors = `apiVersion: config.openshift.io/v1
kind: ImageDigestMirrorSet
metadata:
  name: kind
spec:
  imageDigestMirrors:
  - source: localhost:5001
    mirrors: [kind-registry:5000]
`

func TestInsecureRegistriesOfTheClusterAreUsed(t *testing.T) {
	written := egress.Registries{Insecure: []string{"kind-registry:5000", "b.example"}, MirrorSets: []byte(kindMirrors)}
	reader := cluster(t, registriesConfigMap(written.Data()), imageConfig("c.example:5000", "*.wild.example", "d.example/repository", "b.example"), mirrorSet())
	options, err := egress.Read(t.Context(), reader, registry.Options{Insecure: []string{"a.example"}, PlainCredentials: true})
	require.NoError(t, err)
	want := []string{"a.example", "b.example", "c.example:5000", "kind-registry:5000"}
	assert.Equal(t, want, options.Insecure, "without wildcards and repositories")
	assert.False(t, options.PlainCredentials)
	for pullspec, mirror := range map[string]string{"localhost:5001/platform/release": "kind-registry:5000", "quay.example/platform/release": "mirror.example"} {
		ref, err := name.NewDigest(pullspec + "@sha256:0000000000000000000000000000000000000000000000000000000000000000")
		require.NoError(t, err)
		candidates := registry.New(options).Candidates(ref)
		require.Len(t, candidates, 2, pullspec)
		assert.Equal(t, mirror, candidates[0].Context().RegistryStr())
	}

	insecure, err := egress.Insecure(t.Context(), reader, []string{"a.example"})
	require.NoError(t, err)
	assert.Equal(t, want, insecure)
	insecure, err = egress.Insecure(t.Context(), cluster(t), nil)
	require.NoError(t, err)
	assert.Empty(t, insecure)
}

func TestInvalidRegistriesAreErrors(t *testing.T) {
	for want, data := range map[string]map[string]string{
		`key insecure-registries: "*" is not a host or host:port`:            {"insecure-registries": "a.example\n*"},
		`key insecure-registries: "*.example.com" is not a host`:             {"insecure-registries": "*.example.com"},
		`key insecure-registries: "a.example/repository" is not a host`:      {"insecure-registries": "a.example/repository"},
		`key mirror-sets.yaml: `:                                             {"mirror-sets.yaml": "kind: Pod"},
		`unknown key "insecure": use insecure-registries or mirror-sets.yam`: {"insecure": "a.example"},
	} {
		_, err := egress.Read(t.Context(), cluster(t, registriesConfigMap(data)), registry.Options{})
		require.ErrorContains(t, err, "reading ConfigMap openshift-config/cluster-version-operator-registries: "+want)
	}
}

func TestNoRegistriesNeedNoConfigMap(t *testing.T) {
	assert.Nil(t, egress.Registries{}.Data())
}
