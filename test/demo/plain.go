package main

import (
	"fmt"
	"io"
)

// lines prints the story as text, one line per note.
type lines struct {
	out     io.Writer
	printed int
}

// show implements audience.
func (l *lines) show(s story) {
	for _, n := range s.notes[l.printed:] {
		prefix := map[noteKind]string{commandNote: "$ ", badNote: "! "}[n.kind]
		_, _ = fmt.Fprintf(l.out, "%6.1fs  %s%s\n", n.at.Sub(s.began).Seconds(), prefix, n.text)
	}
	l.printed = len(s.notes)
}
