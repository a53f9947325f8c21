package store_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/fixture/signing"
)

//threat:signature-stores-lie
func TestHostileServersAreReadWithinBounds(t *testing.T) {
	chunk := bytes.Repeat([]byte{0x90}, 64<<10)
	for _, test := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request, n int)
		want   string
	}{
		{"an endless body", func(w http.ResponseWriter, _ *http.Request, _ int) {
			for {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "signature-9: larger than 51200 bytes"},
		{"an endless error page", func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.WriteHeader(http.StatusForbidden)
			for {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "signature-9: the server answered 403 Forbidden"},
		{"an endless page with status 404", func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.WriteHeader(http.StatusNotFound)
			for {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "end"},
		{"endless headers", func(w http.ResponseWriter, _ *http.Request, n int) {
			for i := range 12 << 10 {
				w.Header().Add("X-"+strconv.Itoa(i), strings.Repeat("h", 1<<10))
			}
			_, _ = fmt.Fprint(w, n)
		}, "server response headers exceeded"},
		{"endless redirects", func(w http.ResponseWriter, r *http.Request, _ int) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}, "stopped after 5 redirects"},
		{"a redirect without a target", func(w http.ResponseWriter, r *http.Request, _ int) {
			http.Redirect(w, r, "gopher://"+strings.Repeat("x", 10_000), http.StatusFound)
		}, "unsupported protocol scheme"},
		{"bodies that break off", func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write(chunk[:100])
			panic(http.ErrAbortHandler)
		}, "signature-9: EOF"},
		{"an answer that is not HTTP", func(w http.ResponseWriter, _ *http.Request, _ int) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = conn.Write(chunk)
				_ = conn.Close()
			}
		}, "transport connection broken"},
		{"a thousand signatures", func(w http.ResponseWriter, _ *http.Request, _ int) {
			_, _ = w.Write([]byte("noise"))
		}, "signature-9=noise"},
	} {
		t.Run("it survives "+test.name, func(t *testing.T) {
			opened, _ := openWithoutPauses(t, signing.Serve(t, test.answer).URL+"/signatures")
			var got []string
			fixture.Bounded(t, func() { got = collect(t, opened) })
			assert.Contains(t, strings.Join(append(got, "end"), "\n"), test.want)
			for _, line := range got {
				assert.Less(t, len(line), 16<<10)
			}
		})
	}
}
