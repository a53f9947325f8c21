package upgradeable

import (
	"fmt"
	"slices"
	"strings"
)

// deletions returns an obstacle while an object that the release deletes still exists, because it may conflict with an object of the next
// release. An update in progress is an obstacle anyway. A cluster without a completed release has nothing to delete.
func deletions(in Input) []Obstacle {
	switch {
	case len(in.Deletions) > 0:
	case in.DeletionsErr != nil && in.Installed && !in.Updating:
		return []Obstacle{unread(SourceDeletions, "the objects that the release deletes", docs("deletions"), in.DeletionsErr)}
	default:
		return nil
	}
	names := slices.Sorted(slices.Values(in.Deletions))
	more := ""
	if n := len(names) - maxPerSource; n > 0 {
		names, more = names[:maxPerSource], fmt.Sprintf(" and %d more", n)
	}
	return []Obstacle{{
		Source: SourceDeletions, Reason: SourceDeletions, Risk: SourceDeletions, URL: docs("deletions"),
		Message: "Cluster minor or major version upgrades are not allowed while resource deletions are in progress; resources=" +
			clean(strings.Join(names, ","), maxMessage) + more,
	}}
}
