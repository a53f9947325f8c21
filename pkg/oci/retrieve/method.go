package retrieve

import (
	"fmt"
	"strings"
)

// Method selects how the operator reads release images.
type Method string

const (
	// FromRegistry reads release images from the registry or its mirrors.
	FromRegistry Method = "registry"
	// ByJob runs a Job whose image the kubelet pulls. Clusters where only nodes reach the registry need it.
	ByJob Method = "job"
)

// Methods returns all methods, starting with the default.
func Methods() []string { return []string{string(FromRegistry), string(ByJob)} }

// ParseMethod parses a method. Empty text selects the default, and an unknown method is an error.
func ParseMethod(text string) (Method, error) {
	switch m := Method(text); m {
	case "":
		return FromRegistry, nil
	case FromRegistry, ByJob:
		return m, nil
	}
	return "", fmt.Errorf("unknown payload retrieval %q: use one of %s", text, strings.Join(Methods(), ", "))
}
