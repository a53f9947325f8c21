package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/assemble"
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
	return assemble.WriteNewFile(path, write)
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
