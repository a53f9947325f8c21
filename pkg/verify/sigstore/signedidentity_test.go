package sigstore_test

import (
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
)

//threat:another-name-image
func TestSignedIdentityMatchesByItsPolicy(t *testing.T) {
	key := newKey(t, "P-256")
	const byDigest = "quay.example/platform/release@" + string(digest)
	document := func(reference string) release.Attachment {
		return tagged(t, key, strings.Replace(simpleSigning(digest), "registry.example/platform/release", reference, 1))
	}
	match := func(p configv1.IdentityMatchPolicy) *configv1.PolicyIdentity {
		return &configv1.PolicyIdentity{MatchPolicy: p}
	}
	exactly := match(configv1.IdentityMatchPolicyExactRepository)
	exactly.PolicyMatchExactRepository = &configv1.PolicyMatchExactRepository{Repository: "vendor.example/release"}
	mapped := match(configv1.IdentityMatchPolicyRemapIdentity)
	mapped.PolicyMatchRemapIdentity = &configv1.PolicyMatchRemapIdentity{Prefix: "quay.example/platform", SignedPrefix: "vendor.example"}
	repoDigestOrExact := match(configv1.IdentityMatchPolicyMatchRepoDigestOrExact)
	repository := match(configv1.IdentityMatchPolicyMatchRepository)
	named := strings.Replace(statement(digest, sigstore.SignPredicate), `[{"digest"`, `[{"name":"quay.example/platform/release","digest"`, 1)

	for _, test := range []struct {
		name     string
		identity *configv1.PolicyIdentity
		pullspec string
		found    release.Attachment
		refusal  string
	}{
		{"any name without a rule", nil, byDigest, document("evil.example/x"), ""},
		{"the same repository, by digest", repoDigestOrExact, byDigest, document("quay.example/platform/release"), ""},
		{"the same repository with any tag, by digest", repoDigestOrExact, byDigest, document("quay.example/platform/release:1.2.3"), ""},
		{"another repository, by digest", repoDigestOrExact, byDigest, document("quay.example/platform/test"), `it is signed as "quay.example/platform/test", which signedIdentity MatchRepoDigestOrExact does not accept`},
		{"the same tag", repoDigestOrExact, "quay.example/platform/release:1.2.3", document("quay.example/platform/release:1.2.3"), ""},
		{"another tag", repoDigestOrExact, "quay.example/platform/release:1.2.3", document("quay.example/platform/release:1.2.4"), "does not accept"},
		{"no tag where one is required", repoDigestOrExact, "quay.example/platform/release:1.2.3", document("quay.example/platform/release"), "does not accept"},
		{"no tag for an image pulled as latest", repoDigestOrExact, "quay.example/platform/release", document("quay.example/platform/release"), "does not accept"},
		{"the default tag", repoDigestOrExact, "quay.example/platform/release", document("quay.example/platform/release:latest"), ""},
		{"another spelling of the host", repository, "QUAY.example:443/platform/release:1.2.3", document("quay.example/platform/release"), ""},
		{"the repository behind another spelling of a mirror", mapped, "Quay.example/platform/release@" + string(digest), document("vendor.example/release"), ""},
		{"the short form of a name", repository, "docker.io/library/busybox:1", document("busybox"), ""},
		{"the same repository with another tag", repository, "quay.example/platform/release:1.2.3", document("quay.example/platform/release:9"), ""},
		{"another repository", repository, "quay.example/platform/release:1.2.3", document("quay.example/platform/release2"), "does not accept"},
		{"another host", repository, byDigest, document("quay.example.evil/platform/release"), "does not accept"},
		{"the named repository", exactly, byDigest, document("vendor.example/release:4"), ""},
		{"the image's own repository if the policy names another", exactly, byDigest, document("quay.example/platform/release"), "does not accept"},
		{"the repository behind a mirror", mapped, byDigest, document("vendor.example/release"), ""},
		{"the mirror itself", mapped, byDigest, document("quay.example/platform/release"), "does not accept"},
		{"a prefix that ends inside a word", mapped, "quay.example/platform2/release@" + string(digest), document("vendor.example2/release"), "does not accept"},
		{"an unmapped repository", mapped, "other.example/release@" + string(digest), document("other.example/release"), ""},
		{"an invalid name", repository, byDigest, document("quay.example/UPPER"), `the signed name "quay.example/UPPER"`},
		{"a bundle, which has no name", repository, byDigest, envelope(t, key, statement(digest, sigstore.SignPredicate)), "it has no repository name, which signedIdentity MatchRepository requires"},
		{"a bundle whose subject has a name", repository, byDigest, envelope(t, key, named), ""},
		{"a bundle with another name of its subject", repository, "quay.example/other@" + string(digest), envelope(t, key, named), "does not accept"},
		{"a message signature, which has no name", repository, byDigest, messageBundle(t, signDigest(t, key, digest), digest), "it has no repository name"},
	} {
		verb := "it accepts "
		if test.refusal != "" {
			verb = "it rejects "
		}
		t.Run(verb+test.name, func(t *testing.T) {
			root := publicKey(t, "team", key)
			root.SignedIdentity = test.identity
			_, err := verifyKey(root, release.Image{Pullspec: test.pullspec, Digest: digest}, test.found)
			if test.refusal == "" {
				require.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.refusal)
		})
	}
}
