package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/manifests/apicrd"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/e2e/docker"
	"github.com/cluster-version/cvo/test/e2e/platform"
)

const (
	// guardDeadline is the time after which the guard of a node restores the former config.
	guardDeadline = 45 * time.Second
	// stageRelease is the release of the stage.
	stageRelease = "1.0.0"
	// demoUnit is a unit that a MachineConfig brings. It adds a line to demoLog whenever it starts.
	demoUnit = "cvo-e2e.service"
	demoLog  = "/var/log/cvo-e2e"
	// folder has the files of the MachineConfigs.
	folder = "/etc/cvo-e2e"
)

// testNodes is a cluster with the node stage.
type testNodes struct{ *testPlatform }

// withNodeStage returns the cluster with an installed node stage whose pools are up to date, and whose nodes may reboot.
func withNodeStage(t *testing.T, s *site) *testNodes {
	t.Helper()
	n := &testNodes{newTestPlatform(t, s)}
	pool := &mcfgv1.MachineConfigPool{}
	if err := n.client.Get(t.Context(), client.ObjectKey{Name: api.WorkerPool}, pool); err != nil {
		require.NoError(t, s.AllowReboots(t.Context()))
		image, err := s.NodeStage(t.Context())
		require.NoError(t, err)
		for _, object := range n.manifests(image) {
			require.EventuallyWithT(t, func(c *assert.CollectT) { // a definition is not served at once
				err := n.client.Create(t.Context(), object.DeepCopy())
				require.True(c, err == nil || apierrors.IsAlreadyExists(err), "%v", err)
			}, patience, tick)
		}
	}
	n.updated()
	return n
}

// manifests returns the stage's objects in the order of their files.
func (n *testNodes) manifests(image string) (objects []*unstructured.Unstructured) {
	n.Helper()
	files, err := apicrd.NodeStage(n.Context())
	require.NoError(n, err)
	read := func(folder fs.FS, pattern string) {
		names, err := fs.Glob(folder, pattern)
		require.NoError(n, err)
		for _, name := range names {
			files[name], err = fs.ReadFile(folder, name)
			require.NoError(n, err)
		}
	}
	read(manifests.Node(), "*.yaml")
	read(manifests.FS(), "*_clusteroperators.crd.yaml")
	edit := strings.NewReplacer("placeholder.example.com/machine-config-operator:latest", image, "0.0.1-snapshot", stageRelease,
		"- --root=/host\n", fmt.Sprintf("- --root=/host\n        - --boot-deadline=%s\n        - --contact-deadline=%[1]s\n", guardDeadline))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(edit.Replace(string(files[name]))), 4096)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(object)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(n, err, name)
			objects = append(objects, object)
		}
	}
	return objects
}

// pool returns the pool of the workers.
func (n *testNodes) pool(t require.TestingT) *mcfgv1.MachineConfigPool {
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(t, n.client.Get(n.Context(), client.ObjectKey{Name: api.WorkerPool}, pool))
	return pool
}

// node returns a Node.
func (n *testNodes) node(t require.TestingT, name string) *corev1.Node {
	node := &corev1.Node{}
	require.NoError(t, n.client.Get(n.Context(), client.ObjectKey{Name: name}, node))
	return node
}

// eventually waits for a state. If it does not come, it logs what the nodes report.
func (n *testNodes) eventually(check func(c *assert.CollectT)) {
	n.Helper()
	if assert.EventuallyWithT(n, check, 2*patience, tick) {
		return
	}
	for _, name := range n.Workers {
		if node := n.node(n, name); true {
			n.Logf("%s: unschedulable %t, %v", name, node.Spec.Unschedulable, node.Annotations)
		}
		out, err := n.Exec(n.Context(), name, nil, "journalctl", "--no-pager", "--lines=40", "--unit=cvo-node-*")
		n.Logf("%s: %v\n%s", name, err, out)
	}
	n.explain()
	n.FailNow()
}

// updated waits until all workers run the pool's config.
func (n *testNodes) updated() {
	n.Helper()
	n.eventually(func(c *assert.CollectT) {
		pool := n.pool(c)
		require.NotEmpty(c, pool.Spec.Configuration.Name)
		require.EqualValues(c, len(n.Workers), pool.Status.UpdatedMachineCount)
		for _, name := range n.Workers {
			node := n.node(c, name)
			require.Equal(c, pool.Spec.Configuration.Name, node.Annotations[api.CurrentConfigAnnotation])
			require.Equal(c, api.NodeDone, node.Annotations[api.NodeStateAnnotation])
			require.False(c, node.Spec.Unschedulable)
		}
	})
}

// rendered makes a change and waits until the pool has the config that results.
func (n *testNodes) rendered(change func()) {
	n.Helper()
	before := n.pool(n).Spec.Configuration.Name
	change()
	n.eventually(func(c *assert.CollectT) { require.NotEqual(c, before, n.pool(c).Spec.Configuration.Name) })
}

// apply creates or changes a MachineConfig of the workers. parts are the lists storage.files and systemd.units of its Ignition config, as JSON.
func (n *testNodes) apply(name, files, units string) {
	n.Helper()
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.MachineConfigRoleLabel: api.WorkerPool}}}
	mc.Spec.Config = runtime.RawExtension{Raw: fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"storage":{"files":[%s]},"systemd":{"units":[%s]}}`, files, units)}
	n.rendered(func() { n.replace(mc) })
}

// remove deletes a MachineConfig.
func (n *testNodes) remove(name string) {
	n.Helper()
	n.rendered(func() {
		require.NoError(n, n.client.Delete(n.Context(), &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	})
}

// replace creates an object. It deletes one that an earlier run has left.
func (n *testNodes) replace(object client.Object) {
	n.Helper()
	require.NoError(n, client.IgnoreNotFound(n.client.Delete(n.Context(), object.DeepCopyObject().(client.Object))))
	require.NoError(n, n.client.Create(n.Context(), object))
}

// file returns an entry of storage.files.
func file(name, text string) string {
	return fmt.Sprintf(`{"path":%q,"mode":420,"contents":{"source":"data:,%s"}}`, folder+"/"+name, text)
}

// on runs a shell command on a node and returns its output.
func (n *testNodes) on(node, command string) string {
	n.Helper()
	out, err := n.Exec(n.Context(), node, nil, "sh", "-c", command)
	require.NoError(n, err)
	return out
}

// boots returns when the first process of each worker started. A reboot changes it.
func (n *testNodes) boots() map[string]string {
	n.Helper()
	boots := map[string]string{}
	for _, name := range n.Workers {
		boots[name] = n.on(name, "cut -d ' ' -f 22 /proc/1/stat")
	}
	return boots
}

// rebooted asserts which workers have rebooted since.
func (n *testNodes) rebooted(before map[string]string, want ...string) {
	n.Helper()
	for name, boot := range n.boots() {
		assert.Equal(n, slices.Contains(want, name), boot != before[name], "%s has rebooted", name)
	}
}

// testNodeReboot changes a file, and then a unit. Each node reboots once for each, while the pods of a workload move. Its budget is never violated.
func testNodeReboot(t *testing.T, s *site) {
	n := withNodeStage(t, s)
	judge := n.workload(n.Workers)
	before := n.boots()
	began := time.Now()
	n.apply("50-e2e-file", file("file", "one"), "")
	n.updated()
	t.Logf("%d nodes changed a file and rebooted in %s", len(n.Workers), since(began))
	n.rebooted(before, n.Workers...)

	n.demo()
	for _, name := range n.Workers {
		assert.Equal(t, "one", n.on(name, "cat "+folder+"/file"), name)
		assert.Equal(t, "active\nenabled\nstart", n.on(name, "systemctl is-active "+demoUnit+"; systemctl is-enabled "+demoUnit+"; cat "+demoLog), name)
		require.NoError(t, n.unguarded(name))
	}
	judge()
}

// demo makes the workers run demoUnit.
func (n *testNodes) demo() {
	n.Helper()
	const name = "51-e2e-unit"
	if err := n.client.Get(n.Context(), client.ObjectKey{Name: name}, &mcfgv1.MachineConfig{}); err == nil {
		return
	}
	n.apply(name, "", fmt.Sprintf(`{"name":%q,"enabled":true,"contents":%q}`, demoUnit,
		"[Service]\nExecStart=/bin/sh -c 'echo start >>"+demoLog+"; exec sleep infinity'\n[Install]\nWantedBy=multi-user.target\n"))
	n.updated()
}

// unguarded returns an error if a node still has a guard, or a pending change.
func (n *testNodes) unguarded(name string) error {
	_, err := n.Exec(n.Context(), name, nil, "sh", "-c", `! ls /etc/systemd/system/*guard* && ! grep '"change"' /var/lib/cvo-node/state.json`)
	return err
}

// workload runs a pod on each of the nodes, with a budget that allows one disruption. The result asserts that the budget was never violated.
func (n *testNodes) workload(nodes []string) (judge func()) {
	n.Helper()
	namespace := newNamespace(n.T, n.kube)
	labels := map[string]string{"app": "web"}
	replicas := int32(len(nodes))
	_, err := n.kube.AppsV1().Deployments(namespace).Create(n.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: new(int64(1)),
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
					MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
				}},
				Containers: []corev1.Container{{Name: "web", Image: pushProbe(n.T, n.site, "components/probe:1", nil), Args: []string{"serve"}}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(n, err)
	n.budget(namespace, "web", policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1))})
	ready := map[string]bool{}
	list, err := n.kube.CoreV1().Pods(namespace).List(n.Context(), metav1.ListOptions{})
	require.NoError(n, err)
	watch, err := n.kube.CoreV1().Pods(namespace).Watch(n.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	require.NoError(n, err)
	var mu sync.Mutex
	var isUp bool
	fewest, moved := len(nodes), 0
	var watching sync.WaitGroup
	watching.Go(func() {
		for event := range watch.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			mu.Lock()
			delete(ready, pod.Name)
			if pod.DeletionTimestamp == nil && !readySince(*pod).IsZero() {
				ready[pod.Name] = true
			}
			isUp = isUp || len(ready) == len(nodes)
			if isUp {
				fewest = min(fewest, len(ready))
			}
			if pod.DeletionTimestamp != nil {
				moved++
			}
			mu.Unlock()
		}
	})
	n.eventually(func(c *assert.CollectT) {
		mu.Lock()
		defer mu.Unlock()
		require.True(c, isUp, "%d pods are ready", len(ready))
	})
	return func() {
		n.Helper()
		watch.Stop()
		watching.Wait()
		assert.Equal(n, len(nodes)-1, fewest, "the lowest number of ready pods")
		assert.NotZero(n, moved)
	}
}

// budget creates a budget for the pods with the label app. It sets the selector.
func (n *testNodes) budget(namespace, app string, spec policyv1.PodDisruptionBudgetSpec) {
	n.Helper()
	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	_, err := n.kube.PolicyV1().PodDisruptionBudgets(namespace).Create(n.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: spec,
	}, metav1.CreateOptions{})
	require.NoError(n, err)
}

// testNodePolicies changes a file for which nothing follows, and one for which a service restarts. No node drains or reboots. Then a file of a config
// changes on a node and is restored, first by a program and then at the request of an administrator.
func testNodePolicies(t *testing.T, s *site) {
	n := withNodeStage(t, s)
	n.demo()
	before := n.boots()
	settings := &operatorv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	settings.Spec.ManagementState = operatorv1.Managed
	none := []operatorv1.NodeDisruptionPolicySpecAction{{Type: operatorv1.NoneSpecAction}}
	restart := []operatorv1.NodeDisruptionPolicySpecAction{{Type: operatorv1.RestartSpecAction, Restart: &operatorv1.RestartService{ServiceName: demoUnit}}}
	settings.Spec.NodeDisruptionPolicy = operatorv1.NodeDisruptionPolicyConfig{
		Files:  []operatorv1.NodeDisruptionPolicySpecFile{{Path: folder + "/none", Actions: none}, {Path: folder + "/restart", Actions: restart}},
		SSHKey: operatorv1.NodeDisruptionPolicySpecSSHKey{Actions: none},
	}
	n.replace(settings)
	n.apply("52-e2e-none", file("none", "two"), "")
	n.updated()
	starts := n.on(n.Workers[0], "cat "+demoLog)
	n.apply("53-e2e-restart", file("restart", "three"), "")
	n.updated()
	assert.Equal(t, starts+"\nstart", n.on(n.Workers[0], "cat "+demoLog))
	for _, name := range n.Workers {
		assert.Equal(t, "two\nthree", n.on(name, "cd "+folder+"; cat none; echo; cat restart"), name)
	}
	n.rebooted(before)

	n.on(n.Workers[0], "cd "+folder+"; cp -p none saved; echo >>none")
	assert.Equal(t, n.Workers[0], n.degraded(folder+"/none: different data"))
	n.on(n.Workers[0], "cd "+folder+"; mv saved none")
	n.updated()
	n.on(n.Workers[0], "rm "+folder+"/none")
	n.degraded(folder + "/none: missing")
	node := n.node(n, n.Workers[0])
	node.Annotations[api.NodeRetryAnnotation] = node.Annotations[api.DesiredConfigAnnotation] + " " + time.Now().String()
	require.NoError(t, n.client.Patch(t.Context(), node, client.MergeFrom(n.node(n, node.Name))))
	n.updated()
	assert.Equal(t, "two", n.on(node.Name, "cat "+folder+"/none"))
	n.rebooted(before)
}

// testNodeDrain has a pod that its budget never allows to evict. Its node starts last, names the pod, and continues as soon as the budget is deleted.
func testNodeDrain(t *testing.T, s *site) {
	n := withNodeStage(t, s)
	namespace := newNamespace(t, n.kube)
	pod := probe("blocker", n.Workers[0], pushProbe(t, s, "components/probe:1", nil))
	pod.Labels = map[string]string{"app": "blocker"}
	_, err := n.kube.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	waitForPod(t, n.kube, namespace, "blocker")
	n.budget(namespace, "blocker", policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1))})
	n.apply("54-e2e-drain", file("drain", "four"), "")
	n.eventually(func(c *assert.CollectT) {
		conditions := n.node(c, n.Workers[0]).Status.Conditions
		i := slices.IndexFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == "DrainInProgress" })
		require.GreaterOrEqual(c, i, 0)
		require.Contains(c, conditions[i].Message, "Pod "+namespace+"/blocker stays: The disruption budget blocker ")
	})
	require.NoError(t, n.kube.PolicyV1().PodDisruptionBudgets(namespace).Delete(t.Context(), "blocker", metav1.DeleteOptions{}))
	n.updated()
}

// testNodeKilled kills the daemons while a change runs: one when the guard is enabled, one at the first written file, and one after the reboot.
func testNodeKilled(t *testing.T, s *site) {
	n := withNodeStage(t, s)
	before := n.boots()
	const kill = `until pkill -9 -f "^/cvo-node daemon"; do sleep 0.02; done; touch /var/log/cvo-e2e-killed`
	for i, when := range []string{"/etc/systemd/system/cvo-node-guard.service", folder + "/killed"} {
		n.on(n.Workers[i], "rm -f /var/log/cvo-e2e-killed")
		_, err := docker.Run(t.Context(), nil, "exec", "--detach", n.Workers[i], "sh", "-c", "until [ -e "+when+" ]; do sleep 0.005; done; "+kill)
		require.NoError(t, err)
	}
	// The unit starts at the next boot, and once.
	_, err := n.Exec(t.Context(), n.Workers[2], bytes.NewReader([]byte("[Service]\nExecStart=/bin/sh -c '"+kill+"; systemctl disable cvo-e2e-kill'\n"+
		"[Install]\nWantedBy=multi-user.target\n")), "sh", "-c", "rm -f /var/log/cvo-e2e-killed; cat >/etc/systemd/system/cvo-e2e-kill.service; systemctl enable cvo-e2e-kill")
	require.NoError(t, err)
	n.apply("55-e2e-killed", file("killed", "five")+","+file("second", "six"), "")
	n.updated()
	n.rebooted(before, n.Workers...)
	for _, name := range n.Workers {
		assert.Equal(t, "five\nsix", n.on(name, "ls /var/log/cvo-e2e-killed >/dev/null; cd "+folder+"; cat killed; echo; cat second"), name)
	}
}

// testNodeObstacle has a file in whose place each node has a mount point, and a unit that fails. A node names each, and returns to its former config
// once the MachineConfig is deleted.
func testNodeObstacle(t *testing.T, s *site) {
	n := withNodeStage(t, s)
	before := n.boots()
	hosts := n.on(n.Workers[0], "cat /etc/hosts")
	n.apply("57-e2e-busy", `{"path":"/etc/hosts","contents":{"source":"data:,"}},`+file("busy", "seven"), "")
	n.degraded("/etc/hosts: device or resource busy")
	n.remove("57-e2e-busy")
	n.updated()
	n.rebooted(before)
	for _, name := range n.Workers {
		assert.Empty(t, n.on(name, "ls "+folder+"/busy 2>/dev/null || true"))
	}
	assert.Equal(t, hosts, n.on(n.Workers[0], "cat /etc/hosts"))

	n.apply("58-e2e-failing", "", `{"name":"cvo-e2e-failing.service","enabled":true,"contents":"[Service]\nExecStart=/bin/false\n[Install]\nWantedBy=multi-user.target\n"}`)
	failed := n.degraded("unit cvo-e2e-failing.service has failed")
	n.remove("58-e2e-failing")
	n.updated()
	n.rebooted(before, failed)
}

// degraded waits until one worker is degraded for a reason that contains a text, and returns its name.
func (n *testNodes) degraded(reason string) (name string) {
	n.Helper()
	n.eventually(func(c *assert.CollectT) {
		require.EqualValues(c, 1, n.pool(c).Status.DegradedMachineCount)
		i := slices.IndexFunc(n.Workers, func(name string) bool {
			annotations := n.node(c, name).Annotations
			return annotations[api.NodeStateAnnotation] == api.NodeDegraded && strings.Contains(annotations[api.NodeReasonAnnotation], reason)
		})
		require.GreaterOrEqual(c, i, 0, "no node reports %s", reason)
		name = n.Workers[i]
	})
	return name
}

// testNodeRollback has a config after which the kubelet does not start. The node that gets it returns to its former config by itself, and no other
// node gets it.
func testNodeRollback(t *testing.T, s *site) {
	n := withNodeStage(t, s)
	before := n.boots()
	began := time.Now()
	n.apply("56-e2e-kubelet", "", `{"name":"kubelet.service","dropins":[{"name":"99-e2e.conf","contents":"[Service]\nExecStartPre=/bin/false\n"}]}`)
	failed := n.degraded("the node returned to its former config: a check failed for ")
	assert.Contains(t, n.node(t, failed).Annotations[api.NodeReasonAnnotation], "checking the kubelet")
	n.eventually(func(c *assert.CollectT) { require.False(c, n.node(c, failed).Spec.Unschedulable) })
	t.Logf("%s returned to its former config %s after the MachineConfig changed", failed, since(began))
	n.rebooted(before, failed)
	assert.Empty(t, n.on(failed, "cat /etc/systemd/system/kubelet.service.d/99-e2e.conf 2>/dev/null || true"))

	before = n.boots()
	n.remove("56-e2e-kubelet")
	n.updated()
	n.rebooted(before)
}

// testNodeRelease installs a release with the stage's image. It takes over the objects of the stage, and no node reboots.
func testNodeRelease(t *testing.T, s *site) {
	n := withNodeStage(t, s)
	before := n.boots()
	image, err := s.NodeStage(t.Context())
	require.NoError(t, err)
	n.trustRegistry()
	n.install(n.releaseOf(platform.Release{
		Version: stageRelease, Changes: []platform.Change{platform.Only("example-config")}, Flags: []string{"machine-config-operator=" + image},
	}), "--wait")
	version, _ := n.reported("machine-config")
	assert.Equal(t, stageRelease, version)
	n.updated()
	n.rebooted(before)
}
