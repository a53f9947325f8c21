package nodes

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

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
