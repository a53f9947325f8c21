package tree

import (
	"io"
	"strings"

	"charm.land/lipgloss/v2"
)

// WriteLines writes lines without colors.
func WriteLines(out io.Writer, lines []string) error {
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// Write writes a picture with the colors that the terminal and $NO_COLOR allow.
func (v View) Write(out io.Writer, lines []string) error {
	if !v.Color {
		return WriteLines(out, lines)
	}
	_, err := lipgloss.Fprintln(out, strings.Join(lines, "\n"))
	return err
}
