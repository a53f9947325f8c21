package payload

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// maxReasons limits the number of reasons in Nothing.
const maxReasons = 3

// Nothing returns a sentence that explains why the cluster gets no manifest of the release, or "" if it gets at least one. The operator's own
// manifests count only if the release has no others. The sentence lists the most frequent reasons first and has no full stop.
func (p *Payload) Nothing() string {
	isOther := func(m *manifest.Manifest) bool { return m.Component != api.OperatorComponent }
	if slices.ContainsFunc(p.Manifests, isOther) {
		return ""
	}
	excluded, exception := p.Excluded, ""
	if len(p.Manifests) > 0 {
		excluded = slices.DeleteFunc(slices.Clone(excluded), func(e Exclusion) bool { return !isOther(e.Manifest) })
		if len(excluded) == 0 {
			return ""
		}
		exception = ", except the operator's own,"
	}
	if len(excluded) == 0 {
		return fmt.Sprintf("release %s has no manifests, so there is nothing to install", p.Release.Version)
	}
	reasons := map[string]int{}
	for _, e := range excluded {
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
	return fmt.Sprintf("none of the %d manifests of release %s%s is for this cluster: %s", len(excluded), p.Release.Version, exception, strings.Join(parts, ", "))
}
