package substitute

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	imagev1 "github.com/openshift/api/image/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/manifest"
)

func TestImageReferencesAreReplaced(t *testing.T) {
	rules := []placeholder{
		{from: "quay.io/p/dns-operator", to: "r/dns-operator@sha256:b"},
		{from: "quay.io/p/dns", to: "r/quay.io/p/dns@sha256:a"},
	}
	for _, tt := range []struct{ name, in, want string }{
		{"replaces at both ends of the text", "quay.io/p/dns", "r/quay.io/p/dns@sha256:a"},
		{"replaces in quotes", `"quay.io/p/dns" 'quay.io/p/dns'`, `"r/quay.io/p/dns@sha256:a" 'r/quay.io/p/dns@sha256:a'`},
		{"replaces a placeholder with its tag", "image: quay.io/p/dns:v4.0\n", "image: r/quay.io/p/dns@sha256:a\n"},
		{"replaces a placeholder with its digest", "image: quay.io/p/dns@sha256:0123abcd\n", "image: r/quay.io/p/dns@sha256:a\n"},
		{"replaces a placeholder with tag and digest", "image: quay.io/p/dns:v4@sha256:0123abcd\r\n", "image: r/quay.io/p/dns@sha256:a\r\n"},
		{"replaces after a symbol", "--image=quay.io/p/dns x", "--image=r/quay.io/p/dns@sha256:a x"},
		{"replaces neighbors that share a space", "quay.io/p/dns quay.io/p/dns", "r/quay.io/p/dns@sha256:a r/quay.io/p/dns@sha256:a"},
		{"prefers the longer placeholder", "quay.io/p/dns-operator:v1", "r/dns-operator@sha256:b"},
		{"keeps a word that ends with a placeholder", "myquay.io/p/dns _quay.io/p/dns", "myquay.io/p/dns _quay.io/p/dns"},
		{"keeps a word that begins with a placeholder", "quay.io/p/dnsmasq quay.io/p/dns/x quay.io/p/dns-x", "quay.io/p/dnsmasq quay.io/p/dns/x quay.io/p/dns-x"},
		{"keeps a port", "quay.io/p/dns:5000/x", "quay.io/p/dns:5000/x"},
		{"keeps a bare colon", "quay.io/p/dns: x", "quay.io/p/dns: x"},
		{"keeps a list", "quay.io/p/dns,quay.io/p/dns", "quay.io/p/dns,r/quay.io/p/dns@sha256:a"},
		{"keeps other text", "nothing to see", "nothing to see"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, string(replaceImages([]byte(tt.in), rules)))
		})
	}
}

func TestImagePlaceholdersAreUnique(t *testing.T) {
	pullspecs := map[string]string{"dns": "r/dns@sha256:a", "dns-operator": "r/op@sha256:b"}
	t.Run("it orders longer placeholders first", func(t *testing.T) {
		rules, err := placeholders("dns", []imagev1.TagReference{input.ImageTag("dns", "p/dns"), input.ImageTag("dns-operator", "p/dns-operator")}, pullspecs, false)
		require.NoError(t, err)
		assert.Equal(t, []placeholder{{"p/dns-operator", "r/op@sha256:b"}, {"p/dns", "r/dns@sha256:a"}}, rules)
	})
	t.Run("it rejects one placeholder for two images", func(t *testing.T) {
		_, err := placeholders("dns", []imagev1.TagReference{input.ImageTag("dns", "p/x"), input.ImageTag("dns-operator", "p/x")}, pullspecs, false)
		assert.EqualError(t, err, `component dns: image-references: tags "dns" and "dns-operator" both replace "p/x"`)
	})
	t.Run("it rejects an image that the release does not have", func(t *testing.T) {
		_, err := placeholders("dns", []imagev1.TagReference{input.ImageTag("ntp", "p/ntp")}, pullspecs, false)
		assert.ErrorContains(t, err, `no input image tag named "ntp"`)
	})
	t.Run("it keeps the placeholder of a missing image on request", func(t *testing.T) {
		rules, err := placeholders("dns", []imagev1.TagReference{input.ImageTag("ntp", "p/ntp")}, pullspecs, true)
		require.NoError(t, err)
		assert.Empty(t, rules)
	})
	t.Run("it rejects a tag without text to replace", func(t *testing.T) {
		_, err := placeholders("dns", []imagev1.TagReference{{Name: "dns"}}, pullspecs, false)
		assert.ErrorContains(t, err, `tag "dns" has no from.name`)
	})
}

func TestVersionPlaceholdersAreReplaced(t *testing.T) {
	keyed := map[string]string{"kubernetes": "1.36.3", "machine-os": "9.8.1"}
	for _, tt := range []struct{ name, in, want string }{
		{"replaces in quotes", `version: "0.0.1-snapshot"`, `version: "2.1.0"`},
		{"replaces at both ends", "0.0.1-snapshot", "2.1.0"},
		{"replaces after a dash", "backup-0.0.1-snapshot\n", "backup-2.1.0\n"},
		{"replaces keys", "a 0.0.1-snapshot-kubernetes b 0.0.1-snapshot-machine-os", "a 1.36.3 b 9.8.1"},
		{"keeps a dash without a key", "0.0.1-snapshot- 0.0.1-snapshot--x 0.0.1-snapshot-X", "2.1.0- 2.1.0--x 2.1.0-X"},
		{"keeps longer words", "x0.0.1-snapshot 10.0.1-snapshot 0.0.1-snapshots 0.0.1-snapshot_x", "x0.0.1-snapshot 10.0.1-snapshot 0.0.1-snapshots 0.0.1-snapshot_x"},
		{"keeps other text", "0.0.1", "0.0.1"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			got, err := replaceVersions([]byte(tt.in), "2.1.0", keyed)
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(got))
		})
	}
	t.Run("it rejects an unknown key", func(t *testing.T) {
		_, err := replaceVersions([]byte("0.0.1-snapshot-etcd"), "2.1.0", keyed)
		assert.ErrorContains(t, err, `unknown version reference "etcd"`)
	})
}

// FuzzReferences parses arbitrary image-references and derives the rules from them.
//
//threat:image-references-releases
func FuzzReferences(f *testing.F) {
	for _, seed := range []string{"", "kind: ImageStream", `{"kind":"ImageStream","spec":{"tags":[{"name":"a","from":null}]}}`, "kind: ImageStream\nspec: {tags: [{Name: x}]}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := input.ReadComponent("x", fstest.MapFS{input.ReferencesFile: {Data: data}})
		if err != nil {
			return
		}
		_, err = json.Marshal(c.References)
		require.NoError(t, err)
		_, _ = placeholders("x", c.References, nil, true)
	})
}

//threat:templates-manifests
func FuzzSubstitute(f *testing.F) {
	for _, seed := range []string{"", "0.0.1-snapshot", "0.0.1-snapshot-a", "p/x:v1@sha256:ab", "p/x:", "0.0.1-snapshot-\xff", "p/x@"} {
		f.Add([]byte(seed))
	}
	rules := []placeholder{{from: "p/x", to: "r/y@sha256:a"}}
	f.Fuzz(func(t *testing.T, data []byte) {
		if string(replaceImages(data, rules)) != string(data) {
			assert.Contains(t, string(data), "p/x")
		}
		replaced, err := replaceVersions(data, "1.0.0", nil)
		if err == nil && string(replaced) != string(data) {
			assert.Contains(t, string(data), manifest.VersionPlaceholder)
		}
	})
}

func TestComponentVersionsAreMerged(t *testing.T) {
	image := func(name, versions string) imagev1.TagReference {
		return imagev1.TagReference{Name: name, Annotations: map[string]string{api.ComponentVersionsLabel: versions}}
	}
	for _, tt := range []struct {
		name    string
		images  []imagev1.TagReference
		want    map[string]string
		wantErr string
		warning string
	}{
		{name: "prefers an image's version over the default", images: []imagev1.TagReference{image("x", "cni=2.0.0")}, want: map[string]string{"cni": "2.0.0", "etcd": "3.0.0"}},
		{name: "accepts equal versions of two images", images: []imagev1.TagReference{image("x", "cni=2.0.0"), image("y", "cni=2.0.0")}, want: map[string]string{"cni": "2.0.0", "etcd": "3.0.0"}},
		{name: "rejects different versions", images: []imagev1.TagReference{image("x", "cni=2.0.0"), image("y", "cni=2.1.0")}, wantErr: `the version for "cni" is inconsistent`},
		{name: "uses the first machine-os", images: []imagev1.TagReference{image("x", "machine-os=9.0.0"), image("y", "machine-os=9.1.0")}, want: map[string]string{"cni": "1.0.0", "etcd": "3.0.0", "machine-os": "9.0.0"}},
		{name: "uses kubectl from cli only", images: []imagev1.TagReference{image("x", "kubectl=1.0.0"), image("cli", "kubectl=1.1.0")}, want: map[string]string{"cni": "1.0.0", "etcd": "3.0.0", "kubectl": "1.1.0"}},
		{name: "rejects different versions of kubectl in the cli images", images: []imagev1.TagReference{image("cli", "kubectl=1.0.0"), image("cli-artifacts", "kubectl=1.1.0")}, wantErr: `the version for "kubectl" is inconsistent`},
		{
			name: "warns about a third version of kubectl", images: []imagev1.TagReference{image("x", "kubectl=1.0.0"), image("y", "kubectl=1.2.0"), image("cli", "kubectl=1.1.0")},
			want: map[string]string{"cni": "1.0.0", "etcd": "3.0.0", "kubectl": "1.1.0"}, warning: "3 versions of kubectl: 1.0.0, 1.1.0, 1.2.0",
		},
		{name: "rejects an unreadable label", images: []imagev1.TagReference{image("x", "what")}, wantErr: `image "x"`},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			byName := map[string]imagev1.TagReference{}
			for _, i := range tt.images {
				byName[i.Name] = i
			}
			got, warnings, err := componentVersions(tt.images, byName, map[string]string{"cni": "1.0.0", "etcd": "3.0.0"})
			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
			assert.Contains(t, strings.Join(warnings, "\n"), tt.warning)
			assert.Equal(t, tt.warning == "", len(warnings) == 0)
		})
	}
}

func TestPlaceholdersInFlowStyleAreErrors(t *testing.T) {
	r := Renderer{Version: "1.0.0", Images: map[string]imagev1.TagReference{
		"dns": input.ImageTag("dns", "p/dns@sha256:a"), "ntp": input.ImageTag("ntp", "p/dns@sha256:b"),
	}}
	component := func(image string) input.Component {
		return input.Component{
			Name: "dns", References: []imagev1.TagReference{input.ImageTag("dns", "p/dns"), input.ImageTag("ntp", "p/ntp")},
			Files: []input.File{{Name: "a.yaml", Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {image: " + image + "}\n")}},
		}
	}
	for _, image := range []string{"p/dns", "p/dns:v1", "[p/dns, x]", "[--image=p/dns, x]", "[x, --image=p/dns:v1]"} {
		_, err := r.Render(component(image))
		require.ErrorContains(t, err, "component dns: a.yaml[1] ConfigMap a: the image placeholder \"p/dns", image)
	}
	for _, image := range []string{`"p/dns"`, "p/dns ", `"p/ntp"`, "p/dnsmasq", "p/dns/x", `"--image=p/ntp --other=p/dns"`, "[--image=\"p/ntp\", x]"} {
		_, err := r.Render(component(image))
		require.NoError(t, err, image)
	}
	assert.Empty(t, r.Warnings)
	_, err := r.Render(component(`'[--image=p/dns]'`))
	require.NoError(t, err)
	require.Len(t, r.Warnings, 1)
	assert.Contains(t, r.Warnings[0], `component dns: a.yaml[1] ConfigMap a: the image placeholder "p/dns" is not replaced where no blank, quote or end of the line follows it`)
}
