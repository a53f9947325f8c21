package registry

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
)

// ConfigFile finds credentials in a registry configuration file, as podman login --authfile writes it. It reads the
// file now, to say what is wrong with it, and again whenever it is asked.
func ConfigFile(path string) (authn.Keychain, error) {
	if _, err := readConfig(path); err != nil {
		return nil, err
	}
	return configFiles{list: func() []string { return []string{path} }}, nil
}

// DefaultKeychain finds the credentials that the user's container tools have stored: in $REGISTRY_AUTH_FILE if that is
// set, or else in the first of Podman's and Docker's files that has some for a registry. $REGISTRY_AUTH_PREFERENCE=docker
// puts Docker's first.
func DefaultKeychain() authn.Keychain { return configFiles{list: defaultConfigs} }

// Keychains asks several keychains, the first that knows a registry wins. Those that are nil are passed over.
func Keychains(list ...authn.Keychain) authn.Keychain {
	list = slices.DeleteFunc(list, func(k authn.Keychain) bool { return k == nil })
	return authn.NewMultiKeychain(list...)
}

// configFiles are registry configuration files, the first that knows a registry wins. They are read whenever they are
// asked, because tokens in them are short-lived.
type configFiles struct {
	list func() []string
}

// defaultConfigs are the places of containers-auth.json(5), as far as the environment knows them.
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
	data, err := os.ReadFile(path)
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
