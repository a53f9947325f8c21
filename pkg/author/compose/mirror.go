package compose

import (
	"fmt"
	"slices"

	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/oci/mirror"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// Mirrored plans a mirror of an assembled release. It returns the images to copy to one repository, and the release with references to the
// copies. Attachments are copied with their image. Mirrored copies nothing itself.
func (in *Inputs) Mirrored(access *registry.Access, result *assemble.Result, repository string, target mirror.Target) ([]mirror.Image, *assemble.Result, error) {
	var list []mirror.Image
	called := mirror.Release{Version: result.Version}
	opts := in.Options
	opts.Images = slices.Clone(opts.Images)
	for i, tag := range opts.Images {
		if slices.Contains(result.Left, tag.Name) {
			continue
		}
		img := release.Image{Pullspec: tag.From.Name, Digest: release.Pullspec(tag.From.Name).Digest()}
		from, err := in.chosen.Images.Repository(img)
		if err != nil {
			return nil, nil, fmt.Errorf("component %s: %w", tag.Name, err)
		}
		origin, err := access.Reference(tag.From.Name)
		if err != nil {
			return nil, nil, fmt.Errorf("component %s: %w", tag.Name, err)
		}
		_, as := mirror.Destination{Tag: "${version}-${component}"}.Placed(&called, tag.Name)
		list = append(list, mirror.Image{Name: tag.Name, From: from, Origin: origin.Context(), Digest: img.Digest, To: target, Tag: as})
		opts.Images[i].From = input.ImageTag(tag.Name, repository+"@"+string(img.Digest)).From
	}
	mirrored, err := assemble.New(opts)
	if err != nil {
		return nil, nil, fmt.Errorf("assembling release %s: %w", opts.Version, err)
	}
	return list, mirrored, nil
}
