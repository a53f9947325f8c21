// Package command provides the common parts of all cvo commands: streams, exit codes and their errors, and checks of arguments. It knows
// nothing about releases or clusters.
package command

import (
	"io"
)

// Silent returns streams that discard the messages of shell completion.
func Silent() Streams { return Streams{Out: io.Discard, Err: io.Discard} }

// Streams are the input and the outputs of a command. Tests pass buffers.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}
