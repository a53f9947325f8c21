package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/insight"
)

// assessEvery is how often a cluster is read while it is watched. What counts lies in many objects, of which most change
// all the time without any news; a list every few seconds is less work for the API server than watches on all of them.
const assessEvery = 5 * time.Second

// clearScreen moves a terminal's cursor to the upper left and clears what is below.
const clearScreen = "\x1b[H\x1b[J"

// follow shows how the update goes until ctx ends.
func (o *upgradeStatusOptions) follow(ctx context.Context, streams Streams) error {
	show := o.changes(streams, isTerminal(streams.Out))
	told := ""
	for first := true; ; first = false {
		assessment, err := o.assess(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // an interrupt is how watching ends
		case err != nil && first:
			return err // a mistake sooner than an update
		case err != nil:
			if text := oneLine(err.Error()); text != told {
				fmt.Fprintln(streams.Err, "warning:", text)
				told = text
			}
		default:
			told = ""
			if err := show(assessment); err != nil {
				return err
			}
		}
		if !pauseFor(ctx, assessEvery) {
			return nil
		}
	}
}

// changes returns what shows an assessment if it is another than the last one: all of it on a terminal, else a line about
// it, or an object for scripts. What could not be read is told once.
func (o *upgradeStatusOptions) changes(streams Streams, terminal bool) func(*insight.Assessment) error {
	var last string
	warned := map[insight.Missing]bool{}
	return func(a *insight.Assessment) error {
		for _, missing := range a.Missing {
			if !warned[missing] && !terminal {
				fmt.Fprintf(streams.Err, "warning: %s: %s\n", missing.Section, oneLine(missing.Reason))
			}
			warned[missing] = true
		}
		now, err := o.picture(a, terminal)
		if err != nil {
			return err
		}
		essence := now
		if o.output != "" {
			// That time goes by is no change.
			still := *a
			still.At, still.ControlPlane.Completed = time.Time{}, nil
			still.ControlPlane.Duration, still.ControlPlane.Remaining, still.ControlPlane.Estimated = metav1.Duration{}, nil, nil
			if essence, err = o.picture(&still, terminal); err != nil {
				return err
			}
		}
		if essence == last {
			return nil
		}
		last = essence
		switch {
		case o.output == outputYAML:
			now = "---\n" + now
		case o.output == "" && terminal:
			now = clearScreen + now
		case o.output == "":
			now = a.At.UTC().Format(time.RFC3339) + " " + now
		}
		_, err = io.WriteString(streams.Out, now)
		return err
	}
}

// picture is an assessment as text.
func (o *upgradeStatusOptions) picture(a *insight.Assessment, terminal bool) (string, error) {
	var out bytes.Buffer
	switch {
	case o.output == outputJSON:
		var pretty bytes.Buffer
		if err := printStructured(Streams{Out: &pretty}, outputJSON, a); err != nil {
			return "", err
		}
		if err := json.Compact(&out, pretty.Bytes()); err != nil {
			return "", err
		}
		out.WriteByte('\n')
	case o.output == outputYAML:
		if err := printStructured(Streams{Out: &out}, outputYAML, a); err != nil {
			return "", err
		}
	case terminal:
		if err := a.Text(&out, o.parts()); err != nil {
			return "", err
		}
		if a.Updating {
			fmt.Fprintln(&out, "\n"+a.Summary())
		}
		return printableLines(out.String()), nil
	default:
		return oneLine(a.Summary()) + "\n", nil
	}
	return out.String(), nil
}
