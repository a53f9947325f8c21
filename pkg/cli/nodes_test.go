package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/view/nodes"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/golden"
)

// TestNodesCommands runs the commands in a cluster with the kinds of the node stage.
func TestNodesCommands(t *testing.T) {
	e := withoutPlatform.For(t)
	for _, file := range []string{
		"../../../machineconfiguration/v1/zz_generated.crd-manifests/0000_80_machine-config_01_machineconfigs.crd.yaml",
		"../../../machineconfiguration/v1/zz_generated.crd-manifests/0000_80_machine-config_01_machineconfigpools-Default.crd.yaml",
		"../../../machineconfiguration/v1/zz_generated.crd-manifests/0000_80_machine-config_01_controllerconfigs-Default.crd.yaml",
		"../../../operator/v1/zz_generated.crd-manifests/0000_80_machine-config_01_machineconfigurations-Default.crd.yaml",
	} {
		t.Cleanup(e.Serve(t, file))
	}
	t.Run("status", func(t *testing.T) { testNodesStatus(newNodeCluster(t, e)) })
	t.Run("pause and resume", func(t *testing.T) { testNodesPause(newNodeCluster(t, e)) })
	t.Run("retry", func(t *testing.T) { testNodesRetry(newNodeCluster(t, e)) })
	t.Run("release", func(t *testing.T) { testNodesRelease(newNodeCluster(t, e)) })
	t.Run("plan", func(t *testing.T) { testNodesPlan(newNodeCluster(t, e)) })
}

// nodeCluster is a cluster with the kinds of the node stage, behind a proxy that records requests. Its objects are gone after the test.
type nodeCluster struct {
	*testing.T
	api        client.Client
	kubeconfig string
	// requests are the methods and paths of the commands' requests, without discovery.
	requests []string
}

func newNodeCluster(t *testing.T, e *env.Env) *nodeCluster {
	t.Helper()
	c := &nodeCluster{T: t}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{mcfgv1.Install, operatorv1.Install, corev1.AddToScheme, policyv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	var err error
	c.api, err = client.New(e.Config("test"), client.Options{Scheme: scheme})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, kind := range []client.Object{&mcfgv1.MachineConfigPool{}, &mcfgv1.MachineConfig{}, &mcfgv1.ControllerConfig{}, &operatorv1.MachineConfiguration{}, &corev1.Node{}} {
			assert.NoError(t, c.api.DeleteAllOf(ctx, kind))
		}
		for _, kind := range []client.Object{&corev1.Pod{}, &policyv1.PodDisruptionBudget{}} {
			assert.NoError(t, c.api.DeleteAllOf(ctx, kind, client.InNamespace("default"), client.GracePeriodSeconds(0)))
		}
	})
	c.kubeconfig = proxied(t, e.Config("test"), func(r *http.Request) {
		if r.URL.Path != "/api" && r.URL.Path != "/apis" && strings.Count(r.URL.Path, "/") != 3 || r.URL.Path == "/api/v1/nodes" || r.URL.Path == "/api/v1/pods" {
			c.requests = append(c.requests, r.Method+" "+r.URL.Path)
		}
	})
	return c
}

// run runs cvo nodes.
func (c *nodeCluster) run(args ...string) (out, errs string, code int) {
	c.Helper()
	c.requests = nil
	return nodesCommand(c.T, "", append(args, "--kubeconfig", c.kubeconfig)...)
}

func nodesCommand(t *testing.T, in string, args ...string) (out, errs string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := cli.New(command.Streams{In: strings.NewReader(in), Out: &stdout, Err: &stderr})
	cmd.SetArgs(append([]string{"nodes"}, args...))
	executed, err := cmd.ExecuteContextC(t.Context())
	cli.PrintError(&stderr, executed, err)
	return stdout.String(), stderr.String(), command.ExitCode(err)
}

// create creates an object, and writes its status.
func (c *nodeCluster) create(object client.Object) {
	c.Helper()
	withStatus, ok := object.DeepCopyObject().(client.Object)
	require.True(c, ok)
	require.NoError(c, c.api.Create(c.Context(), object))
	withStatus.SetResourceVersion(object.GetResourceVersion())
	withStatus.SetUID(object.GetUID())
	if _, plain := object.(*mcfgv1.MachineConfig); !plain {
		require.NoError(c, c.api.Status().Update(c.Context(), withStatus))
	}
}

// pool creates a pool that selects nodes and MachineConfigs with its role.
func (c *nodeCluster) pool(name, config string) *mcfgv1.MachineConfigPool {
	c.Helper()
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}}
	p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{api.MachineConfigRoleLabel: name}}
	p.Spec.Configuration.Name = config
	c.create(p)
	return p
}

// node creates a ready node that runs a config.
func (c *nodeCluster) node(name, role, config string) {
	c.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"node-role.kubernetes.io/" + role: ""},
		Annotations: map[string]string{api.CurrentConfigAnnotation: config, api.DesiredConfigAnnotation: config, api.NodeStateAnnotation: api.NodeDone},
	}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	c.create(n)
}

// assertNoNodeStage checks that every command reports a cluster without the node stage. Its state is no error.
func assertNoNodeStage(t *testing.T, kubeconfig string) {
	t.Helper()
	out, errs, code := nodesCommand(t, "", "status", "--kubeconfig", kubeconfig)
	assert.Zero(t, code, errs)
	assert.Equal(t, "There are no MachineConfigPools yet.\n", out)
	for _, args := range [][]string{{"status", "worker"}, {"plan"}, {"pause", "worker"}, {"resume", "worker"}, {"retry", "w-0"}, {"release", "--all"}} {
		out, errs, code := nodesCommand(t, "", append(args, "--kubeconfig", kubeconfig)...)
		assert.Equal(t, command.ExitFailed, code, "%v", args)
		assert.Empty(t, out, "%v", args)
		assert.Equal(t, "error: this cluster has no MachineConfigPools, so it has no node stage: update to a release that contains the stage, "+
			"or select another cluster with --context\n", errs, "%v", args)
	}
}

func TestNodesCommandsRejectInvalidCommandLines(t *testing.T) {
	for _, args := range [][]string{
		{"status", "a", "b"},
		{"status", "-o", "xml"},
		{"unknown"},
		{"plan", "-o", "xml"},
		{"pause"},
		{"resume", "a", "b"},
		{"pause", "a", "--dry-run=x"},
		{"retry"},
		{"retry", "a", "b"},
		{"retry", "a", "--dry-run=x"},
		{"release"},
		{"release", "a", "--all"},
		{"release", "a", "--dry-run=x"},
		{"release", "a", "--undo", "--wait"},
		{"release", "a", "--timeout=-1s"},
	} {
		_, _, code := nodesCommand(t, "", args...)
		assert.Equal(t, command.ExitUsage, code, "%v", args)
	}
}

func testNodesStatus(c *nodeCluster) {
	t := c.T
	out, _, code := c.run("status")
	assert.Zero(t, code)
	assert.Equal(t, "There are no MachineConfigPools yet.\n", out)

	c.pool("worker", "rendered-worker-1")
	c.node("w-0", "worker", "rendered-worker-1")
	c.node("w-1", "worker", "rendered-worker-0")
	c.node("stray", "none", "rendered-worker-0")
	out, errs, code := c.run("status")
	assert.Zero(t, code)
	assert.Empty(t, errs)
	assert.Equal(t, []string{"GET /apis/machineconfiguration.openshift.io/v1/machineconfigpools", "GET /api/v1/nodes"}, c.requests)
	assert.Contains(t, out, "worker  Updating  2      1     0         0         0 of 1       rendered-worker-1\n")
	assert.Contains(t, out, "w-1   Waiting  -      -        worker-0 -> worker-1  -\n")
	assert.Contains(t, out, "1 node in no pool: stray\n")

	out, _, code = c.run("status", "worker", "-o", "json")
	assert.Zero(t, code)
	var got nodes.Status
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, []nodes.Node{{Name: "w-1", Phase: nodes.Waiting, Current: "rendered-worker-0", Desired: "rendered-worker-1"}}, got.Pools[0].Nodes)

	_, errs, code = c.run("status", "master")
	assert.Equal(t, command.ExitFailed, code)
	assert.Equal(t, "error: there is no MachineConfigPool \"master\": the pools are worker\n", errs)

	var completed bytes.Buffer
	cmd := cli.New(command.Streams{Out: &completed, Err: &bytes.Buffer{}})
	cmd.SetArgs([]string{"__completeNoDesc", "nodes", "status", "--kubeconfig", c.kubeconfig, ""})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	assert.Equal(t, "worker\n:4\n", completed.String())
}

func (c *nodeCluster) isPaused(name string) bool {
	c.Helper()
	p := &mcfgv1.MachineConfigPool{}
	require.NoError(c, c.api.Get(c.Context(), client.ObjectKey{Name: name}, p))
	return p.Spec.Paused
}

func testNodesPause(c *nodeCluster) {
	t := c.T
	c.pool("worker", "rendered-worker-1")
	c.node("w-0", "worker", "rendered-worker-0")
	const deferred = "; this defers the update of 1 of 1 node to rendered-worker-1"
	for _, step := range []struct {
		args   []string
		want   string
		writes int
		paused bool
	}{
		{[]string{"pause", "worker", "--dry-run=client"}, "paused" + deferred + " (dry run)", 0, false},
		{[]string{"pause", "worker", "--dry-run"}, "paused" + deferred + " (server dry run)", 1, false},
		{[]string{"pause", "worker"}, "paused" + deferred, 1, true},
		{[]string{"pause", "worker"}, "already paused (no change)" + deferred, 0, true},
		{[]string{"resume", "worker"}, "no longer paused; the update of 1 of 1 node to rendered-worker-1 starts, at most 1 at a time", 1, false},
		{[]string{"resume", "worker"}, "not paused (no change); the update of 1 of 1 node to rendered-worker-1 is pending, at most 1 at a time", 0, false},
	} {
		out, errs, code := c.run(step.args...)
		assert.Zero(t, code, "%v", step.args)
		assert.Empty(t, errs, "%v", step.args)
		assert.Equal(t, "MachineConfigPool worker is "+step.want+"\n", out, "%v", step.args)
		assert.Len(t, c.requests, 2+step.writes, "%v", step.args)
		assert.Equal(t, step.paused, c.isPaused("worker"), "%v", step.args)
	}
	out, _, _ := c.run("pause", "worker", "-o", "json")
	var got nodes.Pause
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, 1, got.Deferred)

	_, errs, code := c.run("pause", "workers")
	assert.Equal(t, command.ExitFailed, code)
	assert.Contains(t, errs, `there is no MachineConfigPool "workers"`)
}

func testNodesRetry(c *nodeCluster) {
	t := c.T
	c.pool("worker", "rendered-worker-1")
	c.node("w-0", "worker", "rendered-worker-0")
	c.node("w-1", "worker", "rendered-worker-1")
	get := func() *corev1.Node {
		n := &corev1.Node{}
		require.NoError(t, c.api.Get(t.Context(), client.ObjectKey{Name: "w-0"}, n))
		return n
	}
	failed := get()
	failed.Annotations[api.DesiredConfigAnnotation], failed.Annotations[api.NodeStateAnnotation] = "rendered-worker-1", api.NodeDegraded
	require.NoError(t, c.api.Update(t.Context(), failed))
	var requests []string
	for _, step := range []struct {
		flag, want string
		writes     int
		isStored   bool
	}{
		{"--dry-run=client", " (dry run)", 0, false},
		{"--dry-run", " (server dry run)", 1, false},
		{"--dry-run=none", "", 1, true},
		{"--dry-run=none", "", 1, true},
	} {
		out, errs, code := c.run("retry", "w-0", step.flag)
		assert.Zero(t, code, step.flag)
		assert.Empty(t, errs, step.flag)
		assert.Equal(t, "node w-0 tries rendered-worker-1 again; 'cvo nodes status worker' shows the progress"+step.want+"\n", out)
		assert.Len(t, c.requests, 2+step.writes, step.flag)
		request := get().Annotations[api.NodeRetryAnnotation]
		assert.Equal(t, step.isStored, strings.HasPrefix(request, "rendered-worker-1 "), step.flag)
		requests = append(requests, request)
	}
	assert.NotEqual(t, requests[2], requests[3], "each command is another request")

	out, _, _ := c.run("retry", "w-0", "-o", "json")
	var got nodes.Retry
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, get().Annotations[api.NodeRetryAnnotation], got.Request)

	for node, want := range map[string]string{"w-1": "no config failed on node w-1", "w-2": `there is no node "w-2"`} {
		_, errs, code := c.run("retry", node)
		assert.Equal(t, command.ExitFailed, code)
		assert.Contains(t, errs, want)
		assert.Len(t, c.requests, 2)
	}
	var completed bytes.Buffer
	cmd := cli.New(command.Streams{Out: &completed, Err: &bytes.Buffer{}})
	cmd.SetArgs([]string{"__completeNoDesc", "nodes", "retry", "--kubeconfig", c.kubeconfig, ""})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	assert.Equal(t, "w-0\n:4\n", completed.String())
}

func testNodesRelease(c *nodeCluster) {
	t := c.T
	c.pool("worker", "rendered-worker-1")
	c.node("w-0", "worker", "rendered-worker-1")
	c.node("w-1", "worker", "rendered-worker-1")
	windows := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "windows", Labels: map[string]string{corev1.LabelOSStable: "windows"}}}
	c.create(windows)
	silent := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "silent"}}
	c.create(silent)
	released := func() (names []string) {
		var list corev1.NodeList
		require.NoError(t, c.api.List(t.Context(), &list))
		for i := range list.Items {
			if at, is := list.Items[i].Annotations[api.NodeReleasedAnnotation]; is {
				assert.NotEmpty(t, at)
				names = append(names, list.Items[i].Name)
			}
		}
		return names
	}
	const leaves = "node w-0 is to leave the node stage; node w-0: its daemon has not answered yet"
	for _, step := range []struct {
		flag, want string
		writes     int
		stored     []string
	}{
		{"--dry-run=client", " (dry run)", 0, nil},
		{"--dry-run", " (server dry run)", 1, nil},
		{"--wait=false", "", 1, []string{"w-0"}},
		{"--wait=false", "", 0, []string{"w-0"}},
	} {
		out, errs, code := c.run("release", "w-0", step.flag)
		assert.Zero(t, code, step.flag)
		assert.Empty(t, errs, step.flag)
		assert.Equal(t, leaves+step.want+"\n", out)
		assert.Len(t, c.requests, 2+step.writes, step.flag)
		assert.Equal(t, step.stored, released(), step.flag)
	}
	out, errs, code := c.run("release", "w-0", "--timeout", "1ns")
	assert.Equal(t, command.ExitUpdating, code)
	assert.Empty(t, out)
	assert.Contains(t, errs, "not released within 1ns: node w-0: its daemon has not answered yet. If the daemon of a node does not run, start it: 'kubectl get pods --namespace openshift-machine-config-operator -o wide' lists the daemons.")
	assert.Contains(t, errs, "delete /etc/systemd/system/cvo-node-guard.service and /var/lib/cvo-node. Then run 'kubectl uncordon NODE'")

	out, errs, code = c.run("release", "silent")
	assert.Zero(t, code, errs)
	assert.Equal(t, "node silent is released from the node stage; the content of the last config stays on the host\n", out)
	out, _, _ = c.run("release", "--all", "--wait=false", "-o", "json")
	var got nodes.Release
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, []nodes.Leaving{
		{Node: "silent", Released: true},
		{Node: "w-0", Why: "its daemon has not answered yet"},
		{Node: "w-1", Changed: true, Why: "its daemon has not answered yet"},
	}, got.Nodes)
	assert.Equal(t, []string{"silent", "w-0", "w-1"}, released())

	completion := func(flags ...string) string {
		var completed bytes.Buffer
		cmd := cli.New(command.Streams{Out: &completed, Err: &bytes.Buffer{}})
		cmd.SetArgs(append(append([]string{"__completeNoDesc", "nodes", "release", "--kubeconfig", c.kubeconfig}, flags...), ""))
		require.NoError(t, cmd.ExecuteContext(t.Context()))
		return completed.String()
	}
	assert.Equal(t, "windows\n:4\n", completion())
	assert.Equal(t, "silent\nw-0\nw-1\n:4\n", completion("--undo"))
	out, _, code = c.run("release", "--all", "--undo")
	assert.Zero(t, code)
	assert.Equal(t, "3 nodes (silent, w-0, w-1) are under the control of the node stage; 'cvo nodes status' shows the progress\n", out)
	assert.Empty(t, released())
	_, errs, code = c.run("release", "w-2")
	assert.Equal(t, command.ExitFailed, code)
	assert.Contains(t, errs, `there is no node "w-2": 'kubectl get nodes' lists the names`)
}

// machineConfig returns the text of a MachineConfig for workers with one file.
func machineConfig(name, path, text string) string {
	return `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: ` + name + `
  labels: {machineconfiguration.openshift.io/role: worker}
spec:
  config:
    ignition: {version: 3.5.0}
    storage:
      files: [{path: ` + path + `, contents: {source: "data:,` + text + `"}}]
`
}

func testNodesPlan(c *nodeCluster) {
	t := c.T
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	base := file("base.yaml", machineConfig("00-worker", "/etc/app.conf", "one"))
	apply(t, c.api, base)
	c.pool("worker", "")
	out, errs, code := c.run("plan", "-o", "json")
	require.Zero(t, code, errs)
	var got nodes.Plan
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	current := got.Pools[0].Target

	// The controller has rendered the MachineConfig, and the nodes run the result.
	rendered, err := config.Render("worker", stored(t, c.api), "")
	require.NoError(t, err)
	require.Equal(t, current, rendered.Name)
	rendered.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "MachineConfigPool", Name: "worker", UID: "1", Controller: new(true)}}
	c.create(rendered)
	c.node("w-0", "worker", current)
	c.node("w-1", "worker", current)
	c.create(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, ExpectedPods: 3, CurrentHealthy: 2, DesiredHealthy: 2},
	})
	for node, name := range map[string]string{"w-0": "web", "w-1": "bare"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}}}
		pod.Spec.NodeName, pod.Spec.Containers = node, []corev1.Container{{Name: "app", Image: "app"}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		c.create(pod)
	}
	more := file("more.yaml", machineConfig("99-worker", "/etc/app.conf", "two"))
	out, errs, code = c.run("plan", "-f", more)
	require.Zero(t, code, errs)
	assert.Contains(t, out, "waits for ControllerConfig machine-config-controller, which the release creates")
	controller, err := os.ReadFile("../../manifests/node/0000_80_machine-config_05_controller_config.yaml")
	require.NoError(t, err)
	stage := &mcfgv1.ControllerConfig{}
	require.NoError(t, yaml.Unmarshal(controller, stage))
	delete(stage.Annotations, api.ReleaseAnnotation) // as the daemons of the nodes
	require.NoError(t, c.api.Create(t.Context(), stage))

	out, errs, code = c.run("plan")
	require.Zero(t, code, errs)
	assert.Equal(t, "Pool worker: nothing to do, 2 of 2 nodes updated to "+current+".\n", out)
	assert.NotContains(t, c.requests, "GET /api/v1/pods", "pods do not matter")

	out, errs, code = c.run("plan", "worker", "-f", more)
	require.Zero(t, code, errs)
	assert.Empty(t, errs)
	golden.Assert(t, "nodes-plan", out)
	assert.ElementsMatch(t, []string{
		"GET /apis/machineconfiguration.openshift.io/v1/machineconfigpools", "GET /api/v1/nodes", "GET /apis/machineconfiguration.openshift.io/v1/machineconfigs",
		"GET /apis/machineconfiguration.openshift.io/v1/controllerconfigs/machine-config-controller",
		"GET /apis/operator.openshift.io/v1/machineconfigurations/cluster", "GET /apis/policy/v1/poddisruptionbudgets", "GET /api/v1/pods",
	}, c.requests)
	assert.Len(t, stored(t, c.api), 1, "a plan changes nothing")

	for _, tt := range []struct {
		name, text, errs, out string
		code                  int
	}{
		{
			"it rejects an invalid MachineConfig", machineConfig("99-bad", "/proc/x", "two"),
			"error: MachineConfig 99-bad is invalid: spec.config.storage.files[0].path is \"/proc/x\", but files in /proc do not survive a reboot; choose another path\n", "", command.ExitRefused,
		},
		{"it rejects an unknown field", machineConfig("99-bad", "/etc/x", "two") + "  osImageUrl: x\n", `unknown field "spec.osImageUrl"`, "", command.ExitRefused},
		{"it rejects another kind", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n", "ConfigMap b/a is not a MachineConfig: remove it\n", "", command.ExitRefused},
		{"it rejects an empty file", "", "contains no MachineConfig\n", "", command.ExitRefused},
		{
			"it warns of a MachineConfig without a pool", strings.ReplaceAll(machineConfig("99-lost", "/etc/x", "two"), "role: worker", "role: lost"),
			"warning: no pool selects MachineConfig 99-lost: check its labels\n", "nothing to do", 0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c.requests = nil
			out, errs, code := nodesCommand(t, tt.text, "plan", "-f", "-", "--kubeconfig", c.kubeconfig)
			assert.Equal(t, tt.code, code)
			assert.Contains(t, errs, tt.errs)
			assert.Contains(t, out, tt.out)
		})
	}

	master := c.pool("master", "")
	_, errs, code = c.run("plan")
	assert.Equal(t, command.ExitRefused, code, "the controller reports the pool as degraded")
	assert.Equal(t, "error: MachineConfigPool master: no MachineConfig matches the pool; correct its machineConfigSelector\n", errs)
	_, errs, code = c.run("plan", "worker")
	assert.Zero(t, code, errs)
	require.NoError(t, c.api.Delete(t.Context(), master))

	apply(t, c.api, file("bad.yaml", machineConfig("99-bad", "/proc/x", "two")))
	out, errs, code = c.run("plan")
	assert.Equal(t, command.ExitRefused, code)
	assert.Equal(t, "Pool worker: no node would start, because of an error (see below).\n", out)
	assert.Contains(t, errs, "error: MachineConfigPool worker: MachineConfig 99-bad is invalid: ")
}

// apply creates the MachineConfig in a file.
func apply(t *testing.T, c client.Client, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	mc := &mcfgv1.MachineConfig{}
	require.NoError(t, yaml.Unmarshal(data, mc))
	require.NoError(t, c.Create(t.Context(), mc))
}

// stored returns the MachineConfigs that are not rendered.
func stored(t *testing.T, c client.Client) []*mcfgv1.MachineConfig {
	t.Helper()
	var list mcfgv1.MachineConfigList
	require.NoError(t, c.List(t.Context(), &list))
	var out []*mcfgv1.MachineConfig
	for i := range list.Items {
		if len(list.Items[i].OwnerReferences) == 0 {
			out = append(out, &list.Items[i])
		}
	}
	return out
}
