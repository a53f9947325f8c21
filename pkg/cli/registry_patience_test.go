package cli_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/fixture/authority"
)

// awaited is a writer that closes found when it has received a text.
type awaited struct {
	text  string
	found chan struct{}

	mu  sync.Mutex
	all bytes.Buffer
}

func (w *awaited) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	had := strings.Contains(w.all.String(), w.text)
	n, err := w.all.Write(p)
	if !had && strings.Contains(w.all.String(), w.text) {
		close(w.found)
	}
	return n, err
}

// TestCommandsNameTheRegistryThatTheyWaitFor reads from a registry that responds only after the command has reported that it waits.
func TestCommandsNameTheRegistryThatTheyWaitFor(t *testing.T) {
	registry := fixture.StartRegistry(t)
	files := fstest.MapFS{
		"release-manifests/release-metadata": {Data: []byte(`{"kind":"cincinnati-metadata-v0","version":"1.2.3"}`)},
		"release-manifests/image-references": {Data: []byte(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"}}`)},
	}
	_, err := fixture.PushRelease(t.Context(), registry, files, "platform/release:1.2.3")
	require.NoError(t, err)
	target, err := url.Parse(registry.URL())
	require.NoError(t, err)
	errs := &awaited{found: make(chan struct{})}
	proxy := httputil.NewSingleHostReverseProxy(target)
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-errs.found:
			proxy.ServeHTTP(w, req)
		case <-req.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	host := strings.TrimPrefix(slow.URL, "http://")
	errs.text = "info: Waiting for a response from " + host + "\n"

	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: errs})
	cmd.SetArgs([]string{"release", "info", host + "/platform/release:1.2.3"})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	assert.Equal(t, 1, strings.Count(errs.all.String(), errs.text))
}

// TestCommandsThatCopyTolerateSlowRegistries checks which commands copy, and which limit their look-ups with --request-timeout.
func TestCommandsThatCopyTolerateSlowRegistries(t *testing.T) {
	var limited, copies []string
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Annotations["copies"] != "" {
			copies = append(copies, cmd.CommandPath())
		}
		if f := cmd.Flags().Lookup(clientcmd.FlagTimeout); f != nil && strings.Contains(f.Usage, "registry") {
			limited = append(limited, cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(cli.New(command.Silent()))
	assert.ElementsMatch(t, []string{
		"cvo install", "cvo release diff", "cvo release info", "cvo upgrade", "cvo upgrade diff", "cvo upgrade rollback",
	}, limited)
	assert.ElementsMatch(t, []string{"cvo release mirror", "cvo release new"}, copies)
}

// TestDeadRegistryIsNoFailedVerification has a registry that accepts connections and never responds, and one that refuses them.
func TestDeadRegistryIsNoFailedVerification(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	silent := listener.Addr().String()
	closed, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refusing := closed.Addr().String()
	require.NoError(t, closed.Close())
	keys := filepath.Join(t.TempDir(), "keys")
	run := func(ctx context.Context, args ...string) error {
		cmd := cli.New(command.Silent())
		cmd.SetArgs(args)
		return cmd.ExecuteContext(ctx)
	}
	require.NoError(t, run(t.Context(), "release", "keygen", "--out", keys))
	trust := filepath.Join(keys, "trust.yaml")
	for _, tt := range []struct {
		name, host, remedy, limit string
	}{
		{"without a response", silent, "registry " + silent + " does not respond in time: check the load of the registry and the network, or add a mirror: ", "1s"},
		{"without a connection", refusing, "registry " + refusing + " cannot be reached: check that it is running", "10m"},
	} {
		image := tt.host + "/platform/release@sha256:" + strings.Repeat("a", 64)
		for _, args := range [][]string{
			{"release", "verify", image, "--trust", trust, "--timeout=" + tt.limit},
			{"release", "info", image, "--trust", trust, "--request-timeout=" + tt.limit},
			{"release", "mirror", image, "--trust", trust, "--to", t.TempDir()},
		} {
			t.Run(tt.name+" to "+args[1], func(t *testing.T) {
				if tt.host == silent && args[1] == "mirror" {
					t.Skip("it has the default limit")
				}
				t.Parallel()
				err := run(t.Context(), args...)
				assert.Equal(t, command.ExitFailed, command.ExitCode(err))
				require.ErrorContains(t, err, "reading the signatures of "+image+": "+tt.remedy)
				assert.NotContains(t, err.Error(), "unable to verify")
			})
		}
	}
}

// TestInaccessibleRegistryIsNoFailedVerification has registries that require credentials, or whose certificates are not valid.
func TestInaccessibleRegistryIsNoFailedVerification(t *testing.T) {
	ca, err := authority.New("authority of the registry")
	require.NoError(t, err)
	trusted := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(trusted, ca.Certificate, 0o600))
	credentials := func(host, user string) string {
		file := filepath.Join(t.TempDir(), "config.json")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{"auths": {%q: {"username": %q, "password": "secret"}}}`, host, user), 0o600))
		return file
	}
	images := registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
	serve := func(template x509.Certificate, handler http.Handler) string {
		certificate, err := ca.Sign(template)
		require.NoError(t, err)
		server := httptest.NewUnstartedServer(handler)
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // failing handshakes are expected
		server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	here := x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	expired := here
	expired.NotAfter = time.Now().Add(-time.Minute)
	private := serve(here, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch user, _, _ := req.BasicAuth(); {
		case user == "alice" && req.URL.Path == "/v2/":
		case user == "alice":
			w.WriteHeader(http.StatusForbidden)
		default:
			w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	open := serve(here, images)
	outdated := serve(expired, images)
	other := serve(x509.Certificate{DNSNames: []string{"registry.example"}}, images)
	keys := filepath.Join(t.TempDir(), "keys")
	run := func(args ...string) (string, error) {
		var errs bytes.Buffer
		cmd := cli.New(command.Silent())
		cmd.SetArgs(args)
		executed, err := cmd.ExecuteContextC(t.Context())
		cli.PrintError(&errs, executed, err)
		return errs.String(), err
	}
	_, err = run("release", "keygen", "--out", keys)
	require.NoError(t, err)
	trust := filepath.Join(keys, "trust.yaml")
	for _, tt := range []struct {
		name, host, want, flag string
		args                   []string
	}{
		{
			"missing credentials", private, "unauthorized: registry " + private + " refuses access to platform/release: no credentials for " + private + " were found: add some", "; use --registry-config FILE\n",
			[]string{"--certificate-authority", trusted},
		},
		{
			"invalid credentials", private, "unauthorized: registry " + private + ` refuses access to platform/release: it does not accept the credentials of "carol": check the entry`, "\n",
			[]string{"--certificate-authority", trusted, "--registry-config", credentials(private, "carol")},
		},
		{
			"an account without access", private, "unauthorized: registry " + private + " denies access to platform/release: grant access to the account", "\n",
			[]string{"--certificate-authority", trusted, "--registry-config", credentials(private, "alice")},
		},
		{"an unknown authority", open, "the certificate of " + open + " is not signed by a trusted authority: add that authority", "; use --certificate-authority FILE\n", nil},
		{"an expired certificate", outdated, "the certificate of " + outdated + " is not valid: renew it, and check the clocks", "\n", []string{"--certificate-authority", trusted}},
		{"a certificate for another name", other, "the certificate of " + other + " is not valid for this host name: use one of", "\n", []string{"--certificate-authority", trusted}},
	} {
		image := tt.host + "/platform/release@sha256:" + strings.Repeat("a", 64)
		for _, args := range [][]string{
			{"release", "verify", image},
			{"release", "info", image},
			{"release", "mirror", image, "--to", t.TempDir()},
			{"release", "extract", image, "--to", t.TempDir()},
			{"release", "diff", image, image},
		} {
			t.Run("it reports "+tt.name+" to "+args[1], func(t *testing.T) {
				text, err := run(append(append(args, "--trust", trust), tt.args...)...)
				assert.Equal(t, command.ExitFailed, command.ExitCode(err))
				assert.Contains(t, text, "reading the signatures of "+image+": "+tt.want)
				assert.Equal(t, tt.flag != "\n", strings.Contains(text, "; use --"))
				assert.True(t, strings.HasSuffix(text, tt.flag), text)
				assert.NotContains(t, text, "unable to verify")
			})
		}
	}
}

// TestInsecureRegistryHintNeedsARegistryWithoutTLS covers the hint for a registry without TLS. A test cannot have one: loopback addresses need no TLS.
func TestInsecureRegistryHintNeedsARegistryWithoutTLS(t *testing.T) {
	info, _, err := cli.New(command.Silent()).Find([]string{"release", "info"})
	require.NoError(t, err)
	for _, withoutTLS := range []bool{true, false} {
		var errs bytes.Buffer
		cli.PrintError(&errs, info, &failure.AccessError{Explanation: "no access", Err: failure.ErrWithoutTLS, WithoutTLS: withoutTLS})
		assert.Equal(t, withoutTLS, strings.HasSuffix(errs.String(), "; use --insecure-registry HOST\n"), errs.String())
	}
}
