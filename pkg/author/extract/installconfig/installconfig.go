// Package installconfig reads the part of an OpenShift installer's configuration that selects the manifests of a cluster. It
// takes the bytes of an install-config.yaml and returns a Config, or the field that it does not know.
package installconfig

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/internal/aliases"
	"github.com/cluster-version/cvo/pkg/inclusion"
)

// maxBytes is the maximum size of an installer's configuration. Real ones have a few kilobytes.
const maxBytes = 4 << 20

// Config is the part of an OpenShift installer's configuration that selects a cluster's manifests.
type Config struct {
	// FeatureSet is the feature set; empty for the default.
	FeatureSet string
	// Gates are individually set feature gates, which the feature set CustomNoUpgrade allows.
	Gates map[string]bool
	// Platform is the cloud, such as "aws"; empty for none.
	Platform string
	// Capabilities is the section capabilities; nil if it is missing.
	Capabilities *configv1.ClusterVersionCapabilitiesSpec
}

// Parse reads an install-config.yaml. It reads only the fields that select manifests, and rejects unknown
// values in them.
func Parse(data []byte) (*Config, error) {
	var file struct {
		APIVersion   string                                   `json:"apiVersion"`
		FeatureSet   string                                   `json:"featureSet"`
		FeatureGates []string                                 `json:"featureGates"`
		Platform     map[string]any                           `json:"platform"`
		Capabilities *configv1.ClusterVersionCapabilitiesSpec `json:"capabilities"`
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("install config: has %d bytes, the limit is %d", len(data), maxBytes)
	}
	if err := aliases.Check(data); err != nil {
		return nil, fmt.Errorf("install config: %w", err)
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("install config: %w", err)
	}
	if file.APIVersion != "v1" {
		return nil, fmt.Errorf("install config: apiVersion: %q is not supported: use \"v1\"", file.APIVersion)
	}
	config := &Config{FeatureSet: file.FeatureSet, Capabilities: file.Capabilities}
	if !slices.Contains(inclusion.KnownFeatureSets(), config.FeatureSet) && config.FeatureSet != "" {
		return nil, fmt.Errorf("install config: featureSet: unknown %q: use one of %s", config.FeatureSet, strings.Join(inclusion.KnownFeatureSets(), ", "))
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
		return nil, fmt.Errorf("install config: platform: choose one of %s", strings.Join(platforms, ", "))
	}
	return config, config.checkCapabilities()
}

func (c *Config) checkCapabilities() error {
	if c.Capabilities == nil {
		return nil
	}
	if set := c.Capabilities.BaselineCapabilitySet; set != "" {
		if _, ok := inclusion.BaselineCapabilities(set); !ok {
			return fmt.Errorf("install config: capabilities.baselineCapabilitySet: unknown %q", set)
		}
	}
	for _, capability := range c.Capabilities.AdditionalEnabledCapabilities {
		if !slices.Contains(inclusion.KnownCapabilities(), capability) {
			return fmt.Errorf("install config: capabilities.additionalEnabledCapabilities: unknown %q", capability)
		}
	}
	return nil
}
