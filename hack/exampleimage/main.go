// Command exampleimage makes the component images of the example platform without a container engine: one for each that
// a release of it lists, all of them with the same program. It pushes them and prints, for `cvo release new
// --mapping-file`, where each of them can be pulled.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/pkg/assemble"
	"github.com/cluster-version/cvo/pkg/registry"
)

// versionsLabel is how images say which versions of what they contain.
const versionsLabel = "io.openshift.build.versions"

type options struct {
	binary, architecture  string
	platforms             string
	push, mappings        string
	credentials, insecure string
	authority             string
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "", "static `file` of examples/operator for linux")
	flag.StringVar(&o.architecture, "architecture", runtime.GOARCH, "its architecture")
	flag.StringVar(&o.platforms, "platforms", "examples/platform", "`folder` with a folder for each version of the platform")
	flag.StringVar(&o.push, "to", "", "`prefix` of the repositories to push to, such as registry.example.com/platform")
	flag.StringVar(&o.mappings, "mappings", "", "`folder` to write VERSION.mapping to for each version, with the image of each component")
	flag.StringVar(&o.credentials, "registry-config", "", "`file` with credentials for the registry; default as cvo has it")
	flag.StringVar(&o.insecure, "insecure-registry", "", "`host` or host:port that is reached over HTTP, or HTTPS without checking its certificate")
	flag.StringVar(&o.authority, "certificate-authority", "", "`file` with certificates to trust besides the system's")
	flag.Parse()
	if err := o.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) error {
	if o.binary == "" || o.push == "" || o.mappings == "" || flag.NArg() > 0 {
		return errors.New("-binary, -to and -mappings are required, and nothing but flags")
	}
	access, err := o.access()
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
		if err := o.pushAll(ctx, access, program, list); err != nil {
			return err
		}
	}
	return nil
}

func (o options) access() (*registry.Access, error) {
	options := registry.Options{}
	if o.insecure != "" {
		options.Insecure = []string{o.insecure}
	}
	var err error
	if o.credentials != "" {
		if options.Keychain, err = registry.ConfigFile(o.credentials); err != nil {
			return nil, err
		}
	}
	if o.authority != "" {
		pem, err := os.ReadFile(o.authority)
		if err != nil {
			return nil, err
		}
		if options.Authorities, err = registry.Authorities(pem); err != nil {
			return nil, fmt.Errorf("reading %s: %w", o.authority, err)
		}
	}
	return registry.New(options), nil
}

// program is the image that all components share but for its labels, so that registries and nodes have it once.
func (o options) program() (v1.Image, error) {
	binary, err := os.ReadFile(o.binary)
	if err != nil {
		return nil, err
	}
	made, err := created()
	if err != nil {
		return nil, err
	}
	return assemble.ProgramImage(assemble.ProgramImageOptions{
		Name: "example-operator", Binary: binary, Architecture: o.architecture, Created: made,
	})
}

// pushAll pushes the images of one version of the platform and writes its mapping.
func (o options) pushAll(ctx context.Context, access *registry.Access, program v1.Image, list string) error {
	version := filepath.Base(filepath.Dir(list))
	data, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	stream, err := assemble.ParseImageStream(data)
	if err != nil {
		return fmt.Errorf("reading %s: %w", list, err)
	}
	var mapping bytes.Buffer
	for _, tag := range stream.Spec.Tags {
		img, err := labelled(program, tag, version)
		if err != nil {
			return err
		}
		pushed, err := assemble.Push(ctx, access, img, strings.TrimSuffix(o.push, "/")+"/"+tag.Name+":"+version)
		if err != nil {
			return err
		}
		fmt.Fprintf(&mapping, "%s=%s\n", tag.Name, pushed.ByDigest())
	}
	if err := os.MkdirAll(o.mappings, 0o755); err != nil { //nolint:gosec // a mapping is no secret
		return err
	}
	file := filepath.Join(o.mappings, version+".mapping")
	if err := os.WriteFile(file, mapping.Bytes(), 0o644); err != nil { //nolint:gosec // a mapping is no secret
		return err
	}
	fmt.Println(file)
	return nil
}

// labelled is the program as a component of one version, which says what it contains if the list does.
func labelled(program v1.Image, tag imagev1.TagReference, version string) (v1.Image, error) {
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

// created is SOURCE_DATE_EPOCH (reproducible-builds.org), or the beginning of Unix time.
func created() (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Unix(0, 0), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0), nil
}
