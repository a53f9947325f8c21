package credentials_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/registry/credentials"
)

// resolve looks up the credentials of a repository. It returns user:password, or a prefix and a token.
func resolve(t testing.TB, keychain authn.Keychain, repository string) (string, error) {
	t.Helper()
	repo, err := name.NewRepository(repository)
	require.NoError(t, err)
	found, err := authn.Resolve(t.Context(), keychain, repo)
	if err != nil {
		return "", err
	}
	config, err := authn.Authorization(t.Context(), found)
	require.NoError(t, err)
	switch {
	case config.IdentityToken != "":
		return "identity:" + config.IdentityToken, nil
	case config.RegistryToken != "":
		return "registry:" + config.RegistryToken, nil
	case *config == authn.AuthConfig{}:
		return "", nil
	}
	return config.Username + ":" + config.Password, nil
}

func pullSecret(t testing.TB, content string) *credentials.PullSecret {
	t.Helper()
	secret, err := credentials.ParsePullSecret([]byte(content))
	require.NoError(t, err)
	return secret
}

func basic(user string) string {
	return base64.StdEncoding.EncodeToString([]byte(user))
}

func TestPullSecretSelectsTheLongestMatch(t *testing.T) {
	for _, tt := range []struct{ name, auths, repository, want string }{
		{"it has no credentials for other registries", `"quay.example": {"auth": "` + basic("a:b") + `"}`, "other.example/ns/repo", ""},
		{"it has no credentials for hosts with the same prefix", `"quay.example": {"auth": "` + basic("a:b") + `"}`, "quay.example.org/ns/repo", ""},
		{"it has no credentials for other ports", `"quay.example": {"auth": "` + basic("a:b") + `"}`, "quay.example:5000/ns/repo", ""},
		{"it has no credentials for paths with the same prefix", `"quay.example/ns": {"auth": "` + basic("a:b") + `"}`, "quay.example/ns2/repo", ""},
		{"it has no credentials for parent paths", `"quay.example/ns/repo": {"auth": "` + basic("a:b") + `"}`, "quay.example/ns", ""},
		{"it reads auth", `"quay.example": {"auth": "` + basic("a:b:c") + `"}`, "quay.example/ns/repo", "a:b:c"},
		{"it reads padded auth", `"quay.example": {"auth": "` + basic("a:b\x00\x00") + `"}`, "quay.example/ns/repo", "a:b"},
		{"it reads user and password", `"quay.example": {"username": "a", "password": "b"}`, "quay.example/ns/repo", "a:b"},
		{"it prefers auth to user and password", `"quay.example": {"username": "x", "password": "y", "auth": "` + basic("a:b") + `"}`, "quay.example/ns/repo", "a:b"},
		{"it reads identity tokens", `"quay.example": {"auth": "` + basic("a:b") + `", "identitytoken": "i"}`, "quay.example/ns/repo", "identity:i"},
		{"it reads registry tokens", `"quay.example": {"registrytoken": "r"}`, "quay.example/ns/repo", "registry:r"},
		{
			"it prefers a repository to its namespace",
			`"quay.example": {"username": "h", "password": "x"}, "quay.example/ns": {"username": "n", "password": "x"}, "quay.example/ns/repo": {"username": "r", "password": "x"}`,
			"quay.example/ns/repo", "r:x",
		},
		{
			"it prefers a namespace to the host",
			`"quay.example": {"username": "h", "password": "x"}, "quay.example/ns": {"username": "n", "password": "x"}, "quay.example/ns/repo": {"username": "r", "password": "x"}`,
			"quay.example/ns/other/deep", "n:x",
		},
		{"it skips keys without credentials", `"quay.example": {"username": "h", "password": "x"}, "quay.example/ns": {"email": "x"}`, "quay.example/ns/repo", "h:x"},
		{"it reads keys with a scheme", `"https://quay.example": {"username": "a", "password": "b"}`, "quay.example/ns/repo", "a:b"},
		{"it reads keys with an API version", `"https://quay.example/v2/": {"username": "a", "password": "b"}`, "quay.example/ns/repo", "a:b"},
		{"it reads keys with the default port", `"quay.example:443": {"username": "a", "password": "b"}`, "quay.example/ns/repo", "a:b"},
		{"it ignores the case of hosts", `"Quay.Example": {"username": "a", "password": "b"}`, "quay.example/ns/repo", "a:b"},
		{"it accepts the old key of Docker Hub", `"https://index.docker.io/v1/": {"username": "a", "password": "b"}`, "busybox", "a:b"},
		{"it accepts the short key of Docker Hub", `"docker.io": {"username": "a", "password": "b"}`, "docker.io/ns/repo", "a:b"},
		{
			"it prefers a key in normalized spelling",
			`"https://quay.example": {"username": "x", "password": "x"}, "quay.example": {"username": "a", "password": "b"}, "quay.example/": {"username": "y", "password": "y"}`,
			"quay.example/ns/repo", "a:b",
		},
		{"it ignores errors in other entries", `"quay.example": {"username": "a", "password": "b"}, "x": {"auth": "?"}`, "quay.example/ns/repo", "a:b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := resolve(t, pullSecret(t, `{"auths": {`+tt.auths+`}}`), tt.repository)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestInvalidPullSecretsAreReportedWithoutSecrets(t *testing.T) {
	for _, tt := range []struct{ name, content, want string }{
		{"invalid JSON", `{"auths": {"x": {"auth": "hunter2`, "not JSON: syntax error at byte 33"},
		{"a wrong type", `{"auths": {"x": {"auth": ["hunter2"]}}}`, "not a registry configuration"},
		{"too much data for a Secret", strings.Repeat(" ", 1<<20) + "{}", "limit exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := credentials.ParsePullSecret([]byte(tt.content))
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
	for _, tt := range []struct{ name, auth, want string }{
		{"invalid base64", "hunter2!", `the pull secret's entry for "quay.example": "auth" is not base64`},
		{"a missing colon", basic("hunter2"), `"auth" is not base64 of <username>:<password>`},
		{"a missing user", basic(":hunter2"), `"auth" is not base64 of <username>:<password>`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := resolve(t, pullSecret(t, `{"auths": {"quay.example": {"auth": "`+tt.auth+`"}}}`), "quay.example/repo")
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// auths returns a registry configuration with the same user for each host.
func auths(user string, hosts ...string) string {
	entries := make([]string, 0, len(hosts))
	for _, host := range hosts {
		entries = append(entries, fmt.Sprintf(`%q: {"auth": %q}`, host, basic(user+":x")))
	}
	return `{"auths": {` + strings.Join(entries, ",") + `}}`
}

func TestDefaultKeychainReadsFilesInOrder(t *testing.T) {
	home, run, config, docker := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_RUNTIME_DIR", run)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("DOCKER_CONFIG", "")
	t.Setenv("REGISTRY_AUTH_FILE", "")
	keychain := credentials.Default()
	who := func(host string) string {
		got, err := resolve(t, keychain, host+"/repo")
		require.NoError(t, err)
		user, _, _ := strings.Cut(got, ":")
		return user
	}
	assert.Empty(t, who("a.example"), "no credentials are stored")

	write(t, filepath.Join(home, ".dockercfg"), `{"a.example": {"auth": "`+basic("dockercfg:x")+`"}}`)
	assert.Equal(t, "dockercfg", who("a.example"))
	write(t, filepath.Join(home, ".docker", "config.json"), auths("docker", "a.example"))
	assert.Equal(t, "docker", who("a.example"), "the file is read again at each lookup")
	write(t, filepath.Join(docker, "config.json"), auths("elsewhere", "a.example"))
	t.Setenv("DOCKER_CONFIG", docker)
	assert.Equal(t, "elsewhere", who("a.example"))
	write(t, filepath.Join(home, ".config", "containers", "auth.json"), auths("podman", "a.example", "b.example"))
	assert.Equal(t, "podman", who("a.example"))
	write(t, filepath.Join(config, "containers", "auth.json"), auths("config", "a.example"))
	t.Setenv("XDG_CONFIG_HOME", config)
	assert.Equal(t, "config", who("a.example"))
	assert.Empty(t, who("b.example"))
	write(t, filepath.Join(run, "containers", "auth.json"), auths("session", "a.example"))
	assert.Equal(t, "session", who("a.example"))

	write(t, filepath.Join(docker, "config.json"), auths("elsewhere", "a.example", "c.example"))
	assert.Equal(t, "elsewhere", who("c.example"), "the next file is read if a file lacks the registry")
	t.Setenv("REGISTRY_AUTH_PREFERENCE", "docker")
	assert.Equal(t, "elsewhere", who("a.example"))

	own := filepath.Join(t.TempDir(), "auth.json")
	t.Setenv("REGISTRY_AUTH_FILE", own)
	assert.Empty(t, who("a.example"), "REGISTRY_AUTH_FILE replaces all other files, even if it does not exist yet")
	write(t, own, auths("own", "a.example"))
	assert.Equal(t, "own", who("a.example"))
	assert.Empty(t, who("c.example"))
	write(t, own, "{")
	_, err := resolve(t, keychain, "a.example/repo")
	require.ErrorContains(t, err, own)
}

func TestConfigFileIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.json")
	_, err := credentials.File(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	write(t, path, "[]")
	_, err = credentials.File(path)
	require.ErrorContains(t, err, "reading registry configuration "+path+": not a registry configuration")
	write(t, path, auths("me", "a.example"))
	keychain, err := credentials.File(path)
	require.NoError(t, err)
	got, err := resolve(t, keychain, "a.example/repo")
	require.NoError(t, err)
	assert.Equal(t, "me:x", got)
}

//threat:pull-secret-cluster it runs no helper for a pull secret
func TestCredentialHelpersRunForUsersOnly(t *testing.T) {
	bin := t.TempDir()
	helper := func(name, script string) {
		require.NoError(t, os.WriteFile(filepath.Join(bin, "docker-credential-"+name), []byte("#!/bin/sh\n"+script), 0o700))
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	helper("echo", `read host; [ "$1" = get ] && echo "{\"ServerURL\": \"$host\", \"Username\": \"$host\", \"Secret\": \"s\"}"`)
	helper("token", `echo '{"Username": "<token>", "Secret": "t"}'`)
	helper("empty", `echo "credentials not found in native keychain"; exit 1`)
	helper("broken", `echo "no session"; exit 1`)
	helper("babbler", `echo "hunter2"`)

	for _, tt := range []struct{ name, config, repository, want, trouble string }{
		{"it asks the helper of a registry", `"credHelpers": {"a.example": "echo"}`, "a.example/repo", "a.example:s", ""},
		{"it does not ask the helper for other registries", `"credHelpers": {"a.example": "broken"}`, "b.example/repo", "file:x", ""},
		{"it asks the default helper for other registries", `"credsStore": "echo"`, "c.example/repo", "c.example:s", ""},
		{"it prefers credentials in the file", `"credsStore": "broken"`, "b.example/repo", "file:x", ""},
		{"it asks helpers for Docker Hub by its old name", `"credsStore": "echo"`, "busybox", "https://index.docker.io/v1/:s", ""},
		{"it accepts identity tokens", `"credHelpers": {"a.example": "token"}`, "a.example/repo", "identity:t", ""},
		{"it returns no credentials if the helper has none", `"credHelpers": {"a.example": "empty"}`, "a.example/repo", "", ""},
		{"it reports the error of a helper", `"credHelpers": {"a.example": "broken"}`, "a.example/repo", "", "running docker-credential-broken: exit status 1 no session"},
		{"it does not leak possible secrets", `"credHelpers": {"a.example": "babbler"}`, "a.example/repo", "", "docker-credential-babbler: not JSON"},
		{"it reports a missing helper", `"credsStore": "missing"`, "a.example/repo", "", `"docker-credential-missing": executable file not found`},
		{"it runs no program except helpers", `"credsStore": "../../bin/sh"`, "a.example/repo", "", `"../../bin/sh" is not the name of a credential helper`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.json")
			write(t, path, `{"auths": {"b.example": {"auth": "`+basic("file:x")+`"}, "a.example": {}}, `+tt.config+`}`)
			keychain, err := credentials.File(path)
			require.NoError(t, err)
			got, err := resolve(t, keychain, tt.repository)
			if tt.trouble != "" {
				require.ErrorContains(t, err, tt.trouble)
				assert.NotContains(t, err.Error(), "hunter2")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
	t.Run("it runs no helper for a pull secret", func(t *testing.T) {
		got, err := resolve(t, pullSecret(t, `{"credsStore": "echo"}`), "a.example/repo")
		require.NoError(t, err)
		assert.Empty(t, got)
	})
}
