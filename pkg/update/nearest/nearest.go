// Package nearest orders updates by their use for a cluster, for lists of which a ClusterVersion can contain only a part.
package nearest

import (
	"cmp"
	"slices"

	"github.com/blang/semver/v4"

	"github.com/cluster-version/cvo/internal/sorted"
)

// Kept describes the beginning of the order for messages about a list that was cut off.
const Kept = "the next patch releases and the newest of each minor version are kept"

type minor struct{ major, minor uint64 }

// rank is the position of an update among those of its minor version.
type rank struct {
	index int
	// depth is the number of newer updates of the same minor version.
	depth int
	minor minor
}

// First returns updates of a cluster at the current version in order of precedence. The updates must be sorted, newest first. Two lists
// take turns, so that each beginning of the result has a useful part of both: the next patch releases of the current minor version, lowest
// first; and the newest update of each minor version, then the second newest of each, and so on, nearer minor versions first. Updates
// without a valid version are last. An invalid current version has no patch releases.
func First[T any](updates []T, current string, versionOf func(T) string) []T {
	at, err := semver.Parse(current)
	isPatch := func(v semver.Version) bool {
		return err == nil && v.Major == at.Major && v.Minor == at.Minor && v.GT(at)
	}
	depths := map[minor]int{}
	var patches, all []rank
	var invalid []int
	for i, update := range updates {
		version, err := semver.Parse(versionOf(update))
		if err != nil {
			invalid = append(invalid, i)
			continue
		}
		r := rank{index: i, minor: minor{version.Major, version.Minor}}
		r.depth = depths[r.minor]
		depths[r.minor]++
		all = append(all, r)
		if isPatch(version) {
			patches = append(patches, r)
		}
	}
	slices.Reverse(patches)
	sorted.By(all, func(a, b rank) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.minor.major, b.minor.major), cmp.Compare(a.minor.minor, b.minor.minor))
	})
	out := make([]T, 0, len(updates))
	taken := make([]bool, len(updates))
	next := func(list []rank) []rank {
		for i, r := range list {
			if !taken[r.index] {
				taken[r.index] = true
				out = append(out, updates[r.index])
				return list[i+1:]
			}
		}
		return nil
	}
	for len(patches)+len(all) > 0 {
		patches, all = next(patches), next(all)
	}
	for _, i := range invalid {
		out = append(out, updates[i])
	}
	return out
}
