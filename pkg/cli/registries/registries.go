// Package registries provides the flags for access to registries: credentials, certificates, mirrors and the platform of an image. It turns
// them into the options of package registry and into a reader of images.
package registries

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cluster-version/cvo/internal/inputfile"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/progress"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/oci/registry/credentials"
	"github.com/cluster-version/cvo/pkg/oci/registry/location"
	"github.com/cluster-version/cvo/pkg/oci/registry/mirrorset"
	"github.com/cluster-version/cvo/pkg/oci/registry/transport"
)

// Flags are the flags for access to registries and for the choice of an image's platform.
type Flags struct {
	Config   string
	Insecure bool
	// NoPlainCredentials: insecure registries get no credentials over HTTP.
	NoPlainCredentials bool
	// InsecureAt are the registries of --insecure-registry.
	InsecureAt     []string
	Authority      string
	mirrorFiles    []string
	policyFiles    []string
	MaxPerRegistry int
	platform       string
	filter         string
	// Layers, if not nil, is called with the progress of each layer.
	Layers func(image.Progress)
}

// Add adds the flags for registries.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.Config, "registry-config", "a", "",
		"`file` with credentials for registries; default $REGISTRY_AUTH_FILE, then the files of podman login and docker login")
	flags.BoolVar(&f.Insecure, "insecure", false,
		"allow HTTP, and HTTPS without certificate checks, for every registry; prefer --insecure-registry")
	flags.StringSliceVar(&f.InsecureAt, "insecure-registry", nil,
		"`host` or host:port to reach over HTTP, or over HTTPS without certificate checks (repeat for more)")
	flags.StringVar(&f.Authority, "certificate-authority", "", "`file` with certificates to trust besides the system's")
	flags.StringArrayVar(&f.mirrorFiles, "idms-file", nil,
		"`file` with ImageDigestMirrorSets and ImageTagMirrorSets; their mirrors are tried before the source (repeat for more)")
	flags.StringArrayVar(&f.policyFiles, "icsp-file", nil, "`file` with ImageContentSourcePolicies, the older form of mirror sets (repeat for more)")
	flags.IntVar(&f.MaxPerRegistry, "max-per-registry", 0, "maximum `number` of concurrent requests to one registry; 0 for the default of 32")
}

// AddPlatform adds the flags that choose a platform, for commands that read images.
func (f *Flags) AddPlatform(flags *pflag.FlagSet) {
	flags.StringVar(&f.platform, "platform", "", "`os/architecture` to select from a multi-platform image; default linux on this machine's architecture")
	flags.StringVar(&f.filter, "filter-by-os", "", "platform to select, as a regular expression that names one platform")
	_ = flags.MarkDeprecated("filter-by-os", "use --platform")
}

// Access returns the access to registries that the flags describe.
func (f *Flags) Access() (*registry.Access, error) {
	options, err := f.Options()
	if err != nil {
		return nil, err
	}
	return registry.New(options), nil
}

// Options returns the registry options that the flags set.
func (f *Flags) Options() (registry.Options, error) {
	options := registry.Options{Insecure: f.InsecureAt, PlainCredentials: !f.NoPlainCredentials, MaxPerRegistry: f.MaxPerRegistry}
	for _, host := range f.InsecureAt {
		if err := location.CheckHost(host); err != nil {
			return options, &command.UsageError{Err: fmt.Errorf("--insecure-registry %w", err)}
		}
	}
	if f.MaxPerRegistry < 0 {
		return options, &command.UsageError{Err: fmt.Errorf("--max-per-registry %d is negative: use a positive number, or 0 for the default", f.MaxPerRegistry)}
	}
	if f.Insecure {
		options.Insecure = []string{registry.AnyRegistry}
	}
	var err error
	if options.Mirrors, err = f.mirrors(); err != nil {
		return options, err
	}
	if f.Config != "" {
		if options.Keychain, err = credentials.File(f.Config); err != nil {
			return options, fmt.Errorf("--registry-config: %w", err)
		}
	}
	if f.Authority != "" {
		bundle, err := inputfile.Read(f.Authority)
		if err != nil {
			return options, fmt.Errorf("reading --certificate-authority: %w", err)
		}
		if options.Authorities, err = registry.Authorities(bundle); err != nil {
			return options, fmt.Errorf("--certificate-authority %s: %w", f.Authority, err)
		}
	}
	return options, nil
}

// mirrors returns the mirror sets of all given files.
func (f *Flags) mirrors() (mirrorset.Mirrors, error) {
	objects, _, err := f.readMirrorSets()
	if err != nil {
		return mirrorset.Mirrors{}, err
	}
	mirrors, err := mirrorset.New(objects...)
	if err != nil {
		return mirrorset.Mirrors{}, fmt.Errorf("mirror sets: %w", err)
	}
	return mirrors, nil
}

// MirrorSets returns the content of the files of --idms-file and --icsp-file as one stream of documents, nil for none.
func (f *Flags) MirrorSets() ([]byte, error) {
	_, documents, err := f.readMirrorSets()
	return bytes.Join(documents, []byte("\n---\n")), err
}

// readMirrorSets returns the mirror sets in all given files, and the content of the files.
func (f *Flags) readMirrorSets() (objects []runtime.Object, documents [][]byte, err error) {
	for _, files := range []struct {
		flag  string
		paths []string
	}{{"--idms-file", f.mirrorFiles}, {"--icsp-file", f.policyFiles}} {
		for _, path := range files.paths {
			data, err := inputfile.Read(path)
			if err != nil {
				return nil, nil, fmt.Errorf("reading %s: %w", files.flag, err)
			}
			found, err := mirrorset.Parse(data)
			if err != nil {
				return nil, nil, fmt.Errorf("%s %s: %w", files.flag, path, err)
			}
			objects, documents = append(objects, found...), append(documents, data)
		}
	}
	return objects, documents, nil
}

// Images returns a reader of images in registries and layouts. cache is a folder that caches content; empty for none.
func (f *Flags) Images(cache string) (*image.Reader, error) {
	access, err := f.Access()
	if err != nil {
		return nil, err
	}
	platform, err := f.ChosenPlatform()
	if err != nil {
		return nil, err
	}
	return image.New(image.Options{Access: access, CacheDir: cache, Platform: platform, Progress: f.Layers})
}

// onePlatform matches a value that names one platform. oc treats --filter-by-os as an expression over all platforms of an image.
var onePlatform = regexp.MustCompile(`^[a-z0-9]+/[a-z0-9]+(/[a-z0-9]+)?$`)

// ChosenPlatform returns the platform of --platform or --filter-by-os; empty for the default.
func (f *Flags) ChosenPlatform() (string, error) {
	if f.platform != "" {
		if !onePlatform.MatchString(f.platform) {
			return "", &command.UsageError{Err: fmt.Errorf("--platform %q is not <os>/<architecture>", f.platform)}
		}
		return f.platform, nil
	}
	plain := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(f.filter, "^"), "$"), `\`, "")
	switch {
	case plain == "" || plain == ".*":
		return "", nil
	case !onePlatform.MatchString(plain):
		return "", &command.UsageError{Err: fmt.Errorf("--filter-by-os %q does not name one platform: use --platform <os>/<architecture>", f.filter)}
	}
	return plain, nil
}

// WarnOfInsecurity warns about registries whose certificates are not checked.
func WarnOfInsecurity(streams command.Streams, flags *pflag.FlagSet) {
	const danger = "certificates are not checked and plain HTTP is allowed, so other hosts on the network may read " +
		"credentials and change the digest of a tag"
	if insecure, err := flags.GetBool("insecure"); err == nil && insecure {
		streams.Warnf("--insecure applies to all registries and mirrors: %s; select one with --insecure-registry", danger)
	} else if hosts, err := flags.GetStringSlice("insecure-registry"); err == nil && len(hosts) > 0 {
		streams.Warnf("--insecure-registry applies to %s: %s", strings.Join(hosts, ", "), danger)
	}
}

// lookupLimit is the time without a response after which a look-up fails, unless --request-timeout sets another. It is below the
// transport's own limit, because a user waits.
const lookupLimit = 30 * time.Second

const (
	// limitsLookups is the annotation of --request-timeout on commands whose look-ups it limits.
	limitsLookups = "limits-lookups"
	// copies is the annotation of commands that copy.
	copies = "copies"
)

// LimitLookups limits the look-ups of a command with --request-timeout. flags must contain that flag.
func LimitLookups(flags *pflag.FlagSet) {
	f := flags.Lookup(clientcmd.FlagTimeout)
	f.Usage = fmt.Sprintf("`time` after which a request fails, such as 1m; 0 for no limit at the API server and %s for a look-up in a registry", lookupLimit)
	f.Annotations = map[string][]string{limitsLookups: {"true"}}
}

// Copies marks a command that copies images. Its requests to a registry that has responded keep the limit and the retry of the transport, so
// that no copy fails because a registry is slow.
func Copies(cmd *cobra.Command) { command.Annotate(cmd, copies, "true") }

// WithPatience returns a context for the requests of a command. The command reports each registry that does not respond, except with
// --quiet. A look-up in such a registry ends after lookupLimit, or after --request-timeout if LimitLookups was called.
func WithPatience(streams command.Streams, cmd *cobra.Command) context.Context {
	ctx, notify := progress.WithNotices(cmd.Context(), streams.Err)
	return transport.WithPatience(ctx, patience(cmd, notify))
}

func patience(cmd *cobra.Command, notify func(line string)) transport.Patience {
	flags := cmd.Flags()
	p := transport.Patience{Limit: lookupLimit, FirstOnly: cmd.Annotations[copies] != ""}
	if f := flags.Lookup(clientcmd.FlagTimeout); f != nil && f.Annotations[limitsLookups] != nil {
		limit, _ := clientcmd.ParseTimeout(f.Value.String()) // the access to the cluster rejects an invalid one
		p.Limit = cmp.Or(max(limit, 0), lookupLimit)
	}
	if quiet, err := flags.GetBool("quiet"); err == nil && quiet {
		return p
	}
	var reported sync.Map
	p.Notice = func(host string) {
		if _, known := reported.LoadOrStore(host, true); !known {
			notify("info: Waiting for a response from " + host)
		}
	}
	return p
}
