// Package relocate plans the copy of an assembled release's images to another repository. It returns the images to copy, and the release
// with references to the copies. Package mirror makes the copies.
package relocate

import (
	"fmt"
	"slices"

	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/mirror"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// Destination is the repository to which images are copied.
type Destination struct {
	Repository string
	Target     mirror.Target
}

// Plan returns the images of a release to copy, and the release with references to the copies. The release was assembled from the options.
// Attachments are copied with their image. Plan copies nothing itself. access and images read the images.
func Plan(
	access *registry.Access, images *image.Reader, opts assemble.Options, result *assemble.Result, to Destination,
) ([]mirror.Image, *assemble.Result, error) {
	var list []mirror.Image
	called := mirror.Release{Version: result.Version}
	opts.Images = slices.Clone(opts.Images)
	for i, tag := range opts.Images {
		if slices.Contains(result.Left, tag.Name) {
			continue
		}
		img := release.Image{Pullspec: tag.From.Name, Digest: release.Pullspec(tag.From.Name).Digest()}
		from, err := images.Repository(img)
		if err != nil {
			return nil, nil, fmt.Errorf("component %s: %w", tag.Name, err)
		}
		origin, err := access.Reference(tag.From.Name)
		if err != nil {
			return nil, nil, fmt.Errorf("component %s: %w", tag.Name, err)
		}
		_, as := mirror.Destination{Tag: "${version}-${component}"}.Placed(&called, tag.Name)
		list = append(list, mirror.Image{Name: tag.Name, From: from, Origin: origin.Context(), Digest: img.Digest, To: to.Target, Tag: as})
		opts.Images[i].From = input.ImageTag(tag.Name, to.Repository+"@"+string(img.Digest)).From
	}
	mirrored, err := assemble.New(opts)
	if err != nil {
		return nil, nil, fmt.Errorf("assembling release %s: %w", opts.Version, err)
	}
	return list, mirrored, nil
}
