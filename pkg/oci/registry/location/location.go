// Package location compares the names of registries and repositories in pullspecs, mirror sets and pull secrets.
package location

import (
	"fmt"
	"net"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// Normalize returns a location, either host or host/path, with a uniform spelling of the host. Docker Hub has several names.
func Normalize(location string) string {
	host, path, ok := strings.Cut(location, "/")
	host = strings.ToLower(host)
	if host == name.DefaultRegistry || host == "registry-1.docker.io" {
		host = "docker.io"
	}
	if ok {
		return host + "/" + path
	}
	return host
}

// Matches reports whether a setting, either host or host:port, applies to a registry.
func Matches(setting, registry string) bool {
	host, _, err := net.SplitHostPort(registry)
	if err != nil {
		host = registry
	}
	return setting == registry || setting == host
}

// IsLoopback reports whether a registry's name is a loopback name or address.
func IsLoopback(registry string) bool {
	host, _, err := net.SplitHostPort(registry)
	if err != nil {
		host = strings.Trim(registry, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// CheckHost returns an error unless a text is one registry: a host or host:port, without a wildcard or a path.
func CheckHost(text string) error {
	if text != "" && !strings.ContainsAny(text, "*/") {
		if _, err := name.NewRegistry(text, name.StrictValidation); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%q is not a host or host:port", text)
}
