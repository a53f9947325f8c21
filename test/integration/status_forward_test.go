package integration_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/cluster-version/cvo/pkg/api"
)

// TestStatusConnectsThroughThePod uses a Lease that names a pod. status therefore connects through the API server and the node's kubelet,
// of which the test plays the port forwarding.
func TestStatusConnectsThroughThePod(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	own := p.push(newTiny(t).files("1.0.0"), "1.0.0", true)
	_, err := p.run("install", "--no-operator", "--release-image", own.ByDigest(), "--trust", p.trust)
	require.NoError(t, err)
	address := freeAddress(t)
	node := &forwarder{to: address}
	kubelet := httptest.NewTLSServer(node)
	t.Cleanup(kubelet.Close)
	host, err := os.Hostname()
	require.NoError(t, err)
	p.createPod(strings.ToLower(host), kubelet.URL, address)
	p.operator(own.ByDigest(), "--listen", address)

	var out string
	require.Eventually(t, func() bool {
		out, err = p.run("status")
		return err == nil && strings.Contains(out, "waiting on tiny-a, tiny-b\n")
	}, time.Minute, 500*time.Millisecond)
	assert.Positive(t, node.forwarded.Load(), "the connection uses the kubelet")
}

// createPod creates a pod with the port of an address, on a node whose kubelet has a URL.
func (p *platform) createPod(name, kubelet, address string) {
	p.t.Helper()
	client := kubernetes.NewForConfigOrDie(p.env.Config("integration")).CoreV1()
	at, err := url.Parse(kubelet)
	require.NoError(p.t, err)
	port, err := strconv.ParseInt(at.Port(), 10, 32)
	require.NoError(p.t, err)
	node, err := client.Nodes().Create(p.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, metav1.CreateOptions{})
	require.NoError(p.t, err)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.Hostname()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	_, err = client.Nodes().UpdateStatus(p.t.Context(), node, metav1.UpdateOptions{})
	require.NoError(p.t, err)
	_, number, err := net.SplitHostPort(address)
	require.NoError(p.t, err)
	port, err = strconv.ParseInt(number, 10, 32)
	require.NoError(p.t, err)
	_, err = client.Pods(api.OperatorNamespace).Create(p.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{
			Name: "cvo", Image: "example.com/cvo", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: int32(port)}},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(p.t, err)
}

// forwarder forwards ports as a kubelet does, with one stream for data and one for errors per connection.
type forwarder struct {
	to        string
	forwarded atomic.Int64
}

func (f *forwarder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if _, err := httpstream.Handshake(req, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	var work sync.WaitGroup
	defer work.Wait()
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, req, func(s httpstream.Stream, _ <-chan struct{}) error {
		if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
			f.forwarded.Add(1)
			work.Go(func() { f.forward(req.Context(), s) })
		}
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	<-conn.CloseChan()
}

func (f *forwarder) forward(ctx context.Context, s httpstream.Stream) {
	var dialer net.Dialer
	target, err := dialer.DialContext(ctx, "tcp", f.to)
	if err != nil {
		_ = s.Reset()
		return
	}
	defer target.Close()
	go func() {
		_, _ = io.Copy(target, s)
		_ = target.Close()
	}()
	_, _ = io.Copy(s, target)
	_ = s.Close()
}
