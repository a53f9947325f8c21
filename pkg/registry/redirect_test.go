package registry_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/registry"
)

func TestStayInTLS(t *testing.T) {
	follow := registry.StayInTLS(&http.Client{}).CheckRedirect
	for _, tt := range []struct {
		name, way, want string
	}{
		{"it follows into TLS", "http https", ""},
		{"it follows where there is no TLS", "http http", ""},
		{"it does not leave TLS", "https http", "refusing a redirect"},
		{"it does not leave TLS that it was sent to", "http https http", "refusing a redirect"},
		{"it has enough of going on", "https https https https https https https", "stopped after 5 redirects"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var requests []*http.Request
			for scheme := range strings.FieldsSeq(tt.way) {
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
