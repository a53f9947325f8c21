package integration_test

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fault"
)

// ahead is the operator with a clock that is ten minutes fast, on systems where it can be built.
const (
	ahead    = "ahead"
	hasAhead = runtime.GOOS == "linux" && (runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64")
)

// TestUpdateSurvivesFaultsOfReplicas runs two replicas with different networks, and then with different times.
func TestUpdateSurvivesFaultsOfReplicas(t *testing.T) {
	t.Parallel()
	var network *fault.Proxy
	var near *process
	f := newFaultPlatform(t, func(f *faultPlatform) {
		var err error
		network, err = fault.NewProxy(strings.Trim(strings.TrimPrefix(f.env.Config("").Host, "https:"), "/"))
		require.NoError(t, err)
		t.Cleanup(network.Close)
		near = f.replica("cvo", "near", network.Address())
	}, "--delay", "3s")
	f.chapter("network partition", func() { partition(f, network, near) })
	f.chapter("clock ten minutes ahead", func() { skew(f) })
}

// replica starts an operator as a separate user, so that the audit log shows which replica wrote what. address is the address of the API
// server; empty for the server's own.
func (f *faultPlatform) replica(binary, user, address string) *process {
	config, err := f.env.User(user, "system:masters")
	require.NoError(f.book, err)
	host := config.Host
	if address != "" {
		host = "https://" + address
	}
	file := filepath.Join(f.dir, user+".kubeconfig")
	require.NoError(f.book, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	return f.outliving().keep(binary, append([]string{
		"start", "--kubeconfig", file, "--release-image", f.own.ByDigest(), "--trust", f.trust,
		"--payload-cache", filepath.Join(f.dir, "cache-"+user), "--listen", "",
	}, shortLease...)...)
}

// writesOf returns the requests of a replica since a time that may have changed an object.
func (f *faultPlatform) writesOf(user string, since time.Time) (writes []string) {
	f.t.Helper()
	for _, e := range f.audit(since) {
		if e.User == user && e.Write() {
			writes = append(writes, e.Received.Format(time.StampMilli)+" "+e.Verb+" "+e.Object.String())
		}
	}
	return writes
}

// awaitLeaseWatch waits until a replica watches the Lease and therefore knows the leader.
func (f *faultPlatform) awaitLeaseWatch(user string, since time.Time) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		watches, err := f.env.Watches()
		return err == nil && slices.ContainsFunc(watches, func(e env.AuditEvent) bool {
			return e.User == user && e.Object.Resource == "leases" && e.Code == 200 && e.Received.After(since)
		})
	}, 2*time.Minute, 200*time.Millisecond, "waiting for %s to watch the Lease", user)
}

func (f *faultPlatform) lease() (*coordinationv1.Lease, error) {
	leases := kubernetes.NewForConfigOrDie(f.env.Config("integration")).CoordinationV1().Leases(api.OperatorNamespace)
	return leases.Get(f.t.Context(), "version", metav1.GetOptions{})
}

// leads waits until a new replica leads. It returns the name in the Lease and the number of transitions.
func (f *faultPlatform) leads(before string) (holder string, transitions int32) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		lease, err := f.lease()
		if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || *lease.Spec.HolderIdentity == before {
			return false
		}
		holder = *lease.Spec.HolderIdentity
		if lease.Spec.LeaseTransitions != nil {
			transitions = *lease.Spec.LeaseTransitions
		}
		return true
	}, time.Minute, 50*time.Millisecond, "waiting for a leader other than %q", before)
	return holder, transitions
}

// partition disconnects the leader for longer than its lease. Another replica takes over. The first one stops writing, both while it is
// disconnected and after it is reconnected.
func partition(f *faultPlatform, network *fault.Proxy, near *process) {
	first, _ := f.leads("")
	f.far = f.replica("cvo", "far", "")
	version, img := f.next()
	o := f.begin("network partition", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	f.awaitHalfWay(version)
	network.Lose()
	cut := time.Now()
	second, _ := f.leads(first)
	took := time.Since(cut)
	o.message = "other replica leads after " + took.Round(100*time.Millisecond).String()
	o.over(cut)
	network.Find()
	found := time.Now()
	f.awaitLeaseWatch("near", found) // it is reconnected and sees that another replica leads
	holder, _ := f.leads("")
	assert.Equal(f.t, second, holder)
	// Requests under way at the time of the cut may have arrived.
	assert.Empty(f.t, f.writesOf("near", cut.Add(time.Second)), "a replica that does not lead writes nothing")
	assert.NotEmpty(f.t, f.writesOf("far", cut))
	near.kill()
}

// skew changes the leader during updates, between replicas whose clocks differ by ten minutes.
func skew(f *faultPlatform) {
	if !hasAhead {
		f.t.Skip("no operator with a separate clock can be built for " + runtime.GOOS + "/" + runtime.GOARCH)
	}
	begun := time.Now()
	right, transitions := f.leads("")
	wrong := f.replica(ahead, "ahead", "")
	f.awaitLeaseWatch("ahead", begun)
	// For longer than the lease, no other replica leads, despite the times in the Lease.
	require.Never(f.t, func() bool {
		holder, n := f.leads("")
		return holder != right || n != transitions
	}, 12*time.Second, 200*time.Millisecond)
	assert.Empty(f.t, f.writesOf("ahead", begun))

	// The leader dies during an update. The replica with the fast clock continues it.
	version, img := f.next()
	o := f.begin("clock ten minutes ahead takes over", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	f.awaitHalfWay(version)
	f.far.kill()
	killed := time.Now()
	wrongly, _ := f.leads(right)
	lease, err := f.lease()
	require.NoError(f.t, err)
	assert.Greater(f.t, lease.Spec.AcquireTime.Sub(killed), 9*time.Minute, "the Lease has the leader's time")
	o.message = "other replica leads after " + time.Since(killed).Round(100*time.Millisecond).String()
	o.over(killed)
	f.requireConsistent(version)

	// In the other direction, an update whose recorded start is ten minutes from now completes now.
	f.replica("cvo", "last", "")
	version, img = f.next()
	o = f.begin("clock ten minutes ahead is taken over from", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	f.awaitHalfWay(version)
	wrong.kill()
	killed = time.Now()
	f.leads(wrongly)
	o.message = "other replica leads after " + time.Since(killed).Round(100*time.Millisecond).String()
	o.over(killed)
	f.requireConsistent(version)
}

// requireConsistent checks the times of an update in the status.
func (f *faultPlatform) requireConsistent(version string) {
	f.t.Helper()
	cv := f.get()
	entry := cv.Status.History[0]
	require.Equal(f.t, version, entry.Version)
	require.NotNil(f.t, entry.CompletionTime)
	assert.False(f.t, entry.CompletionTime.Before(&entry.StartedTime), "%s completed at %s, before its start at %s", version, entry.CompletionTime, entry.StartedTime)
	for i, h := range cv.Status.History[1:] {
		assert.False(f.t, cv.Status.History[i].StartedTime.Before(&h.StartedTime), "%s and %s are in the wrong order", h.Version, cv.Status.History[i].Version)
	}
}
