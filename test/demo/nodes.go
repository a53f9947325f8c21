//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/telemetry"
	"github.com/cluster-version/cvo/pkg/node/daemon"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/machine"
	"github.com/cluster-version/cvo/test/nodeimage"
)

// The cluster has this many nodes in each pool, and each has podsPerNode pods of an application.
const (
	controlPlaneNodes = 3
	workers           = 7
	podsPerNode       = 2
)

// maxUnavailable is the number of workers that update at the same time.
const maxUnavailable = 2

// settle is the controller's wait before it renders MachineConfigs. The default would be a large part of the demo.
const settle = time.Second

// pushNodeStage pushes the component image of the node stage. No kubelet runs its program.
func (d *demo) pushNodeStage(ctx context.Context) error {
	pushed, err := nodeimage.Push(ctx, d.registry, "platform/node:1")
	d.nodeStage = pushed.ByDigest()
	return err
}

// hosts plays the machines of the cluster. Each is a folder. As a kubelet would, hosts runs the workloads of the node stage in the release
// that the cluster has: the built controller, and for each node the code of the daemon.
type hosts struct {
	demo  *demo
	names []string
	// releases are the releases of the running workloads by name.
	releases   map[string]string
	controller *process
	// daemons are the running daemons by the names of their nodes.
	daemons map[string]task
	log     *os.File
}

func (d *demo) hostFolder(node string) string { return filepath.Join(d.dir, "hosts", node) }

// startHosts creates the nodes and starts to play them.
func (d *demo) startHosts(ctx context.Context) error {
	h := &hosts{demo: d, releases: map[string]string{}, daemons: map[string]task{}}
	var err error
	if h.log, err = os.OpenFile(d.nodeLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	for _, group := range []struct {
		name, role string
		nodes      int
	}{{"control", "control-plane", controlPlaneNodes}, {"worker", "worker", workers}} {
		for i := range group.nodes {
			if err := h.add(ctx, fmt.Sprintf("%s-%d", group.name, i), group.role); err != nil {
				return err
			}
		}
	}
	d.hosts = start(h.play)
	return nil
}

// add creates a node with an empty folder.
func (h *hosts) add(ctx context.Context, name, role string) error {
	if err := os.MkdirAll(h.demo.hostFolder(name), 0o755); err != nil {
		return err
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelOSStable: "linux", "node-role.kubernetes.io/" + role: "",
	}}}
	if err := h.demo.client.Create(ctx, n); err != nil {
		return err
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	h.names = append(h.names, name)
	return h.demo.client.Status().Update(ctx, n)
}

// play follows the cluster until ctx ends.
func (h *hosts) play(ctx context.Context) error {
	defer h.stop()
	for pause(ctx, max(h.demo.options.delay/4, 50*time.Millisecond)) {
		// The next round repeats what failed.
		for _, step := range []func(context.Context) error{h.runWorkloads, h.movePods} {
			if err := step(ctx); err != nil && ctx.Err() == nil {
				fmt.Fprintln(h.log, err)
			}
		}
	}
	return nil
}

// stop ends all workloads.
func (h *hosts) stop() {
	for _, d := range h.daemons {
		d.stop()
	}
	if h.controller != nil {
		_ = h.controller.stop() // the control plane's guard ends it otherwise
	}
	_ = h.log.Close()
}

// runWorkloads starts and replaces the processes of the node stage as its DaemonSets and its Deployment say.
func (h *hosts) runWorkloads(ctx context.Context) error {
	var sets appsv1.DaemonSetList
	if err := h.demo.client.List(ctx, &sets, client.InNamespace(api.MachineConfigNamespace)); err != nil {
		return err
	}
	for _, set := range sets.Items {
		release := environment(set.Spec.Template.Spec)["RELEASE_VERSION"]
		isControlPlane := set.Name == "machine-config-daemon-control-plane"
		if h.releases[set.Name] == release {
			continue
		}
		for i, name := range h.names {
			if i < controlPlaneNodes != isControlPlane {
				continue
			}
			if err := h.runDaemon(name, release); err != nil {
				return err
			}
		}
		h.releases[set.Name] = release
	}
	var deployments appsv1.DeploymentList
	if err := h.demo.client.List(ctx, &deployments, client.InNamespace(api.MachineConfigNamespace)); err != nil {
		return err
	}
	for _, d := range deployments.Items {
		variables := environment(d.Spec.Template.Spec)
		if h.releases[d.Name] == variables["RELEASE_VERSION"] {
			continue
		}
		if err := h.runController(variables["RELEASE_VERSION"], variables["OPERATOR_IMAGE"]); err != nil {
			return err
		}
		h.releases[d.Name] = variables["RELEASE_VERSION"]
	}
	return nil
}

// environment returns the variables of a pod's only container.
func environment(pod corev1.PodSpec) map[string]string {
	variables := map[string]string{}
	for _, v := range pod.Containers[0].Env {
		variables[v.Name] = v.Value
	}
	return variables
}

func (h *hosts) runController(release, image string) (err error) {
	if h.controller != nil {
		if err := h.controller.stop(); err != nil {
			return err
		}
	}
	h.controller, err = h.demo.startProcess(h.demo.options.cvoNode, h.demo.nodeLog(), "controller", "--kubeconfig", h.demo.control.Kubeconfig,
		"--release-version", release, "--image", image, "--settle", settle.String())
	return err
}

// runDaemon runs the daemon of a node. Its machine is a folder, so files change and nothing reboots.
func (h *hosts) runDaemon(node, release string) error {
	h.daemons[node].stop()
	at, err := host.Open(h.demo.hostFolder(node), host.Options{})
	if err != nil {
		return err
	}
	d := daemon.New(h.demo.client, at, machine.New(at, machine.Options{}), clock.RealClock{}, node, release)
	h.daemons[node] = start(func(ctx context.Context) error {
		defer at.Close()
		return d.Run(logr.NewContext(ctx, telemetry.NewLogger(h.log, 0)))
	})
	return nil
}

// deploy creates the pods of an application on all nodes, and lets several workers update at the same time, as an administrator would.
func (d *demo) deploy(ctx context.Context) error {
	var list corev1.NodeList
	if err := d.client.List(ctx, &list); err != nil {
		return err
	}
	for i := range podsPerNode * len(list.Items) {
		if err := d.client.Create(ctx, pod(fmt.Sprintf("app-%d", i), list.Items[i%len(list.Items)].Name)); err != nil {
			return err
		}
	}
	patch := fmt.Sprintf(`{"spec":{"maxUnavailable":%d}}`, maxUnavailable)
	d.teller.note(note{kind: commandNote, text: fmt.Sprintf("kubectl patch machineconfigpool %s --type merge -p '%s'", api.WorkerPool, patch)})
	return d.client.Patch(ctx, &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: api.WorkerPool}}, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// appLabels are the labels of the application's pods. hosts leaves other pods alone.
func appLabels() client.MatchingLabels { return client.MatchingLabels{"app": "demo"} }

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Labels: appLabels()},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "registry.example.com/app:1"}}},
	}
}

// movePods ends the evicted pods and starts them on other nodes, as kubelets, their controller and the scheduler would.
func (h *hosts) movePods(ctx context.Context) error {
	var pods corev1.PodList
	if err := h.demo.client.List(ctx, &pods, client.InNamespace(metav1.NamespaceDefault), appLabels()); err != nil {
		return err
	}
	var nodes corev1.NodeList
	if err := h.demo.client.List(ctx, &nodes); err != nil {
		return err
	}
	load := map[string]int{}
	for _, n := range nodes.Items {
		if !n.Spec.Unschedulable {
			load[n.Name] = 0
		}
	}
	for _, p := range pods.Items {
		if _, isSchedulable := load[p.Spec.NodeName]; isSchedulable {
			load[p.Spec.NodeName]++
		}
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			continue
		}
		if err := h.demo.client.Delete(ctx, &p, client.GracePeriodSeconds(0)); err != nil {
			return err
		}
		to := slices.MinFunc(h.names, func(a, b string) int { return cost(load, a) - cost(load, b) })
		load[to]++
		if err := h.demo.client.Create(ctx, pod(p.Name, to)); err != nil {
			return err
		}
	}
	return nil
}

// cost orders nodes by their number of pods, those without scheduling last.
func cost(load map[string]int, node string) int {
	if pods, isSchedulable := load[node]; isSchedulable {
		return pods
	}
	return podsPerNode * (controlPlaneNodes + workers + 1)
}
