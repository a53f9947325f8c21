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
	if o.empty {
		return d.offerEmpty(ctx, out)
	}
	if err := d.present(ctx, out, d.play); err != nil {
		return err
	}
	if !o.keep {
		return nil
	}
	_, _ = lipgloss.Fprint(out, d.nextCommands())
	if !d.teller.snapshot().stuck.IsZero() && confirmed(ctx, in, out) {
		if err := d.present(ctx, out, d.repair); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(out, " Everything is still running. Press Ctrl-C to end it.")
	}
	<-ctx.Done()
	_, _ = fmt.Fprintln(out, "\nStopping everything.")
	return nil
}

// offerEmpty starts only the control plane and the registry, and keeps them until ctx ends.
func (d *demo) offerEmpty(ctx context.Context, out io.Writer) error {
	for _, start := range []func(context.Context) error{d.startControlPlane, d.startRegistry} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(out, `
 An empty control plane and a registry are running. Press Ctrl-C to end them.
 There are no nodes and no controllers: no pod runs, and deletions with finalizers, such as those of namespaces, do not finish.

   export KUBECONFIG=%s
   cvo release new --from-dir examples/platform/1.0.0 --name 1.0.0 --no-operator --to-image %s/platform/release:1.0.0
   cvo install --no-operator …, then cvo start …

 cvo start completes no release with a Deployment, because its pods do not run. make demo simulates them.
`, d.control.Kubeconfig, d.registry.Host())
	<-ctx.Done()
	return nil
}

// present shows the progress of a part of the demo, on a terminal or as text, and then all durations.
func (d *demo) present(ctx context.Context, out io.Writer, play func(context.Context) error) error {
	var err error
	if d.options.noTTY {
		d.teller.address(&lines{out: out, printed: len(d.teller.snapshot().notes)})
		err = play(ctx)
	} else {
		err = live(ctx, d, play)
	}
	switch {
	case ctx.Err() != nil || err == errInterrupted: //nolint:errorlint // it is never wrapped
		return errInterrupted
	case err != nil:
		return fmt.Errorf("%w%s", err, d.logTails())
	}
	// Fprint omits colors that out does not support.
	_, _ = lipgloss.Fprint(out, closing(d.teller.snapshot(), columns(out), d.options.keep))
	return nil
}

// confirmed waits for Enter. It returns false if the demo was stopped instead.
func confirmed(ctx context.Context, in io.Reader, out io.Writer) bool {
	_, _ = fmt.Fprintln(out, "\n Press Enter to repair the operator. The update then continues.")
	entered := make(chan struct{})
	go func() {
		if _, err := bufio.NewReader(in).ReadString('\n'); err == nil {
			close(entered)
		} // without input, everything stays unchanged
	}()
	select {
	case <-entered:
		return true
	case <-ctx.Done():
		return false
	}
}

// columns returns the width for permanent text.
func columns(out io.Writer) int {
	if file, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return min(max(width, minColumns), maxColumns)
		}
	}
	return 100
}
