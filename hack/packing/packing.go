// Package packing is what the commands of this folder that make images have in common: how they reach the registry that
// they push to, and the time that images are of.
package packing

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/cluster-version/cvo/pkg/registry"
)

// Registry says how a registry is reached, with the flags that cvo has for it.
type Registry struct {
	credentials, insecure, authority string
}

// AddFlags adds the flags.
func (r *Registry) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&r.credentials, "registry-config", "", "`file` with credentials for the registry; default as cvo has it")
	flags.StringVar(&r.insecure, "insecure-registry", "", "`host` or host:port that is reached over HTTP, or HTTPS without checking its certificate")
	flags.StringVar(&r.authority, "certificate-authority", "", "`file` with certificates to trust besides the system's")
}

// Access reaches the registry as the flags say.
func (r *Registry) Access() (*registry.Access, error) {
	options := registry.Options{}
	if r.insecure != "" {
		options.Insecure = []string{r.insecure}
	}
	var err error
	if r.credentials != "" {
		if options.Keychain, err = registry.ConfigFile(r.credentials); err != nil {
			return nil, fmt.Errorf("-registry-config: %w", err)
		}
	}
	if r.authority != "" {
		bundle, err := os.ReadFile(r.authority)
		if err != nil {
			return nil, fmt.Errorf("reading -certificate-authority: %w", err)
		}
		if options.Authorities, err = registry.Authorities(bundle); err != nil {
			return nil, fmt.Errorf("-certificate-authority %s: %w", r.authority, err)
		}
	}
	return registry.New(options), nil
}

// Created is SOURCE_DATE_EPOCH (reproducible-builds.org), or the beginning of Unix time.
func Created() (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Unix(0, 0), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0), nil
}
