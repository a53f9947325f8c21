package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/e2e/docker"
)

// testFaultKilled kills operators twenty times during one update: the leader twice, at random moments of its work, and after each time
// others while they wait for the Lease to expire.
func testFaultKilled(t *testing.T, s *site) {
	others := []int{9, 9}
	o := newScenario(t, s, "operator killed 20 times")
	seed := uint64(20261122)
	t.Logf("seed %d", seed)
	k := &killer{scenario: o, random: rand.New(rand.NewPCG(seed, 0)), before: map[string]bool{}}
	o.hold()
	o.begin()
	for _, n := range others {
		k.pause(3 * time.Second)
		leader := k.one(o.leads)
		for range n {
			k.pause(time.Second)
			k.one(nil)
		}
		o.leader(leader, patience)
	}
	over := time.Now()
	o.awaitHalfWay()
	o.summary = fmt.Sprintf("%d times the leader, in %.0f s", len(others), over.Sub(o.startedAt).Seconds())
	o.resume()
	o.over(over)
}

// killer kills operators.
type killer struct {
	*scenario
	random *rand.Rand
	// before are the pods that were already killed once.
	before map[string]bool
}

// pause waits for a random time, so that the test varies the moment.
func (k *killer) pause(limit time.Duration) {
	select {
	case <-time.After(time.Duration(k.random.Int64N(int64(limit)))):
	case <-k.Context().Done():
	}
}

// one kills the process of the named pod, or of any pod, and returns its name.
func (k *killer) one(whom func() string) (holder string) {
	k.Helper()
	var killed string
	require.EventuallyWithT(k, func(c *assert.CollectT) {
		if whom != nil {
			holder = whom()
			require.NotEmpty(c, holder)
		}
		pods, err := k.operators()
		require.NoError(c, err)
		err = fmt.Errorf("%q does not run", holder)
		for _, i := range k.random.Perm(len(pods)) {
			if holder != "" && pods[i].Name != podOf(holder) {
				continue
			}
			if err = k.kill(&pods[i]); err == nil {
				killed = pods[i].Name
				break
			}
		}
		require.NoError(c, err) // a pod that is starting counts too
	}, patience, tick/5)
	if k.before[killed] { // the kubelet would delay a third start, but starts another pod at once
		err := k.kube.CoreV1().Pods(api.OperatorNamespace).Delete(k.Context(), killed, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		require.NoError(k, client.IgnoreNotFound(err))
	}
	k.before[killed] = true
	return holder
}

// testFaultNode cuts the network of the leader's node during an update. Another operator takes over. It completes the update, or reports
// that it waits for that node.
func testFaultNode(t *testing.T, s *site) {
	o := newScenario(t, s, "leader's node lost")
	o.hold()
	o.begin()
	o.awaitHalfWay()
	leader, node := o.leaderOnWorker()
	pods, err := o.kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	require.NoError(t, err)
	var there []string
	var restarts int32
	for _, pod := range pods.Items {
		there = append(there, pod.Namespace+"/"+pod.Name)
		if pod.Name == podOf(leader) {
			restarts = pod.Status.ContainerStatuses[0].RestartCount
		}
	}
	t.Logf("%s leads on %s, which also runs %s", leader, node, strings.Join(there, ", "))

	lost := time.Now()
	o.disconnect(node)
	connect := sync.OnceFunc(func() { o.connect(node) })
	t.Cleanup(connect)
	second := o.leader(leader, patience)
	took := time.Since(lost)
	o.resume()
	cv := o.await("another leader to complete the update or to report its wait", func(cv *configv1.ClusterVersion) bool {
		return cv.Status.History[0].State == configv1.CompletedUpdate ||
			waitsOn(cv, changedComponent) && o.waitsFor(node)
	})
	t.Logf("%s leads: %s", second, condition(cv, "Progressing").Message)
	o.summary = fmt.Sprintf("other replica leads after %.1f s", took.Seconds())
	if cv.Status.History[0].State != configv1.CompletedUpdate {
		o.summary += " and waits for the node"
		connect()
	}
	o.over(lost)
	connect()
	pod := podOf(leader)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		again, err := o.kube.CoreV1().Pods(api.OperatorNamespace).Get(t.Context(), pod, metav1.GetOptions{})
		require.NoError(c, err)
		assert.Greater(c, again.Status.ContainerStatuses[0].RestartCount, restarts, "a leader without its Lease ends")
		assert.NotNil(c, again.Status.ContainerStatuses[0].State.Running)
	}, patience, tick)
	for _, e := range o.changes(lost.Add(time.Second)) { // requests under way when the network was cut may have arrived
		own := e.Object.Namespace == api.OperatorNamespace && e.Object.Resource != "deployments"
		assert.False(t, e.Pod == pod && !own, "a replica that does not lead wrote: %s %s", e.Verb, e.Object)
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		node, err := o.kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		require.NoError(c, err)
		for _, condition := range node.Status.Conditions {
			assert.True(c, condition.Type != "Ready" || condition.Status == "True", "%s: %s", node.Name, condition.Message)
		}
		assert.Empty(c, node.Spec.Taints)
	}, patience, tick)
}

// traffic are the iptables rules that match what a node and its pods exchange with others. `docker exec` needs no network.
var traffic = [][]string{{"INPUT", "-i"}, {"OUTPUT", "-o"}, {"FORWARD", "-i"}, {"FORWARD", "-o"}}

// disconnect drops everything that a node exchanges with others.
func (o *scenario) disconnect(node string) {
	for _, rule := range traffic {
		_, err := docker.Run(o.Context(), nil, "exec", node, "iptables", "-w", "-I", rule[0], rule[1], "eth0", "-j", "DROP")
		require.NoError(o, err)
	}
}

// connect undoes disconnect.
func (o *scenario) connect(node string) {
	for _, rule := range traffic {
		_, err := docker.Run(context.WithoutCancel(o.Context()), nil, "exec", node, "iptables", "-w", "-D", rule[0], rule[1], "eth0", "-j", "DROP")
		assert.NoError(o, err)
	}
}

// waitsFor reports whether all operators of the afflicted component run on a node, so that none can report.
func (o *scenario) waitsFor(node string) bool {
	pods, err := o.kube.CoreV1().Pods(changedComponent).List(o.Context(), metav1.ListOptions{LabelSelector: "app=" + changedComponent + "-operator"})
	return err == nil && !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Spec.NodeName != node })
}

// leaderOnWorker makes an operator on a worker the leader, so that its node can be cut off without the control plane.
func (o *scenario) leaderOnWorker() (holder, node string) {
	o.Helper()
	for {
		holder := o.leader("", patience)
		pod, err := o.kube.CoreV1().Pods(api.OperatorNamespace).Get(o.Context(), podOf(holder), metav1.GetOptions{})
		require.NoError(o, err)
		if slices.Contains(o.Workers, pod.Spec.NodeName) {
			return holder, pod.Spec.NodeName
		}
		require.NoError(o, o.kube.CoreV1().Pods(api.OperatorNamespace).Delete(o.Context(), pod.Name, metav1.DeleteOptions{}))
		o.leader(holder, patience)
		o.settled(o.to.Image)
	}
}
