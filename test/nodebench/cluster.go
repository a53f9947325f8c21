//go:build linux

package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/manifests/apicrd"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/process"
)

// release is the version of the release that contains the stage.
const release = "1.0.0"

// agent is the user agent of this program, apart from that of the daemons.
const agent = "nodebench"

// testCluster is a control plane with controllers, nodes and pods.
type testCluster struct {
	*bench
	env    *env.Env
	client client.WithWatch
	// dir has the files of processes, and hosts the hosts of nodes.
	dir, hosts string
	// nodes and apps are the names of the Nodes and of the ReplicaSets.
	nodes, apps []string
	processes   []*process.Process
}

// newCluster starts a control plane with the kinds and the manifests of the stage, and the controllers of Kubernetes. The caller must call stop.
func (b *bench) newCluster(ctx context.Context, nodes int, dir, hosts string) (*testCluster, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	e, err := env.Start(env.Options{})
	if err != nil {
		return nil, err
	}
	c := &testCluster{
		bench: b, env: e, dir: dir, hosts: hosts,
		nodes: names("node", nodes), apps: names("app", b.options.pods*nodes/b.options.nodes/b.options.replicas),
	}
	scheme, err := cluster.NewScheme()
	if err == nil {
		c.client, err = client.NewWithWatch(e.Config(agent), client.Options{Scheme: scheme})
	}
	if err == nil {
		err = c.install(ctx)
	}
	if err == nil {
		err = c.startControllers()
	}
	if err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// names returns n names with a prefix.
func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	return list
}

func (c *testCluster) stop() {
	for _, p := range c.processes {
		p.Stop()
	}
	_ = c.env.Stop() // the result of the measurement does not depend on it
}

// start starts a process that ends with the control plane.
func (c *testCluster) start(name, program string, args ...string) (*process.Process, error) {
	p, err := process.Start(c.logs, name, nil, program, args...)
	if err != nil {
		return nil, err
	}
	c.processes = append(c.processes, p)
	return p, c.env.Guard(name, p.ID())
}

// exited returns an error if a process has ended.
func (c *testCluster) exited() error {
	for _, p := range c.processes {
		select {
		case <-p.Exited:
			return fmt.Errorf("a process has ended; end of its log:\n%s", p.Tail())
		default:
		}
	}
	return nil
}

// install makes the control plane serve the kinds of the stage and applies its manifests.
func (c *testCluster) install(ctx context.Context) error {
	definitions, err := apicrd.NodeStage(ctx)
	if err != nil {
		return err
	}
	operators, err := apicrd.Read(ctx)
	if err != nil {
		return err
	}
	crds := filepath.Join(c.dir, "crds")
	if err := os.MkdirAll(crds, 0o755); err != nil {
		return err
	}
	for _, set := range []map[string][]byte{definitions, operators} {
		for name, data := range set {
			if err := os.WriteFile(filepath.Join(crds, name), data, 0o600); err != nil {
				return err
			}
		}
	}
	root, err := env.ModuleRoot()
	if err != nil {
		return err
	}
	manifests := filepath.Join(root, "manifests", "node")
	for _, args := range [][]string{
		{"apply", "--server-side", "-f", crds, "-f", filepath.Join(manifests, "0000_80_machine-config_01_noderolloutpolicies.crd.yaml")},
		{"wait", "--for=condition=established", "customresourcedefinition", "--all"},
		{"apply", "--server-side", "-f", manifests},
		{"annotate", "controllerconfig", "--all", "--overwrite", "machineconfiguration.openshift.io/release-image-version=" + release},
	} {
		if err := c.kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func (c *testCluster) kubectl(ctx context.Context, args ...string) error {
	kubectl, err := env.Tool("kubectl")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, kubectl, append([]string{"--kubeconfig", c.env.Kubeconfig}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", args[0], err, out)
	}
	return nil
}

//go:embed kwok.yaml
var kwokStages string

const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 1000, burst: 1000}
`

// startControllers starts the controllers of Kubernetes that act on nodes, pods and budgets, the scheduler, and kwok.
func (c *testCluster) startControllers() error {
	stages, scheduler := filepath.Join(c.dir, "kwok.yaml"), filepath.Join(c.dir, "scheduler.yaml")
	milliseconds := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	text := strings.NewReplacer("STARTUP", milliseconds(c.options.startup), "TERMINATION", milliseconds(c.options.termination)).Replace(kwokStages)
	for file, data := range map[string]string{stages: text, scheduler: fmt.Sprintf(schedulerConfig, c.env.Kubeconfig)} {
		if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
			return err
		}
	}
	for _, p := range []struct {
		name string
		args []string
	}{
		// On a busy machine, a late heartbeat is not a failed node.
		{"kube-controller-manager", []string{
			"--kubeconfig", c.env.Kubeconfig, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000",
			"--controllers=replicaset-controller,disruption-controller,node-lifecycle-controller", "--node-monitor-grace-period=5m",
		}},
		{"kube-scheduler", []string{"--config", scheduler, "--secure-port=0"}},
		{"kwok", []string{"--kubeconfig", c.env.Kubeconfig, "--config", stages, "--manage-all-nodes", "--node-lease-duration-seconds=40"}},
	} {
		program, err := env.Tool(p.name)
		if err != nil {
			return err
		}
		if _, err := c.start(p.name, program, p.args...); err != nil {
			return err
		}
	}
	return nil
}

// parallel is the number of parallel requests with which this program creates objects.
const parallel = 16

// forEach calls do for each name.
func forEach(ctx context.Context, names []string, do func(ctx context.Context, name string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, name := range names {
		group.Go(func() error { return do(ctx, name) })
	}
	return group.Wait()
}

func (c *testCluster) createNodes(ctx context.Context) error {
	return forEach(ctx, c.nodes, func(ctx context.Context, name string) error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"node-role.kubernetes.io/worker": "", corev1.LabelHostname: name, corev1.LabelOSStable: "linux",
		}}}
		if err := c.client.Create(ctx, n); err != nil {
			return err
		}
		now := metav1.Now()
		status := corev1.NodeStatus{
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("250"),
			},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now,
			}},
		}
		status.Allocatable = status.Capacity
		patch := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		patch.Status = status
		return c.client.Status().Patch(ctx, patch, client.MergeFrom(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	})
}

// appsPerNamespace is the number of ReplicaSets in a namespace. For each eviction, the API server lists the budgets of the namespace.
const appsPerNamespace = 20

// appLabel has the name of a pod's ReplicaSet.
const appLabel = "app"

// createApps creates the ReplicaSets and their budgets.
func (c *testCluster) createApps(ctx context.Context) error {
	namespaces := map[string]string{}
	for apps := range slices.Chunk(c.apps, appsPerNamespace) {
		for _, app := range apps {
			namespaces[app] = "of-" + apps[0]
		}
		if err := c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "of-" + apps[0]}}); err != nil {
			return err
		}
	}
	return forEach(ctx, c.apps, func(ctx context.Context, name string) error {
		meta := metav1.ObjectMeta{Namespace: namespaces[name], Name: name}
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: name}}
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: meta}
		budget.Spec.Selector, budget.Spec.MaxUnavailable = selector, new(intstr.FromInt(c.options.allowed))
		if err := c.client.Create(ctx, budget); err != nil {
			return err
		}
		set := &appsv1.ReplicaSet{ObjectMeta: meta}
		set.Spec.Replicas, set.Spec.Selector = new(int32(c.options.replicas)), selector
		set.Spec.Template.Labels = selector.MatchLabels
		set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "registry.example.com/app"}}
		return c.client.Create(ctx, set)
	})
}

// budgetsKnown reports whether the controller of budgets has counted all pods.
func (c *testCluster) budgetsKnown(ctx context.Context) (bool, error) {
	list := &policyv1.PodDisruptionBudgetList{}
	if err := c.client.List(ctx, list); err != nil {
		return false, err
	}
	for _, b := range list.Items {
		if int(b.Status.DisruptionsAllowed) != c.options.allowed {
			return false, nil
		}
	}
	return true, nil
}

// patch patches an object by its name.
func (c *testCluster) patch(ctx context.Context, object client.Object, text string) error {
	return c.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(text)))
}
