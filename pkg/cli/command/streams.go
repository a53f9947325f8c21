// Package command provides the common parts of all cvo commands: streams, exit codes and their errors, and checks of arguments. It knows
// nothing about releases or clusters.
package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/cluster-version/cvo/internal/printable"
)

// Silent returns streams that discard the messages of shell completion.
func Silent() Streams { return Streams{Out: io.Discard, Err: io.Discard} }

// Streams are the input and the outputs of a command. Tests pass buffers.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Warnf writes a warning to Err, as one line. Parts of it may come from a release, a cluster or a registry, so characters that control a terminal are replaced.
func (s Streams) Warnf(format string, args ...any) { s.say("warning", format, args) }

// Infof is like Warnf for information.
func (s Streams) Infof(format string, args ...any) { s.say("info", format, args) }

func (s Streams) say(kind, format string, args []any) {
	text := strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(fmt.Sprintf(format, args...)) // names keep their spaces
	fmt.Fprintf(s.Err, "%s: %s\n", kind, printable.Text(text))
}
