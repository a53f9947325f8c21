package create

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cluster-version/cvo/internal/atomicfile"
	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/compose"
	"github.com/cluster-version/cvo/pkg/author/derive"
	"github.com/cluster-version/cvo/pkg/author/lint"
	"github.com/cluster-version/cvo/pkg/author/lint/finding"
	"github.com/cluster-version/cvo/pkg/author/relocate"
	"github.com/cluster-version/cvo/pkg/author/sign"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/progress"
	"github.com/cluster-version/cvo/pkg/cli/reading"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/mirror"
	"github.com/cluster-version/cvo/pkg/oci/mirror/target"
)

// compare compares a reproduced release with the original.
func (o *options) compare(inputs *compose.Inputs, result *assemble.Result) error {
	if !o.reproduces() {
		return nil
	}
	err := inputs.Original.Compare(result)
	if difference := (*derive.DifferenceError)(nil); errors.As(err, &difference) {
		return &command.RefusedError{Err: err}
	}
	return err
}

// mirrored copies the images of the release to --mirror and returns the release with references to the copies. With
// --dry-run or --output it copies nothing.
func (o *options) mirrored(
	ctx context.Context, streams command.Streams, images *image.Reader, assembled assemble.Options, result *assemble.Result,
) (*assemble.Result, error) {
	access, err := o.registry.Access()
	if err != nil {
		return nil, err
	}
	destination, err := target.OpenRepository(access, o.mirror)
	if err != nil {
		return nil, &command.UsageError{Err: fmt.Errorf("--mirror: %w", err)}
	}
	list, result, err := relocate.Plan(access, images, assembled, result, relocate.Destination{Repository: o.mirror, Target: destination})
	if err != nil || o.dryRun || o.output != "" {
		return result, err
	}
	if err := o.copyImages(ctx, streams, list, destination); err != nil {
		return nil, fmt.Errorf("mirroring the component images to %s: %w", o.mirror, err)
	}
	streams.Infof("Mirrored %d images to %s", len(list), o.mirror)
	return result, nil
}

func (o *options) copyImages(ctx context.Context, streams command.Streams, list []mirror.Image, destination mirror.Target) error {
	p := o.progress.Start(ctx, streams, "mirroring component images")
	defer p.Close()
	plan, err := mirror.New(ctx, list, mirror.Options{Progress: func(e mirror.Event) {
		p.Report(progress.Event{Item: e.Name, Done: e.Done, Total: e.Total, Ended: e.Ended, Silent: e.There})
	}})
	if err != nil {
		return err
	}
	p.Expect(len(list))
	_, err = plan.Copy(ctx)
	return errors.Join(err, destination.Close())
}

// printReferences prints the list of images.
func (o *options) printReferences(streams command.Streams, result *assemble.Result) error {
	if o.output == printing.FormatYAML {
		return printing.YAML(streams.Out, json.RawMessage(result.References))
	}
	_, err := fmt.Fprintln(streams.Out, printing.EscapedJSON(strings.TrimSuffix(string(result.References), "\n")))
	return err
}

// shown is the number of manifests that the summary names; the rest is counted.
const shown = 10

// report prints the contents of the release and the warnings.
func (o *options) report(streams command.Streams, inputs *compose.Inputs, result *assemble.Result) error {
	streams.Infof("Included %d images from %d input operators into the release", result.Images, result.Operators)
	if len(o.fromDirs) > 0 || inputs.Folders.Manifests > 0 {
		o.reportFolders(streams, inputs.Folders)
	}
	for _, warning := range inputs.Folders.Unused {
		streams.Warnf("%s", warning)
	}
	if err := reportOperator(streams, inputs, result); err != nil {
		return err
	}
	for _, warning := range result.Warnings {
		streams.Warnf("%s", warning)
	}
	for _, name := range result.Left {
		if _, wanted := o.overrides[name]; wanted {
			streams.Warnf("Image %s is omitted because no component refers to it: keep it with --include %s", name, name)
		}
	}
	if result.Operators == 0 {
		streams.Warnf("No component contributes manifests")
	}
	return nil
}

// reportOperator prints the platforms of the operator in the release, or that there is none.
func reportOperator(streams command.Streams, inputs *compose.Inputs, result *assemble.Result) error {
	platforms, err := result.Platforms()
	if err != nil {
		return err
	}
	operator := "the operator"
	switch {
	case len(platforms) == 0:
		streams.Infof("The release contains no operator: install it with 'cvo start' outside the cluster")
		return nil
	case len(inputs.Options.Programs) > 0:
		operator = "this operator"
	}
	streams.Infof("The release contains %s for nodes with %s", operator, strings.Join(platforms, ", "))
	return nil
}

// reportFolders prints what the folders contribute: the manifests that are for clusters with the profile, those that got the profile's
// annotation, and those that the clusters do not get.
func (o *options) reportFolders(streams command.Streams, folders compose.Folders) {
	streams.Infof("%d of %d manifests in %s are for clusters with profile %s",
		folders.Manifests-len(folders.Excluded), folders.Manifests, strings.Join(slices.Concat(o.fromDirs, o.charts, o.kustomizations), ", "), folders.Profile)
	if len(folders.Annotated) > 0 {
		streams.Infof("Added annotation %s%s to %d manifests that name no profile:", api.IncludePrefix, folders.Profile, len(folders.Annotated))
		listObjects(streams, folders.Annotated)
	}
	if len(folders.Excluded) > 0 {
		streams.Infof("Clusters with profile %s and the default feature set do not get %d manifests:", folders.Profile, len(folders.Excluded))
		listObjects(streams, folders.Excluded)
	}
}

func listObjects(streams command.Streams, objects []compose.Object) {
	for i, object := range objects {
		if i == shown {
			fmt.Fprintf(streams.Err, "  and %d more\n", len(objects)-shown)
			return
		}
		line := fmt.Sprintf("  %s/%s: %s", object.Component, object.File, object.ID)
		if object.Reason != "" {
			line += ": " + object.Reason
		}
		fmt.Fprintln(streams.Err, printable.Text(line))
	}
}

// examine lints the manifests and rejects a release with errors. It only lints a reproduced release, because the original already exists.
func (o *options) examine(ctx context.Context, streams command.Streams, inputs *compose.Inputs, result *assemble.Result) error {
	if o.lint == lintOff {
		return nil
	}
	files, disable, err := inputs.Lintable(result)
	if err != nil {
		return err
	}
	opts := lint.Options{Disable: append(disable, o.lintDisable...)}
	if o.lintFrom != "" {
		read := reading.Flags{Versions: cluster.VersionFlags{ContextFlags: o.cluster, Name: api.ClusterVersionName}, Registry: o.registry}
		if opts.From, err = read.LintFiles(ctx, streams, o.lintFrom); err != nil {
			return fmt.Errorf("reading --from %s: %w", o.lintFrom, err)
		}
	}
	report := lint.Check(files, opts)
	if report.Totals.Errors+report.Totals.Warnings == 0 {
		return nil
	}
	if err := finding.WriteText(streams.Err, report, false); err != nil {
		return err
	}
	if report.Totals.Errors == 0 || o.lint != lintError || o.reproduces() {
		return nil
	}
	return &command.RefusedError{Err: fmt.Errorf("release %s cannot be applied: %s: fix the manifests, or print the errors and continue with --lint=%s",
		result.Version, report.Totals, lintWarn)}
}

// write writes the release to all requested outputs. It pushes last, because others may use a pushed release at once.
func (o *options) write(ctx context.Context, streams command.Streams, result *assemble.Result) error {
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
			streams.Infof("Wrote %s", out.to)
		}
	}
	if o.toImage == "" {
		return nil
	}
	return o.push(ctx, streams, result)
}

func (o *options) push(ctx context.Context, streams command.Streams, result *assemble.Result) error {
	access, err := o.registry.Access()
	if err != nil {
		return err
	}
	pushed, err := result.Push(ctx, access, o.toImage)
	if err != nil {
		return err
	}
	streams.Infof("Pushed to %s", o.toImage)
	if o.toSignature == "" {
		return nil
	}
	claim, err := sign.UnsignedClaim(pushed, o.clock.Now())
	if err != nil {
		return err
	}
	if err := toFile(streams, o.toSignature, func(w io.Writer) error { _, err := w.Write(claim); return err }); err != nil {
		return err
	}
	streams.Infof("Wrote %s", o.toSignature)
	return nil
}

// checkFiles rejects output files that exist. Without it, the command would find them only after the push.
func (o *options) checkFiles() error {
	if o.output != "" {
		return nil
	}
	files := []string{o.resultFile}
	if !o.dryRun {
		files = append(files, o.toFile, o.toSignature)
	}
	for _, path := range files {
		if _, err := os.Lstat(path); err == nil && path != "-" {
			return existing(path)
		}
	}
	return nil
}

func existing(path string) error {
	return fmt.Errorf("%s exists: name another file, or remove it", path)
}

// toFile creates a new file, or writes to standard output if path is -.
func toFile(streams command.Streams, path string, write func(io.Writer) error) error {
	if path == "-" {
		return write(streams.Out)
	}
	err := atomicfile.Create(path, 0o644, write)
	if errors.Is(err, fs.ErrExist) {
		return existing(path)
	}
	return err
}

// Summary is the content of --result-file. Fields are added, never renamed or removed.
type Summary struct {
	Digest    string   `json:"digest"`
	Name      string   `json:"name"`
	Created   string   `json:"created"`
	Image     string   `json:"image,omitempty"`
	Images    int      `json:"images"`
	Operators int      `json:"operators"`
	LeftOut   []string `json:"leftOut,omitempty"`
	// Manifests counts the objects in --from-dir. Annotated of them got the annotation of the profile, and clusters with the profile and the
	// default feature set do not get Excluded of them.
	Manifests int `json:"manifests,omitempty"`
	Annotated int `json:"annotated,omitempty"`
	Excluded  int `json:"excluded,omitempty"`
	// Platforms are those on which the operator in the release runs, such as linux/amd64; none without an operator.
	Platforms []string `json:"platforms,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
}

// printResult prints one line for scripts: to stdout, or to stderr if stdout has other output.
func (o *options) printResult(streams command.Streams, inputs *compose.Inputs, result *assemble.Result) error {
	created := result.Created.Format(time.RFC3339)
	if o.resultFile != "" {
		platforms, err := result.Platforms()
		if err != nil {
			return err
		}
		out := Summary{
			Digest: string(result.Digest), Name: result.Version, Created: created,
			Images: result.Images, Operators: result.Operators, LeftOut: result.Left, Warnings: result.Warnings,
			Platforms: platforms,
			Manifests: inputs.Folders.Manifests, Annotated: len(inputs.Folders.Annotated), Excluded: len(inputs.Folders.Excluded),
		}
		if o.toImage != "" && !o.dryRun {
			out.Image = o.toImage + "@" + string(result.Digest)
		}
		err = toFile(streams, o.resultFile, func(w io.Writer) error { return printing.JSON(w, out) })
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
