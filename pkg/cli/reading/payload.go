package reading

import (
	"context"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/payload"
)

// Spec returns the capabilities for ClusterVersion.spec, or nil for the default.
func (f *ClusterFlags) Spec() (*configv1.ClusterVersionCapabilitiesSpec, error) {
	filter, err := f.Filter()
	if err != nil || len(f.capabilities) == 0 {
		return nil, err
	}
	spec := &configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: configv1.ClusterVersionCapabilitySetNone}
	baselines := 0
	for _, c := range f.capabilities {
		if set := configv1.ClusterVersionCapabilitySet(c); configv1.ClusterVersionCapabilitySets[set] != nil {
			baselines++
			spec.BaselineCapabilitySet = set
		} else {
			spec.AdditionalEnabledCapabilities = append(spec.AdditionalEnabledCapabilities, configv1.ClusterVersionCapability(c))
		}
	}
	if baselines > 1 { // a ClusterVersion has only one
		spec.BaselineCapabilitySet = configv1.ClusterVersionCapabilitySetNone
		spec.AdditionalEnabledCapabilities = sets.List(filter.Capabilities.Enabled)
	}
	return spec, nil
}

// ClusterFlags describe the cluster for which a command examines a release.
type ClusterFlags struct {
	profile      string
	featureSet   string
	gates        []string
	capabilities []string
}

// Add adds the flags.
func (f *ClusterFlags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&f.profile, "profile", api.DefaultProfile, "cluster profile")
	flags.StringVar(&f.featureSet, "feature-set", "Default", "feature set of the cluster")
	flags.StringSliceVar(&f.gates, "feature-gate", nil, "enabled feature gate (repeat for more)")
	flags.StringSliceVar(&f.capabilities, "capability", nil,
		"enabled capability, or set of capabilities such as v4.15 or None (repeat for more; default all)")
}

// Filter returns the filter that such a cluster uses to select manifests.
func (f *ClusterFlags) Filter() (inclusion.Filter, error) {
	filter := inclusion.Filter{Profile: f.profile, FeatureSet: f.featureSet, Gates: sets.New(f.gates...)}
	if f.featureSet != "" && !slices.Contains(inclusion.KnownFeatureSets(), f.featureSet) {
		return filter, &command.UsageError{Err: fmt.Errorf("unknown feature set %q: use one of %s", f.featureSet, strings.Join(inclusion.KnownFeatureSets(), ", "))}
	}
	if len(f.capabilities) == 0 {
		filter.Capabilities = inclusion.AllCapabilities(filter.Gates)
		return filter, nil
	}
	spec := &configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: configv1.ClusterVersionCapabilitySetNone}
	known := inclusion.KnownCapabilities()
	for _, c := range f.capabilities {
		set, ok := inclusion.BaselineCapabilities(configv1.ClusterVersionCapabilitySet(c))
		switch capability := configv1.ClusterVersionCapability(c); {
		case c != "" && ok:
			spec.AdditionalEnabledCapabilities = append(spec.AdditionalEnabledCapabilities, set...)
		case slices.Contains(known, capability):
			spec.AdditionalEnabledCapabilities = append(spec.AdditionalEnabledCapabilities, capability)
		default:
			return filter, &command.UsageError{Err: fmt.Errorf("unknown capability %q: use one of %s, or a set such as None or vCurrent", c, inclusion.CapabilityNames(known))}
		}
	}
	filter.Capabilities, _ = inclusion.EnabledCapabilities(spec, filter.Gates, nil)
	return filter, nil
}

// Load opens a release and loads the manifests that such a cluster would get. Warnings go to stderr.
func Load(ctx context.Context, streams command.Streams, arg string, read Flags, cluster ClusterFlags) (*payload.Payload, error) {
	return LoadAny(ctx, streams, arg, read, cluster, false)
}

// LoadAny is like Load; with everyCapability it also loads the manifests of disabled capabilities.
func LoadAny(
	ctx context.Context, streams command.Streams, arg string, read Flags, cluster ClusterFlags, everyCapability bool,
) (*payload.Payload, error) {
	filter, err := cluster.Filter()
	if err != nil {
		return nil, err
	}
	if everyCapability {
		filter.Capabilities = inclusion.Capabilities{}
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
		streams.Warnf("%s", w)
	}
	return p, nil
}
