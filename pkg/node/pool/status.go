package pool

import (
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
)

// Our own conditions of a pool.
const (
	// NodesUnavailable names nodes that run the pool's config, but are cordoned or not ready.
	NodesUnavailable mcfgv1.MachineConfigPoolConditionType = "NodesUnavailable"
	// NodesWaiting says why nodes wait although slots are free or they hold one.
	NodesWaiting mcfgv1.MachineConfigPoolConditionType = "NodesWaiting"
)

// namedNodes is the maximum number of names in NodesUnavailable.
const namedNodes = 10

// StatusOptions select how Status judges a pool.
type StatusOptions struct {
	// WaitForReady makes a pool Updated only when every node is ready, as in OpenShift. Otherwise a node that runs the config is updated even
	// if an administrator cordons it.
	WaitForReady bool
	// RenderError explains why the pool's MachineConfigs cannot be rendered; empty if they can.
	RenderError string
	// SpecError explains why a field of the pool prevents updates; empty if none does. It makes the pool Degraded.
	SpecError string
	// NodesUnknown reports that the pool's selector is invalid. The status then keeps what it says about nodes, and the pool is not Updated.
	NodesUnknown bool
	// Waiting explains why nodes wait although slots are free or they hold one; empty if none does.
	Waiting string
}

// Targeted returns how many nodes run the pool's config, update to it or failed to, and how many of these run it, are ready and wait for no Job.
func Targeted(p *mcfgv1.MachineConfigPool, nodes []*corev1.Node) (started, done int) {
	for _, n := range nodes {
		if !hasTarget(n, p.Spec.Configuration.Name) {
			continue
		}
		started++
		if IsDone(n) && IsReady(n) && !AwaitsJob(n) {
			done++
		}
	}
	return started, done
}

// Updated returns the nodes that run the pool's config, ready or not.
func Updated(p *mcfgv1.MachineConfigPool, nodes []*corev1.Node) []*corev1.Node {
	var updated []*corev1.Node
	for _, n := range nodes {
		if hasTarget(n, p.Spec.Configuration.Name) && IsDone(n) {
			updated = append(updated, n)
		}
	}
	return updated
}

// Status returns the status of a pool with these nodes, which must all have reported; none if they are not known. A condition that keeps its status keeps its transition
// time.
func Status(p *mcfgv1.MachineConfigPool, nodes []*corev1.Node, o StatusOptions, now time.Time) mcfgv1.MachineConfigPoolStatus {
	s := *p.Status.DeepCopy()
	s.ObservedGeneration = p.Generation
	if !o.NodesUnknown {
		s.MachineCount = int32(len(nodes))
		s.UpdatedMachineCount, s.ReadyMachineCount, s.UnavailableMachineCount, s.DegradedMachineCount = 0, 0, 0, 0
	}
	target := p.Spec.Configuration.Name
	var degraded, unavailable []string
	for _, n := range nodes {
		updated := IsDone(n) && hasTarget(n, target)
		if updated {
			s.UpdatedMachineCount++
		}
		if updated && IsReady(n) {
			s.ReadyMachineCount++
		}
		if updated && !IsReady(n) {
			unavailable = append(unavailable, n.Name)
		}
		if IsUnavailable(n) {
			s.UnavailableMachineCount++
		}
		if IsDegraded(n) {
			s.DegradedMachineCount++
			degraded = append(degraded, fmt.Sprintf("Node %s is reporting: %q", n.Name, n.Annotations[api.NodeReasonAnnotation]))
		}
	}
	c := conditions{list: s.Conditions, now: metav1.NewTime(now)}
	c.setProgress(p, s, o)
	if !o.NodesUnknown || c.index(mcfgv1.MachineConfigPoolNodeDegraded) < 0 {
		c.setNodes(degraded, unavailable)
	}
	c.set(NodesWaiting, o.Waiting != "", "", o.Waiting)
	c.set(mcfgv1.MachineConfigPoolRenderDegraded, o.RenderError != "", "", o.RenderError)
	c.setDegraded(o.SpecError)
	s.Conditions = c.list
	if c.is(mcfgv1.MachineConfigPoolUpdated) {
		s.Configuration = *p.Spec.Configuration.DeepCopy()
	}
	return s
}

type conditions struct {
	list []mcfgv1.MachineConfigPoolCondition
	now  metav1.Time
}

// setProgress sets Updated and Updating. Consoles show the texts, so they match OpenShift's.
func (c *conditions) setProgress(p *mcfgv1.MachineConfigPool, s mcfgv1.MachineConfigPoolStatus, o StatusOptions) {
	target := p.Spec.Configuration.Name
	updated := s.UpdatedMachineCount == s.MachineCount
	if o.WaitForReady {
		updated = updated && s.ReadyMachineCount == s.MachineCount && s.UnavailableMachineCount == 0
	}
	switch {
	case target == "", o.NodesUnknown:
		c.set(mcfgv1.MachineConfigPoolUpdated, false, "", "")
		c.set(mcfgv1.MachineConfigPoolUpdating, false, "", "")
	case updated:
		c.set(mcfgv1.MachineConfigPoolUpdated, true, "", "All nodes are updated with MachineConfig "+target)
		c.set(mcfgv1.MachineConfigPoolUpdating, false, "", "")
	case p.Spec.Paused:
		c.set(mcfgv1.MachineConfigPoolUpdated, false, "", "")
		c.set(mcfgv1.MachineConfigPoolUpdating, false, "", "Pool is paused; will not update to MachineConfig "+target)
	default:
		c.set(mcfgv1.MachineConfigPoolUpdated, false, "", "")
		c.set(mcfgv1.MachineConfigPoolUpdating, true, "", "All nodes are updating to MachineConfig "+target)
	}
}

// setNodes sets the conditions that name nodes.
func (c *conditions) setNodes(degraded, unavailable []string) {
	reason := ""
	if len(degraded) > 0 {
		reason = fmt.Sprintf("%d nodes are reporting degraded status on sync", len(degraded))
	}
	c.set(mcfgv1.MachineConfigPoolNodeDegraded, len(degraded) > 0, reason, strings.Join(degraded, ", "))
	message := ""
	if len(unavailable) > 0 {
		message = "Cordoned or not ready: " + printable.List(unavailable, namedNodes)
	}
	c.set(NodesUnavailable, len(unavailable) > 0, "", message)
}

// setDegraded sets Degraded from the conditions of its parts and the error of the pool's spec. It copies the message about nodes.
func (c *conditions) setDegraded(specError string) {
	message := specError
	if i := c.index(mcfgv1.MachineConfigPoolNodeDegraded); c.list[i].Message != "" {
		message = strings.TrimPrefix(message+"; "+c.list[i].Message, "; ")
	}
	is := specError != "" || c.is(mcfgv1.MachineConfigPoolNodeDegraded) || c.is(mcfgv1.MachineConfigPoolRenderDegraded)
	c.set(mcfgv1.MachineConfigPoolDegraded, is, "", message)
}

func (c *conditions) set(kind mcfgv1.MachineConfigPoolConditionType, is bool, reason, message string) {
	next := mcfgv1.MachineConfigPoolCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: c.now}
	if is {
		next.Status = corev1.ConditionTrue
	}
	i := c.index(kind)
	if i < 0 {
		c.list = append(c.list, next)
		return
	}
	if c.list[i].Status == next.Status {
		next.LastTransitionTime = c.list[i].LastTransitionTime
	}
	c.list[i] = next
}

func (c *conditions) index(kind mcfgv1.MachineConfigPoolConditionType) int {
	return slices.IndexFunc(c.list, func(c mcfgv1.MachineConfigPoolCondition) bool { return c.Type == kind })
}

func (c *conditions) is(kind mcfgv1.MachineConfigPoolConditionType) bool {
	i := c.index(kind)
	return i >= 0 && c.list[i].Status == corev1.ConditionTrue
}

// Condition returns a condition of a pool; nil if the pool does not have it.
func Condition(p *mcfgv1.MachineConfigPool, kind mcfgv1.MachineConfigPoolConditionType) *mcfgv1.MachineConfigPoolCondition {
	if i := (&conditions{list: p.Status.Conditions}).index(kind); i >= 0 {
		return &p.Status.Conditions[i]
	}
	return nil
}

// IsTrue reports whether a condition of a pool is true.
func IsTrue(p *mcfgv1.MachineConfigPool, kind mcfgv1.MachineConfigPoolConditionType) bool {
	c := Condition(p, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Message returns the message of a pool's condition; empty unless the condition is true.
func Message(p *mcfgv1.MachineConfigPool, kind mcfgv1.MachineConfigPoolConditionType) string {
	if !IsTrue(p, kind) {
		return ""
	}
	return Condition(p, kind).Message
}
