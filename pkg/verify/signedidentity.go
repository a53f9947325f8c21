package verify

import (
	"fmt"
	"regexp"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/release"
)

// hub is the registry of names without one.
const hub = "docker.io"

// named is an image reference in its parts, fully expanded.
type named struct{ repository, tag, digest string }

// What references are made of (github.com/distribution/reference).
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

// parseNamed reads a reference and expands it: "busybox" is docker.io/library/busybox.
func parseNamed(s string) (named, error) {
	var n named
	rest, digest, hasDigest := strings.Cut(s, "@")
	if hasDigest {
		if !wholeHashPattern.MatchString(digest) {
			return named{}, fmt.Errorf("digest %q is none", digest)
		}
		n.digest = digest
	}
	if slash, colon := strings.LastIndex(rest, "/"), strings.LastIndex(rest, ":"); colon > slash {
		rest, n.tag = rest[:colon], rest[colon+1:]
		if !wholeTagPattern.MatchString(n.tag) {
			return named{}, fmt.Errorf("tag %q is none", n.tag)
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
		return named{}, fmt.Errorf("repository %q is not host[:port]/path in lower case", rest)
	}
	n.repository = host + "/" + path
	return n, nil
}

// parsePullspec reads the name that an image was asked for by. Without tag and digest, what is pulled is "latest".
func parsePullspec(s string) (named, error) {
	n, err := parseNamed(s)
	if n.tag == "" && n.digest == "" {
		n.tag = "latest"
	}
	return n, err
}

// canonicalHost is the one spelling of a host. A registry is reached by each, so a policy for it must hold for all:
// letters count without their case, and the port of HTTPS as if it were left out.
func canonicalHost(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ":443")
	if host == "index."+hub {
		return hub
	}
	return host
}

// canonicalScope is a scope, or a prefix of names, with its host in that spelling.
func canonicalScope(scope string) string {
	host, path, ok := strings.Cut(scope, "/")
	if !ok {
		return canonicalHost(host)
	}
	return canonicalHost(host) + "/" + path
}

// matchIdentity checks the name that the signer gave the image, by the rules of ClusterImagePolicy (and of
// containers-policy.json(5), section signedIdentity). The image's own name is the pullspec the user wrote.
func matchIdentity(identity *configv1.PolicyIdentity, image release.Image, reference string) error {
	if identity == nil {
		return nil
	}
	if reference == "" {
		return fmt.Errorf("it names no repository, which signedIdentity %s asks for: sign it in the form that does "+
			"(cosign sign --new-bundle-format=false --use-signing-config=false), or trust its signer by a TrustPolicy without signedIdentity "+
			"(a ClusterImagePolicy without it asks for MatchRepoDigestOrExact)", identity.MatchPolicy)
	}
	claimed, err := parseNamed(reference)
	if err != nil {
		return fmt.Errorf("the signed name %q: %w", reference, err)
	}
	pullspec, err := parsePullspec(image.Pullspec)
	if err != nil {
		return fmt.Errorf("the image's name %q: %w", image.Pullspec, err)
	}
	ok := false
	switch identity.MatchPolicy {
	case configv1.IdentityMatchPolicyMatchRepository:
		ok = claimed.repository == pullspec.repository
	case configv1.IdentityMatchPolicyExactRepository:
		exact, err := parseNamed(string(identity.PolicyMatchExactRepository.Repository))
		if err != nil {
			return err
		}
		ok = claimed.repository == exact.repository
	case configv1.IdentityMatchPolicyRemapIdentity:
		pullspec.repository = remap(identity.PolicyMatchRemapIdentity, pullspec.repository)
		ok = repoDigestOrExact(claimed, pullspec)
	case configv1.IdentityMatchPolicyMatchRepoDigestOrExact:
		ok = repoDigestOrExact(claimed, pullspec)
	}
	if !ok {
		return fmt.Errorf("it is signed as %q, which signedIdentity %s does not accept for %s", reference, identity.MatchPolicy, image.Pullspec)
	}
	return nil
}

// repoDigestOrExact wants the same name and tag of an image that is pulled by tag, and the same repository of one that
// is pulled by digest.
func repoDigestOrExact(claimed, pullspec named) bool {
	if pullspec.digest != "" {
		return claimed.repository == pullspec.repository
	}
	return claimed == pullspec
}

func remap(m *configv1.PolicyMatchRemapIdentity, repository string) string {
	rest, ok := strings.CutPrefix(repository, canonicalScope(string(m.Prefix)))
	if !ok || rest != "" && rest[0] != '/' {
		return repository
	}
	return canonicalScope(string(m.SignedPrefix)) + rest
}

// validateSignedIdentity refuses what the API server would refuse.
func validateSignedIdentity(i *configv1.PolicyIdentity) error {
	if i == nil {
		return nil
	}
	exact, mapped := i.PolicyMatchExactRepository, i.PolicyMatchRemapIdentity
	switch p := i.MatchPolicy; {
	case (p == configv1.IdentityMatchPolicyExactRepository) != (exact != nil):
		return fmt.Errorf("signedIdentity: exactRepository goes with matchPolicy %s, and is needed there", configv1.IdentityMatchPolicyExactRepository)
	case (p == configv1.IdentityMatchPolicyRemapIdentity) != (mapped != nil):
		return fmt.Errorf("signedIdentity: remapIdentity goes with matchPolicy %s, and is needed there", configv1.IdentityMatchPolicyRemapIdentity)
	case exact != nil:
		return validatePrefix("exactRepository.repository", exact.Repository)
	case mapped != nil:
		if err := validatePrefix("remapIdentity.prefix", mapped.Prefix); err != nil {
			return err
		}
		return validatePrefix("remapIdentity.signedPrefix", mapped.SignedPrefix)
	case p != configv1.IdentityMatchPolicyMatchRepoDigestOrExact && p != configv1.IdentityMatchPolicyMatchRepository:
		return fmt.Errorf("signedIdentity: matchPolicy %q is not known: use %s, %s, %s or %s", p,
			configv1.IdentityMatchPolicyMatchRepoDigestOrExact, configv1.IdentityMatchPolicyMatchRepository,
			configv1.IdentityMatchPolicyExactRepository, configv1.IdentityMatchPolicyRemapIdentity)
	}
	return nil
}

// repositoryPattern is what the API server accepts as a scope without tag and digest.
var repositoryPattern = regexp.MustCompile(`^(?:localhost|` + domainPattern + `)(?::[0-9]+)?(?:/` + componentPattern + `)*$`)

func validatePrefix(field string, p configv1.IdentityRepositoryPrefix) error {
	if !repositoryPattern.MatchString(string(p)) {
		return fmt.Errorf("signedIdentity: %s %q is no repository or prefix of one: write host[:port][/path] in full, without tag or digest", field, p)
	}
	return nil
}
