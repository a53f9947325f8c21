package cli_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
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

// TestCommandsWithAWaitingUserLimitLookups checks that no copy fails because a registry is slow.
func TestCommandsWithAWaitingUserLimitLookups(t *testing.T) {
	var limited []string
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
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
}
