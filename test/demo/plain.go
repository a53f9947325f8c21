package main

import (
	"fmt"
	"io"
)

// lines tells the story as lines of text, one for each note.
type lines struct {
	out  io.Writer
	told int
}

// show implements audience.
func (l *lines) show(s story) {
	for _, n := range s.notes[l.told:] {
		prefix := map[noteKind]string{commandNote: "$ ", badNote: "! "}[n.kind]
		_, _ = fmt.Fprintf(l.out, "%6.1fs  %s%s\n", n.at.Sub(s.began).Seconds(), prefix, n.text)
	}
	l.told = len(s.notes)
}
