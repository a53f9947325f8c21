package graph

import (
	"cmp"
	"slices"

	"github.com/blang/semver/v4"
)

// maxNextPatches is the number of the current minor version's next patch releases that take precedence over all other updates.
const maxNextPatches = maxUpdates / 2

// nearest returns maxUpdates of a longer list of updates, in the same order (newest first). It keeps the next patch releases of the current
// minor version, starting with the lowest. Of the others it keeps the newest of each minor version, then the second newest of each, and so
// on. Nearer minor versions take precedence.
func nearest[T any](updates []T, current semver.Version, versionOf func(T) string) []T {
	type minor struct{ major, minor uint64 }
	type rank struct {
		index int
		// depth is the number of newer updates of the same minor version.
		depth int
		minor minor
	}
	depths := map[minor]int{}
	var patches, others []rank
	for i, update := range updates {
		version, err := semver.Parse(versionOf(update))
		if err != nil {
			continue // An update without a valid version cannot be found.
		}
		r := rank{index: i, minor: minor{version.Major, version.Minor}}
		r.depth = depths[r.minor]
		depths[r.minor]++
		if r.minor == (minor{current.Major, current.Minor}) && version.GT(current) {
			patches = append(patches, r)
		} else {
			others = append(others, r)
		}
	}
	slices.Reverse(patches) // nearest first
	next := min(len(patches), maxNextPatches)
	others = append(others, patches[next:]...)
	slices.SortFunc(others, func(a, b rank) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.minor.major, b.minor.major), cmp.Compare(a.minor.minor, b.minor.minor))
	})
	keep := slices.Concat(patches[:next], others)
	keep = keep[:min(len(keep), maxUpdates)]
	slices.SortFunc(keep, func(a, b rank) int { return cmp.Compare(a.index, b.index) })
	out := make([]T, len(keep))
	for i, r := range keep {
		out[i] = updates[r.index]
	}
	return out
}
