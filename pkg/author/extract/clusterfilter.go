package extract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/extract/installconfig"
	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// ClusterFilter returns the filter that selects the release's manifests for a cluster with a configuration. Its feature gates are the gates
// in the release's FeatureGate manifests for the profile and feature set, changed by Gates.
func ClusterFilter(ctx context.Context, r *inspect.Release, c *installconfig.Config, profile string) (inclusion.Filter, error) {
	filter := inclusion.Filter{Profile: profile, FeatureSet: c.FeatureSet}
	files, err := r.Files(ctx) // not only the metadata: callers need the manifests too, and an image is read once
	if err != nil {
		return filter, err
	}
	metadata, err := payload.ReadMetadata(files)
	if err != nil {
		return filter, fmt.Errorf("reading %s: %w", r.Image.Pullspec, err)
	}
	filter = payload.FilterOf(metadata.Version, filter)
	if filter.Gates, err = featureGates(ctx, r, filter); err != nil {
		return filter, err
	}
	for name, enabled := range c.Gates {
		if enabled {
			filter.Gates.Insert(name)
		} else {
			filter.Gates.Delete(name)
		}
	}
	filter.Capabilities, _ = inclusion.EnabledCapabilities(c.Capabilities, filter.Gates, nil)
	return filter, nil
}

// gatesForInstallers is the profile annotation of FeatureGate manifests that are only for installers, which read a profile's gates from
// them.
const gatesForInstallers = "false-except-for-the-config-operator"

// featureGates returns the gates that a release lists for a cluster's profile and feature set. The result is empty for a feature set that
// the release does not list, such as CustomNoUpgrade.
func featureGates(ctx context.Context, r *inspect.Release, cluster inclusion.Filter) (sets.Set[string], error) {
	gates := sets.New[string]()
	files, err := r.Files(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(files, payload.ReleaseDir)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.Image.Pullspec, err)
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() || !manifest.IsFile(e.Name()) {
			continue
		}
		source := path.Join(payload.ReleaseDir, e.Name())
		data, err := fs.ReadFile(files, source)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", r.Image.Pullspec, err)
		}
		// A release has a thousand manifests and about ten of these, so parsing all of them would be slow.
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

// addGates adds the gates in a manifest if the manifest is for this cluster.
func addGates(gates sets.Set[string], m *manifest.Manifest, cluster inclusion.Filter) error {
	annotations := m.Object.GetAnnotations()
	profile := api.IncludePrefix + cluster.Profile
	if !m.Is(configv1.GroupName, "FeatureGate") || annotations[profile] != gatesForInstallers {
		return nil
	}
	// All other rules for manifests apply.
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
