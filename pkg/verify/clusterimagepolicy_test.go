package verify_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/test/fixture"
)

// imagePolicy is a ClusterImagePolicy; its parts are YAML in flow style.
func imagePolicy(name, scopes, policy string) string {
	return fmt.Sprintf("apiVersion: config.openshift.io/v1\nkind: ClusterImagePolicy\nmetadata: {name: %s}\nspec:\n  scopes: %s\n  policy: %s\n", name, scopes, policy)
}

func b64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

func keyPolicy(key []byte) string {
	return fmt.Sprintf("{rootOfTrust: {policyType: PublicKey, publicKey: {keyData: %s}}}", b64(key))
}

func TestClusterImagePolicyRoots(t *testing.T) {
	s, other := newSigstore(t), newSigstore(t)
	signed := attached(t)
	bare, err := fixture.NewSigstoreSigner()
	require.NoError(t, err)
	byMail := issue(t, s, fixture.SigstoreSubject{Email: alice, Issuer: accounts})
	lasting := issue(t, s, fixture.SigstoreSubject{Email: alice, Hostname: "build.example.com", NotAfter: today.AddDate(1, 0, 0), Unlogged: true})
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
	unlogged, chained := fixture.SigstoreForm{Unlogged: true}, fixture.SigstoreForm{Chain: true}
	for _, test := range []struct {
		name, policy string
		found        release.Attachment
		refusal      string
	}{
		{"it accepts a public key", key, signed(s.Classic(bare, document, unlogged)), ""},
		{"it refuses another key", keyPolicy(pemKey(t)), signed(s.Classic(bare, document, unlogged)), "not signed with this key"},
		{"it accepts a public key with a log entry", logged, signed(s.Classic(bare, document, fixture.SigstoreForm{})), ""},
		{"it refuses a public key without the log entry that is asked for", logged, signed(s.Classic(bare, document, unlogged)), "no entry of it in a transparency log"},
		{"it accepts a Fulcio identity", fulcio(accounts, alice, s.LogKey()), signed(s.Classic(byMail, document, chained)), ""},
		{"it refuses another email address", fulcio(accounts, "bob@example.com", s.LogKey()), signed(s.Classic(byMail, document, chained)), "expected email bob@example.com, issuer " + accounts},
		{"it refuses another issuer", fulcio(actions, alice, s.LogKey()), signed(s.Classic(byMail, document, chained)), "expected email alice@example.com, issuer " + actions},
		{"it refuses another log", fulcio(accounts, alice, other.LogKey()), signed(s.Classic(byMail, document, chained)), "no entry of it in a transparency log"},
		{"it accepts an email address of a PKI", pki("{email: " + alice + "}"), signed(s.Classic(lasting, document, unlogged)), ""},
		{"it accepts a host name of a PKI", pki("{hostname: build.example.com}"), signed(s.Classic(lasting, document, unlogged)), ""},
		{"it accepts both of a PKI", pki("{email: " + alice + ", hostname: build.example.com}"), signed(s.Classic(lasting, document, unlogged)), ""},
		{"it refuses one of both of a PKI", pki("{email: " + alice + ", hostname: other.example.com}"), signed(s.Classic(lasting, document, unlogged)), "expected email alice@example.com, host name other.example.com"},
	} {
		t.Run(test.name, func(t *testing.T) {
			policies, err := verify.ParseClusterImagePolicies("policy.yaml", []byte(imagePolicy("platform", "[registry.example]", test.policy)))
			require.NoError(t, err)
			for _, pullspec := range []string{"registry.example/platform/release@" + string(digest), "registry.example/other/release@" + string(digest)} {
				policy, ok, err := policies.For(pullspec)
				require.NoError(t, err)
				require.True(t, ok)
				evidence, err := newVerifier(t, policy, verify.Sources{Attachments: attachments{found: []release.Attachment{test.found}}}).
					Verify(t.Context(), release.Image{Pullspec: pullspec, Digest: digest})
				switch {
				case test.refusal != "":
					require.ErrorIs(t, err, verify.ErrUnverified)
					if !strings.Contains(pullspec, "/other/") {
						require.ErrorContains(t, err, test.refusal)
					}
				case strings.Contains(pullspec, "/other/"):
					require.ErrorContains(t, err, `it is signed as "registry.example/platform/release", which signedIdentity MatchRepoDigestOrExact does not accept`)
				default:
					require.NoError(t, err)
					assert.Equal(t, "ClusterImagePolicy platform", evidence[0].Root)
				}
			}
		})
	}
}

func TestMostSpecificScope(t *testing.T) {
	var documents []string
	for name, scope := range map[string]string{
		"host": "registry.example.com", "port": "registry.example.com:5000", "namespace": "registry.example.com/platform", "deeper": "registry.example.com/platform/team",
		"repository": "registry.example.com/platform/release", "tag": "registry.example.com/platform/release:1.2.3",
		"digest": "registry.example.com/platform/release@" + string(digest), "wildcard": "*.example.com", "top": "*.com", "hub": "docker.io/library", "latest": "latest.example.net/release:latest", "https": "https.Example.net:443/a",
	} {
		documents = append(documents, imagePolicy(name, "['"+scope+"', unrelated.example.net/"+name+"]", keyPolicy(pemKey(t))))
	}
	documents = append(documents, imagePolicy("second", "['registry.example.com/platform/team']", keyPolicy(pemKey(t))))
	policies, err := verify.ParseClusterImagePolicies("policies.yaml", []byte(strings.Join(documents, "---\n")))
	require.NoError(t, err)
	for _, test := range []struct {
		pullspec string
		roots    []string
	}{
		{"registry.example.com/platform/release@" + string(digest), []string{"digest"}},
		{"registry.example.com/platform/release:1.2.3@" + string(digest), []string{"digest"}},
		{"registry.example.com/platform/release:1.2.3@" + string(otherDigest), []string{"tag"}},
		{"registry.example.com/platform/release@" + string(otherDigest), []string{"repository"}},
		{"registry.example.com/platform/release:1.2.3", []string{"tag"}},
		{"registry.example.com/platform/release:1.2.30", []string{"repository"}},
		{"registry.example.com/platform/release2:1", []string{"namespace"}},
		{"registry.example.com/platform/release/sub:1", []string{"repository"}},
		{"registry.example.com/platform/team/x:1", []string{"deeper", "second"}},
		{"registry.example.com/platform2/x:1", []string{"host"}},
		{"registry.example.com:5000/platform/release:1.2.3", []string{"port"}},
		{"other.example.com:5000/x:1", []string{"wildcard"}},
		{"a.b.example.com/x:1", []string{"wildcard"}},
		{"example.com/x:1", []string{"top"}},
		{"busybox", []string{"hub"}},
		{"index.docker.io/busybox", []string{"hub"}},
		{"REGISTRY.Example.com/platform/release:1.2.3", []string{"tag"}},
		{"registry.example.com:443/platform/release:1.2.3", []string{"tag"}},
		{"a.B.Example.com:443/x:1", []string{"wildcard"}},
		{"HTTPS.example.net/a/b:1", []string{"https"}},
		{"latest.example.net/release", []string{"latest"}},
		{"latest.example.net/release:1", nil},
		{"registry:443/x:1", nil},
		{"[2001:db8::1]:5000/x:1", nil},
		{"registry.example.org/x:1", nil},
		{"unrelated.example.net/tagalong:1", nil},
	} {
		t.Run("it finds the policy of "+test.pullspec, func(t *testing.T) {
			policy, ok, err := policies.For(test.pullspec)
			require.NoError(t, err)
			assert.Equal(t, test.roots != nil, ok)
			var roots []string
			for _, k := range policy.SigstoreKeys {
				roots = append(roots, strings.TrimPrefix(k.Name, "ClusterImagePolicy "))
			}
			assert.ElementsMatch(t, test.roots, roots)
		})
	}
	_, _, err = policies.For("UPPER/case")
	require.ErrorContains(t, err, "looking for the ClusterImagePolicy of UPPER/case")
	for _, twisted := range []string{
		"registry.example.com./platform/release:1.2.3", "registry.example.com/platform//release:1.2.3", "registry.example.com/platform/../release:1",
		"registry.example.com/platform/release@" + string(digest) + "@" + string(otherDigest), "registry.example.com/platform/release:1:2",
		"registry.example.com\u200b/platform/release:1", "user@registry.example.com/platform/release:1", "https://registry.example.com/platform/release:1",
		" registry.example.com/platform/release:1", "registry.example.com/platform/release:", "registry.example.com:/platform/release:1", "",
	} {
		_, ok, err := policies.For(twisted)
		require.Error(t, err, "%q could be fetched by a name that no scope matches", twisted)
		assert.False(t, ok)
	}
	_, ok, err := verify.ClusterImagePolicies(nil).For("registry.example.com/a_-b:1")
	require.NoError(t, err)
	assert.False(t, ok)
}

func TestClusterImagePolicyLists(t *testing.T) {
	one := strings.ReplaceAll(imagePolicy("one", "[a.example]", keyPolicy(pemKey(t))), "\n", "\n  ")
	list := "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n- " + one
	for name, data := range map[string]string{
		"a list":              list,
		"a list of its kind":  strings.Replace(list, "apiVersion: v1\nkind: List", "apiVersion: config.openshift.io/v1\nkind: ClusterImagePolicyList", 1),
		"comments around":     "# policies\n---\n# none here\n---\n" + imagePolicy("one", "[a.example]", keyPolicy(pemKey(t))),
		"what a cluster says": imagePolicy("one", "[a.example]", keyPolicy(pemKey(t))) + "status: {conditions: [{type: Active, status: 'True', reason: Applied, message: fine, lastTransitionTime: '2026-01-01T00:00:00Z'}]}\n",
	} {
		t.Run("it reads "+name, func(t *testing.T) {
			policies, err := verify.ParseClusterImagePolicies("policies.yaml", []byte(data))
			require.NoError(t, err)
			require.Len(t, policies, 1)
			assert.Equal(t, "one", policies[0].Name)
		})
	}
}

func TestClusterImagePoliciesAreRefused(t *testing.T) {
	key := keyPolicy(pemKey(t))
	good := imagePolicy("one", "[a.example]", key)
	s := newSigstore(t)
	identity := func(text string) string {
		return strings.Replace(key, "{rootOfTrust", "{signedIdentity: "+text+", rootOfTrust", 1)
	}
	pki := fmt.Sprintf("{rootOfTrust: {policyType: PKI, pki: {caRootsData: %s, pkiCertificateSubject: {}}}}", b64(s.Roots()))
	noLog := fmt.Sprintf("{rootOfTrust: {policyType: FulcioCAWithRekor, fulcioCAWithRekor: {fulcioCAData: %s, fulcioSubject: {oidcIssuer: 'https://x', signedEmail: a@b}}}}", b64(s.Roots()))
	for _, test := range []struct{ name, data, want string }{
		{"nothing", "# nothing\n", "it holds no ClusterImagePolicy"},
		{"another kind", "apiVersion: v1\nkind: ConfigMap\n", `it holds a "ConfigMap" of "v1": expected a ClusterImagePolicy of config.openshift.io/v1`},
		{"an older version", strings.Replace(good, "/v1", "/v1alpha1", 1), `of "config.openshift.io/v1alpha1": expected`},
		{"no name", strings.Replace(good, "name: one", "labels: {}", 1), "has no name"},
		{"one name twice", good + "---\n" + good, "ClusterImagePolicy one is there twice"},
		{"an unknown field", strings.Replace(good, "scopes:", "scope: x\n  scopes:", 1), "unknown field"},
		{"a field twice", strings.Replace(good, "scopes:", "scopes: []\n  scopes:", 1), "already set"},
		{"no scope", imagePolicy("one", "[]", key), "spec.scopes is empty"},
		{"many scopes", imagePolicy("one", "["+strings.Repeat("a.example,", 257)+"]", key), "at most 256"},
		{"a scope with a scheme", imagePolicy("one", "['https://a.example']", key), "is no scope"},
		{"a scope that is a short name", imagePolicy("one", "[busybox]", key), "is no scope"},
		{"a wildcard in the middle", imagePolicy("one", "['a.*.example']", key), "is no scope"},
		{"an unknown type of policy", strings.Replace(good, "PublicKey,", "Notary,", 1), `rootOfTrust.policyType "Notary" is not known`},
		{"a type without its field", strings.Replace(good, "PublicKey,", "PKI,", 1), "it needs the field of that name"},
		{"two roots of trust", strings.Replace(good, "publicKey:", "pki: {}, publicKey:", 1), "no other root of trust beside it"},
		{"a key that is none", imagePolicy("one", "[a.example]", keyPolicy([]byte("x"))), "no PEM block in it"},
		{"two keys in one", imagePolicy("one", "[a.example]", keyPolicy(append(pemKey(t), pemKey(t)...))), "several PEM blocks"},
		{"a PKI with no subject", imagePolicy("one", "[a.example]", pki), "an identity names no subject"},
		{"Fulcio without a log", imagePolicy("one", "[a.example]", noLog), "add rekorKeys"},
		{"an unknown way to match", imagePolicy("one", "[a.example]", identity("{matchPolicy: Any}")), `matchPolicy "Any" is not known`},
		{"an exact repository that is not named", imagePolicy("one", "[a.example]", identity("{matchPolicy: ExactRepository}")), "exactRepository goes with matchPolicy ExactRepository"},
		{"an exact repository for another way to match", imagePolicy("one", "[a.example]", identity("{matchPolicy: MatchRepository, exactRepository: {repository: a.example}}")), "exactRepository goes with matchPolicy ExactRepository"},
		{"a mapping that is not given", imagePolicy("one", "[a.example]", identity("{matchPolicy: RemapIdentity}")), "remapIdentity goes with matchPolicy RemapIdentity"},
		{"an exact repository with a tag", imagePolicy("one", "[a.example]", identity("{matchPolicy: ExactRepository, exactRepository: {repository: 'a.example/x:1'}}")), "is no repository or prefix of one"},
		{"a mapping from a short name", imagePolicy("one", "[a.example]", identity("{matchPolicy: RemapIdentity, remapIdentity: {prefix: x, signedPrefix: a.example}}")), "is no repository or prefix of one"},
		{"a large file", strings.Repeat("#", 1<<20+1), "larger than 1048576 bytes"},
	} {
		t.Run("it refuses "+test.name, func(t *testing.T) {
			_, err := verify.ParseClusterImagePolicies("policy.yaml", []byte(test.data))
			require.ErrorContains(t, err, "reading policy file policy.yaml: ")
			assert.ErrorContains(t, err, test.want)
		})
	}
	_, err := verify.ParseTrust("trust.yaml", []byte(good))
	require.ErrorContains(t, err, "give it as --policy FILE")
}

func FuzzClusterImagePolicy(f *testing.F) {
	s := newSigstore(f)
	f.Add(imagePolicy("a", "[a.example/b:c, '*.example']", keyPolicy(pemKey(f))), "a.example/b:c")
	f.Add(imagePolicy("a", "[localhost:5000]", fmt.Sprintf("{signedIdentity: {matchPolicy: RemapIdentity, remapIdentity: {prefix: a.example, signedPrefix: b.example}}, "+
		"rootOfTrust: {policyType: PKI, pki: {caRootsData: %s, pkiCertificateSubject: {email: a@b}}}}", b64(s.Roots()))), "localhost:5000/x@"+string(digest))
	f.Add("apiVersion: v1\nkind: List\nitems: []\n---\n", "busybox")
	f.Fuzz(func(t *testing.T, data, pullspec string) {
		policies, err := verify.ParseClusterImagePolicies("policy.yaml", []byte(data))
		assert.Equal(t, err != nil, len(policies) == 0)
		policy, ok, err := policies.For(pullspec)
		if err == nil && ok {
			assert.False(t, policy.Empty())
		}
	})
}
