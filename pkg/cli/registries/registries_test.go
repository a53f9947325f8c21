package registries

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/progress"
	"github.com/cluster-version/cvo/test/fixture"
)

// parseImageFlags parses the flags of a command that reads images.
func parseImageFlags(t *testing.T, args ...string) *Flags {
	t.Helper()
	f := &Flags{}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.Add(flags)
	f.AddPlatform(flags)
	require.NoError(t, flags.Parse(args))
	return f
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// TestRegistryFlagsSelectMirrorAndCredentials reads an image that exists only in a mirror, which requires credentials.
func TestRegistryFlagsSelectMirrorAndCredentials(t *testing.T) {
	r := fixture.StartRegistry(t)
	img, err := random.Image(64, 1)
	require.NoError(t, err)
	digest, err := img.Digest()
	require.NoError(t, err)
	access, err := parseImageFlags(t).Access()
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

	access, err = parseImageFlags(t, "-a", config, "--idms-file", digests, "--icsp-file", policy, "--max-per-registry", "3").Access()
	require.NoError(t, err)
	assert.Equal(t, 3, access.MaxPerRegistry())
	source, err := access.Reference("source.example/platform/release@" + digest.String())
	require.NoError(t, err)
	candidates := access.Candidates(source)
	require.Len(t, candidates, 2, "one mirror from each file, without the source")
	assert.Equal(t, "other.example", candidates[0].Context().RegistryStr())
	got, err := remote.Get(candidates[1], access.Remote()...)
	require.NoError(t, err)
	assert.Equal(t, digest, got.Digest)
}

func TestInvalidRegistryFlagsAreRejected(t *testing.T) {
	empty := writeFile(t, "empty", "")
	missing := filepath.Join(t.TempDir(), "missing")
	for _, tt := range []struct {
		name, want string
		args       []string
		code       int
	}{
		{"it rejects a missing credentials file", "--registry-config: reading registry configuration: open " + missing, []string{"-a", missing}, command.ExitFailed},
		{"it rejects an invalid credentials file", "--registry-config: reading registry configuration " + empty + ": not JSON", []string{"-a", empty}, command.ExitFailed},
		{"it rejects a file without mirrors", "--idms-file " + empty + ": found no ImageDigestMirrorSet", []string{"--idms-file", empty}, command.ExitFailed},
		{"it rejects a missing file", "reading --icsp-file: open " + missing, []string{"--icsp-file", missing}, command.ExitFailed},
		{"it rejects a file without certificates", "--certificate-authority " + empty + ": the bundle contains no PEM certificate", []string{"--certificate-authority", empty}, command.ExitFailed},
		{"it rejects a pullspec as a registry", `--insecure-registry "a.example/b" is not a host`, []string{"--insecure-registry", "a.example/b"}, command.ExitUsage},
		{"it rejects a wildcard as a registry", `--insecure-registry "*" is not a host`, []string{"--insecure-registry", "*"}, command.ExitUsage},
		{"it rejects a negative number of requests", "--max-per-registry -1", []string{"--max-per-registry", "-1"}, command.ExitUsage},
		{"it rejects a platform without an architecture", `--platform "linux" is not <os>/<architecture>`, []string{"--platform", "linux"}, command.ExitUsage},
		{"it rejects several platforms", `--filter-by-os "linux/.*" does not name one platform`, []string{"--filter-by-os", "linux/.*"}, command.ExitUsage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseImageFlags(t, tt.args...).Images("")
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, tt.code, command.ExitCode(err))
		})
	}
}

func TestPlatformFlagsSelectOnePlatform(t *testing.T) {
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
		got, err := parseImageFlags(t, tt.args...).ChosenPlatform()
		require.NoError(t, err)
		assert.Equal(t, tt.want, got, "%v", tt.args)
	}
}

func TestPatienceOfACommand(t *testing.T) {
	for _, tt := range []struct {
		name       string
		forLookups bool
		args       []string
		limit      time.Duration
		quiet      bool
	}{
		{"every command has a limit", false, nil, 30 * time.Second, false},
		{"a flag limits only requests to the API server", false, []string{"--request-timeout=5s"}, 30 * time.Second, false},
		{"a look-up has the default limit", true, nil, 30 * time.Second, false},
		{"a look-up has the default limit for 0", true, []string{"--request-timeout=0"}, 30 * time.Second, false},
		{"a flag sets the limit of a look-up", true, []string{"--request-timeout=5s"}, 5 * time.Second, false},
		{"a flag turns off notices", true, []string{"--quiet"}, 30 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := &cobra.Command{}
			flags := cmd.Flags()
			new(cluster.ContextFlags).Add(flags)
			new(progress.Flags).Add(flags)
			if tt.forLookups {
				LimitLookups(flags)
			}
			require.NoError(t, flags.Parse(tt.args))
			var lines []string
			p := patience(cmd, func(line string) { lines = append(lines, line) })
			assert.Equal(t, tt.limit, p.Limit)
			assert.False(t, p.FirstOnly)
			Copies(cmd)
			assert.True(t, patience(cmd, nil).FirstOnly, "a copy outlasts a slow registry")
			if tt.quiet {
				assert.Nil(t, p.Notice)
				return
			}
			for _, host := range []string{"a.example", "b.example", "a.example"} {
				p.Notice(host)
			}
			assert.Equal(t, []string{"info: Waiting for a response from a.example", "info: Waiting for a response from b.example"}, lines)
		})
	}
}
