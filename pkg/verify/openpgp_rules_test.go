package verify_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify"
)

func TestTrustFileSetsTheRules(t *testing.T) {
	head := "apiVersion: " + verify.TrustAPIVersion + "\nkind: TrustPolicy\nspec:\n  openpgp:\n    keyrings:\n    - name: k\n      armored: |\n" +
		indent(public(t, newEntity(t, "alice")), "        ") + "\n"
	for _, test := range []struct {
		name, rules string
		want        verify.OpenPGPRules
		err         string
	}{
		{"is strict by default", "", verify.OpenPGPRules{}, ""},
		{
			"takes all of them", "    refuseExpiredKeys: true\n    unsafeAllowSHA1: true\n    unsafeMinimumRSABits: 1024\n",
			verify.OpenPGPRules{RefuseExpiredKeys: true, UnsafeAllowSHA1: true, UnsafeMinimumRSABits: 1024},
			"",
		},
		{"knows no other names", "    allowSHA1: true\n", verify.OpenPGPRules{}, `unknown field "spec.openpgp.allowSHA1"`},
		{"knows no other spelling", "    unsafeAllowSha1: true\n", verify.OpenPGPRules{}, `unknown field "spec.openpgp.unsafeAllowSha1"`},
		{"refuses a length that is none", "    unsafeMinimumRSABits: 512\n", verify.OpenPGPRules{}, "unsafeMinimumRSABits is 512: set it between 1024 and 2047"},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			p, err := verify.ParseTrust("trust.yaml", []byte(head+test.rules))
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, p.OpenPGPRules)
		})
	}
}
