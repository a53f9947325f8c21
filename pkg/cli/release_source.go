package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// clusterFlags describe the cluster that a release is looked at for.
type clusterFlags struct {
	profile      string
	featureSet   string
	gates        []string
	capabilities []string
}

func (f *clusterFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.profile, "profile", api.DefaultProfile, "cluster profile")
	flags.StringVar(&f.featureSet, "feature-set", "Default", "feature set of the cluster")
	flags.StringSliceVar(&f.gates, "feature-gate", nil, "feature gate that is enabled (repeat for more)")
	flags.StringSliceVar(&f.capabilities, "capability", nil,
		"capability, or set of capabilities such as v4.15 or None, that is enabled (repeat for more; default all)")
}

// filter returns the rules by which such a cluster chooses its manifests.
func (f *clusterFlags) filter() (manifest.Filter, error) {
	filter := manifest.Filter{Profile: f.profile, FeatureSet: f.featureSet, Gates: sets.New(f.gates...)}
	if f.featureSet != "" && !slices.Contains(manifest.KnownFeatureSets(), f.featureSet) {
		return filter, &UsageError{Err: fmt.Errorf("unknown feature set %q: use one of %s", f.featureSet, strings.Join(manifest.KnownFeatureSets(), ", "))}
	}
	if len(f.capabilities) == 0 {
		filter.Capabilities = manifest.AllCapabilities(filter.Gates)
		return filter, nil
	}
	spec := &configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: configv1.ClusterVersionCapabilitySetNone}
	known := manifest.KnownCapabilities()
	for _, c := range f.capabilities {
		set, ok := manifest.BaselineCapabilities(configv1.ClusterVersionCapabilitySet(c))
		switch capability := configv1.ClusterVersionCapability(c); {
		case c != "" && ok:
			spec.AdditionalEnabledCapabilities = append(spec.AdditionalEnabledCapabilities, set...)
		case slices.Contains(known, capability):
			spec.AdditionalEnabledCapabilities = append(spec.AdditionalEnabledCapabilities, capability)
		default:
			return filter, &UsageError{Err: fmt.Errorf("unknown capability %q: use one of %s, or a set such as None or vCurrent", c, joined(known))}
		}
	}
	filter.Capabilities, _ = manifest.EnabledCapabilities(spec, filter.Gates, nil)
	return filter, nil
}

func joined[S ~string](list []S) string {
	words := make([]string, 0, len(list))
	for _, s := range list {
		words = append(words, string(s))
	}
	return strings.Join(words, ", ")
}

// loadRelease opens a release and loads what such a cluster would get, with warnings on stderr.
func loadRelease(ctx context.Context, streams Streams, arg string, read readFlags, cluster clusterFlags) (*payload.Payload, error) {
	return loadAny(ctx, streams, arg, read, cluster, false)
}

// loadAny is loadRelease and, if asked for, with what no capability that is on would bring.
func loadAny(
	ctx context.Context, streams Streams, arg string, read readFlags, cluster clusterFlags, everyCapability bool,
) (*payload.Payload, error) {
	filter, err := cluster.filter()
	if err != nil {
		return nil, err
	}
	if everyCapability {
		filter.Capabilities = manifest.Capabilities{}
	}
	fsys, releaseImage, err := read.files(ctx, streams, arg)
	if err != nil {
		return nil, err
	}
	p, err := payload.Load(fsys, releaseImage, payload.Options{Filter: filter})
	if err != nil {
		return nil, err
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(streams.Err, "warning: %s\n", w)
	}
	return p, nil
}
