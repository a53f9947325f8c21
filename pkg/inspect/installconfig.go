package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// maxInstallConfigBytes bounds an installer's configuration; real ones have some kilobytes.
const maxInstallConfigBytes = 4 << 20

// InstallConfig is what the configuration of OpenShift's installer says about which manifests a cluster gets.
type InstallConfig struct {
	// FeatureSet is "" for the default one.
	FeatureSet string
	// Gates are those switched on and off one by one, which the feature set CustomNoUpgrade allows.
	Gates map[string]bool
	// Platform is the cloud, such as "aws"; empty if there is none.
	Platform string
	// Capabilities is nil if nothing is said of them.
	Capabilities *configv1.ClusterVersionCapabilitiesSpec
}

// ParseInstallConfig reads an install-config.yaml. Of the many things it holds only those are looked at that decide about
// manifests; what they name has to be known.
func ParseInstallConfig(data []byte) (*InstallConfig, error) {
	var file struct {
		APIVersion   string                                   `json:"apiVersion"`
		FeatureSet   string                                   `json:"featureSet"`
		FeatureGates []string                                 `json:"featureGates"`
		Platform     map[string]any                           `json:"platform"`
		Capabilities *configv1.ClusterVersionCapabilitiesSpec `json:"capabilities"`
	}
	if len(data) > maxInstallConfigBytes {
		return nil, fmt.Errorf("install config: has %d bytes, the limit is %d", len(data), maxInstallConfigBytes)
	}
	if err := manifest.CheckAliases(data); err != nil {
		return nil, fmt.Errorf("install config: %w", err)
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("install config: %w", err)
	}
	if file.APIVersion != "v1" {
		return nil, fmt.Errorf("install config: apiVersion: is %q, only \"v1\" is known", file.APIVersion)
	}
	config := &InstallConfig{FeatureSet: file.FeatureSet, Capabilities: file.Capabilities}
	if !slices.Contains(manifest.KnownFeatureSets(), config.FeatureSet) && config.FeatureSet != "" {
		return nil, fmt.Errorf("install config: featureSet: unknown %q: use one of %s", config.FeatureSet, strings.Join(manifest.KnownFeatureSets(), ", "))
	}
	for _, text := range file.FeatureGates {
		name, value, ok := strings.Cut(text, "=")
		enabled, err := strconv.ParseBool(value)
		if !ok || err != nil || name == "" {
			return nil, fmt.Errorf("install config: featureGates: %q is not NAME=true or NAME=false", text)
		}
		if config.Gates == nil {
			config.Gates = map[string]bool{}
		}
		config.Gates[name] = enabled
	}
	switch platforms := slices.Sorted(maps.Keys(file.Platform)); len(platforms) {
	case 0:
	case 1:
		config.Platform = platforms[0]
	default:
		return nil, fmt.Errorf("install config: platform: a cluster is on one platform, not on %s", strings.Join(platforms, ", "))
	}
	return config, config.checkCapabilities()
}

func (c *InstallConfig) checkCapabilities() error {
	if c.Capabilities == nil {
		return nil
	}
	if set := c.Capabilities.BaselineCapabilitySet; set != "" {
		if _, ok := manifest.BaselineCapabilities(set); !ok {
			return fmt.Errorf("install config: capabilities.baselineCapabilitySet: unknown %q", set)
		}
	}
	for _, capability := range c.Capabilities.AdditionalEnabledCapabilities {
		if !slices.Contains(manifest.KnownCapabilities(), capability) {
			return fmt.Errorf("install config: capabilities.additionalEnabledCapabilities: unknown %q", capability)
		}
	}
	return nil
}

// Filter returns the rules by which a cluster that is installed so, with this release, chooses its manifests. Its feature
// gates are those that the release's own FeatureGate manifests list for profile and feature set.
func (c *InstallConfig) Filter(ctx context.Context, r *Release, profile string) (manifest.Filter, error) {
	filter, err := r.WithVersion(ctx, manifest.Filter{Profile: profile, FeatureSet: c.FeatureSet})
	if err != nil {
		return filter, err
	}
	if filter.Gates, err = r.featureGates(ctx, filter); err != nil {
		return filter, err
	}
	for name, enabled := range c.Gates {
		if enabled {
			filter.Gates.Insert(name)
		} else {
			filter.Gates.Delete(name)
		}
	}
	filter.Capabilities, _ = manifest.EnabledCapabilities(c.Capabilities, filter.Gates, nil)
	return filter, nil
}

// WithVersion adds to a filter what the release itself decides: its major version.
func (r *Release) WithVersion(ctx context.Context, filter manifest.Filter) (manifest.Filter, error) {
	files, err := r.read(ctx, payload.MetadataFile)
	if err != nil {
		return filter, err
	}
	metadata, err := payload.ReadMetadata(memory(files))
	if err != nil {
		return filter, fmt.Errorf("looking into %s: %w", r.Image.Pullspec, err)
	}
	version, err := semver.Parse(metadata.Version)
	filter.MajorVersion = version.Major
	return filter, err
}

// gatesForInstallers is how a FeatureGate manifest says that it is no manifest for the cluster, but what an installer
// is to take the gates of a profile from.
const gatesForInstallers = "false-except-for-the-config-operator"

// featureGates are the gates that a release lists for the profile and the feature set of a cluster; none if it lists no such set, as
// CustomNoUpgrade.
func (r *Release) featureGates(ctx context.Context, cluster manifest.Filter) (sets.Set[string], error) {
	gates := sets.New[string]()
	files, err := r.Files(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(files, payload.ReleaseDir)
	if err != nil {
		return nil, fmt.Errorf("looking into %s: %w", r.Image.Pullspec, err)
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() || !manifest.IsFile(e.Name()) {
			continue
		}
		source := path.Join(payload.ReleaseDir, e.Name())
		data, err := fs.ReadFile(files, source)
		if err != nil {
			return nil, fmt.Errorf("looking into %s: %w", r.Image.Pullspec, err)
		}
		// A release has a thousand manifests and ten of these.
		if !bytes.Contains(data, []byte(gatesForInstallers)) {
			continue
		}
		manifests, err := manifest.Parse(e.Name(), data, manifest.Limits{})
		if err != nil {
			errs = append(errs, err)
		}
		for _, m := range manifests {
			if err := addGates(gates, m, cluster); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return gates, errors.Join(errs...)
}

// addGates takes the gates of one manifest, if it lists them for such a cluster.
func addGates(gates sets.Set[string], m *manifest.Manifest, cluster manifest.Filter) error {
	annotations := m.Object.GetAnnotations()
	profile := api.IncludePrefix + cluster.Profile
	if !m.Is(configv1.GroupName, "FeatureGate") || annotations[profile] != gatesForInstallers {
		return nil
	}
	// The other rules hold as for any manifest.
	candidate := m.Object.DeepCopy()
	annotations[profile] = "true"
	candidate.SetAnnotations(annotations)
	if _, excluded := cluster.Unconditional().Exclude(&manifest.Manifest{Object: candidate}); excluded {
		return nil
	}
	gate := &configv1.FeatureGate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m.Object.Object, gate); err != nil {
		return fmt.Errorf("%s: %w", m, err)
	}
	for _, details := range gate.Status.FeatureGates {
		for _, enabled := range details.Enabled {
			gates.Insert(string(enabled.Name))
		}
	}
	return nil
}
