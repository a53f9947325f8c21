package assemble

import (
	"strings"
	"testing"

	imagev1 "github.com/openshift/api/image/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

func TestGiveNames(t *testing.T) {
	type call struct{ component, file, want string }
	for _, tt := range []struct {
		name  string
		calls []call
	}{
		{"keeps a name with a runlevel", []call{{"dns", "0000_70_dns_00.yaml", "0000_70_dns_00.yaml"}}},
		{"puts others at runlevel 50", []call{{"dns", "crd.yaml", "0000_50_dns_crd.yaml"}, {"dns", "00_crd.yaml", "0000_50_dns_00_crd.yaml"}}},
		{"numbers taken names before the extension", []call{
			{"a", "0000_10_x_y.crd.yaml", "0000_10_x_y.crd.yaml"},
			{"b", "0000_10_x_y.crd.yaml", "0000_10_x_y.crd_2.yaml"},
			{"c", "0000_10_x_y.crd.yaml", "0000_10_x_y.crd_3.yaml"},
		}},
		{"never gives a numbered name twice", []call{
			{"a", "0000_10_x_2.yaml", "0000_10_x_2.yaml"},
			{"b", "0000_10_x.yaml", "0000_10_x.yaml"},
			{"c", "0000_10_x.yaml", "0000_10_x_3.yaml"},
		}},
		{"numbers names without extension", []call{{"a", "0000_10_x", "0000_10_x"}, {"b", "0000_10_x", "0000_10_x_2"}}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			var n names
			for _, c := range tt.calls {
				assert.Equal(t, c.want, n.give(c.component, c.file))
			}
		})
	}
}

func TestReplaceImages(t *testing.T) {
	rules := []placeholder{
		{from: "quay.io/p/dns-operator", to: "r/dns-operator@sha256:b"},
		{from: "quay.io/p/dns", to: "r/quay.io/p/dns@sha256:a"},
	}
	for _, tt := range []struct{ name, in, want string }{
		{"replaces at both ends of the text", "quay.io/p/dns", "r/quay.io/p/dns@sha256:a"},
		{"replaces in quotes", `"quay.io/p/dns" 'quay.io/p/dns'`, `"r/quay.io/p/dns@sha256:a" 'r/quay.io/p/dns@sha256:a'`},
		{"takes the tag with it", "image: quay.io/p/dns:v4.0\n", "image: r/quay.io/p/dns@sha256:a\n"},
		{"takes the digest with it", "image: quay.io/p/dns@sha256:0123abcd\n", "image: r/quay.io/p/dns@sha256:a\n"},
		{"takes tag and digest with it", "image: quay.io/p/dns:v4@sha256:0123abcd\r\n", "image: r/quay.io/p/dns@sha256:a\r\n"},
		{"replaces after a sign", "--image=quay.io/p/dns x", "--image=r/quay.io/p/dns@sha256:a x"},
		{"replaces neighbours that share a space", "quay.io/p/dns quay.io/p/dns", "r/quay.io/p/dns@sha256:a r/quay.io/p/dns@sha256:a"},
		{"prefers the longer placeholder", "quay.io/p/dns-operator:v1", "r/dns-operator@sha256:b"},
		{"leaves a word that only ends with it", "myquay.io/p/dns _quay.io/p/dns", "myquay.io/p/dns _quay.io/p/dns"},
		{"leaves a word that only begins with it", "quay.io/p/dnsmasq quay.io/p/dns/x quay.io/p/dns-x", "quay.io/p/dnsmasq quay.io/p/dns/x quay.io/p/dns-x"},
		{"leaves a port", "quay.io/p/dns:5000/x", "quay.io/p/dns:5000/x"},
		{"leaves a bare colon", "quay.io/p/dns: x", "quay.io/p/dns: x"},
		{"leaves a list", "quay.io/p/dns,quay.io/p/dns", "quay.io/p/dns,r/quay.io/p/dns@sha256:a"},
		{"leaves other text", "nothing to see", "nothing to see"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, string(replaceImages([]byte(tt.in), rules)))
		})
	}
}

func TestPlaceholders(t *testing.T) {
	pullspecs := map[string]string{"dns": "r/dns@sha256:a", "dns-operator": "r/op@sha256:b"}
	t.Run("it orders longer ones first", func(t *testing.T) {
		rules, err := placeholders("dns", []imagev1.TagReference{ImageTag("dns", "p/dns"), ImageTag("dns-operator", "p/dns-operator")}, pullspecs, false)
		require.NoError(t, err)
		assert.Equal(t, []placeholder{{"p/dns-operator", "r/op@sha256:b"}, {"p/dns", "r/dns@sha256:a"}}, rules)
	})
	t.Run("it refuses one placeholder for two images", func(t *testing.T) {
		_, err := placeholders("dns", []imagev1.TagReference{ImageTag("dns", "p/x"), ImageTag("dns-operator", "p/x")}, pullspecs, false)
		assert.EqualError(t, err, `component dns: image-references: tags "dns" and "dns-operator" both replace "p/x"`)
	})
	t.Run("it refuses an image that the release does not have", func(t *testing.T) {
		_, err := placeholders("dns", []imagev1.TagReference{ImageTag("ntp", "p/ntp")}, pullspecs, false)
		assert.ErrorContains(t, err, `no input image tag named "ntp"`)
	})
	t.Run("it keeps the placeholder of such an image if asked to", func(t *testing.T) {
		rules, err := placeholders("dns", []imagev1.TagReference{ImageTag("ntp", "p/ntp")}, pullspecs, true)
		require.NoError(t, err)
		assert.Empty(t, rules)
	})
	t.Run("it refuses a tag without text to replace", func(t *testing.T) {
		_, err := placeholders("dns", []imagev1.TagReference{{Name: "dns"}}, pullspecs, false)
		assert.ErrorContains(t, err, `tag "dns" has no from.name`)
	})
}

func TestReplaceVersions(t *testing.T) {
	keyed := map[string]string{"kubernetes": "1.36.3", "machine-os": "9.8.1"}
	for _, tt := range []struct{ name, in, want string }{
		{"replaces in quotes", `version: "0.0.1-snapshot"`, `version: "2.1.0"`},
		{"replaces at both ends", "0.0.1-snapshot", "2.1.0"},
		{"replaces after a dash", "backup-0.0.1-snapshot\n", "backup-2.1.0\n"},
		{"replaces keys", "a 0.0.1-snapshot-kubernetes b 0.0.1-snapshot-machine-os", "a 1.36.3 b 9.8.1"},
		{"leaves a dash that begins no key", "0.0.1-snapshot- 0.0.1-snapshot--x 0.0.1-snapshot-X", "2.1.0- 2.1.0--x 2.1.0-X"},
		{"leaves longer words", "x0.0.1-snapshot 10.0.1-snapshot 0.0.1-snapshots 0.0.1-snapshot_x", "x0.0.1-snapshot 10.0.1-snapshot 0.0.1-snapshots 0.0.1-snapshot_x"},
		{"leaves other text", "0.0.1", "0.0.1"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			got, err := replaceVersions([]byte(tt.in), "2.1.0", keyed)
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(got))
		})
	}
	t.Run("it refuses an unknown key", func(t *testing.T) {
		_, err := replaceVersions([]byte("0.0.1-snapshot-etcd"), "2.1.0", keyed)
		assert.ErrorContains(t, err, `unknown version reference "etcd"`)
	})
}

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

func TestParseComponentVersions(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     map[string]string
		wantErr  string
	}{
		{name: "reads none", in: "", want: map[string]string{}},
		{name: "reads several without their build", in: "kubernetes=1.36.3, machine-os=9.8.1+build.5", want: map[string]string{"kubernetes": "1.36.3", "machine-os": "9.8.1"}},
		{name: "refuses a pair without value", in: "kubernetes", wantErr: "is not key=version"},
		{name: "refuses a short key", in: "k=1.0.0", wantErr: "is not key=version"},
		{name: "refuses capitals", in: "Kube=1.0.0", wantErr: "is not key=version"},
		{name: "refuses what is no version", in: "kubernetes=v1.36", wantErr: `component version "kubernetes=v1.36"`},
		{name: "refuses a key twice", in: "aa=1.0.0,aa=1.0.0", wantErr: "given twice"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			got, err := ParseComponentVersions(tt.in)
			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestComponentVersions(t *testing.T) {
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
		{name: "takes an image over the default", images: []imagev1.TagReference{image("x", "cni=2.0.0")}, want: map[string]string{"cni": "2.0.0", "etcd": "3.0.0"}},
		{name: "takes equal versions of two images", images: []imagev1.TagReference{image("x", "cni=2.0.0"), image("y", "cni=2.0.0")}, want: map[string]string{"cni": "2.0.0", "etcd": "3.0.0"}},
		{name: "refuses different ones", images: []imagev1.TagReference{image("x", "cni=2.0.0"), image("y", "cni=2.1.0")}, wantErr: `the version for "cni" is inconsistent`},
		{name: "takes the first machine-os", images: []imagev1.TagReference{image("x", "machine-os=9.0.0"), image("y", "machine-os=9.1.0")}, want: map[string]string{"cni": "1.0.0", "etcd": "3.0.0", "machine-os": "9.0.0"}},
		{name: "takes kubectl from cli alone", images: []imagev1.TagReference{image("x", "kubectl=1.0.0"), image("cli", "kubectl=1.1.0")}, want: map[string]string{"cni": "1.0.0", "etcd": "3.0.0", "kubectl": "1.1.0"}},
		{name: "refuses different kubectls of the cli images", images: []imagev1.TagReference{image("cli", "kubectl=1.0.0"), image("cli-artifacts", "kubectl=1.1.0")}, wantErr: `the version for "kubectl" is inconsistent`},
		{
			name: "warns of a third kubectl", images: []imagev1.TagReference{image("x", "kubectl=1.0.0"), image("y", "kubectl=1.2.0"), image("cli", "kubectl=1.1.0")},
			want: map[string]string{"cni": "1.0.0", "etcd": "3.0.0", "kubectl": "1.1.0"}, warning: "3 versions of kubectl: 1.0.0, 1.1.0, 1.2.0",
		},
		{name: "refuses a label that it cannot read", images: []imagev1.TagReference{image("x", "what")}, wantErr: `image "x"`},
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
