package release

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
)

// ParseVersion is like semver.Parse, but describes an invalid number without the parser's function.
func ParseVersion(text string) (semver.Version, error) {
	v, err := semver.Parse(text)
	if _, ok := errors.AsType[*strconv.NumError](err); ok {
		err = errors.New("major, minor and patch must be numbers")
	}
	return v, err
}

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
