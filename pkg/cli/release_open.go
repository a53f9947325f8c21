package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/inspect"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

// readFlags say which release is looked into, where it comes from and whose signature it must bear.
type readFlags struct {
	versions versionFlags
	registry imageFlags
	trust    string
}

func (f *readFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.trust, "trust", "", "`file` that says whose signatures are accepted; a release without them is not read (exit code 3)")
	f.versions.add(flags)
	f.registry.add(flags)
	f.registry.addPlatform(flags)
}

// complete completes releases.
func (f *readFlags) complete(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return f.versions.completeReleases(cmd)
	}
}

// readingGCPercent is how much the memory of a command may grow before it is cleaned up that takes a release in without
// keeping much of it, and runs for less than a second.
const readingGCPercent = 40

// readLean keeps the memory of such a command small.
func readLean() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(readingGCPercent)
	}
}

// files opens a release whose manifests are wanted, and returns the name that its templates are given: by digest for an
// image, else the folder.
func (f *readFlags) files(ctx context.Context, streams Streams, arg string) (fsys fs.FS, releaseImage string, err error) {
	r, _, err := f.open(ctx, streams, arg)
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
		return nil, "", fmt.Errorf("folder %s has the files of release-manifests/ only, and a release is more: 'cvo release extract --layout=image' writes all of it", arg)
	}
	return fsys, arg, nil
}

// open opens what an argument stands for. An image whose signatures are asked for is verified before anything of it is
// read; that they were not is said on stderr.
func (f *readFlags) open(ctx context.Context, streams Streams, arg string) (*inspect.Release, *image.Reader, error) {
	ref, err := f.versions.pullspec(ctx, arg)
	if err != nil {
		return nil, nil, err
	}
	images, err := f.registry.images("")
	if err != nil {
		return nil, nil, err
	}
	ref = strings.TrimPrefix(ref, "file://")
	if isFolder(ref) && !image.IsLayout(ref) {
		if f.trust != "" {
			return nil, nil, &UsageError{Err: fmt.Errorf("%s is a folder, which nobody can sign: --trust is for images", ref)}
		}
		r, err := inspect.OpenFolder(ref)
		return r, images, err
	}
	if err := notLocal(ref); err != nil {
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

// notLocal refuses what can only be meant as a path and is none of what can be read.
func notLocal(ref string) error {
	if image.IsLayout(ref) {
		return nil
	}
	info, err := os.Stat(ref)
	switch {
	case err == nil && !info.IsDir():
		return &UsageError{Err: fmt.Errorf("%q is a file: name an image, an OCI layout or a folder with a release", ref)}
	case strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, "."):
		return fmt.Errorf("%s is neither an OCI layout nor a folder: %w", ref, os.ErrNotExist)
	}
	return nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (f *readFlags) verify(ctx context.Context, streams Streams, images *image.Reader, img release.Image) error {
	policy, err := readTrust(f.trust)
	if err != nil {
		return err
	}
	if policy == nil {
		fmt.Fprintf(streams.Err, "info: Looking at %s; its signatures are not checked\n", img.ByDigest())
		return nil
	}
	return verifySigned(ctx, streams, *policy, images, img)
}

// verifySigned refuses an image that is not signed as a policy wants it, and tells who signed one that is.
func verifySigned(ctx context.Context, streams Streams, policy verify.Policy, images *image.Reader, img release.Image) error {
	verifier, err := verify.New(policy, verify.Sources{Client: images.Access().WebClient(), Attachments: images}, clock.RealClock{})
	if err != nil {
		return err
	}
	evidence, err := verifier.Verify(ctx, img)
	if errors.Is(err, verify.ErrUnverified) {
		return &RefusedError{Err: err}
	}
	if err != nil {
		return err
	}
	tellSigners(streams, img.ByDigest(), evidence)
	return nil
}

// tellSigners says who signed an image. Of a bare key nobody knows whose it is.
func tellSigners(streams Streams, what string, evidence []release.Evidence) {
	for _, e := range evidence {
		who := e.KeyID
		if e.Identity != "" {
			who += " " + e.Identity
		}
		fmt.Fprintf(streams.Err, "info: %s is signed by %s key %s, found in %s\n", what, e.Method, printable(who), printable(e.Store))
	}
}

// vendorFlag is a flag of OpenShift's client for what is a matter of its vendor. Accepting it in silence would be a lie.
type vendorFlag struct {
	name string
	// switched flags take no value.
	switched bool
	instead  string
}

// refuseVendorFlags has a command explain what it does not do, instead of calling its flags unknown.
func refuseVendorFlags(cmd *cobra.Command, refused []vendorFlag) {
	for _, f := range refused {
		if f.switched {
			cmd.Flags().Bool(f.name, false, f.instead)
		} else {
			cmd.Flags().String(f.name, "", f.instead)
		}
		_ = cmd.Flags().MarkHidden(f.name)
	}
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		cmd.Flags().Visit(func(given *pflag.Flag) {
			for _, f := range refused {
				if f.name == given.Name && err == nil {
					err = &UsageError{Err: fmt.Errorf("--%s is not for this command: %s", f.name, f.instead)}
				}
			}
		})
		return err
	}
}
