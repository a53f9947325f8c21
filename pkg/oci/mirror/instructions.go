package mirror

import (
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/release"
)

// Moved maps a repository to its mirrors.
type Moved struct {
	Source string   `json:"source"`
	To     []string `json:"mirrors"`
}

// MovedRepositories returns a sorted list of a release's repositories with their mirrors. components and releaseImage are the target
// repositories for the components and the release image; empty if they are not mirrored.
func (r *Release) MovedRepositories(components, releaseImage string) []Moved {
	moved := map[string][]string{}
	add := func(source, to string) {
		if source != "" && to != "" && source != to && !slices.Contains(moved[source], to) {
			moved[source] = append(moved[source], to)
		}
	}
	add(r.Repository(), releaseImage)
	for _, c := range r.Components {
		add(c.Repository(), components)
	}
	out := make([]Moved, 0, len(moved))
	for source, to := range moved {
		out = append(out, Moved{Source: source, To: to})
	}
	sorted.By(out, func(a, b Moved) int { return strings.Compare(a.Source, b.Source) })
	return out
}

// objectName returns the name of a release's mirror set. It includes the version, so that releases do not replace each other's sets.
func objectName(version string) metav1.ObjectMeta {
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '-' {
			return c
		}
		return '-'
	}, strings.ToLower("release-"+version))
	return metav1.ObjectMeta{Name: strings.Trim(name, "-.")}
}

// DigestMirrorSet returns the mirror set for moved images that a cluster pulls by digest.
func DigestMirrorSet(version string, moved []Moved) *configv1.ImageDigestMirrorSet {
	set := &configv1.ImageDigestMirrorSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "ImageDigestMirrorSet"},
		ObjectMeta: objectName(version),
	}
	for _, m := range moved {
		set.Spec.ImageDigestMirrors = append(set.Spec.ImageDigestMirrors, configv1.ImageDigestMirrors{Source: m.Source, Mirrors: mirrors(m.To)})
	}
	return set
}

// TagMirrorSet returns the mirror set for moved images that a cluster pulls by tag. It requires that they kept their tags.
func TagMirrorSet(version string, moved []Moved) *configv1.ImageTagMirrorSet {
	set := &configv1.ImageTagMirrorSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "ImageTagMirrorSet"},
		ObjectMeta: objectName(version),
	}
	for _, m := range moved {
		set.Spec.ImageTagMirrors = append(set.Spec.ImageTagMirrors, configv1.ImageTagMirrors{Source: m.Source, Mirrors: mirrors(m.To)})
	}
	return set
}

func mirrors(to []string) []configv1.ImageMirror {
	out := make([]configv1.ImageMirror, 0, len(to))
	for _, t := range to {
		out = append(out, configv1.ImageMirror(t))
	}
	return out
}

// ContentSourcePolicy returns the mirror set for clusters that do not support ImageDigestMirrorSet.
func ContentSourcePolicy(version string, moved []Moved) *operatorv1alpha1.ImageContentSourcePolicy {
	policy := &operatorv1alpha1.ImageContentSourcePolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: operatorv1alpha1.GroupVersion.String(), Kind: "ImageContentSourcePolicy"},
		ObjectMeta: objectName(version),
	}
	for _, m := range moved {
		policy.Spec.RepositoryDigestMirrors = append(policy.Spec.RepositoryDigestMirrors, operatorv1alpha1.RepositoryDigestMirrors{Source: m.Source, Mirrors: m.To})
	}
	return policy
}

// SameTag returns the repository of a pullspec. ok reports whether the pullspec's tag is the given tag.
func SameTag(pullspec, tag string) (repository string, ok bool) {
	p := release.Pullspec(pullspec)
	return p.Repository(), tag != "" && p.Tag() == tag && !p.HasDigest()
}
