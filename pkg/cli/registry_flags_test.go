package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/fixture"
)

// parseImageFlags reads the flags of a command that looks into images.
func parseImageFlags(t *testing.T, args ...string) *imageFlags {
	t.Helper()
	f := &imageFlags{}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.add(flags)
	f.addPlatform(flags)
	require.NoError(t, flags.Parse(args))
	return f
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// TestRegistryFlags reads an image that only a mirror has, which wants credentials.
func TestRegistryFlags(t *testing.T) {
	r := fixture.StartRegistry(t)
	img, err := random.Image(64, 1)
	require.NoError(t, err)
	digest, err := img.Digest()
	require.NoError(t, err)
	access, err := parseImageFlags(t).access()
	require.NoError(t, err)
	ref, err := access.Reference(r.Host() + "/copy/release:1.0.0")
	require.NoError(t, err)
	require.NoError(t, remote.Push(ref, img, access.Remote()...))
	r.AddFault(fixture.Fault{Match: func(req *http.Request) bool {
		user, password, _ := req.BasicAuth()
		return user != "me" || password != "secret"
	}, Status: http.StatusUnauthorized})

	config := writeFile(t, "auth.json", fmt.Sprintf(`{"auths": {%q: {"username": "me", "password": "secret"}}}`, r.Host()))
	digests := writeFile(t, "idms.yaml", `{apiVersion: config.openshift.io/v1, kind: ImageDigestMirrorSet, metadata: {name: x}, spec: {imageDigestMirrors: [
		{source: source.example/platform, mirrors: ["`+r.Host()+`/copy"], mirrorSourcePolicy: NeverContactSource}]}}`)
	policy := writeFile(t, "icsp.yaml", `{apiVersion: operator.openshift.io/v1alpha1, kind: ImageContentSourcePolicy, metadata: {name: y}, spec: {repositoryDigestMirrors: [
		{source: source.example/platform, mirrors: [other.example/copy]}]}}`)

	access, err = parseImageFlags(t, "-a", config, "--idms-file", digests, "--icsp-file", policy, "--max-per-registry", "3").access()
	require.NoError(t, err)
	assert.Equal(t, 3, access.MaxPerRegistry())
	source, err := access.Reference("source.example/platform/release@" + digest.String())
	require.NoError(t, err)
	candidates := access.Candidates(source)
	require.Len(t, candidates, 2, "one mirror of each file, and not the source")
	assert.Equal(t, "other.example", candidates[0].Context().RegistryStr())
	got, err := remote.Get(candidates[1], access.Remote()...)
	require.NoError(t, err)
	assert.Equal(t, digest, got.Digest)
}

func TestRegistryFlagsRefuse(t *testing.T) {
	empty := writeFile(t, "empty", "")
	missing := filepath.Join(t.TempDir(), "missing")
	for _, tt := range []struct {
		name, want string
		args       []string
		code       int
	}{
		{"credentials that are not there", "--registry-config: reading registry configuration: open " + missing, []string{"-a", missing}, ExitFailed},
		{"credentials that are none", "--registry-config: reading registry configuration " + empty + ": no JSON", []string{"-a", empty}, ExitFailed},
		{"a file without mirrors", "--idms-file " + empty + ": no ImageDigestMirrorSet", []string{"--idms-file", empty}, ExitFailed},
		{"a file that is not there", "reading --icsp-file: open " + missing, []string{"--icsp-file", missing}, ExitFailed},
		{"a file without certificates", "--certificate-authority " + empty + ": there is no PEM certificate in it", []string{"--certificate-authority", empty}, ExitFailed},
		{"a pullspec as a registry", `--insecure-registry "a.example/b" is not a host`, []string{"--insecure-registry", "a.example/b"}, ExitUsage},
		{"all registries as one", `--insecure-registry "*" is not a host`, []string{"--insecure-registry", "*"}, ExitUsage},
		{"less than no request", "--max-per-registry -1", []string{"--max-per-registry", "-1"}, ExitUsage},
		{"half a platform", `--platform "linux" is not <os>/<architecture>`, []string{"--platform", "linux"}, ExitUsage},
		{"several platforms", `--filter-by-os "linux/.*" does not name one platform`, []string{"--filter-by-os", "linux/.*"}, ExitUsage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseImageFlags(t, tt.args...).images("")
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, tt.code, ExitCode(err))
		})
	}
}

func TestPlatformFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{"--platform", "linux/arm64"}, "linux/arm64"},
		{[]string{"--platform", "linux/arm/v7"}, "linux/arm/v7"},
		{[]string{"--filter-by-os", "linux/arm64"}, "linux/arm64"},
		{[]string{"--filter-by-os", "^linux/arm64$"}, "linux/arm64"},
		{[]string{"--filter-by-os", `linux\/arm64`}, "linux/arm64"},
		{[]string{"--filter-by-os", ".*"}, ""},
		{[]string{"--filter-by-os", "linux/arm64", "--platform", "linux/s390x"}, "linux/s390x"},
	} {
		got, err := parseImageFlags(t, tt.args...).chosenPlatform()
		require.NoError(t, err)
		assert.Equal(t, tt.want, got, "%v", tt.args)
	}
}

// TestInsecureFlagsWarn names what is weakened.
func TestInsecureFlagsWarn(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{"--insecure"}, "warning: --insecure is for all registries, mirrors too: certificates are not checked"},
		{[]string{"--insecure-registry", "a.example,b.example:5000"}, "warning: --insecure-registry is for a.example, b.example:5000: certificates are not checked"},
	} {
		var stderr bytes.Buffer
		cmd := New(Streams{In: strings.NewReader(""), Out: &stderr, Err: &stderr})
		cmd.SetArgs(append([]string{"release", "graph", t.TempDir()}, tt.args...))
		require.Error(t, cmd.ExecuteContext(t.Context()), "an empty folder is no release")
		if tt.want == "" {
			assert.NotContains(t, stderr.String(), "insecure")
		} else {
			assert.Equal(t, 1, strings.Count(stderr.String(), tt.want), stderr.String())
		}
	}
}
