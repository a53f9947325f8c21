package registry

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
)

// Mirrors say where else the content of a repository lies: what ImageDigestMirrorSets, ImageTagMirrorSets and
// ImageContentSourcePolicies configure. The zero value knows no mirrors.
type Mirrors struct {
	// byDigest serves references by digest, byTag those by tag; each is by source.
	byDigest, byTag map[string]mirrorRule
}

// mirrorRule is what all objects together say about one source.
type mirrorRule struct {
	mirrors []string
	// never forbids to contact the source itself.
	never bool
}

// mirrorEntry is one entry of one object.
type mirrorEntry struct {
	source  string
	mirrors []string
	never   bool
}

var (
	// mirrorHost and mirrorPath are what the API accepts in a location.
	mirrorHost = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*(:[0-9]+)?$`)
	mirrorPath = regexp.MustCompile(`^(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)+$`)
)

// NewMirrors puts mirror sets together: ImageDigestMirrorSets and ImageContentSourcePolicies for references by digest,
// ImageTagMirrorSets for references by tag. The order of the objects does not matter: those with the first name come
// first. Where several list mirrors of the same source, the order of each list is kept as far as they agree, and the
// source is not contacted if one of them says so.
func NewMirrors(objects ...runtime.Object) (Mirrors, error) {
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
			return Mirrors{}, fmt.Errorf("a %T configures no mirrors", object)
		}
	}
	slices.SortStableFunc(all, func(a, b named) int { return strings.Compare(a.name, b.name) })

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

// Empty reports whether there are no mirrors at all.
func (m Mirrors) Empty() bool { return len(m.byDigest)+len(m.byTag) == 0 }

func entryOf[M ~string](source string, mirrors []M, policy configv1.MirrorSourcePolicy) mirrorEntry {
	entry := mirrorEntry{source: normalLocation(source), never: policy == configv1.NeverContactSource}
	for _, m := range mirrors {
		entry.mirrors = append(entry.mirrors, normalLocation(string(m)))
	}
	return entry
}

// normalLocation writes a location as normalRepository does. Docker Hub has several names.
func normalLocation(location string) string {
	host, path, ok := strings.Cut(location, "/")
	host = strings.ToLower(host)
	if host == name.DefaultRegistry || host == "registry-1.docker.io" {
		host = "docker.io"
	}
	if ok {
		return host + "/" + path
	}
	return host
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
		return fmt.Errorf("%w: source %s has %d mirrors, %d are allowed", ErrLimit, e.source, len(e.mirrors), maxMirrors)
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
		// The policy means nothing without mirrors, says the API.
		rule.never = rule.never || e.never && len(e.mirrors) > 0
		rules[e.source] = rule
	}
	for source, rule := range rules {
		rule.mirrors = mergeOrders(lists[source])
		rules[source] = rule
	}
	return rules
}

// maxMirrors bounds the mirrors of one source in one list.
const maxMirrors = 64

// mergeOrders puts lists into one that has the order of each of them: a,b,c and c,d become a,b,c,d. Where they
// contradict each other, what was seen first comes first.
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

// locations are the repositories that may hold what ref names, best first, and whether ref's own is among those to ask.
func (m Mirrors) locations(ref name.Reference) (mirrors []string, source bool) {
	rules := m.byTag
	if _, ok := ref.(name.Digest); ok {
		rules = m.byDigest
	}
	repository := normalLocation(ref.Context().Name())
	rule, rest, ok := mostSpecific(rules, repository)
	if !ok {
		return nil, true
	}
	for _, location := range rule.mirrors {
		location += rest
		// A host alone cannot stand for a whole repository: it leaves no name.
		if !strings.Contains(location, "/") || slices.Contains(mirrors, location) || location == repository && rule.never {
			continue
		}
		mirrors = append(mirrors, location)
	}
	return mirrors, !rule.never && !slices.Contains(mirrors, repository)
}

// mostSpecific finds the rule whose source is the longest part of repository that ends at a slash, or else the longest
// wildcard that its host matches, and returns what remains of repository behind the source.
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

// Candidates returns where the content of ref may be fetched from, in the order to ask them: its mirrors, then ref
// itself. It is empty where the mirror sets forbid to contact the source and name no mirror that can hold ref. A mirror is
// spoken to as carefully as any other registry.
func (a *Access) Candidates(ref name.Reference) []name.Reference {
	mirrors, source := a.opts.Mirrors.locations(ref)
	if len(mirrors) == 0 && source {
		return []name.Reference{ref}
	}
	own := normalLocation(ref.Context().Name())
	candidates := make([]name.Reference, 0, len(mirrors)+1)
	for _, location := range mirrors {
		if location == own {
			candidates = append(candidates, ref)
			continue
		}
		if mirror, err := a.at(ref, location); err == nil { // NewMirrors has checked the location
			candidates = append(candidates, mirror)
		}
	}
	if source {
		candidates = append(candidates, ref)
	}
	return candidates
}

// at is ref in another repository. The library's own parser takes a host without dots for a part of Docker Hub's
// repositories.
func (a *Access) at(ref name.Reference, location string) (name.Reference, error) {
	host, path, _ := strings.Cut(location, "/")
	registry, err := a.registry(host)
	if err != nil {
		return nil, err
	}
	if digest, ok := ref.(name.Digest); ok {
		return registry.Repo(path).Digest(digest.DigestStr()), nil
	}
	return registry.Repo(path).Tag(ref.Identifier()), nil
}
