package packing

import (
	"encoding/pem"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	memory "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCreationTimeComesFromTheEnvironment(t *testing.T) {
	for _, test := range []struct {
		name, epoch string
		want        time.Time
		err         string
	}{
		{"is the same each time without SOURCE_DATE_EPOCH", "", time.Unix(0, 0), ""},
		{"is SOURCE_DATE_EPOCH", "1700000000", time.Unix(1700000000, 0), ""},
		{"rejects other time formats", "2023-11-14", time.Time{}, "SOURCE_DATE_EPOCH"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("SOURCE_DATE_EPOCH", test.epoch)
			got, err := Created()
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.True(t, test.want.Equal(got), got)
		})
	}
}

// TestAccessUsesCAAndCredentials pushes to a registry over TLS that requires a password.
func TestAccessUsesCAAndCredentials(t *testing.T) {
	stored := registryWithPassword(t)
	file := func(name string, data []byte) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	host := stored.Listener.Addr().String()
	authority := file("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: stored.Certificate().Raw}))
	credentials := file("config.json", []byte(`{"auths":{"`+host+`":{"auth":"cHVzaGVyOnNlY3JldA=="}}}`)) // pusher:secret
	emptyFile := file("empty.json", []byte(`{"auths":{}}`))

	for _, test := range []struct {
		name string
		args []string
		err  string
	}{
		{"pushes with credentials and an authority", []string{"-registry-config", credentials, "-certificate-authority", authority}, ""},
		{"pushes without checking the certificate", []string{"-registry-config", credentials, "-insecure-registry", host}, ""},
		{"trusts only system certificates", []string{"-registry-config", credentials}, "certificate"},
		{"requires credentials", []string{"-registry-config", emptyFile, "-certificate-authority", authority}, "401"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := push(t, host, test.args)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
		})
	}
	for _, test := range []struct{ name, flag, value string }{
		{"names a missing credentials file", "-registry-config", filepath.Join(t.TempDir(), "none")},
		{"names a missing authority file", "-certificate-authority", filepath.Join(t.TempDir(), "none")},
		{"names an authority that is not a certificate", "-certificate-authority", credentials},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := flags(t, test.flag, test.value).Access()
			require.ErrorContains(t, err, test.flag)
		})
	}
}

func flags(t *testing.T, args ...string) *Registry {
	t.Helper()
	r, set := &Registry{}, flag.NewFlagSet(t.Name(), flag.ContinueOnError)
	r.AddFlags(set)
	require.NoError(t, set.Parse(args))
	return r
}

func registryWithPassword(t *testing.T) *httptest.Server {
	t.Helper()
	next := memory.New(memory.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "pusher" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that do not trust the server close the connection
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func push(t *testing.T, host string, args []string) error {
	t.Helper()
	access, err := flags(t, args...).Access()
	require.NoError(t, err)
	image, err := random.Image(64, 1)
	require.NoError(t, err)
	to, err := access.Reference(host + "/program:1")
	require.NoError(t, err)
	return remote.Write(to, image, access.RemoteFor(t.Context())...)
}
