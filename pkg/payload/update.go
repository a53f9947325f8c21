package payload

import (
	"fmt"
	"io/fs"
	"slices"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Update is a release as a cluster gets it in an update.
type Update struct {
	Payload *Payload
	// Filter selects the manifests that the cluster gets.
	Filter inclusion.Filter
	// Enables lists the capabilities that the update enables although the spec does not request them, sorted. They now contain objects of
	// the running release, which must stay.
	Enables []configv1.ClusterVersionCapability
}

// EnablesText describes the capabilities that the update enables; empty if there are none.
func (u Update) EnablesText() string {
	if len(u.Enables) == 0 {
		return ""
	}
	return fmt.Sprintf("The update to %s also enables these capabilities, because they now contain objects of the running release: %s",
		u.Payload.Release.Version, inclusion.CapabilityNames(u.Enables))
}

// LoadUpdate loads a release as Load does, with the capabilities that the update enables. filter returns the filter for the release's
// version, because the feature gates of a cluster depend on the version. running returns the manifests of the running release that the
// cluster has. It is called only if capabilities exclude a manifest; nil stands for a cluster without a release.
// LoadUpdate replaces opts.Filter.
func LoadUpdate(files fs.FS, image string, opts Options, filter func(version string) inclusion.Filter,
	running func() ([]*manifest.Manifest, error),
) (u Update, err error) {
	if metadata, err := ReadMetadata(files); err == nil { // otherwise Load reports the error
		opts.Filter = FilterOf(metadata.Version, filter(metadata.Version))
	}
	u.Filter = opts.Filter
	if u.Payload, err = Load(files, image, opts); err != nil || running == nil {
		return u, err
	}
	optional := u.Payload.Optional(opts.Filter)
	if len(optional) == 0 {
		return u, nil
	}
	before, err := running()
	if err != nil {
		return u, err
	}
	u.Enables = inclusion.ImplicitCapabilities(opts.Filter.Capabilities, before, optional)
	if len(u.Enables) == 0 {
		return u, nil
	}
	u.Filter.Capabilities = opts.Filter.Capabilities.With(u.Enables, opts.Filter.Gates)
	u.Enables = slices.DeleteFunc(u.Enables, func(c configv1.ClusterVersionCapability) bool { // a feature gate may keep it off
		return !u.Filter.Capabilities.Enabled.Has(c)
	})
	opts.Filter = u.Filter
	if u.Payload, err = Load(files, image, opts); err != nil {
		return Update{}, err
	}
	return u, nil
}
