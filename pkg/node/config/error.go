package config

import (
	"fmt"
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

// quote returns a value of a MachineConfig in quotes. It truncates long values, because errors become status.
func quote(value string) string {
	const limit = 200
	if len(value) <= limit {
		return fmt.Sprintf("%q", value)
	}
	end := limit
	for end > 0 && !utf8.RuneStart(value[end]) {
		end--
	}
	return fmt.Sprintf("%q…", value[:end])
}
