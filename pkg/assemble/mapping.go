package assemble

import (
	"errors"
	"fmt"
	"strings"
)

// ParseOverride reads COMPONENT=PULLSPEC.
func ParseOverride(text string) (component, pullspec string, err error) {
	component, pullspec, ok := strings.Cut(text, "=")
	component, pullspec = strings.TrimSpace(component), strings.TrimSpace(pullspec)
	if !ok || component == "" || pullspec == "" || strings.ContainsAny(pullspec, " \t\r\n") {
		return "", "", fmt.Errorf("%q is not COMPONENT=PULLSPEC", text)
	}
	return component, pullspec, checkComponentName(component)
}

// ParseMapping reads COMPONENT=PULLSPEC from the lines of a text, of which empty ones and those behind a # are comments.
// A component may be named once. Errors of all lines are reported together.
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
			errs = append(errs, fmt.Errorf("line %d: component %q is given twice, first in line %d: leave out one of the two", n, component, first))
		default:
			pullspecs[component], lines[component] = pullspec, n
		}
	}
	return pullspecs, errors.Join(errs...)
}
