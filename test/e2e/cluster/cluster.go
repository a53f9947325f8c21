// Package cluster creates and deletes kind clusters for tests. A cluster has a control-plane node and workers with real kubelets, and its
// container runtimes can be made to trust a registry. The environment names the node image. Callers decide what runs in the cluster.
package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cluster-version/cvo/test/e2e/docker"
	"github.com/cluster-version/cvo/test/env"
)

const (
	// NodeImageEnv is the environment variable with the node image. `make e2e` sets it.
	NodeImageEnv = "KIND_NODE_IMAGE"
	// NameEnv is the environment variable with the cluster's name.
	NameEnv = "CVO_E2E_CLUSTER"

	defaultName = "cvo-e2e"
	// podSubnet is kind's default for IPv4.
	podSubnet = "10.244.0.0/16"
)

// Options are the options of a cluster. The zero value works if the environment names a node image.
type Options struct {
	// Name is the cluster's name; default DefaultName. An existing cluster with that name is deleted.
	Name string
	// Image is the node image; default is the value of NodeImageEnv.
	Image string
	// Dir receives the cluster's kubeconfig and audit log. It is created if missing.
	Dir string
	// Workers is the number of nodes besides the control plane; default 2.
	Workers int
	// NoNetwork omits the pod network, without which no node is ready. See Network.
	NoNetwork bool
	// Network is the Docker network of the nodes; default kind. kind creates it. A node that reboots gets the lowest free address, so nodes keep their
	// addresses only in a network of their own, and if they reboot sequentially.
	Network string
	// Progress receives kind's output; default none.
	Progress io.Writer
}

// Cluster is a running cluster.
type Cluster struct {
	Name string
	// Kubeconfig is the path of an administrator's kubeconfig file.
	Kubeconfig string
	// Config has the same content for clients in this process.
	Config *rest.Config
	// ControlPlane and Workers are the names of the nodes, which are also names of Docker containers.
	ControlPlane string
	Workers      []string

	dir, kind, network string
	audit              struct {
		sync.Mutex
		// read is the number of bytes of the log that are already parsed into events.
		read   int
		events []env.AuditEvent
	}
}

// DefaultName returns the name for a cluster without Options.Name: the value of NameEnv, or else cvo-e2e.
func DefaultName() string { return cmp.Or(os.Getenv(NameEnv), defaultName) }

// Create creates a cluster. If it has a network, Create returns when all nodes are ready.
func Create(ctx context.Context, o Options) (*Cluster, error) {
	o.Image = cmp.Or(o.Image, os.Getenv(NodeImageEnv))
	if o.Image == "" {
		return nil, fmt.Errorf("finding the node image: %s is empty: run `make e2e`, or set it to an image of a kind node", NodeImageEnv)
	}
	if o.Workers == 0 {
		o.Workers = 2
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	c, err := newCluster(o)
	if err != nil {
		return nil, err
	}
	if err := c.create(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("creating the cluster %s: %w", c.Name, err), c.Delete(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// newCluster finds kind and prepares a folder for a cluster that may not exist yet.
func newCluster(o Options) (_ *Cluster, err error) {
	c := &Cluster{Name: cmp.Or(o.Name, DefaultName()), network: o.Network}
	if c.kind, err = env.Tool("kind"); err != nil {
		return nil, err
	}
	if c.dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil { // the kubeconfig in it has its own mode
		return nil, fmt.Errorf("creating a folder for the cluster: %w", err)
	}
	c.Kubeconfig = filepath.Join(c.dir, "kubeconfig")
	return c, nil
}

func (c *Cluster) create(ctx context.Context, o Options) error {
	if err := c.run(ctx, nil, "delete", "cluster", "--name", c.Name); err != nil {
		return err
	}
	config, policy := filepath.Join(c.dir, "kind.yaml"), filepath.Join(c.dir, "audit-policy.yaml")
	if err := os.WriteFile(config, []byte(configuration(o, policy)), 0o600); err != nil {
		return fmt.Errorf("writing kind's configuration: %w", err)
	}
	if err := os.WriteFile(policy, env.AuditPolicy(env.AuditWrites), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	args := []string{"create", "cluster", "--name", c.Name, "--image", o.Image, "--config", config}
	if !o.NoNetwork {
		args = append(args, "--wait", "5m")
	}
	if err := c.run(ctx, o.Progress, args...); err != nil {
		return err
	}
	if err := c.look(ctx); err != nil {
		return err
	}
	if o.NoNetwork {
		return nil
	}
	return c.awaitNodes(ctx, o.Workers+1)
}

// awaitNodes waits for the worker nodes, because kind only waits for the control plane.
func (c *Cluster) awaitNodes(ctx context.Context, want int) error {
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("waiting for nodes: %w", err)
	}
	ready := 0
	err = wait.PollUntilContextTimeout(ctx, time.Second, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // the poll continues
		}
		ready = 0
		for _, node := range nodes.Items {
			if slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
				return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
			}) {
				ready++
			}
		}
		return ready == want, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for nodes: %d of %d are ready: %w", ready, want, err)
	}
	return nil
}

// look reads the names of the cluster's nodes.
func (c *Cluster) look(ctx context.Context) error {
	nodes, err := docker.Run(ctx, nil, "ps", "--format", "{{.Names}}", "--filter", "label=io.x-k8s.kind.cluster="+c.Name,
		"--filter", "label=io.x-k8s.kind.role=worker")
	if err != nil {
		return err
	}
	c.ControlPlane, c.Workers = c.Name+"-control-plane", strings.Fields(nodes)
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	c.Config.QPS = -1 // tests poll
	return nil
}

// configuration returns kind's configuration. It allows the kubelet to run on version 1 control groups, which it rejects by default. It
// makes nodes read certs.d for trusted registries, which older container runtimes do not do by default. The API server logs its requests,
// see Audit. A cluster never outlives its machine, so etcd leaves it to the kernel when its data reaches the disk.
func configuration(o Options, auditPolicy string) string {
	return `kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking:
  ipFamily: ipv4
  podSubnet: ` + podSubnet + `
  disableDefaultCNI: ` + strconv.FormatBool(o.NoNetwork) + `
kubeadmConfigPatches:
- |
  kind: KubeletConfiguration
  apiVersion: kubelet.config.k8s.io/v1beta1
  failCgroupV1: false
` + clusterPatch("v1beta3", `
      unsafe-no-fsync: "true"`, `
      audit-policy-file: `+auditPolicyFile+`
      audit-log-path: `+auditLog+`
      audit-log-maxsize: "4096"`) + clusterPatch("v1beta4", `
      - {name: unsafe-no-fsync, value: "true"}`, `
      - {name: audit-policy-file, value: `+auditPolicyFile+`}
      - {name: audit-log-path, value: `+auditLog+`}
      - {name: audit-log-maxsize, value: "4096"}`) + `containerdConfigPatches:
- |
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"
nodes:
- role: control-plane
  extraMounts:
  - {hostPath: ` + auditPolicy + `, containerPath: ` + auditPolicyFile + `, readOnly: true}
` + strings.Repeat("- role: worker\n", o.Workers)
}

const (
	auditPolicyFile = "/etc/kubernetes/audit-policy.yaml"
	auditDir        = "/var/log/kubernetes"
	auditLog        = auditDir + "/audit.log"
)

// clusterPatch returns a patch for one version of kubeadm's configuration. kind ignores the version that it does not use.
func clusterPatch(version, etcdArgs, serverArgs string) string {
	return `- |
  kind: ClusterConfiguration
  apiVersion: kubeadm.k8s.io/` + version + `
  etcd:
    local:
      extraArgs:` + etcdArgs + `
  apiServer:
    extraArgs:` + serverArgs + `
    extraVolumes:
    - {name: audit-policy, hostPath: ` + auditPolicyFile + `, mountPath: ` + auditPolicyFile + `, readOnly: true, pathType: File}
    - {name: audit-log, hostPath: ` + auditDir + `, mountPath: ` + auditDir + `, pathType: DirectoryOrCreate}
`
}

// Audit returns the requests that the API server has answered since a time, with the responses to writes. It does not read earlier parts of
// the log again.
func (c *Cluster) Audit(ctx context.Context, since time.Time) ([]env.AuditEvent, error) {
	c.audit.Lock()
	defer c.audit.Unlock()
	var log bytes.Buffer
	err := docker.Pipe(ctx, nil, &log, "exec", c.ControlPlane, "tail", "--bytes=+"+strconv.Itoa(c.audit.read+1), auditLog)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	log.Truncate(bytes.LastIndexByte(log.Bytes(), '\n') + 1) // the last line may be incomplete
	read := log.Len()
	events, err := env.ParseAudit(&log)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	c.audit.read += read
	c.audit.events = append(c.audit.events, events...)
	var found []env.AuditEvent
	for _, e := range c.audit.events { // roughly in the order of their ends
		if !e.Received.Before(since) {
			found = append(found, e)
		}
	}
	return found, nil
}

// Network returns the manifests of the pod network that NoNetwork omits, as a list of YAML documents. The node image contains them as a
// template of kind.
func (c *Cluster) Network(ctx context.Context) (string, error) {
	manifest, err := c.Exec(ctx, c.ControlPlane, nil, "cat", "/kind/manifests/default-cni.yaml")
	if err != nil {
		return "", fmt.Errorf("reading the manifests of the network: %w", err)
	}
	settings, err := template.New("network").Parse(manifest)
	if err != nil {
		return "", fmt.Errorf("reading the manifests of the network: %w", err)
	}
	var network strings.Builder
	err = settings.Execute(&network, map[string]string{"PodSubnet": podSubnet})
	return network.String(), err
}

// Attach returns a cluster that an earlier process has left.
func Attach(ctx context.Context, o Options) (*Cluster, error) {
	c, err := newCluster(o)
	if err != nil {
		return nil, err
	}
	if err := c.run(ctx, nil, "export", "kubeconfig", "--name", c.Name); err != nil {
		return nil, err
	}
	return c, c.look(ctx)
}

// Delete deletes a complete or partial cluster by its name. Its folder stays.
func Delete(ctx context.Context, o Options) error {
	c, err := newCluster(o)
	if err != nil {
		return err
	}
	return c.Delete(ctx)
}

// Delete deletes the cluster, even if its creation was incomplete. Its folder stays.
func (c *Cluster) Delete(ctx context.Context) error {
	return c.run(ctx, nil, "delete", "cluster", "--name", c.Name)
}

// Exec runs a command in a node and returns its output.
func (c *Cluster) Exec(ctx context.Context, node string, stdin io.Reader, command ...string) (string, error) {
	args := []string{"exec"}
	if stdin != nil {
		args = append(args, "--interactive")
	}
	return docker.Run(ctx, stdin, append(append(args, node), command...)...)
}

// Trust makes the nodes trust a registry. host is as in pullspecs, and ca is PEM. It applies from the next pull on.
func (c *Cluster) Trust(ctx context.Context, host string, ca []byte) error {
	dir := "/etc/containerd/certs.d/" + host
	hosts := fmt.Sprintf("server = %q\n[host.%q]\n  ca = %q\n", "https://"+host, "https://"+host, dir+"/ca.crt")
	for _, node := range append([]string{c.ControlPlane}, c.Workers...) {
		for file, content := range map[string][]byte{"ca.crt": ca, "hosts.toml": []byte(hosts)} {
			_, err := c.Exec(ctx, node, bytes.NewReader(content), "sh", "-c", `mkdir -p "$1" && cat >"$1/$2"`, "sh", dir, file)
			if err != nil {
				return fmt.Errorf("making %s trust %s: %w", node, host, err)
			}
		}
	}
	return nil
}

// AllowReboots makes Docker start each worker again whenever systemd reboots it. kind allows one reboot. On version 1 control groups, systemd does
// not always notice that a container has ended. So it waits for each only a short time.
func (c *Cluster) AllowReboots(ctx context.Context) error {
	_, err := docker.Run(ctx, nil, append([]string{"update", "--restart", "on-failure:1000"}, c.Workers...)...)
	for _, node := range c.Workers {
		if err == nil {
			_, err = c.Exec(ctx, node, strings.NewReader("[Manager]\nDefaultTimeoutStopSec=3s\n"), "sh", "-c",
				"mkdir -p /etc/systemd/system.conf.d && cat >/etc/systemd/system.conf.d/reboot.conf && systemctl daemon-reload")
		}
	}
	return err
}

// run runs kind. An error contains its output.
func (c *Cluster) run(ctx context.Context, progress io.Writer, args ...string) error {
	command := exec.CommandContext(ctx, c.kind, append(args, "--kubeconfig", c.Kubeconfig)...)
	if c.network != "" {
		command.Env = append(os.Environ(), "KIND_EXPERIMENTAL_DOCKER_NETWORK="+c.network)
	}
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if progress != nil {
		command.Stdout = io.MultiWriter(&out, progress)
		command.Stderr = command.Stdout
	}
	if err := command.Run(); err != nil {
		return fmt.Errorf("running kind %s: %w: %s", strings.Join(args[:2], " "), err, strings.TrimSpace(out.String()))
	}
	return nil
}
