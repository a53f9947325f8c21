package config

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Error is the first reason why a MachineConfig cannot be used. Its text is one sentence for the administrator of a cluster.
type Error struct {
	// Name is the name of the MachineConfig.
	Name string
	// Path is the JSON path of the invalid field, such as spec.config.storage.files[2].path.
	Path string
	// Problem continues a sentence that begins with the path: "is below /proc".
	Problem string
	// Remedy is an instruction: "choose another path".
	Remedy string
}

func (e *Error) Error() string {
	return fmt.Sprintf("MachineConfig %s is invalid: %s %s; %s", e.Name, e.Path, e.Problem, e.Remedy)
}

// quote returns a text in quotes. It truncates long texts, because errors become status.
func quote(text string) string {
	const limit = 200
	if len(text) <= limit {
		return fmt.Sprintf("%q", text)
	}
	end := limit
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%q…", text[:end])
}

// plain returns a short printable text as it is, and others as quote does.
func plain(text string) string {
	if len(text) > 200 || strings.ContainsFunc(text, isUnprintable) {
		return quote(text)
	}
	return text
}
