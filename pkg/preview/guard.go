package preview

import (
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// guard lets no request through that could change the cluster: every write must be a dry run. Nothing here sends
// another, so what it refuses is a bug; it makes sure that such a bug harms nobody.
type guard struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(req *http.Request) (*http.Response, error) {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		if !slices.Equal(req.URL.Query()["dryRun"], []string{metav1.DryRunAll}) {
			return nil, fmt.Errorf("%s %s is no dry run: not sent", req.Method, req.URL.Path)
		}
	}
	return g.next.RoundTrip(req)
}
