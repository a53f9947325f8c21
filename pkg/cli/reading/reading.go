// Package reading opens the release that an argument of a command names: an image in a registry, an OCI layout, a folder, or a version that
// the cluster knows. With a trust policy, it reads only signed releases. It also loads the manifests that a cluster would get. Flags or a
// real cluster provide the cluster's settings.
package reading

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/registries"
	"github.com/cluster-version/cvo/pkg/cli/verifying"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

// LintFiles returns the files of a release for package lint.
func (f *Flags) LintFiles(ctx context.Context, streams command.Streams, arg string) ([]source.File, error) {
	release, _, err := f.Open(ctx, streams, arg)
	if err != nil {
		return nil, err
	}
	fsys, err := release.Files(ctx)
	if err != nil {
		return nil, err
	}
	return source.ReadFiles(fsys)
}

// Flags choose the release to read, the access to its registry and the signatures that it must have.
type Flags struct {
	Versions cluster.VersionFlags
	Registry registries.Flags
	trust    string
}

// Add adds the flags.
func (f *Flags) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.trust, "trust", "", "`file` with the accepted signers; other releases are rejected (exit code 3)")
	f.Versions.Add(flags)
	f.Registry.Add(flags)
	f.Registry.AddPlatform(flags)
}

// Complete completes at most the given number of releases.
func (f *Flags) Complete(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return CompleteReleases(cmd, &f.Versions)
	}
}

// files returns the files of a release, and the release image for its templates: the image by digest, or the name of the folder.
func (f *Flags) files(ctx context.Context, streams command.Streams, arg string) (fsys fs.FS, releaseImage string, err error) {
	r, _, err := f.Open(ctx, streams, arg)
	if err != nil {
		return nil, "", err
	}
	if fsys, err = r.Files(ctx); err != nil {
		return nil, "", err
	}
	if r.Image.Digest != "" {
		return fsys, r.Image.ByDigest(), nil
	}
	if _, err := fs.Stat(fsys, payload.OperatorDir); err != nil && r.Flat() {
		return nil, "", fmt.Errorf("folder %s has only the files of release-manifests/: write a whole release with 'cvo release extract --layout=image'", arg)
	}
	return fsys, arg, nil
}

// Open opens the release that an argument names. With --trust, it verifies the image before it reads the content. Otherwise it prints to
// stderr that the signatures are not checked.
func (f *Flags) Open(ctx context.Context, streams command.Streams, arg string) (*inspect.Release, *image.Reader, error) {
	ref, err := pullspec(ctx, &f.Versions, arg)
	if err != nil {
		return nil, nil, err
	}
	images, err := f.Registry.Images("")
	if err != nil {
		return nil, nil, err
	}
	ref = strings.TrimPrefix(ref, "file://")
	if isFolder(ref) && !layout.IsReference(ref) {
		if f.trust != "" {
			return nil, nil, &command.UsageError{Err: fmt.Errorf("%s is a folder, and folders cannot be signed: --trust requires an image", ref)}
		}
		if input.IsFolder(ref) {
			return nil, nil, fmt.Errorf("%s is a folder of manifests, not a release: check it with 'cvo release lint %s', or make a release with 'cvo release new --from-dir %s': %w",
				ref, ref, ref, inspect.ErrNoRelease)
		}
		r, err := inspect.OpenFolder(ref)
		return r, images, err
	}
	if err := registries.CheckImages(ref); err != nil {
		return nil, nil, err
	}
	img, err := images.Resolve(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	if err := f.verify(ctx, streams, images, img); err != nil {
		return nil, nil, err
	}
	return inspect.Open(images, img), images, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (f *Flags) verify(ctx context.Context, streams command.Streams, images *image.Reader, img release.Image) error {
	policy, err := verifying.ReadTrust(f.trust)
	if err != nil {
		return err
	}
	if policy == nil {
		streams.Infof("Looking at %s; its signatures are not checked", img.ByDigest())
		return nil
	}
	verifier, err := verify.New(*policy, verifying.Sources(images), clock.RealClock{})
	if err != nil {
		return err
	}
	return verifying.Signed(ctx, streams, verifier, img)
}
