package release

import (
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
)

// MaxKubernetesRange is the longest text that is read as a range of versions, in bytes.
const MaxKubernetesRange = 256

// KubernetesRange is a set of API server versions.
type KubernetesRange struct{ contains semver.Range }

// ParseKubernetesRange reads a range such as ">=1.30.0 <1.38.0" or ">=1.30.0 <1.34.0 || >=1.35.2". A version in it has
// three numbers, or an x for the last, or the last two.
func ParseKubernetesRange(s string) (KubernetesRange, error) {
	if len(s) > MaxKubernetesRange {
		return KubernetesRange{}, fmt.Errorf("range of Kubernetes versions has more than %d bytes: write it as \">=1.30.0 <1.38.0\"", MaxKubernetesRange)
	}
	contains, err := semver.ParseRange(strings.TrimSpace(s))
	if err != nil {
		return KubernetesRange{}, fmt.Errorf("%q is no range of Kubernetes versions: write it as \">=1.30.0 <1.38.0\"", s)
	}
	return KubernetesRange{contains}, nil
}

// Contains reports whether a server of that version, such as "v1.36.3" or "v1.31.2-eks-a737599", is in the range; its
// three numbers alone count. Vendors put theirs behind a hyphen, which would make the version precede the one that it
// was built from; and a pre-release of a version that the range leaves out is what the range is about, too.
func (r KubernetesRange) Contains(gitVersion string) (bool, error) {
	v, err := semver.ParseTolerant(gitVersion)
	if err != nil {
		return false, fmt.Errorf("%q is no version of Kubernetes", gitVersion)
	}
	return r.contains(semver.Version{Major: v.Major, Minor: v.Minor, Patch: v.Patch}), nil
}
