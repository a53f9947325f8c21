// Package credentials provides credentials for registries. It reads pull secrets and the registry configuration files of Podman and
// Docker, and runs their credential helpers. It returns keychains for the registry library. Its errors contain no secrets.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/cluster-version/cvo/internal/inputfile"
)

// File returns a keychain for a registry configuration file, such as a file from podman login --authfile. It reads the file immediately to
// report errors, and again at each lookup.
func File(path string) (authn.Keychain, error) {
	if _, err := readConfig(path); err != nil {
		return nil, err
	}
	return configFiles{list: func() []string { return []string{path} }}, nil
}

// Default returns a keychain with the stored credentials of the user's container tools. If $REGISTRY_AUTH_FILE is set, it reads only that
// file. Otherwise, it uses the first of Podman's and Docker's files that has credentials for the registry.
// $REGISTRY_AUTH_PREFERENCE=docker puts Docker's files first.
func Default() authn.Keychain { return configFiles{list: defaultConfigs} }

// First returns a keychain that asks several keychains in order and uses the first credentials. It ignores nil keychains.
func First(list ...authn.Keychain) authn.Keychain {
	list = slices.DeleteFunc(list, func(k authn.Keychain) bool { return k == nil })
	return authn.NewMultiKeychain(list...)
}

// WithoutAccessTokens returns a keychain that leaves out stored access tokens for the registries that match. It keeps passwords and refresh
// tokens.
func WithoutAccessTokens(inner authn.Keychain, matches func(registry string) bool) authn.Keychain {
	return withoutAccessTokens{inner, matches}
}

type withoutAccessTokens struct {
	inner   authn.Keychain
	matches func(registry string) bool
}

// Resolve implements authn.Keychain.
func (w withoutAccessTokens) Resolve(target authn.Resource) (authn.Authenticator, error) {
	return w.ResolveContext(context.Background(), target)
}

// ResolveContext implements authn.ContextKeychain.
func (w withoutAccessTokens) ResolveContext(ctx context.Context, target authn.Resource) (authn.Authenticator, error) {
	found, err := authn.Resolve(ctx, w.inner, target)
	if err != nil || !w.matches(target.RegistryStr()) {
		return found, err
	}
	config, err := authn.Authorization(ctx, found)
	if err != nil || config.RegistryToken == "" {
		return found, err
	}
	without := *config
	without.RegistryToken = ""
	return authn.FromConfig(without), nil
}

// configFiles is a list of registry configuration files. The first file with credentials for a registry counts. The files are read at each
// lookup, because tokens in them are short-lived.
type configFiles struct {
	list func() []string
}

// defaultConfigs returns the paths in containers-auth.json(5) that the environment defines.
func defaultConfigs() []string {
	if path := os.Getenv("REGISTRY_AUTH_FILE"); path != "" {
		return []string{path}
	}
	home, _ := os.UserHomeDir()
	var podman, docker []string
	add := func(list *[]string, dir string, parts ...string) {
		if dir != "" {
			*list = append(*list, filepath.Join(append([]string{dir}, parts...)...))
		}
	}
	add(&podman, os.Getenv("XDG_RUNTIME_DIR"), "containers", "auth.json")
	add(&podman, "/run/containers", strconv.Itoa(os.Getuid()), "auth.json")
	if config := os.Getenv("XDG_CONFIG_HOME"); config != "" {
		add(&podman, config, "containers", "auth.json")
	} else {
		add(&podman, home, ".config", "containers", "auth.json")
	}
	if config := os.Getenv("DOCKER_CONFIG"); config != "" {
		add(&docker, config, "config.json")
	} else {
		add(&docker, home, ".docker", "config.json")
	}
	add(&docker, home, ".dockercfg")
	if os.Getenv("REGISTRY_AUTH_PREFERENCE") == "docker" {
		return append(docker, podman...)
	}
	return append(podman, docker...)
}

// Resolve implements authn.Keychain.
func (c configFiles) Resolve(target authn.Resource) (authn.Authenticator, error) {
	return c.ResolveContext(context.Background(), target)
}

// ResolveContext implements authn.ContextKeychain.
func (c configFiles) ResolveContext(ctx context.Context, target authn.Resource) (authn.Authenticator, error) {
	for _, path := range c.list() {
		secret, err := readConfig(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found, ok, err := secret.ask(ctx, target)
		if err != nil {
			return nil, fmt.Errorf("credentials for %s in %s: %w", target.RegistryStr(), path, err)
		}
		if ok {
			return authn.FromConfig(found), nil
		}
	}
	return authn.Anonymous, nil
}

func readConfig(path string) (*PullSecret, error) {
	data, err := inputfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("reading registry configuration: %w", err)
	}
	parse := ParsePullSecret
	if filepath.Base(path) == ".dockercfg" {
		parse = parseDockercfg
	}
	secret, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("reading registry configuration %s: %w", path, err)
	}
	return secret, nil
}
