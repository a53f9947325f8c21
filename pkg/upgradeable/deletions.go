package upgradeable

import (
	"fmt"
	"slices"
	"strings"
)

// deletions objects while something that the release deletes is still there: the next release may bring what it is in the
// way of.
func deletions(in Input) []Obstacle {
	if len(in.Deletions) == 0 {
		return nil
	}
	names := slices.Sorted(slices.Values(in.Deletions))
	more := ""
	if n := len(names) - most; n > 0 {
		names, more = names[:most], fmt.Sprintf(" and %d more", n)
	}
	return []Obstacle{{
		Source: SourceDeletions, Reason: SourceDeletions, Risk: SourceDeletions, URL: docs("deletions"),
		Message: "Cluster minor or major version upgrades are not allowed while resource deletions are in progress; resources=" +
			clean(strings.Join(names, ","), maxMessage) + more,
	}}
}
