package sigstore

import (
	"fmt"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/reference"
)

// matchIdentity checks the image name in a signature according to the rules of ClusterImagePolicy (and of containers-policy.json(5),
// section signedIdentity). The image's own name is the pullspec as the user wrote it.
func matchIdentity(identity *configv1.PolicyIdentity, image release.Image, signedAs string) error {
	if identity == nil {
		return nil
	}
	if signedAs == "" {
		return fmt.Errorf("it has no repository name, which signedIdentity %s requires: sign it in a form that has one "+
			"(cosign sign --new-bundle-format=false --use-signing-config=false), or trust its signer with a TrustPolicy without signedIdentity "+
			"(a ClusterImagePolicy without it requires MatchRepoDigestOrExact)", identity.MatchPolicy)
	}
	claimed, err := reference.Parse(signedAs)
	if err != nil {
		return fmt.Errorf("the signed name %q: %w", signedAs, err)
	}
	pullspec, err := reference.ParsePullspec(image.Pullspec)
	if err != nil {
		return fmt.Errorf("the image's name %q: %w", image.Pullspec, err)
	}
	ok := false
	switch identity.MatchPolicy {
	case configv1.IdentityMatchPolicyMatchRepository:
		ok = claimed.Repository == pullspec.Repository
	case configv1.IdentityMatchPolicyExactRepository:
		exact, err := reference.Parse(string(identity.PolicyMatchExactRepository.Repository))
		if err != nil {
			return err
		}
		ok = claimed.Repository == exact.Repository
	case configv1.IdentityMatchPolicyRemapIdentity:
		pullspec.Repository = remap(identity.PolicyMatchRemapIdentity, pullspec.Repository)
		ok = repoDigestOrExact(claimed, pullspec)
	case configv1.IdentityMatchPolicyMatchRepoDigestOrExact:
		ok = repoDigestOrExact(claimed, pullspec)
	}
	if !ok {
		return fmt.Errorf("it is signed as %q, which signedIdentity %s does not accept for %s", signedAs, identity.MatchPolicy, image.Pullspec)
	}
	return nil
}

// repoDigestOrExact requires the same repository if the pullspec has a digest, and the same repository and tag if it has only a tag.
func repoDigestOrExact(claimed, pullspec reference.Name) bool {
	if pullspec.Digest != "" {
		return claimed.Repository == pullspec.Repository
	}
	return claimed == pullspec
}

func remap(m *configv1.PolicyMatchRemapIdentity, repository string) string {
	rest, ok := strings.CutPrefix(repository, reference.CanonicalScope(string(m.Prefix)))
	if !ok || rest != "" && rest[0] != '/' {
		return repository
	}
	return reference.CanonicalScope(string(m.SignedPrefix)) + rest
}

// validateSignedIdentity rejects everything that the API server would reject.
func validateSignedIdentity(i *configv1.PolicyIdentity) error {
	if i == nil {
		return nil
	}
	exact, mapped := i.PolicyMatchExactRepository, i.PolicyMatchRemapIdentity
	switch p := i.MatchPolicy; {
	case (p == configv1.IdentityMatchPolicyExactRepository) != (exact != nil):
		return fmt.Errorf("signedIdentity: set exactRepository if and only if matchPolicy is %s", configv1.IdentityMatchPolicyExactRepository)
	case (p == configv1.IdentityMatchPolicyRemapIdentity) != (mapped != nil):
		return fmt.Errorf("signedIdentity: set remapIdentity if and only if matchPolicy is %s", configv1.IdentityMatchPolicyRemapIdentity)
	case exact != nil:
		return validatePrefix("exactRepository.Repository", exact.Repository)
	case mapped != nil:
		if err := validatePrefix("remapIdentity.prefix", mapped.Prefix); err != nil {
			return err
		}
		return validatePrefix("remapIdentity.signedPrefix", mapped.SignedPrefix)
	case p != configv1.IdentityMatchPolicyMatchRepoDigestOrExact && p != configv1.IdentityMatchPolicyMatchRepository:
		return fmt.Errorf("signedIdentity: matchPolicy %q is unknown: use %s, %s, %s or %s", p,
			configv1.IdentityMatchPolicyMatchRepoDigestOrExact, configv1.IdentityMatchPolicyMatchRepository,
			configv1.IdentityMatchPolicyExactRepository, configv1.IdentityMatchPolicyRemapIdentity)
	}
	return nil
}

func validatePrefix(field string, p configv1.IdentityRepositoryPrefix) error {
	if !reference.IsRepository(string(p)) {
		return fmt.Errorf("signedIdentity: %s %q is not a repository or a prefix of one: write host[:port][/path] in full, without tag or digest", field, p)
	}
	return nil
}
