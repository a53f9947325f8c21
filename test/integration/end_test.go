package integration_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cluster-version/cvo/pkg/kube/lead"
	"github.com/cluster-version/cvo/test/fault"
)

// as writes a kubeconfig for a user. address is the address of the API server; empty for the server's own.
func (p *platform) as(user, address string, groups ...string) string {
	p.t.Helper()
	config, err := p.env.User(user, groups...)
	require.NoError(p.t, err)
	host := config.Host
	if address != "" {
		host = "https://" + address
	}
	file := filepath.Join(p.dir, user+".kubeconfig")
	require.NoError(p.t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	return file
}

// awaitExit waits until a process has ended and returns its exit code.
func (proc *process) awaitExit(t *testing.T) int {
	t.Helper()
	began := time.Now()
	select {
	case <-proc.exited:
	case <-time.After(patience):
		_ = proc.signal(syscall.SIGQUIT) // prints where it hangs
		<-proc.exited
		require.FailNow(t, "the process did not end within "+patience.String(), tail(proc.log))
	}
	t.Logf("ended after %s with exit code %d", time.Since(began).Round(time.Millisecond), proc.exitCode())
	return proc.exitCode()
}

// TestProcessEndsWhileItWaits ends operators in several states, such as while they wait for something. The tests of package process decide
// how long that may take.
func TestProcessEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	img := p.push(newTiny(t).files("1.0.0"), "1.0.0", true)
	_, err := p.run("install", "--no-operator", "--release-image", img.ByDigest(), "--trust", p.trust)
	require.NoError(t, err)
	p.start("operators")

	// The caches of an account without permissions never fill, so the operator has not started completely at the signal.
	process := p.operator(img.ByDigest(), "--kubeconfig", p.as("powerless", ""))
	process.letEnd()
	process.logged(t, "forbidden")
	require.NoError(t, process.signal(syscall.SIGTERM))
	assert.Zero(t, process.awaitExit(t))

	network, err := fault.NewProxy(strings.Trim(strings.TrimPrefix(p.env.Config("").Host, "https:"), "/"))
	require.NoError(t, err)
	t.Cleanup(network.Close)
	process = p.operator(img.ByDigest(), "--kubeconfig", p.as("cut-off", network.Address(), "system:masters"),
		"--leader-elect-lease-duration", lead.DefaultLeaseDuration.String(),
		"--leader-elect-renew-deadline", lead.DefaultRenewDeadline.String(),
		"--leader-elect-retry-period", lead.DefaultRetryPeriod.String())
	process.letEnd()
	p.await("1.0.0 to complete", time.Minute, completed("1.0.0"))
	p.rest()
	p.assertIdle("cut-off")

	// A leader that loses the network gives up after its renew deadline and then tries once more to read the Lease. By then its pending
	// requests are canceled, such as the one for a kind that the cluster does not serve.
	network.Lose()
	assert.Equal(t, 1, process.awaitExit(t))
}

const (
	// idleTime is long enough for ten renewals of the Lease and shorter than the life of any watch.
	idleTime = 30 * time.Second
	// idlePerMinute bounds the requests of an idle leader, 20 of which renew the Lease. A watch is renewed after 5 to 10 minutes, which is
	// later than idleTime.
	idlePerMinute = 25
)

// assertIdle checks the number of requests of a user's idle operator.
func (p *platform) assertIdle(user string) {
	p.t.Helper()
	began := time.Now()
	time.Sleep(idleTime)
	until := began.Add(idleTime)
	requests := map[string]int{}
	total := 0
	for _, e := range p.audit(began) {
		if e.User == user && e.Received.Before(until) && e.Verb != "watch" { // a watch that ends began earlier
			requests[e.Verb+" "+e.Object.String()]++
			total++
		}
	}
	p.t.Logf("idle requests in %s: %d: %v", idleTime, total, requests)
	assert.Positive(p.t, total, "the leader renews the Lease")
	assert.LessOrEqual(p.t, total, int(idlePerMinute*idleTime/time.Minute), "%v", requests)
}
