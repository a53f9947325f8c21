package cli_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/test/fixture"
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
