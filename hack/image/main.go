// Command image packs the operator's image without a container engine: root certificates, the binary and the operator's manifests, for one
// architecture or as an index for several. With -node, it packs the component image of the node stage instead. hack/image.sh calls it. The operator's image matches the Dockerfile. The
// results depend neither on the machine nor on the time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/cluster-version/cvo/hack/packing"
	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/program"
	"github.com/cluster-version/cvo/pkg/author/assemble/publish"
	ocilayout "github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

type options struct {
	binaries          binaries
	node              bool
	version, revision string
	layout, as, push  string
	registry          packing.Registry
	from, roots       string
}

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	var o options
	flags := flag.NewFlagSet("image", flag.ExitOnError)
	flags.Var(&o.binaries, "binary", "`architecture=file` of a static cvo or cvo-node for linux (repeat for an index)")
	flags.BoolVar(&o.node, "node", false, "pack the node stage; the current directory must be inside this module")
	flags.StringVar(&o.from, "from-oci", "", "OCI `layout` with one image or index that was built elsewhere, instead of -binary")
	flags.StringVar(&o.version, "version", "", "`version` for the image's labels")
	flags.StringVar(&o.revision, "revision", "", "`commit` for the image's labels")
	flags.StringVar(&o.layout, "to-oci", "", "OCI `layout` to write to")
	flags.StringVar(&o.as, "as", "latest", "`name` of the image in the layout")
	flags.StringVar(&o.push, "to-image", "", "`tag` in a registry to push to")
	o.registry.AddFlags(flags)
	flags.StringVar(&o.roots, "root-certificates", "", "write only the root certificates, to this `file`")
	_ = flags.Parse(args) // it exits on an error
	return o.run(ctx, stdout)
}

// binaries are the values of a flag, in their order.
type binaries []binary

type binary struct{ architecture, file string }

// String implements flag.Value.
func (b *binaries) String() string { return fmt.Sprint(*b) }

// Set implements flag.Value.
func (b *binaries) Set(value string) error {
	architecture, file, ok := strings.Cut(value, "=")
	if !ok {
		return errors.New("is not architecture=file")
	}
	*b = append(*b, binary{architecture, file})
	return nil
}

func (o *options) run(ctx context.Context, stdout io.Writer) error {
	if o.roots != "" {
		return os.WriteFile(o.roots, program.RootCertificates(), 0o644)
	}
	made, err := o.make(ctx)
	if err != nil {
		return err
	}
	if o.layout != "" {
		if err := made.writeLayout(o.layout, o.as); err != nil {
			return err
		}
		digest, err := made.Digest()
		if err != nil {
			return err
		}
		fmt.Fprintln(stdout, o.layout+"@"+digest.String())
	}
	if o.push == "" {
		return nil
	}
	access, err := o.registry.Access()
	if err != nil {
		return err
	}
	pushed, err := made.push(ctx, access, o.push)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, pushed.ByDigest())
	return nil
}

func (o *options) make(ctx context.Context) (output, error) {
	switch {
	case o.from != "" && (o.node || len(o.binaries) > 0 || o.version != "" || o.revision != ""):
		return output{}, errors.New("-from-oci has the operator's image: omit -binary, -node, -version and -revision")
	case o.from != "":
		return readOutput(o.from)
	}
	images, err := o.images(ctx)
	if err != nil {
		return output{}, err
	}
	return newOutput(images)
}

func (o *options) images(ctx context.Context) (images []v1.Image, err error) {
	if len(o.binaries) == 0 {
		return nil, errors.New("-binary is missing")
	}
	opts := program.ProjectOptions{Certificates: program.RootCertificates(), Version: o.version, Revision: o.revision}
	build := program.Operator
	if o.node {
		build = program.NodeStage
		opts.Manifests, err = packing.NodeManifests(ctx)
	} else {
		opts.Manifests, err = input.ReadFiles(manifests.FS())
	}
	if err != nil {
		return nil, err
	}
	if opts.Created, err = packing.Created(); err != nil {
		return nil, err
	}
	for _, b := range o.binaries {
		opts.Architecture = b.architecture
		if opts.Binary, err = os.ReadFile(b.file); err != nil {
			return nil, err
		}
		img, err := build(opts)
		if err != nil {
			return nil, fmt.Errorf("for %s: %w", b.architecture, err)
		}
		if err := printSize(b.architecture, img); err != nil {
			return nil, err
		}
		images = append(images, img)
	}
	return images, nil
}

// printSize prints the compressed size of an image, which is the amount that a node pulls.
func printSize(architecture string, img v1.Image) error {
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	var sum int64
	for _, l := range layers {
		size, err := l.Size()
		if err != nil {
			return err
		}
		sum += size
	}
	fmt.Fprintf(os.Stderr, "info: %s: %.1f MB compressed\n", architecture, float64(sum)/1e6)
	return nil
}

// output is an image or an index.
type output struct {
	image v1.Image
	index v1.ImageIndex // nil for one image
}

func newOutput(images []v1.Image) (output, error) {
	if len(images) == 1 {
		return output{image: images[0]}, nil
	}
	index, err := program.Index(images)
	return output{index: index}, err
}

// readOutput opens the only image or index in a layout.
func readOutput(dir string) (output, error) {
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return output{}, fmt.Errorf("opening the OCI layout %s: %w", dir, err)
	}
	list, err := all.IndexManifest()
	if err != nil {
		return output{}, fmt.Errorf("opening the OCI layout %s: %w", dir, err)
	}
	if len(list.Manifests) != 1 {
		return output{}, fmt.Errorf("the OCI layout %s contains %d images instead of one", dir, len(list.Manifests))
	}
	only := list.Manifests[0]
	if only.MediaType.IsIndex() {
		index, err := all.ImageIndex(only.Digest)
		return output{index: index}, err
	}
	img, err := all.Image(only.Digest)
	return output{image: img}, err
}

// Digest returns the digest of the manifest.
func (o output) Digest() (v1.Hash, error) {
	if o.index != nil {
		return o.index.Digest()
	}
	return o.image.Digest()
}

// writeLayout adds the image to a layout, and replaces an earlier one of the same name.
func (o output) writeLayout(dir, as string) error {
	return ocilayout.Add(dir, as, func(p layout.Path, option layout.Option) error {
		if o.index != nil {
			return p.AppendIndex(o.index, option)
		}
		return p.AppendImage(o.image, option)
	})
}

func (o output) push(ctx context.Context, access *registry.Access, tag string) (release.Image, error) {
	if o.index != nil {
		return publish.PushIndex(ctx, access, o.index, tag)
	}
	return publish.Push(ctx, access, o.image, tag)
}
