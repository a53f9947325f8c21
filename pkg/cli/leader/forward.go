package leader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forwardPod opens a port on loopback and forwards it through the API server to a port of a pod, until stop is called. The traffic is TLS
// between this process and the pod. Neither the API server nor another user of this host, who may connect to the port, can read or change
// it.
func forwardPod(ctx context.Context, cfg *rest.Config, pod *corev1.Pod, port int32) (address string, stop func(), err error) {
	dialer, err := podDialer(cfg, pod)
	if err != nil {
		return "", nil, err
	}
	stopped, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stopped, ready, io.Discard, io.Discard)
	if err != nil {
		return "", nil, fmt.Errorf("forwarding a port to pod %s: %w", pod.Name, err)
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err = <-ended:
		return "", nil, fmt.Errorf("forwarding a port to pod %s/%s: %w: ask an administrator for permission to create pods/portforward, or use --server", pod.Namespace, pod.Name, err)
	case <-ctx.Done():
		close(stopped)
		return "", nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil || len(ports) != 1 {
		close(stopped)
		return "", nil, fmt.Errorf("forwarding a port to pod %s: %w", pod.Name, errors.Join(err, errors.New("no port was opened")))
	}
	stop = func() {
		close(stopped)
		if err := <-ended; err != nil {
			return // stopped by the caller: nothing to report
		}
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))), stop, nil
}

// podDialer uses WebSocket, and falls back to SPDY for API servers and proxies that support nothing else.
func podDialer(cfg *rest.Config, pod *corev1.Pod) (httpstream.Dialer, error) {
	client, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating client for pods: %w", err)
	}
	url := client.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing to forward a port: %w", err)
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	websocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing to forward a port: %w", err)
	}
	return portforward.NewFallbackDialerForStreaming(websocket, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}
