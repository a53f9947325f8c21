package redirect_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
)

func TestRedirectsNeverLeaveTLS(t *testing.T) {
	follow := redirect.Safe(&http.Client{}).CheckRedirect
	for _, tt := range []struct {
		name, schemes, want string
	}{
		{"it follows from http to https", "http https", ""},
		{"it follows from http to http", "http http", ""},
		{"it rejects a redirect from https to http", "https http", "refusing a redirect"},
		{"it rejects a redirect back to http", "http https http", "refusing a redirect"},
		{"it follows a limited number of redirects", "https https https https https https https", "stopped after 5 redirects"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var requests []*http.Request
			for scheme := range strings.FieldsSeq(tt.schemes) {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://example.com", http.NoBody)
				require.NoError(t, err)
				requests = append(requests, req)
			}
			last := len(requests) - 1
			err := follow(requests[last], requests[:last])
			if tt.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, tt.want)
			}
		})
	}
}
