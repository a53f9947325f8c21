// Command podnetwork connects the pods of a kind cluster, with one process per node. It configures the node's container runtime for the
// node's range of pod addresses, routes every other node's range to that node, and lets pods reach addresses outside of the cluster with
// the node's address. It runs as a DaemonSet in the node's network and uses the node's own programs under /host.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	host       = "/host"
	configPath = host + "/etc/cni/net.d/10-podnetwork.conflist"
	// resync is the interval at which removed settings are repaired.
	resync = time.Minute
)

func main() {
	node := flag.String("node", os.Getenv("NODE_NAME"), "name of this node")
	pods := flag.String("pod-subnet", "", "addresses of all pods")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, *node, *pods)
	stop()
	if err != nil {
		slog.Error("connecting pods", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, self, pods string) error {
	if self == "" || pods == "" {
		return errors.New("parsing flags: --node and --pod-subnet are required")
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	failed := make(chan error, 1)
	see := func(object any) {
		node, ok := object.(*corev1.Node)
		if !ok {
			return
		}
		if err := connect(ctx, node, self, pods); err != nil {
			select {
			case failed <- err: // the DaemonSet restarts the process
			default:
			}
		}
	}
	factory := informers.NewSharedInformerFactory(client, resync)
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, now any) { see(now) },
	}); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// connect sets up the connection from this node to a node, itself or another. It may be called repeatedly.
func connect(ctx context.Context, node *corev1.Node, self, pods string) error {
	podRange := node.Spec.PodCIDR
	if podRange == "" {
		return nil // the controller manager soon assigns a range
	}
	if node.Name == self {
		if err := masquerade(ctx, podRange, pods); err != nil {
			return err
		}
		return writeConfig(podRange)
	}
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return hostCommand(ctx, "ip", "route", "replace", podRange, "via", address.Address)
		}
	}
	return nil
}

// masquerade hides pods behind the node's address outside of the cluster, where the route back is unknown.
func masquerade(ctx context.Context, podRange, pods string) error {
	rule := []string{"POSTROUTING", "-s", podRange, "!", "-d", pods, "-j", "MASQUERADE"}
	if hostCommand(ctx, "iptables", append([]string{"-w", "-t", "nat", "-C"}, rule...)...) == nil {
		return nil
	}
	return hostCommand(ctx, "iptables", append([]string{"-w", "-t", "nat", "-A"}, rule...)...)
}

// writeConfig configures the container runtime, which then reports the node's network as ready.
func writeConfig(podRange string) error {
	config := fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "podnetwork",
  "plugins": [
    {
      "type": "ptp",
      "mtu": 1500,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/podnetwork",
        "ranges": [[{"subnet": %q}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, podRange)
	if was, err := os.ReadFile(configPath); err == nil && string(was) == config {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(configPath), 0o755); err != nil {
		return fmt.Errorf("writing the network's configuration: %w", err)
	}
	if err := os.WriteFile(configPath+".new", []byte(config), 0o600); err != nil {
		return fmt.Errorf("writing the network's configuration: %w", err)
	}
	if err := os.Rename(configPath+".new", configPath); err != nil {
		return fmt.Errorf("writing the network's configuration: %w", err)
	}
	return nil
}

// hostCommand runs a program of the node.
func hostCommand(ctx context.Context, name string, args ...string) error {
	command := exec.CommandContext(ctx, "/usr/sbin/"+name, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: host}
	command.Dir = "/"
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("running %s %v: %w: %s", name, args, err, out)
	}
	return nil
}
