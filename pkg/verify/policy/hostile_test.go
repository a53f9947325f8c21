package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/test/fixture"
)

// TestHostileTrustIsRejected parses policies in every format. None of them names a signer, so none may be accepted.
//
//threat:misspelled-field-disables
//threat:yaml-alias-bombs
func TestHostileTrustIsRejected(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const trust = "apiVersion: cvo.cluster-version.github.io/v1alpha1\nkind: TrustPolicy\n"
	readers := map[string]func(text string) error{
		"a trust policy": func(text string) error {
			_, err := policy.Parse("trust.yaml", []byte(trust+text))
			return err
		},
		"a trust policy in a ConfigMap": func(text string) error {
			_, err := policy.ParseData("ConfigMap a/b", map[string]string{policy.DocumentKey: trust + text}, nil)
			return err
		},
		"a ConfigMap of a release": func(text string) error {
			_, err := policy.Parse("trust.yaml", []byte("apiVersion: v1\nkind: ConfigMap\n"+text))
			return err
		},
		"a ClusterImagePolicy": func(text string) error {
			_, err := policy.ParseClusterImagePolicies("policy.yaml", []byte("apiVersion: config.openshift.io/v1\nkind: ClusterImagePolicy\n"+text))
			return err
		},
		"a trusted root": func(text string) error {
			_, err := sigstore.ParseTrustRoot([]byte("mediaType: application/vnd.dev.sigstore.trustedroot+json;version=0.1\n" + text))
			return err
		},
	}
	for form, read := range readers {
		for name, text := range fixture.HostileYAML() {
			t.Run("it rejects "+form+" with "+name, func(t *testing.T) {
				fixture.Bounded(t, func() {
					err := read(text)
					require.Error(t, err)
					assert.Less(t, len(err.Error()), 2000)
				})
			})
		}
	}
}
