package release

import (
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
)

// MaxKubernetesRange is the maximum length of a range of versions, in bytes.
const MaxKubernetesRange = 256

// KubernetesRange is a set of API server versions.
type KubernetesRange struct{ contains semver.Range }

// ParseKubernetesRange parses a range such as ">=1.30.0 <1.38.0" or ">=1.30.0 <1.34.0 || >=1.35.2". A version has three numbers; the last
// one or two may be x.
func ParseKubernetesRange(s string) (KubernetesRange, error) {
	if len(s) > MaxKubernetesRange {
		return KubernetesRange{}, fmt.Errorf("range of Kubernetes versions is longer than %d bytes: write it as \">=1.30.0 <1.38.0\"", MaxKubernetesRange)
	}
	contains, err := semver.ParseRange(strings.TrimSpace(s))
	if err != nil {
		return KubernetesRange{}, fmt.Errorf("%q is not a range of Kubernetes versions: write it as \">=1.30.0 <1.38.0\"", s)
	}
	return KubernetesRange{contains}, nil
}

// Contains reports whether the range contains a server's version, such as "v1.36.3" or "v1.31.2-eks-a737599". Only the three numbers count:
// vendors append their build after a hyphen, which would make it a pre-release of the version that it was built from. Likewise, a range
// that excludes a version also excludes its pre-releases.
func (r KubernetesRange) Contains(gitVersion string) (bool, error) {
	v, err := semver.ParseTolerant(gitVersion)
	if err != nil {
		return false, fmt.Errorf("%q is not a Kubernetes version", gitVersion)
	}
	return r.contains(semver.Version{Major: v.Major, Minor: v.Minor, Patch: v.Patch}), nil
}
