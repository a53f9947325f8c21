package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"charm.land/lipgloss/v2"
	"golang.org/x/term"
)

// run plays the demo from start to end and stops everything that it started.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	d, err := newDemo(o)
	if err != nil {
		return err
	}
	defer func() {
		if e := d.stop(); err == nil {
			err = e
		}
	}()
	told, err := present(ctx, o, d, out)
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return fmt.Errorf("%w%s", err, d.logTail())
	}
	// Fprint leaves out the colours that out cannot show.
	_, _ = lipgloss.Fprint(out, closing(told, columns(out)))
	if !o.keep {
		return nil
	}
	_, _ = lipgloss.Fprint(out, d.whatToTry())
	<-ctx.Done()
	_, _ = fmt.Fprintln(out, "\nStopping everything.")
	return nil
}

// present plays the demo to a terminal or to lines of text, and returns the story that was told.
func present(ctx context.Context, o options, d *demo, out io.Writer) (story, error) {
	if o.noTTY {
		t := newTeller(&lines{out: out}, o.fail)
		err := d.play(ctx, t, 0)
		return t.tell(), err
	}
	return live(ctx, d, o.fail)
}

// columns is the width for text that stays.
func columns(out io.Writer) int {
	if file, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return min(max(width, minColumns), maxColumns)
		}
	}
	return 100
}
