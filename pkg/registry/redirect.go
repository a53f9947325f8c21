package registry

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// maxRedirects is how often a web server may send us elsewhere.
const maxRedirects = 5

// StayInTLS returns a client like the one given that goes where it is sent a few times, but never out of TLS once it was
// in it.
func StayInTLS(client *http.Client) *http.Client {
	bounded := *client
	bounded.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("stopped after %d redirects", maxRedirects)
		}
		if req.URL.Scheme != "https" && slices.ContainsFunc(via, func(r *http.Request) bool { return r.URL.Scheme == "https" }) {
			return errors.New("refusing a redirect from https to http")
		}
		return nil
	}
	return &bounded
}
