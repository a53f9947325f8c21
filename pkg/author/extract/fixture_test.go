package extract_test

import (
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// epoch is the creation time of the release.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// platform is a registry with a release.
type platform struct {
	registry *fixture.Registry
	images   *image.Reader
	release  release.Image
	files    fstest.MapFS
}

func newPlatform(t *testing.T) *platform {
	t.Helper()
	p := &platform{registry: fixture.StartRegistry(t), files: fstest.MapFS{}}
	for name, text := range manifests() {
		p.files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	var err error
	p.release, err = fixture.PushRelease(t.Context(), p.registry, p.files, "platform/release:1.2.3")
	require.NoError(t, err)
	p.images, err = image.New(image.Options{})
	require.NoError(t, err)
	return p
}

const included = `annotations: {include.release.openshift.io/self-managed-high-availability: "true"}`

func manifests() map[string]string {
	return map[string]string{
		"manifests/0000_00_operator_00_namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: operator, " + included + "}\n",
		"release-manifests/release-metadata": `{"kind":"cincinnati-metadata-v0","version":"1.2.3","previous":["1.10.0","1.2.0","1.9.1"],
			"metadata":{"url":"https://example.com/1.2.3","flags":{"a":1}}}`,
		"release-manifests/image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1",
			"metadata":{"name":"1.2.3","creationTimestamp":"2026-03-01T12:00:00Z"}}`,
		"release-manifests/.gitkeep": "",
		"release-manifests/0000_10_dns_00.yaml": "# Licence\n---\n# the first\napiVersion: v1\nkind: Namespace\nmetadata: {name: dns, " + included + "} # kept\n" +
			"---\n# the second\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: other, namespace: dns}\n" +
			"---\n# the third\napiVersion: v1\nkind: Secret\nmetadata: {name: third, namespace: dns, " + included + "}",
		"release-manifests/0000_20_dns_requests.yaml": request("aws", "AWSProviderSpec", included) + "---\n" + request("gcp", "GCPProviderSpec", included) +
			"---\n" + request("plain", "AWSProviderSpec", ""),
		"release-manifests/0000_30_gates.json": `{"apiVersion":"config.openshift.io/v1","kind":"FeatureGate","metadata":{"name":"cluster","annotations":{
			"include.release.openshift.io/self-managed-high-availability":"false-except-for-the-config-operator","release.openshift.io/feature-set":"TechPreviewNoUpgrade"}},
			"status":{"featureGates":[{"enabled":[{"name":"Shiny"}],"disabled":[{"name":"Dull"}],"version":""}]}}`,
		"release-manifests/0000_40_shiny.yaml":   "apiVersion: v1\nkind: Namespace\nmetadata: {name: shiny, annotations: {release.openshift.io/feature-gate: Shiny, include.release.openshift.io/self-managed-high-availability: \"true\"}}\n",
		"release-manifests/0000_50_console.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: console, annotations: {capability.openshift.io/name: Console, include.release.openshift.io/self-managed-high-availability: \"true\"}}\n",
		"release-manifests/0000_60_list.yaml": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: in, namespace: dns, " + included + "}\n" +
			"- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: out, namespace: dns}\n",
	}
}

func request(name, provider, metadata string) string {
	return fmt.Sprintf("apiVersion: cloudcredential.openshift.io/v1\nkind: CredentialsRequest\nmetadata: {name: %s, namespace: requests, %s}\nspec: {providerSpec: {kind: %s}}\n",
		name, metadata, provider)
}

func (p *platform) open() *inspect.Release { return inspect.Open(p.images, p.release) }
