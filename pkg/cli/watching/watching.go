// Package watching repeats a read of a cluster until the user interrupts it, and prints each result that differs from the one before: as a new
// picture on a terminal, otherwise as a line, or as an object for scripts. The caller reads and draws.
package watching

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
)

// interval is the time between two reads. The relevant state is in many objects, most of which change all the time without any effect. For the
// API server, a list every few seconds is less work than watches on all of them.
const interval = 5 * time.Second

// ClearScreen moves a terminal's cursor to the upper left and clears the rest of the screen.
const ClearScreen = "\x1b[H\x1b[J"

// Follow reads every few seconds and shows each result, until ctx ends. An error of the first read ends it: at the start, a mistake is more
// likely than an effect of an update. It prints a later error once, and continues.
func Follow[T any](ctx context.Context, streams command.Streams, read func(context.Context) (T, error), show func(T) error) error {
	warned := ""
	for first := true; ; first = false {
		result, err := read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // an interrupt is the normal end of --watch
		case err != nil && first:
			return err
		case err != nil:
			if text := terminal.OneLine(err.Error()); text != warned {
				streams.Warnf("%s", text)
				warned = text
			}
		default:
			warned = ""
			if err := show(result); err != nil {
				return err
			}
		}
		if backoff.Sleep(ctx, interval) != nil {
			return nil //nolint:nilerr // an interrupt is the normal end of --watch
		}
	}
}

// Changes prints pictures that differ from the one before.
type Changes struct {
	Out io.Writer
	// Output is the output format; empty for text.
	Output string
	// Interactive reports whether Out is a terminal, which shows only the last picture.
	Interactive bool

	last string
}

// Print prints a picture unless its essence, which omits elapsed time, is the same as before. at is the time of the read.
func (c *Changes) Print(at time.Time, picture, essence string) error {
	if essence == c.last {
		return nil
	}
	c.last = essence
	switch {
	case c.Output == printing.FormatYAML:
		picture = "---\n" + picture
	case c.Output == "" && c.Interactive:
		picture = ClearScreen + picture
	case c.Output == "":
		picture = at.UTC().Format(time.RFC3339) + " " + picture
	}
	_, err := io.WriteString(c.Out, picture)
	return err
}

// Structured returns a value as one document of a stream: a line of JSON, or YAML.
func Structured(format string, value any) (string, error) {
	var out bytes.Buffer
	write := printing.YAML
	if format == printing.FormatJSON {
		write = printing.JSONLine
	}
	err := write(&out, value)
	return out.String(), err
}
