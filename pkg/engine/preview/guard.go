package preview

import (
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// guard blocks any request that could change the cluster: every write must be a dry run. This package sends no other writes. If a bug sends
// one, the guard prevents any harm.
type guard struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(req *http.Request) (*http.Response, error) {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		if !slices.Equal(req.URL.Query()["dryRun"], []string{metav1.DryRunAll}) {
			return nil, fmt.Errorf("blocked %s %s: it is not a dry run", req.Method, req.URL.Path)
		}
	}
	return g.next.RoundTrip(req)
}
