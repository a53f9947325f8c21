package cli

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/registry"
)

// imageFlags say how registries are reached, and which of an image's platforms is meant.
type imageFlags struct {
	config      string
	insecure    bool
	insecureAt  []string
	authority   string
	mirrorFiles []string
	policyFiles []string
	most        int
	platform    string
	filter      string
	// layers, if set, is told how far each layer is that is read.
	layers func(image.Progress)
}

func (f *imageFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.config, "registry-config", "a", "",
		"`file` with credentials for registries; default $REGISTRY_AUTH_FILE, then what podman login and docker login wrote")
	flags.BoolVar(&f.insecure, "insecure", false,
		"reach every registry over HTTP, or over HTTPS without checking certificates; better name one with --insecure-registry")
	flags.StringSliceVar(&f.insecureAt, "insecure-registry", nil,
		"`host` or host:port that is reached over HTTP, or over HTTPS without checking its certificate (repeat for more)")
	flags.StringVar(&f.authority, "certificate-authority", "", "`file` with certificates to trust besides the system's")
	flags.StringArrayVar(&f.mirrorFiles, "idms-file", nil,
		"`file` with ImageDigestMirrorSets and ImageTagMirrorSets, whose mirrors are asked before the source (repeat for more)")
	flags.StringArrayVar(&f.policyFiles, "icsp-file", nil, "`file` with ImageContentSourcePolicies, the older form of the same (repeat for more)")
	flags.IntVar(&f.most, "max-per-registry", 0, "`number` of requests that one registry gets at a time; 0 for the default of 32")
}

// addPlatform adds the choice of a platform, for commands that look into images.
func (f *imageFlags) addPlatform(flags *pflag.FlagSet) {
	flags.StringVar(&f.platform, "platform", "", "`os/architecture` to choose where an image is for several; default linux on this machine's architecture")
	flags.StringVar(&f.filter, "filter-by-os", "", "the same, as a regular expression that names one platform")
	_ = flags.MarkDeprecated("filter-by-os", "use --platform")
}

// access reaches registries as the flags say.
func (f *imageFlags) access() (*registry.Access, error) {
	options, err := f.options()
	if err != nil {
		return nil, err
	}
	return registry.New(options), nil
}

// options say how registries are reached.
func (f *imageFlags) options() (registry.Options, error) {
	options := registry.Options{Insecure: f.insecureAt, MaxPerRegistry: f.most}
	for _, host := range f.insecureAt {
		if host == registry.AnyRegistry || strings.Contains(host, "/") {
			return options, &UsageError{Err: fmt.Errorf("--insecure-registry %q is not a host or host:port", host)}
		}
	}
	if f.most < 0 {
		return options, &UsageError{Err: fmt.Errorf("--max-per-registry %d is less than nothing", f.most)}
	}
	if f.insecure {
		options.Insecure = []string{registry.AnyRegistry}
	}
	var err error
	if options.Mirrors, err = f.mirrors(); err != nil {
		return options, err
	}
	if f.config != "" {
		if options.Keychain, err = registry.ConfigFile(f.config); err != nil {
			return options, fmt.Errorf("--registry-config: %w", err)
		}
	}
	if f.authority != "" {
		bundle, err := os.ReadFile(f.authority)
		if err != nil {
			return options, fmt.Errorf("reading --certificate-authority: %w", err)
		}
		if options.Authorities, err = registry.Authorities(bundle); err != nil {
			return options, fmt.Errorf("--certificate-authority %s: %w", f.authority, err)
		}
	}
	return options, nil
}

// mirrors reads the mirror sets of all files together.
func (f *imageFlags) mirrors() (registry.Mirrors, error) {
	var objects []runtime.Object
	for _, files := range []struct {
		flag  string
		paths []string
	}{{"--idms-file", f.mirrorFiles}, {"--icsp-file", f.policyFiles}} {
		for _, path := range files.paths {
			data, err := os.ReadFile(path)
			if err != nil {
				return registry.Mirrors{}, fmt.Errorf("reading %s: %w", files.flag, err)
			}
			found, err := registry.ParseMirrorSets(data)
			if err != nil {
				return registry.Mirrors{}, fmt.Errorf("%s %s: %w", files.flag, path, err)
			}
			objects = append(objects, found...)
		}
	}
	mirrors, err := registry.NewMirrors(objects...)
	if err != nil {
		return registry.Mirrors{}, fmt.Errorf("mirror sets: %w", err)
	}
	return mirrors, nil
}

// images reads images from registries and layouts; cache is a folder that keeps what was read, "" for none.
func (f *imageFlags) images(cache string) (*image.Reader, error) {
	access, err := f.access()
	if err != nil {
		return nil, err
	}
	platform, err := f.chosenPlatform()
	if err != nil {
		return nil, err
	}
	return image.New(image.Options{Access: access, CacheDir: cache, Platform: platform, Progress: f.layers})
}

// onePlatform is what --filter-by-os must come to: the original matches it against all platforms of an image.
var onePlatform = regexp.MustCompile(`^[a-z0-9]+/[a-z0-9]+(/[a-z0-9]+)?$`)

func (f *imageFlags) chosenPlatform() (string, error) {
	if f.platform != "" {
		if !onePlatform.MatchString(f.platform) {
			return "", &UsageError{Err: fmt.Errorf("--platform %q is not <os>/<architecture>", f.platform)}
		}
		return f.platform, nil
	}
	plain := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(f.filter, "^"), "$"), `\`, "")
	switch {
	case plain == "" || plain == ".*":
		return "", nil
	case !onePlatform.MatchString(plain):
		return "", &UsageError{Err: fmt.Errorf("--filter-by-os %q does not name one platform: use --platform <os>/<architecture>", f.filter)}
	}
	return plain, nil
}

// warnOfInsecurity says which registries are not checked.
func warnOfInsecurity(streams Streams, flags *pflag.FlagSet) {
	const danger = "certificates are not checked and plain HTTP is allowed, so that others on the network may read " +
		"credentials and decide what a tag stands for"
	if insecure, err := flags.GetBool("insecure"); err == nil && insecure {
		fmt.Fprintf(streams.Err, "warning: --insecure is for all registries, mirrors too: %s; name one with --insecure-registry\n", danger)
	} else if hosts, err := flags.GetStringSlice("insecure-registry"); err == nil && len(hosts) > 0 {
		fmt.Fprintf(streams.Err, "warning: --insecure-registry is for %s: %s\n", strings.Join(hosts, ", "), danger)
	}
}
