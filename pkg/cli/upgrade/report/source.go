package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/view/collect"
)

// source is the source of an update's state: the cluster, or a dump of the cluster.
type source struct {
	cluster.VersionFlags
	// dump is the file of a ClusterVersion next to the other files of a dump; fromDir is a must-gather folder.
	dump    string
	fromDir string
}

func (s *source) add(flags *pflag.FlagSet) {
	s.VersionFlags.Add(flags)
	flags.StringVar(&s.fromDir, "from-dir", "", "read this must-gather `folder` (from 'oc adm must-gather') instead of a cluster")
	flags.StringVar(&s.dump, "mock-clusterversion", "", "read this `file` and its siblings instead of a cluster; its name must contain -cv.yaml")
	_ = flags.MarkHidden("mock-clusterversion")
}

func (s *source) validate() error {
	switch {
	case s.dump != "" && s.fromDir != "":
		return &command.UsageError{Err: errors.New("--from-dir and --mock-clusterversion both name the data to read: use one of them")}
	case s.dump != "" && !strings.Contains(s.dump, collect.DumpSuffix):
		return &command.UsageError{Err: fmt.Errorf("--mock-clusterversion %q: the name must contain %s, to find the other files", s.dump, collect.DumpSuffix)}
	case s.offline() && s.Chosen():
		return &command.UsageError{Err: errors.New("a dump needs no cluster: omit --kubeconfig, --context and the other flags that choose a cluster")}
	}
	return nil
}

// offline reports whether the source is a dump.
func (s *source) offline() bool { return s.dump != "" || s.fromDir != "" }

// printText prints a text without control sequences for a terminal. The text of a dump, printed to a file, must be identical to oc's text,
// byte for byte.
func (s *source) printText(out io.Writer, render func(io.Writer) error) error {
	var text bytes.Buffer
	if err := render(&text); err != nil {
		return err
	}
	if s.dump != "" && !terminal.IsTerminal(out) {
		_, err := text.WriteTo(out)
		return err
	}
	_, err := io.WriteString(out, printable.Lines(text.String()))
	return err
}
