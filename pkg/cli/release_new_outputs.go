package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/assemble"
	"github.com/cluster-version/cvo/pkg/atomicfile"
	"github.com/cluster-version/cvo/pkg/lint"
	"github.com/cluster-version/cvo/pkg/mirror"
	"github.com/cluster-version/cvo/pkg/release"
)

// compare holds a release that was to be made again against what it was.
func (o *releaseNewOptions) compare(in *releaseInputs, result *assemble.Result) error {
	if !in.again {
		return nil
	}
	err := in.existing.Compare(result)
	if difference := (*assemble.DifferenceError)(nil); errors.As(err, &difference) {
		return &RefusedError{Err: err}
	}
	return err
}

// mirrored copies the images that the release consists of to --mirror, and makes it refer to them there. Nothing is
// copied where nothing is to be written.
func (o *releaseNewOptions) mirrored(ctx context.Context, streams Streams, in *releaseInputs, result *assemble.Result) (*assemble.Result, error) {
	access, err := o.registry.access()
	if err != nil {
		return nil, err
	}
	images, err := o.registry.images("")
	if err != nil {
		return nil, err
	}
	target, err := mirror.OpenRepository(access, o.mirror)
	if err != nil {
		return nil, &UsageError{Err: fmt.Errorf("--mirror: %w", err)}
	}
	var list []mirror.Image
	called := mirror.Release{Version: result.Version}
	for i, tag := range in.options.Images {
		if slices.Contains(result.Left, tag.Name) {
			continue
		}
		_, digest, _ := strings.Cut(tag.From.Name, "@")
		img := release.Image{Pullspec: tag.From.Name, Digest: release.Digest(digest)}
		from, err := images.Repository(img)
		if err != nil {
			return nil, fmt.Errorf("component %s: %w", tag.Name, err)
		}
		origin, err := access.Reference(tag.From.Name)
		if err != nil {
			return nil, fmt.Errorf("component %s: %w", tag.Name, err)
		}
		_, as := mirror.Destination{Tag: "${version}-${component}"}.Placed(&called, tag.Name)
		list = append(list, mirror.Image{Name: tag.Name, From: from, Origin: origin.Context(), Digest: img.Digest, To: target, Tag: as})
		in.options.Images[i].From = assemble.ImageTag(tag.Name, o.mirror+"@"+digest).From
	}
	if !o.dryRun && o.output == "" {
		if err := o.copyImages(ctx, streams, list, target); err != nil {
			return nil, fmt.Errorf("mirroring the component images to %s: %w", o.mirror, err)
		}
		fmt.Fprintf(streams.Err, "info: Mirrored %d images to %s\n", len(list), o.mirror)
	}
	if result, err = assemble.New(in.options); err != nil {
		return nil, fmt.Errorf("assembling release %s: %w", in.options.Version, err)
	}
	return result, nil
}

func (o *releaseNewOptions) copyImages(ctx context.Context, streams Streams, list []mirror.Image, target mirror.Target) error {
	p := o.progress.start(streams, "mirroring component images")
	defer p.close()
	plan, err := mirror.New(ctx, list, mirror.Options{Progress: func(e mirror.Event) { p.report(copyEvent(e)) }})
	if err != nil {
		return err
	}
	p.expect(len(list), 0)
	_, err = plan.Copy(ctx)
	return errors.Join(err, target.Close())
}

// printReferences prints the list of images.
func (o *releaseNewOptions) printReferences(streams Streams, result *assemble.Result) error {
	data := result.References
	if o.output == "yaml" {
		var err error
		if data, err = yaml.JSONToYAML(data); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(streams.Out, strings.TrimSuffix(string(data), "\n"))
	return err
}

// report tells what went into the release.
func (o *releaseNewOptions) report(streams Streams, result *assemble.Result) {
	fmt.Fprintf(streams.Err, "info: Included %d images from %d input operators into the release\n", result.Images, result.Operators)
	for _, warning := range result.Warnings {
		fmt.Fprintf(streams.Err, "warning: %s\n", warning)
	}
	for _, name := range result.Left {
		if _, wanted := o.overrides[name]; wanted {
			fmt.Fprintf(streams.Err, "warning: Image %s is left out, because no component refers to it: keep it with --include %s\n", name, name)
		}
	}
	if result.Operators == 0 {
		fmt.Fprintln(streams.Err, "warning: No component contributes manifests")
	}
}

// missingFolder is the rule of package lint about folders that are not there.
const missingFolder = "folder"

// examine looks for mistakes in the manifests, and refuses the release for errors. One that only is to be made again is
// there already.
func (o *releaseNewOptions) examine(streams Streams, in *releaseInputs, result *assemble.Result) error {
	if o.lint == lintOff {
		return nil
	}
	disable := o.lintDisable
	if in.options.Base != nil || len(in.options.Platforms) > 0 {
		// The operator's folder is in the base image, of which a release that is pushed needs nothing but the digests.
		disable = append([]string{missingFolder}, disable...)
	}
	files, err := baseDefinitions(in)
	if err != nil {
		return err
	}
	for _, f := range result.Files() {
		if !isMonitoring(f) {
			files = append(files, lint.File{Name: f.Name, Data: f.Data})
		}
	}
	report := lint.Check(files, lint.Options{Disable: disable})
	if report.Totals.Errors+report.Totals.Warnings == 0 {
		return nil
	}
	if err := lint.WriteText(streams.Err, report, false); err != nil {
		return err
	}
	if report.Totals.Errors == 0 || o.lint != lintError || in.again {
		return nil
	}
	return &RefusedError{Err: fmt.Errorf("release %s is not fit to be applied: %s: correct the manifests, or print what is wrong and go on with --lint=%s",
		result.Version, report.Totals, lintWarn)}
}

// baseDefinitions are the kinds that the operator in a base image brings. The image need not be read for them: they are
// those of this binary, in whatever version.
func baseDefinitions(in *releaseInputs) ([]lint.File, error) {
	if in.options.Base == nil && len(in.options.Platforms) == 0 {
		return nil, nil
	}
	set, err := assemble.ReadFiles(manifests.FS())
	if err != nil {
		return nil, err
	}
	var files []lint.File
	for _, f := range set {
		if strings.HasSuffix(f.Name, ".crd.yaml") {
			files = append(files, lint.File{Name: "manifests/" + f.Name, Data: f.Data})
		}
	}
	return files, nil
}

// write puts the release wherever it is wanted. The registry comes last: what is pushed may be in use at once.
func (o *releaseNewOptions) write(ctx context.Context, streams Streams, result *assemble.Result) error {
	for _, out := range []struct {
		to    string
		write func() error
	}{
		{o.toDir, func() error { return result.WriteFolder(o.toDir) }},
		{o.toOCI, func() error { return result.WriteLayout(o.toOCI) }},
		{o.toFile, func() error { return toFile(streams, o.toFile, result.WriteLayer) }},
	} {
		if out.to == "" {
			continue
		}
		if err := out.write(); err != nil {
			return err
		}
		if out.to != "-" {
			fmt.Fprintf(streams.Err, "info: Wrote %s\n", out.to)
		}
	}
	if o.toImage == "" {
		return nil
	}
	return o.push(ctx, streams, result)
}

func (o *releaseNewOptions) push(ctx context.Context, streams Streams, result *assemble.Result) error {
	access, err := o.registry.access()
	if err != nil {
		return err
	}
	pushed, err := result.Push(ctx, access, o.toImage)
	if err != nil {
		return err
	}
	fmt.Fprintf(streams.Err, "info: Pushed to %s\n", o.toImage)
	if o.toSignature == "" {
		return nil
	}
	claim, err := assemble.UnsignedClaim(pushed, o.clock.Now())
	if err != nil {
		return err
	}
	if err := toFile(streams, o.toSignature, func(w io.Writer) error { _, err := w.Write(claim); return err }); err != nil {
		return err
	}
	fmt.Fprintf(streams.Err, "info: Wrote %s\n", o.toSignature)
	return nil
}

// toFile writes a new file, or standard output for -.
func toFile(streams Streams, path string, write func(io.Writer) error) error {
	if path == "-" {
		return write(streams.Out)
	}
	err := atomicfile.Create(path, 0o644, write)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: name another file, or remove it", path)
	}
	return err
}

// releaseNewResult is what --result-file says. Fields are added, never renamed or removed.
type releaseNewResult struct {
	Digest    string   `json:"digest"`
	Name      string   `json:"name"`
	Created   string   `json:"created"`
	Image     string   `json:"image,omitempty"`
	Images    int      `json:"images"`
	Operators int      `json:"operators"`
	LeftOut   []string `json:"leftOut,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
}

// printResult prints the one line that scripts read, on stderr if something else has stdout.
func (o *releaseNewOptions) printResult(streams Streams, result *assemble.Result) error {
	created := result.Created.Format(time.RFC3339)
	if o.resultFile != "" {
		out := releaseNewResult{
			Digest: string(result.Digest), Name: result.Version, Created: created,
			Images: result.Images, Operators: result.Operators, LeftOut: result.Left, Warnings: result.Warnings,
		}
		if o.toImage != "" && !o.dryRun {
			out.Image = o.toImage + "@" + string(result.Digest)
		}
		err := toFile(streams, o.resultFile, func(w io.Writer) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(out)
		})
		if err != nil || o.resultFile == "-" {
			return err
		}
	}
	out := streams.Out
	if o.toFile == "-" && !o.dryRun {
		out = streams.Err
	}
	_, err := fmt.Fprintf(out, "%s %s %s\n", result.Digest, result.Version, created)
	return err
}
