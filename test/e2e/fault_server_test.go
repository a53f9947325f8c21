package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testFaultServer kills the API server in the middle of an update; the kubelet starts it again.
func testFaultServer(t *testing.T, s *site) {
	o := newOrdeal(t, s, "API server restarted")
	o.hold()
	o.begin()
	o.halfWay()
	pod, err := o.kube.CoreV1().Pods("kube-system").Get(t.Context(), "kube-apiserver-"+o.ControlPlane, metav1.GetOptions{})
	require.NoError(t, err)
	o.begun = time.Now()
	require.NoError(t, o.kill(pod))
	ready := func() bool {
		_, err := o.kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
		return err == nil
	}
	require.Eventually(t, func() bool { return !ready() }, patience, tick/10, "the API server to end")
	require.Eventually(t, ready, patience, tick/5, "the API server to be back")
	back := time.Now()
	o.told = fmt.Sprintf("down for %.1f s", back.Sub(o.begun).Seconds())
	o.goOn()
	o.over(back)
}
