//go:build !portforward

package cli

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// forwardPod says how to forward the port by hand: this build is without the libraries that do it.
func forwardPod(_ context.Context, _ *rest.Config, pod *corev1.Pod, port int32) (address string, stop func(), err error) {
	return "", nil, fmt.Errorf("the version operator runs in pod %[1]s/%[2]s: run 'kubectl port-forward -n %[1]s pod/%[2]s %[3]d' and give --server https://127.0.0.1:%[3]d", pod.Namespace, pod.Name, port)
}
