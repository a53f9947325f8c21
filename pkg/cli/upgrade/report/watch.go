package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/view/insight"
)

// pollInterval is the time between two reads of a watched cluster. The relevant state is in many objects, most of which change all the time
// without any effect. For the API server, a list every few seconds is less work than watches on all of them.
const pollInterval = 5 * time.Second

// clearScreen moves a terminal's cursor to the upper left and clears the rest of the screen.
const clearScreen = "\x1b[H\x1b[J"

// follow shows the progress of the update until ctx ends.
func (o *statusOptions) follow(ctx context.Context, streams command.Streams) error {
	show := o.changes(streams, terminal.IsTerminal(streams.Out))
	warned := ""
	for first := true; ; first = false {
		assessment, err := o.assess(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // an interrupt is the normal end of --watch
		case err != nil && first:
			return err // at the start, a mistake is more likely than an effect of the update
		case err != nil:
			if text := terminal.OneLine(err.Error()); text != warned {
				fmt.Fprintln(streams.Err, "warning:", terminal.OneLine(text))
				warned = text
			}
		default:
			warned = ""
			if err := show(assessment); err != nil {
				return err
			}
		}
		if backoff.Sleep(ctx, pollInterval) != nil {
			return nil //nolint:nilerr // an interrupt is the normal end of --watch
		}
	}
}

// changes returns a function that prints an assessment if it differs from the previous one. On a terminal the function prints all of it,
// otherwise a line, or an object for scripts. It reports each read failure once.
func (o *statusOptions) changes(streams command.Streams, interactive bool) func(*insight.Assessment) error {
	var last string
	warned := map[insight.Missing]bool{}
	return func(a *insight.Assessment) error {
		for _, missing := range a.Missing {
			if !warned[missing] && !interactive {
				fmt.Fprintf(streams.Err, "warning: %s: %s\n", missing.Section, terminal.OneLine(missing.Reason))
			}
			warned[missing] = true
		}
		now, err := o.picture(a, interactive)
		if err != nil {
			return err
		}
		essence := now
		if o.output != "" || !interactive {
			// Elapsed time alone is not a change.
			still := *a
			still.At, still.ControlPlane.Completed = time.Time{}, nil
			still.Estimate = nil
			still.ControlPlane.Duration, still.ControlPlane.Remaining, still.ControlPlane.Estimated = metav1.Duration{}, nil, nil
			if essence, err = o.picture(&still, interactive); err != nil {
				return err
			}
		}
		if essence == last {
			return nil
		}
		last = essence
		switch {
		case o.output == printing.FormatYAML:
			now = "---\n" + now
		case o.output == "" && interactive:
			now = clearScreen + now
		case o.output == "":
			now = a.At.UTC().Format(time.RFC3339) + " " + now
		}
		_, err = io.WriteString(streams.Out, now)
		return err
	}
}

// picture returns an assessment as text.
func (o *statusOptions) picture(a *insight.Assessment, interactive bool) (string, error) {
	var out bytes.Buffer
	switch {
	case o.output == printing.FormatJSON:
		var pretty bytes.Buffer
		if err := printing.Structured(command.Streams{Out: &pretty}, printing.FormatJSON, a); err != nil {
			return "", err
		}
		if err := json.Compact(&out, pretty.Bytes()); err != nil {
			return "", err
		}
		out.WriteByte('\n')
	case o.output == printing.FormatYAML:
		if err := printing.Structured(command.Streams{Out: &out}, printing.FormatYAML, a); err != nil {
			return "", err
		}
	case interactive:
		if err := a.Text(&out, o.parts()); err != nil {
			return "", err
		}
		if a.Updating {
			fmt.Fprintln(&out, "\n"+a.Summary())
		}
		return printable.Lines(out.String()), nil
	default:
		return terminal.OneLine(a.Summary()) + "\n", nil
	}
	return out.String(), nil
}
