package verify_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify"
)

func TestClaims(t *testing.T) {
	good := claim(digest)
	without, _, _ := strings.Cut(good, `,"optional"`)
	replace := func(from, to string) string {
		require.Contains(t, good, from)
		return strings.Replace(good, from, to, 1)
	}
	for _, test := range []struct {
		name, claim string
		// want is empty if it is accepted.
		want string
	}{
		{"accepts what real signatures say", good, ""},
		{"accepts white space around it", "\n\t " + good + "\r\n", ""},
		{"accepts it without optional", without + "}", ""},
		{"accepts optional that is null", without + `,"optional":null}`, ""},
		{"accepts optional that is empty", without + `,"optional":{}}`, ""},
		{"accepts any name of the image", replace("registry.example/platform/release", "whatever !"), ""},
		{"refuses no name of the image", replace("registry.example/platform/release", ""), "no docker-reference"},
		{"refuses a name that is null", replace(`"registry.example/platform/release"`, "null"), "no docker-reference"},
		{"refuses a name that is no text", replace(`"registry.example/platform/release"`, "1"), "reading the signed claim"},
		{"refuses another digest", claim(otherDigest), "is about digest"},
		{"refuses a digest in other case", replace("sha256:", "SHA256:"), "is about digest"},
		{"refuses a digest with something behind it", replace(digest.Hex(), digest.Hex()+" "), "is about digest"},
		{"refuses a digest that is a list", replace(`"`+string(digest)+`"`, `["`+string(digest)+`"]`), "reading the signed claim"},
		{"refuses the claim of another tool", replace("atomic container signature", "cosign container image signature"), `is of type "cosign container image signature"`},
		{"refuses a type in other case", replace("atomic", "Atomic"), "is of type"},
		{"refuses no type", replace(`"type":"atomic container signature",`, ""), `is of type ""`},
		{"refuses critical that is null", `{"critical":null}`, `is of type ""`},
		{"refuses a field at the top", replace(`"optional"`, `"required":1,"optional"`), `unknown field "required"`},
		{"refuses a field in critical", replace(`"type"`, `"kind":1,"type"`), `unknown field "critical.kind"`},
		{"refuses a field in image", replace(`"docker-manifest-digest"`, `"x":1,"docker-manifest-digest"`), "unknown field"},
		{"refuses a field in identity", replace(`"docker-reference"`, `"x":1,"docker-reference"`), "unknown field"},
		{"refuses a field in optional", replace(`"creator"`, `"x":1,"creator"`), "unknown field"},
		{"refuses a digest twice", replace(`"docker-manifest-digest"`, `"docker-manifest-digest":"x","docker-manifest-digest"`), "duplicate field"},
		{"refuses a digest twice in other spelling", replace(`"docker-manifest-digest"`, `"docker-manifest-diges\u0074":"x","docker-manifest-digest"`), "duplicate field"},
		{"refuses critical twice", without + `,"critical":{}}`, "duplicate field"},
		{"refuses fields in other case", replace(`"docker-manifest-digest"`, `"Docker-Manifest-Digest"`), "unknown field"},
		{"refuses a date that is text", replace("1772366400", `"1772366400"`), "reading the signed claim"},
		{"refuses a date that is no whole number", replace("1772366400", "1772366400.5"), "reading the signed claim"},
		{"refuses a second document", good + good, "reading the signed claim"},
		{"refuses something behind it", good + "x", "reading the signed claim"},
		{"refuses a byte order mark", "\ufeff" + good, "reading the signed claim"},
		{"refuses NUL", good + "\x00", "reading the signed claim"},
		{"refuses a list", "[" + good + "]", "reading the signed claim"},
		{"refuses nothing", "", "reading the signed claim"},
		{"refuses half of it", good[:len(good)/2], "reading the signed claim"},
		{"refuses depth", strings.Repeat("[", 60_000), "reading the signed claim"},
		{"refuses depth in a field", replace(`"test"`, strings.Repeat(`{"a":`, 20_000)+"1"+strings.Repeat("}", 20_000)), "reading the signed claim"},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			err := verify.CheckClaim([]byte(test.claim), digest)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
			assert.Less(t, len(err.Error()), 1000)
		})
	}
}
