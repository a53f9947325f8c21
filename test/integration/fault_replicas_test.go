package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/fault"
)

// ahead is the operator with a clock that is ten minutes ahead.
const ahead = "cvo-ahead"

// TestFaultReplicas has two replicas disagree about the network, and about the time.
func TestFaultReplicas(t *testing.T) {
	t.Parallel()
	var network *fault.Proxy
	var near *kept
	f := newTroubled(t, func(f *troubled) {
		var err error
		network, err = fault.NewProxy(strings.Trim(strings.TrimPrefix(f.env.Config("").Host, "https:"), "/"))
		require.NoError(t, err)
		t.Cleanup(network.Close)
		near = f.keep(func() *process { return f.replica("cvo", "near", network.Address()) })
	}, "--delay", "3s")
	f.chapter("network partition", func() { partition(f, network, near) })
	f.chapter("clock ten minutes ahead", func() { skew(f) })
}

// replica starts an operator as a user of its own, so that the audit log tells who wrote what. It reaches the API server at
// an address; empty for the server's own.
func (f *troubled) replica(binary, user, address string) *process {
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
	return f.lasting().start(binary, "start", "--kubeconfig", file, "--release-image", f.own.ByDigest(), "--trust", f.trust,
		"--payload-cache", filepath.Join(f.dir, "cache-"+user), "--listen", "", "--leader-elect-lease-duration", "10s",
		"--leader-elect-renew-deadline", "8s", "--leader-elect-retry-period", "1s")
}

// writesOf are the requests of a replica since a moment that may have changed anything.
func (f *troubled) writesOf(user string, since time.Time) (writes []string) {
	f.t.Helper()
	for _, e := range f.audit(since) {
		if e.User == user && e.Write() {
			writes = append(writes, e.Received.Format(time.StampMilli)+" "+e.Verb+" "+e.Object.String())
		}
	}
	return writes
}

// looks waits until a replica has looked who leads.
func (f *troubled) looks(user string, since time.Time) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		for _, e := range f.audit(since) {
			if e.User == user && e.Verb == "get" && e.Object.Resource == "leases" && e.Code == 200 {
				return true
			}
		}
		return false
	}, 2*time.Minute, 200*time.Millisecond, "%s to look at the Lease", user)
}

// leads waits until somebody leads who has not before, and returns the name in the Lease and how often it has changed.
func (f *troubled) leads(before string) (holder string, transitions int32) {
	f.t.Helper()
	leases := kubernetes.NewForConfigOrDie(f.env.Config("integration")).CoordinationV1().Leases(api.OperatorNamespace)
	require.Eventually(f.t, func() bool {
		lease, err := leases.Get(f.t.Context(), "version", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || *lease.Spec.HolderIdentity == before {
			return false
		}
		holder = *lease.Spec.HolderIdentity
		if lease.Spec.LeaseTransitions != nil {
			transitions = *lease.Spec.LeaseTransitions
		}
		return true
	}, time.Minute, 50*time.Millisecond, "another leader than %q", before)
	return holder, transitions
}

// partition cuts the leader off for longer than its lease. Another takes over, and the first writes nothing any more:
// neither while it is cut off nor when it is back.
func partition(f *troubled, network *fault.Proxy, near *kept) {
	first, _ := f.leads("")
	f.far = f.replica("cvo", "far", "")
	version, img := f.next()
	o := f.begin("network partition", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	f.halfWay(version)
	network.Lose()
	cut := time.Now()
	second, _ := f.leads(first)
	took := time.Since(cut)
	o.told = "other replica leads after " + took.Round(100*time.Millisecond).String()
	o.over(cut)
	network.Find()
	found := time.Now()
	f.looks("near", found) // it is back, and sees that another leads
	holder, _ := f.leads("")
	assert.Equal(f.t, second, holder)
	// What was on its way when the network was cut may have arrived.
	assert.Empty(f.t, f.writesOf("near", cut.Add(time.Second)), "writes of a replica that does not lead")
	assert.NotEmpty(f.t, f.writesOf("far", cut))
	near.stop()
}

// skew has leaders follow each other in the middle of updates whose clocks are ten minutes apart.
func skew(f *troubled) {
	begun := time.Now()
	right, transitions := f.leads("")
	wrong := f.replica(ahead, "ahead", "")
	f.looks("ahead", begun)
	// More than the lease, in which nobody else takes over, whatever the times in it look like.
	require.Never(f.t, func() bool {
		holder, n := f.leads("")
		return holder != right || n != transitions
	}, 12*time.Second, 200*time.Millisecond)
	assert.Empty(f.t, f.writesOf("ahead", begun))

	// The leader dies in the middle of an update; the one whose clock is ahead goes on with it.
	version, img := f.next()
	o := f.begin("clock ten minutes ahead takes over", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	f.halfWay(version)
	f.far.kill()
	killed := time.Now()
	wrongly, _ := f.leads(right)
	o.told = "other replica leads after " + time.Since(killed).Round(100*time.Millisecond).String()
	o.over(killed)
	f.sane(version)

	// And the other way round: what was begun ten minutes from now is completed now.
	f.replica("cvo", "last", "")
	version, img = f.next()
	o = f.begin("clock ten minutes ahead is taken over from", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	f.halfWay(version)
	wrong.kill()
	killed = time.Now()
	f.leads(wrongly)
	o.told = "other replica leads after " + time.Since(killed).Round(100*time.Millisecond).String()
	o.over(killed)
	f.sane(version)
}

// sane checks the times that status tells of an update.
func (f *troubled) sane(version string) {
	f.t.Helper()
	cv := f.get()
	entry := cv.Status.History[0]
	require.Equal(f.t, version, entry.Version)
	require.NotNil(f.t, entry.CompletionTime)
	assert.False(f.t, entry.CompletionTime.Before(&entry.StartedTime), "%s was completed at %s, begun at %s", version, entry.CompletionTime, entry.StartedTime)
	for i, h := range cv.Status.History[1:] {
		assert.False(f.t, cv.Status.History[i].StartedTime.Before(&h.StartedTime), "%s and %s are in order", h.Version, cv.Status.History[i].Version)
	}
}

// buildAhead builds it: with another file of the standard library. The first time takes minutes, as everything is built
// anew; then Go's cache has it.
func buildAhead(dir string) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	const now = "\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(data), now) != 1 {
		return fmt.Errorf("time.Now is not written as it was: look at %s", source)
	}
	work, err := os.MkdirTemp("", "cvo-ahead-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // a temporary folder: what stays is the system's to clean
	shifted, overlay := filepath.Join(work, "time.go"), filepath.Join(work, "overlay.json")
	text := strings.Replace(string(data), now, now+"\tsec += 600 // this build is for a machine whose clock is ahead\n", 1)
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {source: shifted}})
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(shifted, []byte(text), 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, ahead), "../../cmd/cvo")
	build.Stderr = os.Stderr
	return build.Run()
}
