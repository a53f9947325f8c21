// Package packing contains the code that the image-building commands in this folder share: access to the target registry,
// and the creation time of images.
package packing

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/oci/registry/credentials"
)

// Registry provides access to a registry, with the same flags as cvo. The zero value uses cvo's defaults.
type Registry struct {
	credentials, insecure, authority string
}

// AddFlags adds the flags to a flag set.
func (r *Registry) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&r.credentials, "registry-config", "", "`file` with credentials for the registry; default as in cvo")
	flags.StringVar(&r.insecure, "insecure-registry", "", "`host` or host:port to reach over HTTP, or over HTTPS without certificate checks")
	flags.StringVar(&r.authority, "certificate-authority", "", "`file` with certificates to trust besides the system's")
}

// Access returns access to the registry, as the flags describe it. It fails if a file cannot be read or parsed.
func (r *Registry) Access() (*registry.Access, error) {
	options := registry.Options{}
	if r.insecure != "" {
		options.Insecure = []string{r.insecure}
	}
	var err error
	if r.credentials != "" {
		if options.Keychain, err = credentials.File(r.credentials); err != nil {
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

// Created returns the time in SOURCE_DATE_EPOCH (reproducible-builds.org), or the Unix epoch if the variable is not set. It fails for an
// invalid number.
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
