package input

import (
	"errors"
	"fmt"
	"strings"
)

// ParseOverride parses COMPONENT=PULLSPEC.
func ParseOverride(text string) (component, pullspec string, err error) {
	component, pullspec, ok := strings.Cut(text, "=")
	component, pullspec = strings.TrimSpace(component), strings.TrimSpace(pullspec)
	if !ok || component == "" || pullspec == "" || strings.ContainsAny(pullspec, " \t\r\n") {
		return "", "", fmt.Errorf("%q is not COMPONENT=PULLSPEC", text)
	}
	return component, pullspec, CheckName(component)
}

// ParseMapping parses lines of COMPONENT=PULLSPEC. It ignores empty lines and lines that start with #. Duplicate components are errors. It
// reports the errors of all lines together.
func ParseMapping(text []byte) (map[string]string, error) {
	pullspecs, lines := map[string]string{}, map[string]int{}
	var errs []error
	n := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		component, pullspec, err := ParseOverride(line)
		switch first, twice := lines[component]; {
		case err != nil:
			errs = append(errs, fmt.Errorf("line %d: %w", n, err))
		case twice:
			errs = append(errs, fmt.Errorf("line %d: duplicate component %q, first in line %d: remove one of the two", n, component, first))
		default:
			pullspecs[component], lines[component] = pullspec, n
		}
	}
	return pullspecs, errors.Join(errs...)
}
