package main

import (
	"crypto/subtle"
	"net/http"
	"strings"
)

// guarded requires the password except to read below components/. The plain /v2/ requires it too, because that is how clients learn that
// there is a password.
func guarded(next http.Handler, user, password string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, p, _ := r.BasicAuth()
		known := subtle.ConstantTimeCompare([]byte(u+":"+p), []byte(user+":"+password)) == 1
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if known || reads && strings.HasPrefix(r.URL.Path, "/v2/components/") {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`))
	})
}
