// Package mirrorset determines the mirrors of a repository. It takes ImageDigestMirrorSets, ImageTagMirrorSets and
// ImageContentSourcePolicies, as objects or files, and returns the locations of a reference in order. It contacts none of them; package
// image does.
package mirrorset

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/registry/location"
)

// Mirrors holds the mirrors from ImageDigestMirrorSets, ImageTagMirrorSets and ImageContentSourcePolicies. The zero value has no mirrors.
type Mirrors struct {
	// byDigest applies to references by digest, byTag to references by tag. Both are keyed by source.
	byDigest, byTag map[string]mirrorRule
}

// mirrorRule combines all entries for one source.
type mirrorRule struct {
	mirrors []string
	// never forbids contacting the source itself.
	never bool
}

// mirrorEntry is an entry of one object.
type mirrorEntry struct {
	source  string
	mirrors []string
	never   bool
}

var (
	// mirrorHost and mirrorPath match the locations that the API accepts.
	mirrorHost = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*(:[0-9]+)?$`)
	mirrorPath = regexp.MustCompile(`^(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)+$`)
)

// New combines mirror sets. ImageDigestMirrorSets and ImageContentSourcePolicies apply to references by digest, ImageTagMirrorSets to
// references by tag. Objects are sorted by name, so the order of the arguments does not matter. If several objects list mirrors of the
// same source, New keeps the order within each list as far as the lists agree. The source is not contacted if at least one object forbids
// it. New fails for invalid locations and unknown kinds.
func New(objects ...runtime.Object) (Mirrors, error) {
	type named struct {
		name          string
		byDigest, tag []mirrorEntry
	}
	var all []named
	for _, object := range objects {
		switch o := object.(type) {
		case *configv1.ImageDigestMirrorSet:
			n := named{name: "ImageDigestMirrorSet " + o.Name}
			for _, m := range o.Spec.ImageDigestMirrors {
				n.byDigest = append(n.byDigest, entryOf(m.Source, m.Mirrors, m.MirrorSourcePolicy))
			}
			all = append(all, n)
		case *configv1.ImageTagMirrorSet:
			n := named{name: "ImageTagMirrorSet " + o.Name}
			for _, m := range o.Spec.ImageTagMirrors {
				n.tag = append(n.tag, entryOf(m.Source, m.Mirrors, m.MirrorSourcePolicy))
			}
			all = append(all, n)
		case *operatorv1alpha1.ImageContentSourcePolicy:
			n := named{name: "ImageContentSourcePolicy " + o.Name}
			for _, m := range o.Spec.RepositoryDigestMirrors {
				n.byDigest = append(n.byDigest, entryOf(m.Source, m.Mirrors, ""))
			}
			all = append(all, n)
		default:
			return Mirrors{}, fmt.Errorf("%T does not configure mirrors", object)
		}
	}
	sorted.By(all, func(a, b named) int { return strings.Compare(a.name, b.name) })

	var byDigest, byTag []mirrorEntry
	for _, n := range all {
		for _, entry := range slices.Concat(n.byDigest, n.tag) {
			if err := entry.check(); err != nil {
				return Mirrors{}, fmt.Errorf("%s: %w", n.name, err)
			}
		}
		byDigest = append(byDigest, n.byDigest...)
		byTag = append(byTag, n.tag...)
	}
	return Mirrors{byDigest: mergeEntries(byDigest), byTag: mergeEntries(byTag)}, nil
}

// Empty reports whether there are no mirrors.
func (m Mirrors) Empty() bool { return len(m.byDigest)+len(m.byTag) == 0 }

// Serves reports whether a host serves one of the mirrors.
func (m Mirrors) Serves(host string) bool {
	host = location.Normalize(host)
	for _, rules := range []map[string]mirrorRule{m.byDigest, m.byTag} {
		for _, rule := range rules {
			for _, mirror := range rule.mirrors {
				if at, _, _ := strings.Cut(mirror, "/"); at == host {
					return true
				}
			}
		}
	}
	return false
}

func entryOf[M ~string](source string, mirrors []M, policy configv1.MirrorSourcePolicy) mirrorEntry {
	entry := mirrorEntry{source: location.Normalize(source), never: policy == configv1.NeverContactSource}
	for _, m := range mirrors {
		entry.mirrors = append(entry.mirrors, location.Normalize(string(m)))
	}
	return entry
}

func (e mirrorEntry) check() error {
	host, wild := strings.CutPrefix(e.source, "*.")
	switch {
	case e.source == "":
		return errors.New("an entry has no source")
	case wild && (!mirrorHost.MatchString(host) || strings.Contains(host, ":")):
		return fmt.Errorf("source %q is not *.<domain>", e.source)
	case !wild && !isLocation(e.source):
		return fmt.Errorf("source %q is not <host>[:<port>][/<path>] or *.<domain>", e.source)
	case len(e.mirrors) > maxMirrors:
		return fmt.Errorf("%w: source %s has %d mirrors, at most %d are allowed", failure.ErrLimit, e.source, len(e.mirrors), maxMirrors)
	}
	for _, m := range e.mirrors {
		if !isLocation(m) {
			return fmt.Errorf("mirror %q of %s is not <host>[:<port>][/<path>]", m, e.source)
		}
	}
	return nil
}

func isLocation(s string) bool {
	host, path, ok := strings.Cut(s, "/")
	return mirrorHost.MatchString(host) && (!ok || mirrorPath.MatchString("/"+path))
}

func mergeEntries(entries []mirrorEntry) map[string]mirrorRule {
	lists := map[string][][]string{}
	rules := map[string]mirrorRule{}
	for _, e := range entries {
		lists[e.source] = append(lists[e.source], e.mirrors)
		rule := rules[e.source]
		// The API ignores the policy of an entry without mirrors.
		rule.never = rule.never || e.never && len(e.mirrors) > 0
		rules[e.source] = rule
	}
	for source, rule := range rules {
		rule.mirrors = mergeOrders(lists[source])
		rules[source] = rule
	}
	return rules
}

// maxMirrors is the maximum number of mirrors in an entry.
const maxMirrors = 64

// mergeOrders merges lists and keeps the order of each: a,b,c and c,d become a,b,c,d. If lists contradict each other, the earlier list
// takes precedence.
func mergeOrders(lists [][]string) []string {
	var seen []string
	before := map[string]map[string]bool{}
	for _, list := range lists {
		for i, item := range list {
			if before[item] == nil {
				before[item] = map[string]bool{}
				seen = append(seen, item)
			}
			if i > 0 && list[i-1] != item {
				before[item][list[i-1]] = true
			}
		}
	}
	merged := make([]string, 0, len(seen))
	for len(seen) > 0 {
		next := slices.IndexFunc(seen, func(item string) bool {
			return !slices.ContainsFunc(seen, func(other string) bool { return before[item][other] })
		})
		next = max(next, 0)
		merged = append(merged, seen[next])
		seen = slices.Delete(seen, next, next+1)
	}
	return merged
}

// Locations returns the repositories that may contain ref, best first. source reports whether ref's own repository may be contacted too.
func (m Mirrors) Locations(ref name.Reference) (mirrors []string, source bool) {
	rules := m.byTag
	if _, ok := ref.(name.Digest); ok {
		rules = m.byDigest
	}
	repository := location.Normalize(ref.Context().Name())
	rule, rest, ok := mostSpecific(rules, repository)
	if !ok {
		return nil, true
	}
	for _, mirror := range rule.mirrors {
		mirror += rest
		// A mirror that is only a host cannot replace a whole repository, because no repository name would remain.
		if !strings.Contains(mirror, "/") || slices.Contains(mirrors, mirror) || mirror == repository && rule.never {
			continue
		}
		mirrors = append(mirrors, mirror)
	}
	return mirrors, !rule.never && !slices.Contains(mirrors, repository)
}

// mostSpecific returns the rule with the longest source that is a path prefix of repository. Without one, it returns the longest wildcard
// that matches the host. rest is the part of repository after the source.
func mostSpecific(rules map[string]mirrorRule, repository string) (rule mirrorRule, rest string, ok bool) {
	for source := repository; ; {
		if rule, ok = rules[source]; ok {
			return rule, repository[len(source):], true
		}
		slash := strings.LastIndex(source, "/")
		if slash < 0 {
			break
		}
		source = source[:slash]
	}
	host, _, _ := strings.Cut(repository, "/")
	domain, _, _ := strings.Cut(host, ":")
	for {
		_, parent, more := strings.Cut(domain, ".")
		if !more {
			return mirrorRule{}, "", false
		}
		if rule, ok = rules["*."+parent]; ok {
			return rule, repository[len(host):], true
		}
		domain = parent
	}
}
