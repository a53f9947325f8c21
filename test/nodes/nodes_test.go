//go:build linux

// Package nodes tests the node stage as a whole: a real API server, the controller, and a daemon for each node that works on a folder.
package nodes_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cluster-version/cvo/pkg/api"
	cvo "github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/node/cli"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/kubelet"
	nodepool "github.com/cluster-version/cvo/pkg/node/pool"
	"github.com/cluster-version/cvo/pkg/node/report"
	"github.com/cluster-version/cvo/test/endpoint"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/golden"
)

var controlPlane *env.Env

// processVariable makes the test binary cvo-node or cvo, with the same arguments.
const processVariable = "CVO_NODE_PROCESS"

func TestMain(m *testing.M) {
	if program := os.Getenv(processVariable); program != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		root := cli.New
		if program == "cvo" {
			root = cvo.New
		}
		err := root(command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}).ExecuteContext(ctx)
		command.PrintError(os.Stderr, err)
		stop()
		os.Exit(command.ExitCode(err))
	}
	log.SetLogger(logr.Discard())
	// The plugin is on in OpenShift.
	plugins := env.Options{APIServerArgs: map[string]string{"enable-admission-plugins": "OwnerReferencesPermissionEnforcement"}}
	env.Main(m, plugins, func(e *env.Env) { controlPlane = e })
}

// serveKinds makes the control plane serve the kinds of the stage, and install applies the stage's manifests.
var serveKinds, install sync.Once

// settle is the controller's wait before it renders.
const settle = 200 * time.Millisecond

// limit bounds every wait. It is not reached unless something hangs.
const limit = time.Minute

// stage is a cluster with the node stage.
type stage struct {
	t      *testing.T
	env    *env.Env
	client client.Client
	// hosts are the root folders of the nodes.
	hosts map[string]string
	// tokens are the tokens of the daemons by node, and of the controller.
	tokens map[string]string
	// stop ends the processes.
	stop []func()
	// commands are all started processes.
	commands []*exec.Cmd
	// The API server is not ready between these times. They are zero if it always is.
	down, ready time.Time
}

// controllerPod is the name of the controller's pod. It exists only in tests that create it.
const controllerPod = "controller"

// start runs the controller, and a daemon for each node. Nodes whose names start with m belong to the control plane.
func start(t *testing.T, nodes ...string) *stage {
	s := prepare(t, nodes...)
	s.stop = append(s.stop, s.controller("1.0.0"))
	for name := range s.hosts {
		s.stop = append(s.stop, s.daemon(name, "1.0.0"))
	}
	return s
}

// prepare is like start, but runs no process.
func prepare(t *testing.T, nodes ...string) *stage {
	e := controlPlane.For(t)
	serveKinds.Do(func() {
		e.Serve(t, "0000_00_cluster-version-operator_01_clusteroperators.crd.yaml")
		for _, kind := range []string{"machineconfigs", "machineconfigpools-CustomNoUpgrade", "controllerconfigs-Default", "machineconfignodes-Default", "kubeletconfigs"} {
			e.Serve(t, "../../../machineconfiguration/v1/zz_generated.crd-manifests/0000_80_machine-config_01_"+kind+".crd.yaml")
		}
		_, err := envtest.InstallCRDs(e.Config("test"), envtest.CRDInstallOptions{
			ErrorIfPathMissing: true, MaxTime: time.Minute, Paths: []string{"../../manifests/node/0000_80_machine-config_01_noderolloutpolicies.crd.yaml"},
		})
		require.NoError(t, err)
		e.Serve(t, "../../../operator/v1/zz_generated.crd-manifests/0000_80_machine-config_01_machineconfigurations-Default.crd.yaml")
	})
	scheme, err := cluster.NewScheme()
	require.NoError(t, err)
	c, err := client.New(e.Config("administrator"), client.Options{Scheme: scheme})
	require.NoError(t, err)
	s := &stage{t: t, env: e, client: c, hosts: map[string]string{}, tokens: map[string]string{}}
	install.Do(s.install)
	s.release("1.0.0")
	begun := time.Now()
	t.Cleanup(func() {
		s.assertAccepted(begun)
		for _, kind := range []client.Object{&api.NodeRolloutPolicy{}, &operatorv1.MachineConfiguration{}, &mcfgv1.KubeletConfig{}, &mcfgv1.MachineConfigPool{}, &mcfgv1.MachineConfig{}, &mcfgv1.MachineConfigNode{}, &corev1.Node{}, &configv1.ClusterOperator{}} {
			assert.NoError(t, c.DeleteAllOf(context.WithoutCancel(t.Context()), kind))
		}
	})
	s.tokens["controller"] = s.token(api.MachineConfigController, nil)
	for _, name := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node-role.kubernetes.io/worker": ""}}}
		if strings.HasPrefix(name, "m") {
			n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		}
		require.NoError(t, c.Create(t.Context(), n))
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		require.NoError(t, c.Status().Update(t.Context(), n))
		s.hosts[name] = t.TempDir()
		pod := s.daemonPod(name)
		s.tokens[name] = s.token(pod.Spec.ServiceAccountName, pod)
	}
	return s
}

// restart ends all processes of the stage and starts them again.
func (s *stage) restart() {
	for _, stop := range s.stop {
		stop()
	}
	s.controller("1.0.0")
	for name := range s.hosts {
		s.daemon(name, "1.0.0")
	}
}

// release makes another release the stage's. An update applies the ControllerConfig first.
func (s *stage) release(version string) {
	s.t.Helper()
	cc := &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: api.MachineConfigController}}
	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %q}}}`, api.ReleaseAnnotation, version)
	require.NoError(s.t, s.client.Patch(s.t.Context(), cc, client.RawPatch(types.MergePatchType, patch)))
}

// controller runs the controller of a release.
func (s *stage) controller(release string) (stop func()) {
	return s.run("controller", "--settle", settle.String(), "--release-version", release, "--image", imageOf(release))
}

// imageOf returns the image of the stage in a release.
func imageOf(release string) string {
	return fmt.Sprintf("registry.example.com/node@sha256:%x", sha256.Sum256([]byte(release)))
}

// daemon runs the daemon of a node and a release.
func (s *stage) daemon(node, release string) (stop func()) {
	return s.run("daemon", "--release-version", release, "--node", node, "--root", s.hosts[node], "--kubelet-health", "")
}

// run runs a process of the stage until stop is called or the test ends. It has the permissions of its manifests.
func (s *stage) run(args ...string) (stop func()) {
	process := args[0]
	if process == "daemon" {
		process = args[slices.Index(args, "--node")+1]
	}
	return s.runAs(s.kubeconfig(s.tokens[process]), args...)
}

// runAs is like run, with a kubeconfig.
func (s *stage) runAs(kubeconfig string, args ...string) (stop func()) {
	return s.launch("cvo-node", append(args, "--kubeconfig", kubeconfig)...)
}

// launch is like run, for cvo-node or cvo.
func (s *stage) launch(program string, args ...string) (stop func()) {
	file, err := os.Executable()
	require.NoError(s.t, err)
	cmd := exec.Command(file, args...)
	cmd.Env = append(os.Environ(), processVariable+"="+program, "POD_NAME="+controllerPod)
	cmd.Stdout, cmd.Stderr = s.t.Output(), s.t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(s.t, cmd.Start())
	s.commands = append(s.commands, cmd)
	stop = sync.OnceFunc(func() {
		if cmd.ProcessState != nil {
			return // kill has ended it
		}
		assert.NoError(s.t, cmd.Process.Signal(syscall.SIGTERM), "%v", args)
		assert.NoError(s.t, cmd.Wait(), "%v", args)
	})
	s.t.Cleanup(stop)
	return stop
}

// config creates a MachineConfig for the workers, or changes it. files has the contents of files by path.
func (s *stage) config(name string, files map[string]string) {
	s.t.Helper()
	s.configFor(api.WorkerPool, name, files)
}

// configFor is like config, for the nodes of a role.
func (s *stage) configFor(role, name string, files map[string]string) {
	s.t.Helper()
	type file struct {
		Path     string            `json:"path"`
		Contents map[string]string `json:"contents"`
	}
	var list []file
	for path, text := range files {
		list = append(list, file{path, map[string]string{"source": "data:," + text}})
	}
	raw, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.5.0"}, "storage": map[string]any{"files": list}})
	require.NoError(s.t, err)
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.MachineConfigRoleLabel: role}}}
	spec := mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}}
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Name: name}, mc); err == nil {
		mc.Spec = spec
		require.NoError(s.t, s.client.Update(s.t.Context(), mc))
		return
	}
	mc.Spec = spec
	require.NoError(s.t, s.client.Create(s.t.Context(), mc))
}

// pod runs a pod on a node. Its finalizer keeps it there until end is called.
func (s *stage) pod(name, node string) (end func()) {
	p := s.podWith("default", name, node, func(p *corev1.Pod) {
		p.Labels, p.Finalizers = map[string]string{"app": name}, []string{"example.com/running"}
	})
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	require.NoError(s.t, s.client.Status().Update(s.t.Context(), p)) // a budget does not protect a pending pod
	end = sync.OnceFunc(func() {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		assert.NoError(s.t, s.client.Patch(context.WithoutCancel(s.t.Context()), p, patch))
	})
	s.t.Cleanup(end)
	return end
}

func (s *stage) node(name string) *corev1.Node {
	n := &corev1.Node{}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKey{Name: name}, n))
	return n
}

// condition returns a condition of a node, the zero value if it is absent.
func condition(n *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return corev1.NodeCondition{}
	}
	return n.Status.Conditions[i]
}

func (s *stage) cordoned() []string {
	var names []string
	for name := range s.hosts {
		if s.node(name).Spec.Unschedulable {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// eventually waits until check passes.
func (s *stage) eventually(check func(*assert.CollectT)) {
	s.t.Helper()
	require.EventuallyWithT(s.t, check, limit, 20*time.Millisecond)
}

// eventuallyDeleted waits until a pod is being deleted.
func (s *stage) eventuallyDeleted(name string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		pod := &corev1.Pod{}
		require.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, pod))
		assert.NotNil(c, pod.DeletionTimestamp)
	})
}

// staged plays the daemon of a node. It reports that the host has staged another config than before, although the host has not.
func (s *stage) staged(node, before string) {
	s.t.Helper()
	machine := &mcfgv1.MachineConfigNode{}
	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Name: node}, machine))
		assert.NotEqual(c, before, machine.Annotations[api.StageAnnotation])
	})
	reported := machine.DeepCopy()
	nodepool.SetStaged(&reported.Status.Conditions, machine.Annotations[api.StageAnnotation], "", time.Now())
	require.NoError(s.t, s.client.Status().Patch(s.t.Context(), reported, client.MergeFrom(machine)))
}

// updated waits until the worker pool is updated to another config than before, and returns its name.
func (s *stage) updated(before string) (config string) {
	s.t.Helper()
	return s.updatedPool(api.WorkerPool, before, len(s.hosts))
}

// updatedPool is like updated, for a pool with so many nodes.
func (s *stage) updatedPool(pool, before string, nodes int) (config string) {
	s.t.Helper()
	s.eventually(func(t *assert.CollectT) {
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(t, s.client.Get(s.t.Context(), client.ObjectKey{Name: pool}, p))
		config = p.Status.Configuration.Name
		assert.NotEmpty(t, config)
		assert.NotEqual(t, before, config)
		assert.EqualValues(t, nodes, p.Status.UpdatedMachineCount)
	})
	return config
}

// table returns the output of kubectl get machineconfigpool worker, without the column with its age, and with short names of configs.
func (s *stage) table(names map[string]string) string {
	kubectl, err := env.Tool("kubectl")
	require.NoError(s.t, err)
	out, err := exec.CommandContext(s.t.Context(), kubectl, "--kubeconfig", s.env.Kubeconfig, "get", "mcp", "worker").CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	var lines []string
	for line := range strings.Lines(string(out)) {
		fields := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(line), -1)
		if name, ok := names[fields[1]]; ok {
			fields[1] = name
		}
		lines = append(lines, strings.Join(fields[:len(fields)-1], "  "))
	}
	return strings.Join(lines, "\n") + "\n"
}

// assertWrites checks that the stage has written to each Node since a time, but at most so many times, including its status and its
// MachineConfigNode. A write may conflict with one of another process. If a process conflicted with its own writes, there would be one conflict
// for each.
func (s *stage) assertWrites(since time.Time, most int) {
	s.t.Helper()
	writes, toStatus, toMachine, conflicts := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	reads := 0
	for _, r := range s.requests(since) {
		switch {
		case r.Verb == "get" && r.Code == http.StatusOK && strings.HasPrefix(r.UserAgent, "cvo-node-daemon"):
			reads++
		case r.Object.Resource == "machineconfignodes" && r.Write():
			toMachine[r.Object.Name]++
		case r.Object.Resource != "nodes":
		case r.Code == http.StatusConflict:
			conflicts[r.Object.Name]++
		case r.Write() && r.Object.Subresource == "":
			writes[r.Object.Name]++
		case r.Write():
			toStatus[r.Object.Name]++
		}
	}
	s.t.Logf("writes: %v, to the status: %v, to the MachineConfigNode: %v, conflicts: %v", writes, toStatus, toMachine, conflicts)
	assert.LessOrEqual(s.t, reads, len(s.hosts), "each daemon reads the config once")
	for name := range s.hosts {
		assert.Positive(s.t, writes[name], name)
		assert.LessOrEqual(s.t, writes[name]+toStatus[name]+toMachine[name], most, name)
		assert.LessOrEqual(s.t, conflicts[name], 2, name)
	}
}

// assertAccepted checks that the roles of the stage allowed all its requests since a time, and that none was invalid. A daemon may know of its
// config shortly before the API server knows of the permission to read it. An API server that starts knows no roles until it is ready. An administrator
// grants the permissions for Jobs.
func (s *stage) assertAccepted(since time.Time) {
	s.t.Helper()
	for _, r := range s.requests(since) {
		assert.NotEqual(s.t, http.StatusUnprocessableEntity, r.Code, "%s: %s %s", r.User, r.Verb, r.Object)
		isUnready := r.Received.After(s.down) && r.Received.Before(s.ready)
		isLate := r.Verb == "get" && r.Object.Resource == "machineconfigs"
		if r.Code == http.StatusForbidden && !isUnready && !isLate && r.Object.Group != "batch" {
			assert.Fail(s.t, "forbidden", "%s may not %s %s", r.User, r.Verb, r.Object)
		}
	}
}

// requests returns the stage's requests since a time.
func (s *stage) requests(since time.Time) []env.AuditEvent {
	s.t.Helper()
	requests, err := s.env.Audit()
	require.NoError(s.t, err)
	return slices.DeleteFunc(requests, func(r env.AuditEvent) bool {
		return !strings.HasPrefix(r.UserAgent, "cvo-node") || r.Received.Before(since)
	})
}

// TestPoolsUpdateWithinMaxUnavailable follows an update of five nodes, of which three may be unavailable. The ends of pods decide which node
// is done first.
func TestPoolsUpdateWithinMaxUnavailable(t *testing.T) {
	s := start(t, "n1", "n2", "n3", "n4", "n5")
	s.config("00-worker", nil)
	before := s.updated("")
	for name := range s.hosts {
		n := s.node(name)
		assert.Empty(t, n.Annotations[api.DesiredDrainAnnotation], "a node that has the config already is not drained")
		assert.Equal(t, before, n.Annotations[api.CurrentConfigAnnotation])
	}
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	three := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"maxUnavailable":3}}`))
	require.NoError(t, s.client.Patch(t.Context(), p, three))
	end := map[string]func(){}
	for name := range s.hosts {
		end[name] = s.pod("app-on-"+name, name)
	}
	names := map[string]string{before: "rendered-worker-before"}

	begun := time.Now()
	s.config("50-motd", map[string]string{"/etc/motd": "hello"})
	var steps strings.Builder
	for updated, step := range []struct { // each step updates one node
		ends      string
		cordoned  []string
		available string
	}{
		{"", []string{"n1", "n2", "n3"}, "3 of 5 unavailable"},
		{"n2", []string{"n1", "n3", "n4"}, "3 of 5 unavailable"},
		{"n1", []string{"n3", "n4", "n5"}, "3 of 5 unavailable"},
		{"n3", []string{"n4", "n5"}, "2 of 5 unavailable"},
		{"n5", []string{"n4"}, "1 of 5 unavailable"},
		{"n4", nil, "0 of 5 unavailable"},
	} {
		if step.ends != "" {
			end[step.ends]()
		}
		s.eventually(func(c *assert.CollectT) {
			assert.Equal(c, step.cordoned, s.cordoned())
			require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "worker"}, p))
			assert.Equal(c, step.available, fmt.Sprintf("%d of %d unavailable", p.Status.UnavailableMachineCount, p.Status.MachineCount))
			assert.EqualValues(c, updated, p.Status.ReadyMachineCount, "the table shows it")
			if step.ends != "" {
				assert.Equal(c, p.Spec.Configuration.Name, s.node(step.ends).Annotations[api.CurrentConfigAnnotation])
			}
		})
		names[p.Spec.Configuration.Name] = "rendered-worker-after"
		fmt.Fprintf(&steps, "after the pod on %s ended:\n%s\n", step.ends, s.table(names))
	}

	golden.Assert(t, "pool", steps.String())
	for name, root := range s.hosts {
		s.eventually(func(c *assert.CollectT) {
			machine := &mcfgv1.MachineConfigNode{}
			require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: name}, machine))
			assert.Equal(c, "worker", machine.Spec.Pool.Name)
			assert.Equal(c, p.Spec.Configuration.Name, machine.Spec.ConfigVersion.Desired)
			require.NotNil(c, machine.Status.ConfigVersion)
			assert.Equal(c, p.Spec.Configuration.Name, machine.Status.ConfigVersion.Current)
			assert.True(c, meta.IsStatusConditionTrue(machine.Status.Conditions, string(mcfgv1.MachineConfigNodeUpdated)))
			assert.Equal(c, machine.Generation, machine.Status.ObservedGeneration)
			staged, _ := nodepool.IsStaged(machine, p.Spec.Configuration.Name)
			assert.True(c, staged)
		})
		text, err := os.ReadFile(filepath.Join(root, "etc/motd"))
		require.NoError(t, err)
		assert.Equal(t, "hello", string(text), name)
	}
	// 20 on an idle machine, and the taint of a node that waits. The limit is that of the whole stage, with a reboot.
	s.assertWrites(begun, 24)
}

// TestBrokenConfigStopsAndItsDeletionRepairs has a config that one host cannot apply: a folder is in the place of its file.
func TestBrokenConfigStopsAndItsDeletionRepairs(t *testing.T) {
	s := start(t, "n1", "n2")
	require.NoError(t, os.MkdirAll(filepath.Join(s.hosts["n1"], "etc/motd/folder"), 0o755))
	s.config("00-worker", map[string]string{"/etc/issue": "welcome"})
	before := s.updated("")

	s.config("50-motd", map[string]string{"/etc/motd": "hello", "/etc/issue": "changed"})

	s.eventually(func(c *assert.CollectT) {
		n := s.node("n1")
		assert.Equal(c, api.NodeDegraded, n.Annotations[api.NodeStateAnnotation])
		assert.Contains(c, n.Annotations[api.NodeReasonAnnotation], "/etc/motd")
		assert.Equal(c, before, n.Annotations[api.CurrentConfigAnnotation])
		assert.NotEqual(c, before, n.Annotations[api.DesiredConfigAnnotation])
		assert.False(c, n.Spec.Unschedulable, "the host has its old config, so the node serves")
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "worker"}, p))
		assert.EqualValues(c, 1, p.Status.DegradedMachineCount)
		assert.Zero(c, p.Status.UpdatedMachineCount, "the other node waits")
	})
	text, err := os.ReadFile(filepath.Join(s.hosts["n1"], "etc/issue"))
	require.NoError(t, err)
	assert.Equal(t, "welcome", string(text))
	assert.Equal(t, before, s.node("n2").Annotations[api.DesiredConfigAnnotation])

	require.NoError(t, s.client.Delete(t.Context(), &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "50-motd"}}))
	s.eventually(func(c *assert.CollectT) {
		for name := range s.hosts {
			n := s.node(name)
			assert.Equal(c, api.NodeDone, n.Annotations[api.NodeStateAnnotation])
			assert.Empty(c, n.Annotations[api.NodeReasonAnnotation])
			assert.Equal(c, before, n.Annotations[api.DesiredConfigAnnotation])
			assert.Equal(c, before, n.Annotations[api.CurrentConfigAnnotation])
		}
	})
}

// TestNodesThatCannotStageAreSkipped has a folder in the place of a file in which the daemon of n1 names the staged config.
func TestNodesThatCannotStageAreSkipped(t *testing.T) {
	s := start(t, "n1", "n2")
	s.config("00-worker", nil)
	before := s.updated("")
	obstacle := filepath.Join(s.hosts["n1"], config.Folder, "staged.json")
	require.NoError(t, os.Remove(obstacle))
	require.NoError(t, os.Mkdir(obstacle, 0o700))

	s.config("50-motd", map[string]string{"/etc/motd": "hello"})

	p := &mcfgv1.MachineConfigPool{}
	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "worker"}, p))
		assert.Equal(c, p.Spec.Configuration.Name, s.node("n2").Annotations[api.CurrentConfigAnnotation])
		assert.NotEqual(c, before, p.Spec.Configuration.Name)
		why := nodepool.Message(p, nodepool.NodesWaiting)
		assert.Contains(c, why, "Node n1 cannot stage MachineConfig "+p.Spec.Configuration.Name+": ")
		assert.Contains(c, why, "staged.json")
		assert.EqualValues(c, 1, p.Status.UpdatedMachineCount)
	})
	n1 := s.node("n1")
	assert.Equal(t, before, n1.Annotations[api.DesiredConfigAnnotation])
	assert.Equal(t, api.NodeDone, n1.Annotations[api.NodeStateAnnotation])
	assert.False(t, n1.Spec.Unschedulable)
	assert.False(t, nodepool.IsTrue(p, mcfgv1.MachineConfigPoolDegraded))
	plan := s.plan("")
	require.Equal(t, []string{"n1 Wait"}, turns(plan))
	assert.Contains(t, plan.Nodes[0].Why, "cannot stage MachineConfig")

	require.NoError(t, os.Remove(obstacle))
	s.restart() // the daemon retries it at once
	s.updated(before)
}

// TestRefusedEvictionsAreRetriedWhenTheBudgetChanges plays the controller of budgets.
func TestRefusedEvictionsAreRetriedWhenTheBudgetChanges(t *testing.T) {
	s := start(t, "n1")
	s.config("00-worker", nil)
	before := s.updated("")
	end := s.pod("web", "n1")
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	budget.Spec.MaxUnavailable, budget.Spec.Selector = new(intstr.FromInt(1)), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	require.NoError(t, s.client.Create(t.Context(), budget))
	t.Cleanup(func() { assert.NoError(t, s.client.Delete(context.WithoutCancel(t.Context()), budget)) })
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, ExpectedPods: 1, CurrentHealthy: 1, DesiredHealthy: 1}
	require.NoError(t, s.client.Status().Update(t.Context(), budget))

	begun := time.Now()
	s.config("50-motd", map[string]string{"/etc/motd": "hello"})
	evictions := func() (codes []int) {
		for _, r := range s.requests(begun) {
			if r.Object.Subresource == "eviction" {
				codes = append(codes, r.Code)
			}
		}
		return codes
	}
	s.eventually(func(c *assert.CollectT) {
		assert.Equal(c, []int{http.StatusTooManyRequests}, evictions())
		draining := condition(s.node("n1"), corev1.NodeDrainInProgress)
		assert.Equal(c, "Blocked", draining.Reason)
		assert.Equal(c, "Pod default/web stays: The disruption budget web needs 1 healthy pods and has 1 currently", draining.Message)
	})
	budget.Status.DisruptionsAllowed = 1
	require.NoError(t, s.client.Status().Update(t.Context(), budget))

	s.eventually(func(c *assert.CollectT) {
		assert.Equal(c, []int{http.StatusTooManyRequests, http.StatusCreated}, evictions())
	})
	end()
	s.updated(before)
	s.eventually(func(c *assert.CollectT) {
		for _, kind := range []corev1.NodeConditionType{
			corev1.NodeMaintenancePlanned, corev1.NodeDrainInProgress, corev1.NodeDrained, corev1.NodeMaintenanceInProgress,
		} {
			assert.Empty(c, condition(s.node("n1"), kind))
		}
	})
}

// TestNodesWhoseBudgetAllowsNothingArePassedOver plays the controller of budgets. The pool's order is n1, n2.
func TestNodesWhoseBudgetAllowsNothingArePassedOver(t *testing.T) {
	s := start(t, "n1", "n2")
	end := s.pod("web", "n1")
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	budget.Spec.MaxUnavailable, budget.Spec.Selector = new(intstr.FromInt(1)), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	require.NoError(t, s.client.Create(t.Context(), budget))
	t.Cleanup(func() { assert.NoError(t, s.client.Delete(context.WithoutCancel(t.Context()), budget)) })
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, ExpectedPods: 2, CurrentHealthy: 1, DesiredHealthy: 1}
	require.NoError(t, s.client.Status().Update(t.Context(), budget))
	s.config("00-worker", nil)
	before := s.updated("") // without a drain

	s.restart() // so that the controller has seen the budget
	begun := time.Now()
	s.config("50-motd", map[string]string{"/etc/motd": "hello"})
	s.eventually(func(c *assert.CollectT) {
		config := s.node("n2").Annotations[api.CurrentConfigAnnotation]
		assert.NotEmpty(c, config)
		assert.NotEqual(c, before, config)
	})
	n1 := s.node("n1")
	assert.Equal(t, before, n1.Annotations[api.DesiredConfigAnnotation])
	assert.False(t, n1.Spec.Unschedulable)
	s.eventually(func(c *assert.CollectT) {
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "worker"}, p))
		assert.Equal(c, "Node n1 waits for PodDisruptionBudget default/web, which allows no disruption now: 1 pods are healthy, and 1 must be",
			nodepool.Message(p, nodepool.NodesWaiting))
	})
	budget.Status.CurrentHealthy, budget.Status.DisruptionsAllowed = 2, 1
	require.NoError(t, s.client.Status().Update(t.Context(), budget))

	s.eventually(func(c *assert.CollectT) { assert.Equal(c, []string{"n1"}, s.cordoned()) })
	end()
	s.updated(before)
	s.eventually(func(c *assert.CollectT) {
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "worker"}, p))
		assert.Empty(c, nodepool.Message(p, nodepool.NodesWaiting))
	})
	for _, r := range s.requests(begun) {
		assert.False(t, r.Object.Subresource == "eviction" && r.Code == http.StatusTooManyRequests, "no eviction was refused")
	}
}

// TestInvalidMaxUnavailableDegradesOnlyItsPool has an invalid pool beside the worker pool.
func TestInvalidMaxUnavailableDegradesOnlyItsPool(t *testing.T) {
	s := start(t, "n1")
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "invalid"}}
	p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{api.MachineConfigRoleLabel: "worker"}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"invalid": ""}}
	p.Spec.MaxUnavailable = new(intstr.FromString("many"))
	require.NoError(t, s.client.Create(t.Context(), p))

	s.config("00-worker", nil)

	s.updated("") // its config is rendered after a wait that an error of the other pool would discard
	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(p), p))
		assert.Contains(c, nodepool.Message(p, mcfgv1.MachineConfigPoolDegraded), `spec.maxUnavailable is "many"`)
	})
}

// TestControlPlaneHoldsTheReleaseBack updates the stage to another release, whose config the control plane gets.
func TestControlPlaneHoldsTheReleaseBack(t *testing.T) {
	s := start(t, "m1", "n2")
	s.configFor(api.ControlPlanePool, "00-master", nil)
	s.reports("1.0.0", configv1.ConditionFalse, "Cluster version is 1.0.0")
	s.stop[0]()
	end := s.pod("app", "m1")
	s.configFor(api.ControlPlanePool, "50-motd", map[string]string{"/etc/motd": "hello"})

	begun := time.Now()
	s.release("1.1.0")
	for _, stop := range s.stop[1:] {
		stop()
	}
	for name := range s.hosts {
		s.daemon(name, "1.1.0")
	}
	s.controller("1.1.0")

	s.reports("1.0.0", configv1.ConditionTrue, "Working towards 1.1.0: 0 of 1 nodes of MachineConfigPool master are updated")
	end()
	s.reports("1.1.0", configv1.ConditionFalse, "Cluster version is 1.1.0")
	s.eventually(func(c *assert.CollectT) {
		events := &corev1.EventList{}
		require.NoError(c, s.client.List(t.Context(), events, client.MatchingFields{"involvedObject.name": api.MachineConfigOperator}))
		assert.True(c, slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == "OperatorVersionChanged" }))
	})
	writes := 0
	for _, r := range s.requests(begun) {
		if r.Write() && r.Object.Resource == "clusteroperators" {
			writes++
		}
	}
	assert.Less(t, writes, 20, "a status that changes at each reconcile would be written without end")
}

// reports waits until the ClusterOperator is available, has a version, and has a status and message of Progressing.
func (s *stage) reports(release string, is configv1.ConditionStatus, message string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		operator := &configv1.ClusterOperator{}
		require.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Name: api.MachineConfigOperator}, operator))
		assert.Equal(c, []configv1.OperandVersion{{Name: "operator", Version: release}, {Name: "operator-image", Version: imageOf(release)}}, operator.Status.Versions)
		available := api.FindCondition(operator.Status.Conditions, configv1.OperatorAvailable)
		require.NotNil(c, available)
		assert.Equal(c, configv1.ConditionTrue, available.Status)
		progressing := api.FindCondition(operator.Status.Conditions, configv1.OperatorProgressing)
		require.NotNil(c, progressing)
		assert.Equal(c, is, progressing.Status)
		assert.Equal(c, message, progressing.Message)
	})
}

// TestDaemonsOfTheControlPlaneHoldTheReleaseBack updates the stage to a release without another config. No rollout waits for the DaemonSets,
// because the ClusterOperator represents them.
func TestDaemonsOfTheControlPlaneHoldTheReleaseBack(t *testing.T) {
	s := prepare(t, "m1", "n2")
	s.configFor(api.ControlPlanePool, "00-master", nil)
	s.config("00-worker", nil)
	stopController, stopDaemon := s.controller("1.0.0"), s.daemon("m1", "1.0.0")
	s.daemon("n2", "1.0.0")
	s.updatedPool(api.ControlPlanePool, "", 1)
	s.updatedPool(api.WorkerPool, "", 1)
	s.reports("1.0.0", configv1.ConditionFalse, "Cluster version is 1.0.0")

	stopController()
	s.controller("1.1.0")
	s.reports("1.0.0", configv1.ConditionTrue, `Working towards 1.1.0: MachineConfigPool master has no config of release 1.1.0 yet: it waits for the controller of release "1.0.0", `+
		`which ControllerConfig machine-config-controller names; the running one is of "1.1.0"`)
	s.release("1.1.0")
	s.reports("1.0.0", configv1.ConditionTrue, "Working towards 1.1.0: the daemons of these nodes of MachineConfigPool master are not of release 1.1.0 yet: m1")
	stopDaemon()
	s.daemon("m1", "1.1.0")
	s.reports("1.1.0", configv1.ConditionFalse, "Cluster version is 1.1.0")
}

// TestNodesAreUpdatedOnceWithTheStage updates the stage by a release that changes a MachineConfig, too. The controller of the release before still
// runs when the MachineConfig changes.
func TestNodesAreUpdatedOnceWithTheStage(t *testing.T) {
	s := start(t, "n1")
	s.config("00-worker", nil)
	before := s.updated("")
	begun := time.Now()

	s.release("1.1.0")
	s.config("50-motd", map[string]string{"/etc/motd": "early"})
	time.Sleep(5 * settle)
	s.config("50-motd", map[string]string{"/etc/motd": "late"})
	s.stop[0]()
	s.controller("1.1.0")
	const why = `waits for its daemon of release 1.1.0: the running one is of release "1.0.0"`
	s.eventually(func(c *assert.CollectT) {
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: api.WorkerPool}, p))
		assert.Equal(c, "Node n1 "+why, nodepool.Message(p, nodepool.NodesWaiting))
	})
	planned := s.plan("")
	assert.Equal(t, []string{"n1 Wait"}, turns(planned))
	assert.Equal(t, why, planned.Nodes[0].Why)
	assert.Equal(t, before, s.node("n1").Annotations[api.DesiredConfigAnnotation])
	s.stop[1]()
	s.daemon("n1", "1.1.0")

	after := s.updated(before)
	rendered := &mcfgv1.MachineConfig{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: after}, rendered))
	assert.Equal(t, "1.1.0", rendered.Annotations[api.ReleaseAnnotation])
	created := 0
	for _, r := range s.requests(begun) {
		if r.Verb == "create" && r.Object.Resource == "machineconfigs" {
			created++
		}
	}
	assert.Equal(t, 1, created, "rendered configs")
}

// TestStageAloneUpdatesNothing installs the stage on a cluster without other MachineConfigs.
func TestStageAloneUpdatesNothing(t *testing.T) {
	s := prepare(t, "m1", "n2")
	s.install()
	s.release("1.0.0") // cvo release new sets the version
	begun := time.Now()
	s.controller("1.0.0")
	for name := range s.hosts {
		s.daemon(name, "1.0.0")
	}

	s.updatedPool(api.ControlPlanePool, "", 1)
	s.updatedPool(api.WorkerPool, "", 1)

	for _, r := range s.requests(begun) {
		assert.NotEqual(t, "eviction", r.Object.Subresource)
	}
	for name := range s.hosts {
		assert.Empty(t, s.node(name).Annotations[api.DesiredDrainAnnotation], name)
	}
}

// TestChangedRenderedConfigsAreRefused changes a rendered MachineConfig before the node's daemon reads it.
func TestChangedRenderedConfigsAreRefused(t *testing.T) {
	s := start(t, "n1")
	s.config("00-worker", nil)
	before := s.updated("")
	s.stop[1]()
	s.config("50-motd", map[string]string{"/etc/motd": "hello"})
	mc, p := &mcfgv1.MachineConfig{}, &mcfgv1.MachineConfigPool{}
	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "worker"}, p))
		mc.Name = p.Spec.Configuration.Name
		assert.NotEqual(c, before, mc.Name)
	})
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(mc), mc))
	mc.Spec.Config.Raw = []byte(strings.Replace(string(mc.Spec.Config.Raw), "hello", "changed", 1))
	require.NoError(t, s.client.Update(t.Context(), mc))

	s.daemon("n1", "1.0.0")

	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "worker"}, p))
		assert.Contains(c, nodepool.Message(p, nodepool.NodesWaiting), mc.Name+" is invalid: spec was changed after the controller rendered it")
	})
	assert.Equal(t, before, s.node("n1").Annotations[api.DesiredConfigAnnotation])
	assert.NoFileExists(t, filepath.Join(s.hosts["n1"], "etc/motd"))
	require.NoError(t, s.client.Delete(t.Context(), mc))
	s.eventually(func(c *assert.CollectT) {
		again := &mcfgv1.MachineConfig{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(mc), again))
		assert.NotEqual(c, mc.UID, again.UID, "the controller renders it again")
	})
}

// TestRestartedProcessesContinue restarts all processes while a node is drained.
func TestRestartedProcessesContinue(t *testing.T) {
	s := start(t, "n1", "n2")
	s.config("00-worker", nil)
	before := s.updated("")
	end := s.pod("app", "n1")
	s.config("50-motd", map[string]string{"/etc/motd": "hello"})
	s.eventuallyDeleted("app")

	restarted := time.Now()
	s.restart()
	begun := time.Now()
	end()

	s.updated(before)
	assert.Empty(t, s.cordoned())
	for _, r := range s.requests(restarted) {
		assert.False(t, r.Object.Subresource == "eviction" && r.Code == http.StatusCreated && r.Received.After(begun), "the pod was evicted once")
		assert.False(t, r.Object.Resource == "" && strings.HasPrefix(r.UserAgent, "cvo-node-daemon"), "a daemon requested %s, and each reboot starts one", r.URI)
	}
}

// TestCordonsOfAdministratorsAreKept cordons a node after its update was requested and before its daemon has seen the request.
func TestCordonsOfAdministratorsAreKept(t *testing.T) {
	s := start(t, "n1")
	s.config("00-worker", nil)
	before := s.updated("")
	for _, stop := range s.stop[1:] {
		stop()
	}
	s.config("50-motd", map[string]string{"/etc/motd": "hello"})
	s.staged("n1", before)
	s.eventually(func(c *assert.CollectT) {
		assert.NotEqual(c, before, s.node("n1").Annotations[api.DesiredConfigAnnotation])
	})
	cordon := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))
	require.NoError(t, s.client.Patch(t.Context(), s.node("n1"), cordon))
	end := s.pod("app", "n1")

	s.daemon("n1", "1.0.0")

	s.eventuallyDeleted("app")
	end()
	s.updated(before)
	assert.Equal(t, []string{"n1"}, s.cordoned())
}

// TestKubeletConfigsReachNodes follows the file of a KubeletConfig: created, changed, rejected and deleted. No garbage collector runs.
func TestKubeletConfigsReachNodes(t *testing.T) {
	s := start(t, "n1")
	s.config("00-worker", nil)
	before := s.updated("")
	kc := &mcfgv1.KubeletConfig{ObjectMeta: metav1.ObjectMeta{Name: "limits"}}
	kc.Spec.MachineConfigPoolSelector = &metav1.LabelSelector{MatchLabels: map[string]string{api.PoolLabelPrefix + "worker": ""}}
	kc.Spec.KubeletConfig = &runtime.RawExtension{Raw: []byte(`{"maxPods":500}`)}
	file := filepath.Join(s.hosts["n1"], kubelet.DefaultFolder, "99-kubeletconfig-0.conf")
	content := func() string {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(text)
	}
	require.NoError(t, s.client.Create(t.Context(), kc))
	first := s.updated(before)
	assert.Equal(t, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 500\n", content())

	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "99-worker-generated-kubelet"}}
	generated := func() string {
		err := s.client.Get(t.Context(), client.ObjectKeyFromObject(mc), mc)
		require.NoError(t, client.IgnoreNotFound(err))
		return string(mc.Spec.Config.Raw)
	}
	want := generated()
	for _, change := range []func() error{
		func() error { return s.client.Delete(t.Context(), mc) },
		func() error {
			return s.client.Patch(t.Context(), mc, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"mine":"yes"},"annotations":null}}`)))
		},
	} {
		version := mc.ResourceVersion
		require.NoError(t, change())
		s.eventually(func(c *assert.CollectT) {
			assert.Equal(c, want, generated())
			assert.Contains(c, mc.Annotations, api.GeneratedByAnnotation)
			assert.NotEqual(c, version, mc.ResourceVersion)
		})
	}
	assert.Equal(t, "yes", mc.Labels["mine"], "labels of other clients stay")

	require.NoError(t, s.client.Patch(t.Context(), kc, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"logLevel":4}}`))))
	second := s.updated(first)
	assert.Contains(t, content(), "verbosity: 4")

	require.NoError(t, s.client.Patch(t.Context(), kc, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"kubeletConfig":{"clusterDomain":"x"}}}`))))
	accepted := func() (c mcfgv1.KubeletConfigCondition) {
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(kc), kc))
		if len(kc.Status.Conditions) > 0 {
			c = kc.Status.Conditions[0]
		}
		return c
	}
	s.eventually(func(c *assert.CollectT) {
		assert.Contains(c, accepted().Message, "spec.kubeletConfig.clusterDomain")
		assert.Equal(c, kc.Generation, kc.Status.ObservedGeneration)
	})
	assert.Contains(t, content(), "maxPods: 500", "the node keeps the last valid version")
	suffix, ok := kc.Annotations[api.SuffixAnnotation]
	assert.True(t, ok)
	assert.Empty(t, suffix)

	begun := time.Now()
	require.NoError(t, s.client.Delete(t.Context(), kc))
	assert.Equal(t, before, s.updated(second))
	assert.NoFileExists(t, file)
	err := s.client.Get(t.Context(), client.ObjectKeyFromObject(mc), mc)
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	for _, r := range s.requests(begun) {
		assert.False(t, r.Write() && r.Object.Resource == "kubeletconfigs", "%+v", r)
	}
}

// TestEffectiveDisruptionPoliciesAreReported has one policy that overrides a default one, and one without effect.
func TestEffectiveDisruptionPoliciesAreReported(t *testing.T) {
	s := start(t)
	settings := &operatorv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	settings.Spec.ManagementState = operatorv1.Managed
	reboot := []operatorv1.NodeDisruptionPolicySpecAction{{Type: operatorv1.RebootSpecAction}}
	settings.Spec.NodeDisruptionPolicy.Files = []operatorv1.NodeDisruptionPolicySpecFile{
		{Path: "/etc/containers/policy.json", Actions: reboot}, {Path: "etc/motd", Actions: reboot},
	}
	settings.Spec.NodeDisruptionPolicy.SSHKey.Actions = reboot
	require.NoError(t, s.client.Create(t.Context(), settings))

	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(settings), settings))
		assert.Equal(c, settings.Generation, settings.Status.ObservedGeneration)
		assert.Equal(c, disruption.Policies(settings.Spec.NodeDisruptionPolicy), settings.Status.NodeDisruptionPolicyStatus.ClusterPolicies)
		degraded := meta.FindStatusCondition(settings.Status.Conditions, report.PoliciesDegraded)
		require.NotNil(c, degraded)
		assert.Equal(c, metav1.ConditionTrue, degraded.Status)
		assert.Contains(c, degraded.Message, `files[1].path is "etc/motd": use an absolute path`)
	})
}

// TestPolicyReplacesTheDrain changes two files. A policy requires nothing for the first one.
func TestPolicyReplacesTheDrain(t *testing.T) {
	s := prepare(t, "n1")
	none := []operatorv1.NodeDisruptionPolicySpecAction{{Type: operatorv1.NoneSpecAction}}
	settings := &operatorv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	settings.Spec.ManagementState = operatorv1.Managed
	settings.Spec.NodeDisruptionPolicy.Files = []operatorv1.NodeDisruptionPolicySpecFile{{Path: "/etc/motd", Actions: none}}
	settings.Spec.NodeDisruptionPolicy.SSHKey.Actions = none
	require.NoError(t, s.client.Create(t.Context(), settings))
	s.controller("1.0.0")
	s.daemon("n1", "1.0.0") // it reads the policies before it begins
	s.config("00-worker", nil)
	first := s.updated("")
	drain := func() string {
		n := &corev1.Node{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: "n1"}, n))
		return n.Annotations[api.AppliedDrainAnnotation]
	}
	require.Empty(t, drain())

	s.config("00-worker", map[string]string{"/etc/motd": "hello"})
	second := s.updated(first)
	assert.FileExists(t, s.hosts["n1"]+"/etc/motd")
	assert.Empty(t, drain())

	s.config("00-worker", map[string]string{"/etc/motd": "hello", "/etc/issue": "hello"})
	assert.Equal(t, "uncordon-"+s.updated(second), drain())
}

// TestControllerServesMetrics reads the metrics during a drain, after the update, and after the deletion of the node.
func TestControllerServesMetrics(t *testing.T) {
	s := start(t, "n1")
	s.config("00-worker", nil)
	before := s.updated("")
	s.stop[0]()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	// An administrator's permissions: without a certificate in files, the endpoint keeps one in a Secret.
	s.runAs(s.env.Kubeconfig, "controller", "--settle", "200ms", "--release-version", "1.0.0", "--listen", address)
	eventually := func(check func(c *assert.CollectT, text string)) {
		t.Helper()
		s.eventually(func(c *assert.CollectT) {
			served, err := endpoint.Connect(t.Context(), s.env.Config("administrator"), api.MachineConfigNamespace, api.MachineConfigController, "https://"+address)
			require.NoError(c, err)
			defer served.Close()
			text, err := endpoint.Metrics(t.Context(), served)
			require.NoError(c, err)
			check(c, string(text))
		})
	}

	end := s.pod("app", "n1")
	s.config("50-motd", map[string]string{"/etc/motd": "hello"})
	eventually(func(c *assert.CollectT, text string) {
		for _, series := range []string{
			`mcc_drain_err{node="n1"} 0`,
			`mco_machine_count{pool="worker"} 1`,
			`mco_updated_machine_count{pool="worker"} 0`,
			`mco_state{node="n1",pool="worker",reason="",state="Updating"} `,
			`os_image_url_override{pool="worker"} 0`,
			`cvo_node_pool_slots{kind="used",pool="worker"} 1`,
			`cvo_node_pool_bound{bound="Nodes",pool="worker"} 1`,
		} {
			assert.Contains(c, text, "\n"+series)
		}
	})
	end()
	s.updated(before)
	eventually(func(c *assert.CollectT, text string) {
		for _, phase := range []string{"Prepare", "Drain", "Apply", "Resume"} {
			assert.Contains(c, text, fmt.Sprintf("\ncvo_node_phase_duration_seconds_count{phase=%q,pool=\"worker\"} 1\n", phase))
		}
		assert.NotContains(c, text, "\nmcc_drain_err{")
		assert.Contains(c, text, "\n"+`mco_state{node="n1",pool="worker",reason="",state="Updated"} `)
	})
	s.stop[1]()
	require.NoError(t, s.client.Delete(t.Context(), s.node("n1")))
	eventually(func(c *assert.CollectT, text string) { assert.NotContains(c, text, `node="n1"`) })

	leading, err := leader.Find(t.Context(), s.env.Config("administrator"), api.MachineConfigNamespace, api.MachineConfigController)
	require.NoError(t, err)
	anonymous, err := serve.NewClient(&rest.Config{}, "https://"+address, serve.Trust{Fingerprint: leading.Fingerprint}, nil)
	require.NoError(t, err)
	defer anonymous.Close()
	_, err = endpoint.Metrics(t.Context(), anonymous)
	assert.True(t, apierrors.IsUnauthorized(err), "%v", err)
}

// TestInvalidNodeSelectorKeepsTheNodesOfItsPool makes the selector of a custom pool invalid, and changes the config of the workers. The worker
// pool selects the nodes of the custom pool, too.
func TestInvalidNodeSelectorKeepsTheNodesOfItsPool(t *testing.T) {
	s := start(t, "n1", "n2")
	infra := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "infra"}}
	infra.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "infra", Operator: metav1.LabelSelectorOpExists}}}
	infra.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{api.MachineConfigRoleLabel: "infra"}}
	require.NoError(t, s.client.Create(t.Context(), infra))
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"infra":""}}}`))
	require.NoError(t, s.client.Patch(t.Context(), s.node("n1"), label))
	s.configFor("infra", "00-infra", nil)
	s.config("00-worker", nil)
	before := map[string]string{"n1": s.updatedPool("infra", "", 1), "n2": s.updatedPool(api.WorkerPool, "", 1)}
	pool := func(name string) *mcfgv1.MachineConfigPool {
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: name}, p))
		return p
	}

	machinePool := func() string {
		machine := &mcfgv1.MachineConfigNode{}
		require.NoError(t, client.IgnoreNotFound(s.client.Get(t.Context(), client.ObjectKey{Name: "n1"}, machine)))
		return machine.Spec.Pool.Name
	}
	require.Eventually(t, func() bool { return machinePool() == "infra" }, limit, 20*time.Millisecond)
	setOperator := func(operator metav1.LabelSelectorOperator) {
		patch := fmt.Appendf(nil, `{"spec":{"nodeSelector":{"matchExpressions":[{"key":"infra","operator":%q}]}}}`, operator)
		require.NoError(t, s.client.Patch(t.Context(), infra, client.RawPatch(types.MergePatchType, patch)))
	}

	setOperator("Bogus")
	s.config("50-motd", map[string]string{"/etc/motd": "hello"})

	s.eventually(func(c *assert.CollectT) {
		assert.Contains(c, nodepool.Message(pool("infra"), mcfgv1.MachineConfigPoolDegraded), "spec.nodeSelector is invalid")
		assert.Equal(c, before["n1"], pool("infra").Status.Configuration.Name)
		assert.False(c, nodepool.IsTrue(pool("infra"), mcfgv1.MachineConfigPoolUpdated))
		assert.NotEqual(c, before["n2"], pool(api.WorkerPool).Spec.Configuration.Name)
		assert.Equal(c, "Node n1 waits because it may belong to MachineConfigPool infra, whose spec.nodeSelector is invalid (and 1 other node)",
			nodepool.Message(pool(api.WorkerPool), nodepool.NodesWaiting))
	})
	for name, config := range before {
		assert.Equal(t, config, s.node(name).Annotations[api.DesiredConfigAnnotation])
	}
	assert.Equal(t, "infra", machinePool())

	setOperator(metav1.LabelSelectorOpExists)
	s.updatedPool(api.WorkerPool, before["n2"], 1)
	assert.Equal(t, before["n1"], s.node("n1").Annotations[api.DesiredConfigAnnotation])
}
