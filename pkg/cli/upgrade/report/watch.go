package report

import (
	"bytes"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/watching"
	"github.com/cluster-version/cvo/pkg/view/insight"
)

// changes returns a function that prints an assessment if it differs from the previous one. On a terminal the function prints all of it,
// otherwise a line, or an object for scripts. It reports each read failure once.
func (o *statusOptions) changes(streams command.Streams, interactive bool) func(*insight.Assessment) error {
	changes := watching.Changes{Out: streams.Out, Output: o.output, Interactive: interactive}
	warned := map[insight.Missing]bool{}
	return func(a *insight.Assessment) error {
		for _, missing := range a.Missing {
			if !warned[missing] && !interactive {
				streams.Warnf("%s: %s", missing.Section, missing.Reason)
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
		return changes.Print(a.At, now, essence)
	}
}

// picture returns an assessment as text.
func (o *statusOptions) picture(a *insight.Assessment, interactive bool) (string, error) {
	switch {
	case o.output != "":
		return watching.Structured(o.output, a)
	case !interactive:
		return terminal.OneLine(a.Summary()) + "\n", nil
	}
	var out bytes.Buffer
	if err := a.Text(&out, o.parts()); err != nil {
		return "", err
	}
	if a.Updating {
		fmt.Fprintln(&out, "\n"+a.Summary())
	}
	return printable.Lines(out.String()), nil
}
