package image

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/release"
)

// maxExist is the maximum number of images that are looked up in parallel.
const maxExist = 16

// Exist looks up images by digest without reading them, one request for each in general. The error for an image is nil if a registry has
// it, and matches failure.ErrNotFound if none of its locations has it. After any other error nothing is known about the image.
func (r *Reader) Exist(ctx context.Context, images []release.Image) []error {
	errs := make([]error, len(images))
	repositories := r.Repositories()
	var group errgroup.Group
	group.SetLimit(maxExist)
	for i, img := range images {
		group.Go(func() error {
			repo, err := repositories.Of(img)
			if err == nil {
				err = repo.Exists(ctx, img.Digest)
			}
			errs[i] = err
			return nil
		})
	}
	_ = group.Wait() // the goroutines record their errors in errs
	return errs
}
