package claim_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify/claim"
	"github.com/cluster-version/cvo/test/fixture/signing"
)

const digest, otherDigest = signing.Digest, signing.OtherDigest

func TestCheckAtomicRequiresTheDigestInTheClaim(t *testing.T) {
	good := signing.Claim(digest)
	without, _, _ := strings.Cut(good, `,"optional"`)
	replace := func(from, to string) string {
		require.Contains(t, good, from)
		return strings.Replace(good, from, to, 1)
	}
	for _, test := range []struct {
		name, claim string
		// want is part of the error; empty if the claim is accepted.
		want string
	}{
		{"accepts the claims of real signatures", good, ""},
		{"accepts surrounding white space", "\n\t " + good + "\r\n", ""},
		{"accepts a claim without optional", without + "}", ""},
		{"accepts a null optional", without + `,"optional":null}`, ""},
		{"accepts an empty optional", without + `,"optional":{}}`, ""},
		{"accepts any name of the image", replace("registry.example/platform/release", "whatever !"), ""},
		{"rejects a missing name of the image", replace("registry.example/platform/release", ""), "no docker-reference"},
		{"rejects a null name", replace(`"registry.example/platform/release"`, "null"), "no docker-reference"},
		{"rejects a name that is not a string", replace(`"registry.example/platform/release"`, "1"), "reading the signed claim"},
		{"rejects another digest", signing.Claim(otherDigest), "is about another digest"},
		{"rejects a digest in different case", replace("sha256:", "SHA256:"), "is about another digest"},
		{"rejects a digest with a suffix", replace(digest.Hex(), digest.Hex()+" "), "is about another digest"},
		{"rejects a digest that is a list", replace(`"`+string(digest)+`"`, `["`+string(digest)+`"]`), "reading the signed claim"},
		{"rejects the claim of another tool", replace("atomic container signature", "cosign container image signature"), `is of type "cosign container image signature"`},
		{"rejects a type in different case", replace("atomic", "Atomic"), "is of type"},
		{"rejects a missing type", replace(`"type":"atomic container signature",`, ""), `is of type ""`},
		{"rejects critical that is null", `{"critical":null}`, `is of type ""`},
		{"rejects a field at the top", replace(`"optional"`, `"required":1,"optional"`), `unknown field "required"`},
		{"rejects a field in critical", replace(`"type"`, `"kind":1,"type"`), `unknown field "critical.kind"`},
		{"rejects a field in image", replace(`"docker-manifest-digest"`, `"x":1,"docker-manifest-digest"`), "unknown field"},
		{"rejects a field in identity", replace(`"docker-reference"`, `"x":1,"docker-reference"`), "unknown field"},
		{"rejects a field in optional", replace(`"creator"`, `"x":1,"creator"`), "unknown field"},
		{"rejects a digest twice", replace(`"docker-manifest-digest"`, `"docker-manifest-digest":"x","docker-manifest-digest"`), "duplicate field"},
		{"rejects a digest twice in different spelling", replace(`"docker-manifest-digest"`, `"docker-manifest-diges\u0074":"x","docker-manifest-digest"`), "duplicate field"},
		{"rejects critical twice", without + `,"critical":{}}`, "duplicate field"},
		{"rejects fields in different case", replace(`"docker-manifest-digest"`, `"Docker-Manifest-Digest"`), "unknown field"},
		{"rejects a date that is text", replace("1772366400", `"1772366400"`), "reading the signed claim"},
		{"rejects a date that is not an integer", replace("1772366400", "1772366400.5"), "reading the signed claim"},
		{"rejects a second document", good + good, "reading the signed claim"},
		{"rejects trailing data", good + "x", "reading the signed claim"},
		{"rejects a byte order mark", "\ufeff" + good, "reading the signed claim"},
		{"rejects NUL", good + "\x00", "reading the signed claim"},
		{"rejects a list", "[" + good + "]", "reading the signed claim"},
		{"rejects an empty claim", "", "reading the signed claim"},
		{"rejects a truncated claim", good[:len(good)/2], "reading the signed claim"},
		{"rejects deep nesting", strings.Repeat("[", 60_000), "reading the signed claim"},
		{"rejects deep nesting in a field", replace(`"test"`, strings.Repeat(`{"a":`, 20_000)+"1"+strings.Repeat("}", 20_000)), "reading the signed claim"},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			err := claim.CheckAtomic([]byte(test.claim), digest)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
			assert.Less(t, len(err.Error()), 1000)
		})
	}
}

//threat:claims-openpgp-signature
func FuzzAtomic(f *testing.F) {
	for _, c := range []string{signing.Claim(digest), signing.Claim(otherDigest), "{}", `{"critical":null,"optional":{}}`, "[[[[", `{"critical":{"critical":{}}}`} {
		f.Add([]byte(c))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := claim.CheckAtomic(data, digest); err == nil {
			assert.Contains(t, string(data), "critical")
			assert.Error(t, claim.CheckAtomic(data, otherDigest), "a claim must match only one digest")
		}
	})
}
