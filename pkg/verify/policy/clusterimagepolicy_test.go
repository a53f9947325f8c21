package policy_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/test/fixture/sigstoretest"
)

// imagePolicy returns a ClusterImagePolicy. Its parts are YAML in flow style.
func imagePolicy(name, scopes, trust string) string {
	return fmt.Sprintf("apiVersion: config.openshift.io/v1\nkind: ClusterImagePolicy\nmetadata: {name: %s}\nspec:\n  scopes: %s\n  policy: %s\n", name, scopes, trust)
}

func b64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

func keyPolicy(key []byte) string {
	return fmt.Sprintf("{rootOfTrust: {policyType: PublicKey, publicKey: {keyData: %s}}}", b64(key))
}

func TestEachRootOfAClusterImagePolicyVerifies(t *testing.T) {
	s, other := newSigstore(t), newSigstore(t)
	signed := attached(t)
	bare, err := sigstoretest.NewSigner()
	require.NoError(t, err)
	byMail := issue(t, s, sigstoretest.Subject{Email: alice, Issuer: accounts})
	lasting := issue(t, s, sigstoretest.Subject{Email: alice, Hostname: "build.example.com", NotAfter: today.AddDate(1, 0, 0), Unlogged: true})
	document := []byte(simpleSigning(digest))
	key := keyPolicy(bare.PublicKey())
	logged := fmt.Sprintf("{rootOfTrust: {policyType: PublicKey, publicKey: {keyData: %s, rekorKeyData: %s}}}", b64(bare.PublicKey()), b64(s.LogKey()))
	fulcio := func(issuer, email string, log []byte) string {
		return fmt.Sprintf("{rootOfTrust: {policyType: FulcioCAWithRekor, fulcioCAWithRekor: {fulcioCAData: %s, rekorKeyData: %s, "+
			"fulcioSubject: {oidcIssuer: %q, signedEmail: %q}}}}", b64(s.Roots()), b64(log), issuer, email)
	}
	pki := func(subject string) string {
		return fmt.Sprintf("{rootOfTrust: {policyType: PKI, pki: {caRootsData: %s, caIntermediatesData: %s, pkiCertificateSubject: %s}}}",
			b64(s.Roots()), b64(s.Intermediates()), subject)
	}
	unlogged, chained := sigstoretest.Form{Unlogged: true}, sigstoretest.Form{Chain: true}
	for _, test := range []struct {
		name, trust string
		found       release.Attachment
		refusal     string
	}{
		{"it accepts a public key", key, signed(s.Classic(bare, document, unlogged)), ""},
		{"it rejects another key", keyPolicy(pemKey(t)), signed(s.Classic(bare, document, unlogged)), "not signed with this key"},
		{"it accepts a public key with a log entry", logged, signed(s.Classic(bare, document, sigstoretest.Form{})), ""},
		{"it rejects a public key without the required log entry", logged, signed(s.Classic(bare, document, unlogged)), "no entry in a trusted transparency log"},
		{"it accepts a Fulcio identity", fulcio(accounts, alice, s.LogKey()), signed(s.Classic(byMail, document, chained)), ""},
		{"it rejects another email address", fulcio(accounts, "bob@example.com", s.LogKey()), signed(s.Classic(byMail, document, chained)), "expected email bob@example.com, issuer " + accounts},
		{"it rejects another issuer", fulcio(actions, alice, s.LogKey()), signed(s.Classic(byMail, document, chained)), "expected email alice@example.com, issuer " + actions},
		{"it rejects another log", fulcio(accounts, alice, other.LogKey()), signed(s.Classic(byMail, document, chained)), "no entry in a trusted transparency log"},
		{"it accepts an email address of a PKI", pki("{email: " + alice + "}"), signed(s.Classic(lasting, document, unlogged)), ""},
		{"it accepts a host name of a PKI", pki("{hostname: build.example.com}"), signed(s.Classic(lasting, document, unlogged)), ""},
		{"it accepts an email address and a host name of a PKI", pki("{email: " + alice + ", hostname: build.example.com}"), signed(s.Classic(lasting, document, unlogged)), ""},
		{"it rejects a PKI certificate that matches only one of both", pki("{email: " + alice + ", hostname: other.example.com}"), signed(s.Classic(lasting, document, unlogged)), "expected email alice@example.com, host name other.example.com"},
	} {
		t.Run(test.name, func(t *testing.T) {
			policies, err := policy.ParseClusterImagePolicies("policy.yaml", []byte(imagePolicy("platform", "[registry.example]", test.trust)))
			require.NoError(t, err)
			for _, pullspec := range []string{"registry.example/platform/release@" + string(digest), "registry.example/other/release@" + string(digest)} {
				matching, err := policies.Matching(pullspec)
				require.NoError(t, err)
				require.Len(t, matching, 1)
				assert.Equal(t, []string{"ClusterImagePolicy platform"}, matching[0].RootNames())
				err = refusal(matching[0], test.found, release.Image{Pullspec: pullspec, Digest: digest})
				switch {
				case test.refusal != "":
					require.Error(t, err)
					if !strings.Contains(pullspec, "/other/") {
						require.ErrorContains(t, err, test.refusal)
					}
				case strings.Contains(pullspec, "/other/"):
					require.ErrorContains(t, err, `it is signed as "registry.example/platform/release", which signedIdentity MatchRepoDigestOrExact does not accept`)
				default:
					require.NoError(t, err)
				}
			}
		})
	}
}

//threat:another-name-image
func TestEveryPolicyWithAMatchingScopeIsFound(t *testing.T) {
	var documents []string
	for name, scope := range map[string]string{
		"host": "registry.example.com", "port": "registry.example.com:5000", "namespace": "registry.example.com/platform", "deeper": "registry.example.com/platform/team",
		"repository": "registry.example.com/platform/release", "tag": "registry.example.com/platform/release:1.2.3",
		"digest": "registry.example.com/platform/release@" + string(digest), "wildcard": "*.example.com", "top": "*.com", "hub": "docker.io/library", "latest": "latest.example.net/release:latest", "https": "https.Example.net:443/a",
	} {
		documents = append(documents, imagePolicy(name, "['"+scope+"', unrelated.example.net/"+name+"]", keyPolicy(pemKey(t))))
	}
	documents = append(documents, imagePolicy("second", "['registry.example.com/platform/team']", keyPolicy(pemKey(t))))
	policies, err := policy.ParseClusterImagePolicies("policies.yaml", []byte(strings.Join(documents, "---\n")))
	require.NoError(t, err)
	for _, test := range []struct {
		pullspec string
		roots    []string
	}{
		{"registry.example.com/platform/release@" + string(digest), []string{"digest", "repository", "namespace", "host", "wildcard", "top"}},
		{"registry.example.com/platform/release:1.2.3@" + string(digest), []string{"digest", "tag", "repository", "namespace", "host", "wildcard", "top"}},
		{"registry.example.com/platform/release:1.2.3@" + string(otherDigest), []string{"tag", "repository", "namespace", "host", "wildcard", "top"}},
		{"registry.example.com/platform/release@" + string(otherDigest), []string{"repository", "namespace", "host", "wildcard", "top"}},
		{"registry.example.com/platform/release:1.2.3", []string{"tag", "repository", "namespace", "host", "wildcard", "top"}},
		{"registry.example.com/platform/release:1.2.30", []string{"repository", "namespace", "host", "wildcard", "top"}},
		{"registry.example.com/platform/release2:1", []string{"namespace", "host", "wildcard", "top"}},
		{"registry.example.com/platform/release/sub:1", []string{"repository", "namespace", "host", "wildcard", "top"}},
		{"registry.example.com/platform/team/x:1", []string{"deeper", "second", "namespace", "host", "wildcard", "top"}},
		{"registry.example.com/platform2/x:1", []string{"host", "wildcard", "top"}},
		{"registry.example.com:5000/platform/release:1.2.3", []string{"port", "wildcard", "top"}},
		{"other.example.com:5000/x:1", []string{"wildcard", "top"}},
		{"a.b.example.com/x:1", []string{"wildcard", "top"}},
		{"example.com/x:1", []string{"top"}},
		{"busybox", []string{"hub"}},
		{"index.docker.io/busybox", []string{"hub"}},
		{"REGISTRY.Example.com/platform/release:1.2.3", []string{"tag", "repository", "namespace", "host", "wildcard", "top"}},
		{"registry.example.com:443/platform/release:1.2.3", []string{"tag", "repository", "namespace", "host", "wildcard", "top"}},
		{"a.B.Example.com:443/x:1", []string{"wildcard", "top"}},
		{"HTTPS.example.net/a/b:1", []string{"https"}},
		{"latest.example.net/release", []string{"latest"}},
		{"latest.example.net/release:1", nil},
		{"registry:443/x:1", nil},
		{"[2001:db8::1]:5000/x:1", nil},
		{"registry.example.org/x:1", nil},
		{"unrelated.example.net/tagalong:1", nil},
	} {
		t.Run("it finds every policy of "+test.pullspec, func(t *testing.T) {
			matching, err := policies.Matching(test.pullspec)
			require.NoError(t, err)
			var roots []string
			for _, trust := range matching {
				require.Len(t, trust.SigstoreKeys, 1)
				roots = append(roots, strings.TrimPrefix(trust.SigstoreKeys[0].Name, "ClusterImagePolicy "))
			}
			assert.Equal(t, test.roots, roots, "the most specific policy comes first")
		})
	}
	_, err = policies.Matching("UPPER/case")
	require.ErrorContains(t, err, "looking for the ClusterImagePolicies of UPPER/case")
	for _, twisted := range []string{
		"registry.example.com./platform/release:1.2.3", "registry.example.com/platform//release:1.2.3", "registry.example.com/platform/../release:1",
		"registry.example.com/platform/release@" + string(digest) + "@" + string(otherDigest), "registry.example.com/platform/release:1:2",
		"registry.example.com\u200b/platform/release:1", "user@registry.example.com/platform/release:1", "https://registry.example.com/platform/release:1",
		" registry.example.com/platform/release:1", "registry.example.com/platform/release:", "registry.example.com:/platform/release:1", "",
	} {
		matching, err := policies.Matching(twisted)
		require.Error(t, err, "%q must not be usable to avoid every scope", twisted)
		assert.Empty(t, matching)
	}
	matching, err := policy.ClusterImagePolicies(nil).Matching("registry.example.com/a_-b:1")
	require.NoError(t, err)
	assert.Empty(t, matching)
}

func TestClusterImagePolicyListsAreRead(t *testing.T) {
	one := strings.ReplaceAll(imagePolicy("one", "[a.example]", keyPolicy(pemKey(t))), "\n", "\n  ")
	list := "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n- " + one
	for name, data := range map[string]string{
		"a list":                  list,
		"a list of its kind":      strings.Replace(list, "apiVersion: v1\nkind: List", "apiVersion: config.openshift.io/v1\nkind: ClusterImagePolicyList", 1),
		"comments around":         "# policies\n---\n# none here\n---\n" + imagePolicy("one", "[a.example]", keyPolicy(pemKey(t))),
		"an object with a status": imagePolicy("one", "[a.example]", keyPolicy(pemKey(t))) + "status: {conditions: [{type: Active, status: 'True', reason: Applied, message: fine, lastTransitionTime: '2026-01-01T00:00:00Z'}]}\n",
	} {
		t.Run("it reads "+name, func(t *testing.T) {
			policies, err := policy.ParseClusterImagePolicies("policies.yaml", []byte(data))
			require.NoError(t, err)
			require.Len(t, policies, 1)
			assert.Equal(t, "one", policies[0].Name)
		})
	}
}

func TestInvalidClusterImagePoliciesAreRejected(t *testing.T) {
	key := keyPolicy(pemKey(t))
	good := imagePolicy("one", "[a.example]", key)
	s := newSigstore(t)
	identity := func(text string) string {
		return strings.Replace(key, "{rootOfTrust", "{signedIdentity: "+text+", rootOfTrust", 1)
	}
	pki := fmt.Sprintf("{rootOfTrust: {policyType: PKI, pki: {caRootsData: %s, pkiCertificateSubject: {}}}}", b64(s.Roots()))
	noLog := fmt.Sprintf("{rootOfTrust: {policyType: FulcioCAWithRekor, fulcioCAWithRekor: {fulcioCAData: %s, fulcioSubject: {oidcIssuer: 'https://x', signedEmail: a@b}}}}", b64(s.Roots()))
	for _, test := range []struct{ name, data, want string }{
		{"nothing", "# nothing\n", "it contains no ClusterImagePolicy"},
		{"another kind", "apiVersion: v1\nkind: ConfigMap\n", `it contains kind "ConfigMap" of "v1", expected ClusterImagePolicy of config.openshift.io/v1`},
		{"an older version", strings.Replace(good, "/v1", "/v1alpha1", 1), `of "config.openshift.io/v1alpha1", expected`},
		{"no name", strings.Replace(good, "name: one", "labels: {}", 1), "has no name"},
		{"one name twice", good + "---\n" + good, "ClusterImagePolicy one is listed twice"},
		{"an unknown field", strings.Replace(good, "scopes:", "scope: x\n  scopes:", 1), "unknown field"},
		{"a field twice", strings.Replace(good, "scopes:", "scopes: []\n  scopes:", 1), "already set"},
		{"no scope", imagePolicy("one", "[]", key), "spec.scopes is empty"},
		{"many scopes", imagePolicy("one", "["+strings.Repeat("a.example,", 257)+"]", key), "the limit is 256"},
		{"a scope with a scheme", imagePolicy("one", "['https://a.example']", key), "is not a valid scope"},
		{"a scope that is a short name", imagePolicy("one", "[busybox]", key), "is not a valid scope"},
		{"a wildcard in the middle", imagePolicy("one", "['a.*.example']", key), "is not a valid scope"},
		{"an unknown type of policy", strings.Replace(good, "PublicKey,", "Notary,", 1), `rootOfTrust.policyType "Notary" is unknown`},
		{"a type without its field", strings.Replace(good, "PublicKey,", "PKI,", 1), "set the field of that name"},
		{"two roots of trust", strings.Replace(good, "publicKey:", "pki: {}, publicKey:", 1), "no other root of trust"},
		{"an invalid key", imagePolicy("one", "[a.example]", keyPolicy([]byte("x"))), "it contains no PEM block"},
		{"two keys in one field", imagePolicy("one", "[a.example]", keyPolicy(append(pemKey(t), pemKey(t)...))), "several PEM blocks"},
		{"a PKI with no subject", imagePolicy("one", "[a.example]", pki), "an identity has no subject"},
		{"Fulcio without a log", imagePolicy("one", "[a.example]", noLog), "add rekorKeys"},
		{"an unknown match policy", imagePolicy("one", "[a.example]", identity("{matchPolicy: Any}")), `matchPolicy "Any" is unknown`},
		{"an exact repository without a name", imagePolicy("one", "[a.example]", identity("{matchPolicy: ExactRepository}")), "set exactRepository if and only if matchPolicy is ExactRepository"},
		{"an exact repository for another match policy", imagePolicy("one", "[a.example]", identity("{matchPolicy: MatchRepository, exactRepository: {repository: a.example}}")), "set exactRepository if and only if matchPolicy is ExactRepository"},
		{"a missing mapping", imagePolicy("one", "[a.example]", identity("{matchPolicy: RemapIdentity}")), "set remapIdentity if and only if matchPolicy is RemapIdentity"},
		{"an exact repository with a tag", imagePolicy("one", "[a.example]", identity("{matchPolicy: ExactRepository, exactRepository: {repository: 'a.example/x:1'}}")), "is not a repository or a prefix of one"},
		{"a mapping from a short name", imagePolicy("one", "[a.example]", identity("{matchPolicy: RemapIdentity, remapIdentity: {prefix: x, signedPrefix: a.example}}")), "is not a repository or a prefix of one"},
		{"a large file", strings.Repeat("#", 1<<20+1), "larger than 1048576 bytes"},
	} {
		t.Run("it rejects "+test.name, func(t *testing.T) {
			_, err := policy.ParseClusterImagePolicies("policy.yaml", []byte(test.data))
			require.ErrorContains(t, err, "reading policy file policy.yaml: ")
			assert.ErrorContains(t, err, test.want)
		})
	}
	_, err := policy.Parse("trust.yaml", []byte(good))
	require.ErrorContains(t, err, "cvo trust from-image-policy")
}
