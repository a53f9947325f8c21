package compose

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/internal/folder"
	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
)

// setBase sets the base of the release: the given image, the given programs, a component's image or the base of the original. Otherwise, it
// adds the running program as the operator.
func (in *Inputs) setBase(ctx context.Context) error {
	o := &in.chosen
	switch {
	case o.Base != "":
		return in.buildOn(ctx, o.Base)
	case o.NoOperator || o.OperatorFolder != "":
		return in.withoutOperator()
	case len(o.Programs) > 0:
		return in.withOperator()
	}
	in.base = o.BaseComponent
	if in.Original != nil && !in.isReplaced(o.BaseComponent) && !o.RequireBaseComponent {
		return in.reuseBase(ctx)
	}
	at := slices.IndexFunc(in.Options.Images, func(tag imagev1.TagReference) bool { return tag.Name == o.BaseComponent })
	switch {
	case at >= 0 && !o.Offline && !slices.Contains(in.own, o.BaseComponent):
		in.Options.Include = append(in.Options.Include, o.BaseComponent)
		return in.buildOn(ctx, in.Options.Images[at].From.Name)
	case at >= 0 && o.Offline && o.RequireBaseComponent:
		return contradiction("--to-image-base-tag: --offline prevents reading image %q: omit --offline, or specify a base with --to-image-base", o.BaseComponent)
	case o.RequireBaseComponent:
		return contradiction("--to-image-base-tag: there is no image %q to build on: specify it as %s=PULLSPEC, or specify a base with --to-image-base",
			o.BaseComponent, o.BaseComponent)
	}
	in.base = ""
	return in.withOperator()
}

// buildOn opens the base image. With AllPlatforms, it opens all images in an index.
func (in *Inputs) buildOn(ctx context.Context, pullspec string) error {
	images := in.chosen.Images
	base, err := images.Resolve(ctx, pullspec)
	if err != nil {
		return fmt.Errorf("reading the base image: %w", err)
	}
	if in.chosen.AllPlatforms {
		in.Options.Platforms, err = assemble.Platforms(ctx, images, base)
		if err != nil || len(in.Options.Platforms) > 0 {
			return err
		}
	}
	if in.Options.Base, err = images.Open(ctx, base); err != nil {
		return fmt.Errorf("reading the base image: %w", err)
	}
	return nil
}

// reuseBase uses the base of the original. If that is a component image, building on it also verifies the release's own layers. If the
// base is unknown, reuseBase uses the original without the layers that make it a release.
func (in *Inputs) reuseBase(ctx context.Context) error {
	o, original := &in.chosen, in.Original
	runs, err := original.Runs()
	if err != nil {
		return err
	}
	if !runs && !o.Again && in.Options.Version != original.Version {
		// The operator's manifests in the release have the version of that release.
		in.base = ""
		return in.withoutOperator()
	}
	if o.AllPlatforms {
		in.Options.Platforms, err = original.Platforms(ctx, o.Images)
		if err != nil || len(in.Options.Platforms) > 0 {
			return err
		}
	}
	if tag, ok := original.BaseImage(); ok && !o.Offline && !in.isReplaced(tag.Name) {
		in.base = tag.Name
		return in.buildOn(ctx, tag.From.Name)
	}
	in.Options.BaseDigest = original.BaseDigest
	if in.Options.Base, err = original.Base(); err != nil {
		return contradiction("%w (--to-image-base)", err)
	}
	return nil
}

// withoutOperator uses manifests of the operator without its program. They come from a folder, or from this program if they need no
// program.
func (in *Inputs) withoutOperator() (err error) {
	o, set := &in.chosen, in.chosen.Operator
	switch {
	case o.AllPlatforms:
		return contradiction("--keep-manifest-list: there is no base image: specify one with --to-image-base or as %s=PULLSPEC", o.BaseComponent)
	case o.OperatorFolder != "":
		if set, err = folder.Open(o.OperatorFolder); err != nil {
			return fmt.Errorf("--operator-manifests: %w", err)
		}
	}
	in.Options.Operator, err = input.ReadFiles(set)
	if o.OperatorFolder == "" {
		// Without a program, the operator's Deployment would never become available.
		in.Options.Operator = slices.DeleteFunc(in.Options.Operator, func(f input.File) bool {
			return bytes.Contains(f.Data, []byte(".ReleaseImage"))
		})
	}
	return err
}
