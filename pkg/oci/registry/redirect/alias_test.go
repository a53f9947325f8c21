package redirect_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
)

type answer struct{ location, challenge string }

// RoundTrip implements http.RoundTripper.
func (a answer) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		Request: req, Body: http.NoBody,
		Header: http.Header{"Location": {a.location}, "Www-Authenticate": {a.challenge}},
	}, nil
}

// TestOwnAddressesKeepTheHostOfTheRequest has servers that name their own address. The registry library sends its token only to the host
// that it has asked.
func TestOwnAddressesKeepTheHostOfTheRequest(t *testing.T) {
	for _, tt := range []struct{ name, asked, named, want string }{
		{"the same URL", "https://10.1.2.3/v2/", "https://10.1.2.3/x", "https://10.1.2.3/x"},
		{"an explicit default port", "https://10.1.2.3/v2/", "https://10.1.2.3:443/x", "https://10.1.2.3/x"},
		{"no port", "https://10.1.2.3:443/v2/", "https://10.1.2.3/x", "https://10.1.2.3:443/x"},
		{"another spelling", "https://[fd12::7]:5000/v2/", "https://[fd12:0:0::7]:5000/x", "https://[fd12::7]:5000/x"},
		{"another port", "https://10.1.2.3/v2/", "https://10.1.2.3:8443/x", "https://10.1.2.3.address.invalid:8443/x"},
		{"another address", "https://10.1.2.3/v2/", "https://10.9.9.9/x", "https://10.9.9.9.address.invalid/x"},
		{"the address that a name replaces", "https://10.1.2.3.address.invalid/v2/", "https://10.1.2.3/x", "https://10.1.2.3.address.invalid/x"},
		{"a public address", "https://10.1.2.3/v2/", "https://203.0.113.10/x", "https://203.0.113.10/x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tt.asked, http.NoBody)
			require.NoError(t, err)
			resp, err := redirect.HideAddresses(answer{tt.named, `Bearer realm="` + tt.named + `",scope="` + tt.named + `"`}).RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, tt.want, resp.Header.Get("Location"))
			assert.Equal(t, `Bearer realm="`+tt.want+`",scope="`+tt.named+`"`, resp.Header.Get("WWW-Authenticate"))
			assert.NoError(t, resp.Body.Close())
		})
	}
}
