// Command exampleimage builds the component images of the example platform without a container engine: one for each entry in a release's
// list, all with the same program. It pushes the images and writes their pullspecs to mapping files for `cvo release new --mapping-file`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	imagev1 "github.com/openshift/api/image/v1"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/hack/packing"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/program"
	"github.com/cluster-version/cvo/pkg/author/assemble/publish"
	"github.com/cluster-version/cvo/pkg/oci/registry"
)

// versionsLabel is the image label with the versions of the contents.
const versionsLabel = "io.openshift.build.versions"

// atOnce is the number of parallel pushes.
const atOnce = 4

type options struct {
	binary, architecture string
	platforms            string
	push, mappings       string
	registry             packing.Registry
}

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	var o options
	flags := flag.NewFlagSet("exampleimage", flag.ExitOnError)
	flags.StringVar(&o.binary, "binary", "", "statically linked `file` of examples/operator for linux")
	flags.StringVar(&o.architecture, "architecture", runtime.GOARCH, "architecture of the binary")
	flags.StringVar(&o.platforms, "platforms", "examples/platform", "`folder` with a folder for each version of the platform")
	flags.StringVar(&o.push, "to", "", "`prefix` of the repositories to push to, such as registry.example.com/platform")
	flags.StringVar(&o.mappings, "mappings", "", "`folder` to write VERSION.mapping to for each version, with the image of each component")
	o.registry.AddFlags(flags)
	_ = flags.Parse(args) // it exits on an error
	if o.binary == "" || o.push == "" || o.mappings == "" || flags.NArg() > 0 {
		return errors.New("-binary, -to and -mappings are required, and other arguments are not allowed")
	}
	return o.run(ctx, stdout)
}

func (o options) run(ctx context.Context, stdout io.Writer) error {
	access, err := o.registry.Access()
	if err != nil {
		return err
	}
	program, err := o.program()
	if err != nil {
		return err
	}
	lists, err := filepath.Glob(filepath.Join(o.platforms, "*", "image-references"))
	if err != nil {
		return err
	}
	if len(lists) == 0 {
		return fmt.Errorf("no */image-references in %s", o.platforms)
	}
	for _, list := range lists {
		file, err := o.pushAll(ctx, access, program, list)
		if err != nil {
			return err
		}
		fmt.Fprintln(stdout, file)
	}
	return nil
}

// program returns the image that all components share except for its labels, so registries and nodes store it once.
func (o options) program() (v1.Image, error) {
	binary, err := os.ReadFile(o.binary)
	if err != nil {
		return nil, err
	}
	made, err := packing.Created()
	if err != nil {
		return nil, err
	}
	return program.Image(program.Options{
		Name: "example-operator", Binary: binary, Architecture: o.architecture, Created: made,
	})
}

// pushAll pushes the images of one version of the platform in parallel and returns the path of its mapping file.
func (o options) pushAll(ctx context.Context, access *registry.Access, program v1.Image, list string) (string, error) {
	version := filepath.Base(filepath.Dir(list))
	data, err := os.ReadFile(list)
	if err != nil {
		return "", err
	}
	stream, err := input.ParseImageStream(data)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", list, err)
	}
	lines := make([]string, len(stream.Spec.Tags))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, tag := range stream.Spec.Tags {
		group.Go(func() error {
			img, err := labeled(program, tag, version)
			if err != nil {
				return err
			}
			pushed, err := publish.Push(ctx, access, img, strings.TrimSuffix(o.push, "/")+"/"+tag.Name+":"+version)
			lines[i] = tag.Name + "=" + pushed.ByDigest() + "\n"
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(o.mappings, 0o755); err != nil {
		return "", err
	}
	file := filepath.Join(o.mappings, version+".mapping")
	return file, os.WriteFile(file, []byte(strings.Join(lines, "")), 0o644)
}

// labeled returns the program as a component of one version, with the versions of its contents if the list has them.
func labeled(program v1.Image, tag imagev1.TagReference, version string) (v1.Image, error) {
	config, err := program.ConfigFile()
	if err != nil {
		return nil, err
	}
	labels := map[string]string{"org.opencontainers.image.title": tag.Name, "org.opencontainers.image.version": version}
	if versions := tag.Annotations[versionsLabel]; versions != "" {
		labels[versionsLabel] = versions
	}
	run := *config.Config.DeepCopy()
	run.Labels = labels
	return mutate.Config(program, run)
}
