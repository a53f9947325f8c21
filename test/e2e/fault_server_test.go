package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testFaultServer kills the API server during an update. The kubelet restarts it.
func testFaultServer(t *testing.T, s *site) {
	o := newScenario(t, s, "API server restarted")
	o.hold()
	o.begin()
	o.awaitHalfWay()
	pod, err := o.kube.CoreV1().Pods("kube-system").Get(t.Context(), "kube-apiserver-"+o.ControlPlane, metav1.GetOptions{})
	require.NoError(t, err)
	o.startedAt = time.Now()
	require.NoError(t, o.kill(pod))
	ready := func() bool {
		_, err := o.kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
		return err == nil
	}
	require.Eventually(t, func() bool { return !ready() }, patience, tick/10, "waiting for the API server to stop")
	require.Eventually(t, ready, patience, tick/5, "waiting for the API server to return")
	back := time.Now()
	o.summary = fmt.Sprintf("down for %.1f s", back.Sub(o.startedAt).Seconds())
	o.resume()
	o.over(back)
}
