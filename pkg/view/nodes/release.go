package nodes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// Release is a request to release nodes from the node stage, or to return them.
type Release struct {
	// Undo returns the nodes to the stage.
	Undo  bool      `json:"undo"`
	Nodes []Leaving `json:"nodes"`
	// DryRun is the kind of a dry run; empty for a real request.
	DryRun string `json:"dryRun,omitempty"`
	// Message describes the result for people.
	Message string `json:"message"`
}

// Leaving is a node that is to leave the stage, or to return.
type Leaving struct {
	Node string `json:"node"`
	// Changed reports whether the request changes the node's annotation.
	Changed bool `json:"changed"`
	// Released reports whether the node and its host have nothing of the stage.
	Released bool `json:"released"`
	// Why says why the node is not released yet; empty if it is, or if it returns.
	Why string `json:"why,omitempty"`
}

// NewRelease returns the request for the named nodes, or for all nodes without names. Nodes with Windows have no part in the stage.
func NewRelease(c Cluster, names []string, undo bool) (*Release, error) {
	r := &Release{Undo: undo, Nodes: []Leaving{}}
	for _, name := range names {
		if !slices.ContainsFunc(c.Nodes, func(n *corev1.Node) bool { return n.Name == name }) {
			return nil, fmt.Errorf("there is no node %q: 'kubectl get nodes' lists the names", name)
		}
	}
	for _, n := range c.Nodes {
		if len(names) > 0 && !slices.Contains(names, n.Name) || len(names) == 0 && pool.IsWindows(n) {
			continue
		}
		r.Nodes = append(r.Nodes, Leaving{Node: n.Name, Changed: pool.IsReleased(n) == undo})
	}
	if len(r.Nodes) == 0 {
		return nil, errors.New("the cluster has no nodes")
	}
	sorted.By(r.Nodes, func(a, b Leaving) int { return strings.Compare(a.Node, b.Node) })
	r.Observe(c.Nodes)
	return r, nil
}

// Observe updates the state of the nodes. A deleted node counts as released.
func (r *Release) Observe(nodes []*corev1.Node) {
	byName := map[string]*corev1.Node{}
	for _, n := range nodes {
		byName[n.Name] = n
	}
	for i := range r.Nodes {
		l := &r.Nodes[i]
		l.Why = ""
		if n := byName[l.Node]; n != nil {
			l.Why = remains(n)
		}
		l.Released = l.Why == ""
		if r.Undo {
			l.Why = ""
		}
	}
	r.Message = r.message()
}

// remains says why a node that is to leave the stage has not left; empty if it has.
func remains(n *corev1.Node) string {
	notes := n.Annotations
	_, isCordoned := notes[api.CordonAnnotation]
	hasTarget := notes[api.DesiredConfigAnnotation] != ""
	switch state := notes[api.NodeStateAnnotation]; {
	case state == "" && !hasTarget && !isCordoned:
		return "" // it never had a daemon
	case state == api.NodeReleased && !hasTarget && !isCordoned:
		return ""
	case state == api.NodeReleased, drain.IsEndRequested(n) && !drain.IsAnswered(n):
		return "the controller has not lifted the cordon yet"
	case pool.IsDegraded(n) && notes[api.NodeReasonAnnotation] != "":
		return notes[api.NodeReasonAnnotation]
	}
	return "its daemon has not answered yet"
}

// Pending returns the nodes that have not left the stage.
func (r *Release) Pending() (pending []Leaving) {
	for _, l := range r.Nodes {
		if !l.Released {
			pending = append(pending, l)
		}
	}
	return pending
}

// message describes the state.
func (r *Release) message() string {
	var names []string
	for _, l := range r.Nodes {
		names = append(names, l.Node)
	}
	subject, verb := "node "+names[0], "is"
	if len(names) > 1 {
		subject, verb = fmt.Sprintf("%d nodes (%s)", len(names), printable.List(names, mostNames)), "are"
	}
	pending := r.Pending()
	switch {
	case r.Undo:
		return subject + " " + verb + " under the control of the node stage; 'cvo nodes status' shows the progress"
	case len(pending) == 0:
		return subject + " " + verb + " released from the node stage; the content of the last config stays on the host"
	}
	return fmt.Sprintf("%s %s to leave the node stage; %s", subject, verb, r.Waiting())
}

// Waiting says why the first pending node has not left the stage, and how many others have not; empty if all have.
func (r *Release) Waiting() string {
	pending := r.Pending()
	if len(pending) == 0 {
		return ""
	}
	first := slices.MinFunc(pending, func(a, b Leaving) int { return cmp.Or(strings.Compare(a.Why, b.Why), strings.Compare(a.Node, b.Node)) })
	return printable.AndOthers(fmt.Sprintf("node %s: %s", first.Node, printable.Text(first.Why)), len(pending), "node")
}

// ByHand says how to release a node whose daemon does not answer.
func ByHand() string {
	return fmt.Sprintf("If the daemon of a node does not run, start it: 'kubectl get pods --namespace %[1]s -o wide' lists the daemons. "+
		"If it cannot run, remove what it leaves: on the node, run 'systemctl disable --now %[2]s' and delete /etc/systemd/system/%[2]s and %[3]s. "+
		"Then run 'kubectl uncordon NODE'", api.MachineConfigNamespace, config.GuardUnit, config.Folder)
}
