package integration_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/installed"
)

// TestUninstallStopsTheLeaderAndKeepsThePlatform checks that 'cvo uninstall' takes the Lease from running operators and from a suspended one.
// Then it uninstalls the operator to the end, and every object of the platform stays.
func TestUninstallStopsTheLeaderAndKeepsThePlatform(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	img := p.push(newTiny(t).files("1.0.0"), "1.0.0", true)
	_, err := p.run("install", "--no-operator", "--release-image", img.ByDigest(), "--trust", p.trust)
	require.NoError(t, err)
	p.start("operators")

	// The leader confirms that it has stopped. Without that, the uninstall would wait for the whole lease, which is longer than its timeout.
	leader := p.operator(img.ByDigest(), "--leader-elect-lease-duration", "8m", "--leader-elect-renew-deadline", "30s")
	p.await("1.0.0 to complete", time.Minute, completed("1.0.0"))
	first := p.holder(func(holder string) bool { return holder != "" })
	_, err = p.run("uninstall", "--yes", "--namespace", "default")
	require.ErrorContains(t, err, ", the operator of this cluster, holds Lease openshift-cluster-version/version: use --namespace openshift-cluster-version")
	took, waited := p.stopsOperator(nil)
	t.Logf("the leader confirmed %.1f s after the start of cvo uninstall", took.Seconds())
	for _, line := range waited {
		t.Log(line)
	}
	leader.logged(t, "confirmed to the uninstall that this process has stopped writing")
	again := p.holder(func(holder string) bool { // the uninstall was interrupted, so the operator restarts and leads again
		return leader.started() > 1 && holder != "" && holder != api.UninstallHolder
	})
	assert.NotEqual(t, first, again, "a new process leads")
	p.renews() // it knows that it leads, so it releases the Lease when it ends
	leader.end(t)

	// A suspended operator confirms nothing and does not write when it resumes.
	const lease = 20 * time.Second
	leader = p.operator(img.ByDigest(), "--leader-elect-lease-duration", lease.String(), "--leader-elect-renew-deadline", "17s", "--leader-elect-retry-period", "1s")
	p.holder(func(holder string) bool { return holder != "" && holder != again })
	p.renews() // it knows that it leads, so it notices when it does not
	second := p.holder(func(holder string) bool { return holder != "" })
	leader.letEnd()
	require.NoError(t, leader.signal(syscall.SIGSTOP))
	var goesOn time.Time
	took, waited = p.stopsOperator(func() {
		goesOn = time.Now()
		require.NoError(t, leader.signal(syscall.SIGCONT))
		select {
		case <-leader.exited: // it has noticed that it no longer leads
		case <-time.After(time.Minute):
			assert.Fail(t, "the operator continues", tail(leader.log))
		}
	})
	assert.GreaterOrEqual(t, took, lease, "the uninstall waits for the lease")
	assert.Contains(t, strings.Join(waited, "\n"), "for operator "+second+" to confirm that it has stopped writing")
	t.Logf("cvo uninstall waited %.1f s for the suspended leader", took.Seconds())
	for _, e := range p.audit(goesOn) {
		if e.Write() && strings.HasPrefix(e.UserAgent, operatorAgent) && e.Object.Resource != "leases" {
			assert.Fail(t, "a write after the Lease was taken", "%s %s", e.Verb, e.Object)
		}
	}

	c := installed.Client(t, p.env.Config("garbage"))
	var before []types.UID
	for _, object := range tinyObjects() {
		require.True(t, installed.Exists(t, c, object), "%s %s", object.GetKind(), object.GetName())
		before = append(before, object.GetUID())
	}
	orphaned := installed.CollectGarbage(t, c)
	out, err := p.run("uninstall", "--yes")
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^Removed the version operator from https://\S+: objects deleted \d+, kept 0\.$`, out)
	assert.True(t, orphaned(), "the API server deletes the ClusterVersion without the objects of the platform")
	assert.False(t, installed.Exists(t, c, &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}))
	assert.False(t, installed.Exists(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.OperatorNamespace}}))
	for i, object := range tinyObjects() {
		name := object.GetKind() + " " + object.GetName()
		require.True(t, installed.Exists(t, c, object), name)
		assert.Equal(t, before[i], object.GetUID(), name)
		assert.Empty(t, object.GetOwnerReferences(), name)
		assert.Nil(t, object.GetDeletionTimestamp(), name)
		if object.GetKind() == "ConfigMap" {
			version, _, err := unstructured.NestedString(object.Object, "data", "version")
			require.NoError(t, err)
			assert.Equal(t, "1.0.0", version, name)
		}
	}
}

// holder waits until the holder of the Lease satisfies a condition and returns it.
func (p *platform) holder(condition func(string) bool) (holder string) {
	p.t.Helper()
	leases := kubernetes.NewForConfigOrDie(p.env.Config("integration")).CoordinationV1().Leases(api.OperatorNamespace)
	require.Eventually(p.t, func() bool {
		lease, err := leases.Get(p.t.Context(), "version", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return false
		}
		holder = *lease.Spec.HolderIdentity
		return condition(holder)
	}, patience, 50*time.Millisecond)
	return holder
}

// renews waits until the holder of the Lease renews it.
func (p *platform) renews() {
	p.t.Helper()
	leases := kubernetes.NewForConfigOrDie(p.env.Config("integration")).CoordinationV1().Leases(api.OperatorNamespace)
	var first *metav1.MicroTime
	require.Eventually(p.t, func() bool {
		lease, err := leases.Get(p.t.Context(), "version", metav1.GetOptions{})
		if err != nil || lease.Spec.RenewTime == nil {
			return false
		}
		if first == nil {
			first = lease.Spec.RenewTime
		}
		return !first.Equal(lease.Spec.RenewTime)
	}, time.Minute, 50*time.Millisecond)
}

// stopsOperator runs cvo uninstall and interrupts it after it has stopped the operator and called look, if that is not nil. It returns the
// time until then and the output of cvo.
func (p *platform) stopsOperator(look func()) (took time.Duration, said []string) {
	p.t.Helper()
	began := time.Now()
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(binaries, "cvo"), "uninstall", "--yes", "--timeout=5m")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.env.Kubeconfig)
	progress, err := cmd.StderrPipe()
	require.NoError(p.t, err)
	require.NoError(p.t, cmd.Start())
	for lines := bufio.NewScanner(progress); lines.Scan(); {
		said = append(said, lines.Text())
		if took == 0 && strings.Contains(lines.Text(), "removing the owner references from") { // the next step
			took = time.Since(began)
			if look != nil {
				look()
			}
			require.NoError(p.t, cmd.Process.Signal(os.Interrupt))
		}
	}
	err = cmd.Wait()
	require.Error(p.t, err)
	require.NotZero(p.t, took, said)
	return took, said
}
