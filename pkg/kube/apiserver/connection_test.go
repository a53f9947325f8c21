package apiserver_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/kube/apiserver"
)

// TestTunedConnectionAnnouncesALimit reads the flow-control window that a client announces for each response.
func TestTunedConnectionAnnouncesALimit(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.TLS = &tls.Config{NextProtos: []string{http2.NextProtoTLS}}
	announced := make(chan uint32, 1)
	server.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		http2.NextProtoTLS: func(_ *http.Server, conn *tls.Conn, _ http.Handler) { announced <- window(conn) },
	}
	server.StartTLS()
	defer server.Close()
	config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}}
	client, err := rest.HTTPClientFor(apiserver.Tune(config))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err == nil {
			_, _ = client.Do(request) //nolint:bodyclose // the server never responds
		}
	}()
	assert.Equal(t, uint32(256<<10), <-announced)
}

// TestTunedConnectionDropsRequests has a client that gives up while it sends a request. Its connection must end with a reset, by which the
// kernel drops what it has not delivered.
func TestTunedConnectionDropsRequests(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.TLS = &tls.Config{NextProtos: []string{"raw"}}
	sent, closed, read := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	server.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		"raw": func(_ *http.Server, conn *tls.Conn, _ http.Handler) {
			<-closed
			_, err := io.Copy(io.Discard, conn.NetConn()) // on the encrypted connection, a notice of the end may precede the reset
			read <- err
		},
	}
	server.StartTLS()
	defer server.Close()
	config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{
		NextProtos: []string{"raw"},
		CAData:     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}}
	client, err := rest.HTTPClientFor(apiserver.Tune(config))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := &signaling{onRead: sync.OnceFunc(func() { close(sent) })}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, body)
	require.NoError(t, err)
	go func() {
		<-sent
		cancel()
	}()
	_, err = client.Do(request) //nolint:bodyclose // the server never responds
	require.ErrorIs(t, err, context.Canceled)
	close(closed)
	require.ErrorIs(t, <-read, syscall.ECONNRESET)
}

// TestTuneKeepsTheDefaultTransport covers a server without TLS, for which client-go uses Go's default transport.
func TestTuneKeepsTheDefaultTransport(t *testing.T) {
	transport, ok := http.DefaultTransport.(*http.Transport)
	require.True(t, ok)
	dial := reflect.ValueOf(transport.DialContext).Pointer()
	_, err := rest.HTTPClientFor(apiserver.Tune(&rest.Config{Host: "http://127.0.0.1:1"}))
	require.NoError(t, err)
	assert.Nil(t, transport.HTTP2)
	assert.Equal(t, dial, reflect.ValueOf(transport.DialContext).Pointer())
}

// signaling is an endless request body that calls onRead.
type signaling struct{ onRead func() }

func (s *signaling) Read(p []byte) (int, error) {
	s.onRead()
	return len(p), nil
}

// window returns the initial window of the client's SETTINGS frame, or zero without one.
func window(conn io.ReadWriter) uint32 {
	if _, err := io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface))); err != nil {
		return 0
	}
	frame, err := http2.NewFramer(conn, conn).ReadFrame()
	if settings, ok := frame.(*http2.SettingsFrame); err == nil && ok {
		size, _ := settings.Value(http2.SettingInitialWindowSize)
		return size
	}
	return 0
}
