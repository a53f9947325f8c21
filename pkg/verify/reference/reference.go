// Package reference reads image names for policies (containers-policy.json(5)). It expands short names, normalizes hosts, and lists the
// policy scopes that match an image. It knows nothing about signatures. Package release reads the pullspecs of releases, which always have
// a tag or a SHA-256 digest. Here, a name may have a digest of any algorithm, because a rule that cannot be read would silently not apply.
package reference

import (
	"fmt"
	"regexp"
	"strings"
)

// hub is the default registry.
const hub = "docker.io"

// Name is the fully expanded name of an image, in parts. Repository includes the host. Tag and Digest may be empty. The digest may use any
// algorithm, because a policy may name images that cannot be releases.
type Name struct{ Repository, Tag, Digest string }

// Parts of references (github.com/distribution/reference).
const (
	labelPattern     = `[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?`
	domainPattern    = labelPattern + `(?:\.` + labelPattern + `)+`
	componentPattern = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
	tagPattern       = `\w[\w.-]{0,127}`
	digestPattern    = `[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}`
)

var (
	hostPattern      = regexp.MustCompile(`^(?:` + labelPattern + `(?:\.` + labelPattern + `)*|\[[0-9a-f:]+\])(?::[0-9]+)?$`)
	pathPattern      = regexp.MustCompile(`^` + componentPattern + `(?:/` + componentPattern + `)*$`)
	wholeTagPattern  = regexp.MustCompile(`^` + tagPattern + `$`)
	wholeHashPattern = regexp.MustCompile(`^` + digestPattern + `$`)
)

// Parse parses a name and expands it: "busybox" is docker.io/library/busybox.
func Parse(s string) (Name, error) {
	var n Name
	rest, digest, hasDigest := strings.Cut(s, "@")
	if hasDigest {
		if !wholeHashPattern.MatchString(digest) {
			return Name{}, fmt.Errorf("invalid digest %q", digest)
		}
		n.Digest = digest
	}
	if slash, colon := strings.LastIndex(rest, "/"), strings.LastIndex(rest, ":"); colon > slash {
		rest, n.Tag = rest[:colon], rest[colon+1:]
		if !wholeTagPattern.MatchString(n.Tag) {
			return Name{}, fmt.Errorf("invalid tag %q", n.Tag)
		}
	}
	host, path, ok := strings.Cut(rest, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host, path = hub, rest
	}
	host = canonicalHost(host)
	if host == hub && !strings.Contains(path, "/") {
		path = "library/" + path
	}
	if !hostPattern.MatchString(host) || !pathPattern.MatchString(path) {
		return Name{}, fmt.Errorf("repository %q is not host[:port]/path in lower case", rest)
	}
	n.Repository = host + "/" + path
	return n, nil
}

// ParsePullspec parses the requested name of an image. If it has neither tag nor digest, the tag becomes "latest".
func ParsePullspec(s string) (Name, error) {
	n, err := Parse(s)
	if n.Tag == "" && n.Digest == "" {
		n.Tag = "latest"
	}
	return n, err
}

// canonicalHost returns the canonical spelling of a host, which is lower case and without the default HTTPS port. All spellings reach the
// same registry, so a policy must apply to all of them.
func canonicalHost(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ":443")
	if host == "index."+hub {
		return hub
	}
	return host
}

// CanonicalScope returns a scope, or a prefix of names, with the canonical spelling of its host.
func CanonicalScope(scope string) string {
	host, path, ok := strings.Cut(scope, "/")
	if !ok {
		return canonicalHost(host)
	}
	return canonicalHost(host) + "/" + path
}

// Scopes returns the scopes that match an image, most specific first (containers-policy.json(5), docker transport): the image itself, its
// repository, the namespaces around it, the host, and wildcards for its domain.
func Scopes(pullspec string) ([]string, error) {
	n, err := ParsePullspec(pullspec)
	if err != nil {
		return nil, err
	}
	var out []string
	add := func(s string) { out = append(out, s) }
	if n.Digest != "" {
		if n.Tag != "" {
			add(n.Repository + ":" + n.Tag + "@" + n.Digest)
		}
		add(n.Repository + "@" + n.Digest)
	}
	if n.Tag != "" {
		add(n.Repository + ":" + n.Tag)
	}
	scope := n.Repository
	for {
		add(scope)
		slash := strings.LastIndex(scope, "/")
		if slash < 0 {
			break
		}
		scope = scope[:slash]
	}
	domain, _, _ := strings.Cut(scope, ":")
	for {
		_, parent, ok := strings.Cut(domain, ".")
		if !ok {
			return out, nil
		}
		domain = parent
		add("*." + domain)
	}
}

// scopePattern matches the scopes that the API server accepts.
var scopePattern = regexp.MustCompile(`^(?:\*(?:\.` + labelPattern + `)+|` +
	`(?:localhost|` + domainPattern + `)(?::[0-9]+)?(?:/` + componentPattern + `)*` +
	`(?::` + tagPattern + `)?(?:@` + digestPattern + `)?)$`)

// IsScope reports whether the API server accepts a scope.
func IsScope(s string) bool { return scopePattern.MatchString(s) }

// repositoryPattern matches the scopes without tag and digest that the API server accepts.
var repositoryPattern = regexp.MustCompile(`^(?:localhost|` + domainPattern + `)(?::[0-9]+)?(?:/` + componentPattern + `)*$`)

// IsRepository reports whether the API server accepts a name as a repository or a prefix of repositories, which is a scope without tag and
// digest.
func IsRepository(s string) bool { return repositoryPattern.MatchString(s) }
