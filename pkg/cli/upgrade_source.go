package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// upgradeSource says where to read how updates of a cluster go: from the cluster, or from a dump of it.
type upgradeSource struct {
	versionFlags
	// dump is the file of a ClusterVersion with its siblings, fromDir a must-gather.
	dump    string
	fromDir string
}

func (s *upgradeSource) add(flags *pflag.FlagSet) {
	s.versionFlags.add(flags)
	flags.StringVar(&s.fromDir, "from-dir", "", "read this `folder`, made by 'oc adm must-gather', instead of a cluster")
	flags.StringVar(&s.dump, "mock-clusterversion", "", "read this `file`, whose name has -cv.yaml in it, and its siblings, instead of a cluster")
	_ = flags.MarkHidden("mock-clusterversion")
}

func (s *upgradeSource) validate() error {
	switch {
	case s.dump != "" && s.fromDir != "":
		return &UsageError{errors.New("--from-dir and --mock-clusterversion both say what to read: give one")}
	case s.dump != "" && !strings.Contains(s.dump, dumpSuffix):
		return &UsageError{fmt.Errorf("--mock-clusterversion %q: the name must have %s in it, for its siblings to be found", s.dump, dumpSuffix)}
	case s.offline() && (s.kubeconfig != "" || s.context != ""):
		return &UsageError{errors.New("--kubeconfig and --context choose a cluster, and a dump is to be read: give one or the other")}
	}
	return nil
}

// offline reports whether a dump is read.
func (s *upgradeSource) offline() bool { return s.dump != "" || s.fromDir != "" }

// printText prints a text without what a terminal would take for a command. The text of a dump that goes to a file is to
// equal that of the original in every byte.
func (s *upgradeSource) printText(out io.Writer, render func(io.Writer) error) error {
	var text bytes.Buffer
	if err := render(&text); err != nil {
		return err
	}
	if s.dump != "" && !isTerminal(out) {
		_, err := text.WriteTo(out)
		return err
	}
	_, err := io.WriteString(out, printableLines(text.String()))
	return err
}
