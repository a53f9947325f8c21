package payload

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxReasons limits the number of reasons in Nothing.
const maxReasons = 3

// Nothing returns a sentence that explains why the cluster gets no manifest of the release, or "" if it gets at least one. The sentence
// lists the most frequent reasons first and has no full stop.
func (p *Payload) Nothing() string {
	if len(p.Manifests) > 0 {
		return ""
	}
	if len(p.Excluded) == 0 {
		return fmt.Sprintf("release %s has no manifests, so there is nothing to install", p.Release.Version)
	}
	reasons := map[string]int{}
	for _, e := range p.Excluded {
		reasons[e.Reason]++
	}
	sorted := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), cmp.Compare(a, b))
	})
	parts := make([]string, 0, maxReasons+1)
	for _, reason := range sorted[:min(len(sorted), maxReasons)] {
		parts = append(parts, fmt.Sprintf("%s (%d)", reason, reasons[reason]))
	}
	if more := len(sorted) - maxReasons; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more reasons", more))
	}
	return fmt.Sprintf("none of the %d manifests of release %s is for this cluster: %s", len(p.Excluded), p.Release.Version, strings.Join(parts, ", "))
}
