package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"

	"charm.land/lipgloss/v2"
	"golang.org/x/term"
)

// run plays the demo from start to end and stops everything that it started.
func run(ctx context.Context, o options, in io.Reader, out io.Writer) (err error) {
	d, err := newDemo(o)
	if err != nil {
		return err
	}
	defer func() {
		if e := d.stop(); err == nil {
			err = e
		}
	}()
	if err := d.present(ctx, out, d.play); err != nil {
		return err
	}
	if !o.keep {
		return nil
	}
	_, _ = lipgloss.Fprint(out, d.whatToTry())
	if !d.teller.tell().stuck.IsZero() && confirmed(ctx, in, out) {
		if err := d.present(ctx, out, d.repair); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(out, " Everything is still running. It ends with Ctrl-C.")
	}
	<-ctx.Done()
	_, _ = fmt.Fprintln(out, "\nStopping everything.")
	return nil
}

// present shows on a terminal, or as lines of text, what a part of the demo does, and then how long everything took.
func (d *demo) present(ctx context.Context, out io.Writer, play func(context.Context) error) error {
	var err error
	if d.options.noTTY {
		d.teller.address(&lines{out: out, told: len(d.teller.tell().notes)})
		err = play(ctx)
	} else {
		err = live(ctx, d, play)
	}
	switch {
	case ctx.Err() != nil || err == errInterrupted: //nolint:errorlint // nobody wraps it
		return errInterrupted
	case err != nil:
		return fmt.Errorf("%w%s", err, d.logTail())
	}
	// Fprint leaves out the colours that out cannot show.
	_, _ = lipgloss.Fprint(out, closing(d.teller.tell(), columns(out)))
	return nil
}

// confirmed waits for Enter; false means that the demo was stopped instead.
func confirmed(ctx context.Context, in io.Reader, out io.Writer) bool {
	_, _ = fmt.Fprintln(out, "\n Enter has the operator repaired, and the update goes on.")
	entered := make(chan struct{})
	go func() {
		if _, err := bufio.NewReader(in).ReadString('\n'); err == nil {
			close(entered)
		} // without anybody to ask, everything stays as it is
	}()
	select {
	case <-entered:
		return true
	case <-ctx.Done():
		return false
	}
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
