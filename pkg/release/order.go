package release

import (
	"cmp"
	"strings"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
)

// CompareVersions orders versions by precedence, the lowest first, and equal ones by their text. What is no version comes
// before all that are.
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

// NewestFirst orders releases by their versions, the highest first; what is no version comes last.
func NewestFirst(a, b configv1.Release) int {
	return cmp.Or(CompareVersions(b.Version, a.Version), strings.Compare(a.Image, b.Image))
}
