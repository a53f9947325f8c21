package nodes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// Retry is a request to try a config again on a node that could not apply it, or to restore the content of the config on a node that differs from it.
type Retry struct {
	Node string `json:"node"`
	Pool string `json:"pool"`
	// Config is the config that failed or whose content differs, and Failure the reason that the node reports.
	Config  string `json:"config"`
	Failure string `json:"failure"`
	// Request is the value of annotation api.NodeRetryAnnotation.
	Request string `json:"request"`
	// DryRun is the kind of a dry run; empty for a real request.
	DryRun string `json:"dryRun,omitempty"`
	// Message describes the result for people.
	Message string `json:"message"`
}

// NewRetry returns the request for a node. The error says why there is nothing to retry or to restore.
func NewRetry(c Cluster, name string) (*Retry, error) {
	i := slices.IndexFunc(c.Nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no node %q: 'kubectl get nodes' lists the names", name)
	}
	n := c.Nodes[i]
	members := pool.Assign(c.Pools, c.Nodes)
	for _, p := range c.Pools {
		if !slices.Contains(members.Nodes[p.Name], n) {
			continue
		}
		failed, target := n.Annotations[api.DesiredConfigAnnotation], p.Spec.Configuration.Name
		differs := n.Annotations[api.CurrentConfigAnnotation] == failed
		switch {
		case !pool.IsDegraded(n):
			return nil, fmt.Errorf("no config failed on node %s, so there is nothing to retry: 'cvo nodes status %s' shows its state", name, p.Name)
		case failed != target && !differs && p.Spec.Paused:
			return nil, fmt.Errorf("MachineConfigPool %s has config %s now instead of %s, with which node %s failed, and is paused: run 'cvo nodes resume %s' to update the node",
				p.Name, target, failed, name, p.Name)
		case failed != target && !differs:
			return nil, fmt.Errorf("MachineConfigPool %s has config %s now instead of %s, with which node %s failed: the node gets it without a retry, see 'cvo nodes plan %s'",
				p.Name, target, failed, name, p.Name)
		}
		if other := busyControlPlane(c.Nodes, n); other != "" {
			return nil, fmt.Errorf("control-plane node %s is unavailable: wait until it is ready, because control-plane nodes are updated one at a time", other)
		}
		if differs {
			if err := checkSlots(p, members.Nodes[p.Name], n, c.At); err != nil {
				return nil, err
			}
		}
		what := "tries " + failed + " again"
		if differs {
			what = "restores the content of " + failed
		}
		return &Retry{
			Node: name, Pool: p.Name, Config: failed, Failure: n.Annotations[api.NodeReasonAnnotation],
			Request: failed + " " + c.At.UTC().Format(time.RFC3339Nano),
			Message: fmt.Sprintf("node %s %s; 'cvo nodes status %s' shows the progress", name, what, p.Name),
		}, nil
	}
	return nil, fmt.Errorf("no MachineConfigPool updates node %s: 'cvo nodes status' shows why", name)
}

// checkSlots returns an error if no slot is free for a node whose host differs from its config. Any number of nodes may differ, so they do not have a
// slot each, unlike nodes that failed. A node whose restoration was requested just before now has one, before its daemon begins.
func checkSlots(p *mcfgv1.MachineConfigPool, nodes []*corev1.Node, n *corev1.Node, now time.Time) error {
	most, err := pool.MaxUnavailable(p, len(nodes))
	if err != nil {
		return err
	}
	var busy []string
	for _, other := range nodes {
		if other != n && (pool.IsBusy(other) || pool.Differs(other) && isRequested(other, now)) {
			busy = append(busy, other.Name)
		}
	}
	if len(busy) >= most {
		return fmt.Errorf("%s of MachineConfigPool %s may be unavailable at the same time, and %s already: wait until they are ready",
			printable.Count(most, "node"), p.Name, printable.List(busy, mostNames))
	}
	return nil
}

// isRequested reports whether a retry of the node's config was requested in the last minute.
func isRequested(n *corev1.Node, now time.Time) bool {
	config, at, _ := strings.Cut(n.Annotations[api.NodeRetryAnnotation], " ")
	requested, err := time.Parse(time.RFC3339Nano, at)
	return err == nil && config == n.Annotations[api.DesiredConfigAnnotation] && now.Sub(requested) < time.Minute
}

// busyControlPlane returns another control-plane node than n that is not ready or is being updated; empty if none is, or if n is a worker. Of a later
// attempt, the controller checks only whether etcd and the API survive it.
func busyControlPlane(all []*corev1.Node, n *corev1.Node) string {
	if !pool.IsControlPlaneNode(n) {
		return ""
	}
	for _, other := range all {
		if other != n && pool.IsControlPlaneNode(other) && pool.IsBusy(other) {
			return other.Name
		}
	}
	return ""
}
