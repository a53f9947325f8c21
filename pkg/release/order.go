package release

import (
	"cmp"
	"strings"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
)

// CompareVersions orders versions by precedence, lowest first. Versions of equal precedence are ordered as text. Invalid versions come
// first.
func CompareVersions(a, b string) int {
	v, errA := semver.Parse(a)
	w, errB := semver.Parse(b)
	switch {
	case errA == nil && errB == nil:
		return cmp.Or(v.Compare(w), strings.Compare(a, b))
	case errA == nil:
		return 1
	case errB == nil:
		return -1
	}
	return strings.Compare(a, b)
}

// NewestFirst orders releases by version, highest first; invalid versions come last.
func NewestFirst(a, b configv1.Release) int {
	return cmp.Or(CompareVersions(b.Version, a.Version), strings.Compare(a.Image, b.Image))
}

// ConditionalNewestFirst orders conditional updates as NewestFirst orders their releases.
func ConditionalNewestFirst(a, b configv1.ConditionalUpdate) int {
	return NewestFirst(a.Release, b.Release)
}
