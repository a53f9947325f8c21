package verify_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/test/fixture"
)

// TestHostileTrust reads policies of every form: none of these says whom to trust, so none may be accepted.
func TestHostileTrust(t *testing.T) {
	const policy = "apiVersion: cvo.cluster-version.github.io/v1alpha1\nkind: TrustPolicy\n"
	readers := map[string]func(text string) error{
		"a trust policy": func(text string) error {
			_, err := verify.ParseTrust("trust.yaml", []byte(policy+text))
			return err
		},
		"a trust policy in a ConfigMap": func(text string) error {
			_, err := verify.ParseTrustData("ConfigMap a/b", map[string]string{verify.TrustPolicyKey: policy + text}, nil)
			return err
		},
		"a ConfigMap of a release": func(text string) error {
			_, err := verify.ParseTrust("trust.yaml", []byte("apiVersion: v1\nkind: ConfigMap\n"+text))
			return err
		},
		"a ClusterImagePolicy": func(text string) error {
			_, err := verify.ParseClusterImagePolicies("policy.yaml", []byte("apiVersion: config.openshift.io/v1\nkind: ClusterImagePolicy\n"+text))
			return err
		},
		"a trusted root": func(text string) error {
			_, err := verify.ParseTrustRoot([]byte("mediaType: application/vnd.dev.sigstore.trustedroot+json;version=0.1\n" + text))
			return err
		},
	}
	for form, read := range readers {
		for name, text := range fixture.HostileYAML() {
			t.Run("it refuses "+form+" with "+name, func(t *testing.T) {
				fixture.Bounded(t, func() {
					err := read(text)
					require.Error(t, err)
					assert.Less(t, len(err.Error()), 2000)
				})
			})
		}
	}
}
