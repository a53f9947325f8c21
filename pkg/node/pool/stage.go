package pool

import (
	"fmt"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
)

// Staged is a condition of a MachineConfigNode: whether the config that api.StageAnnotation names is on the node's disk. Its message names the
// config.
const Staged = "Staged"

// stagingFailed is the reason of Staged if it is false.
const stagingFailed = "StagingFailed"

// SetStaged sets Staged in the conditions of a MachineConfigNode. failure says why the config cannot be staged; empty if it is staged.
func SetStaged(conditions *[]metav1.Condition, config, failure string, now time.Time) {
	c := metav1.Condition{Type: Staged, Status: metav1.ConditionTrue, Reason: Staged, Message: stagedMessage(config), LastTransitionTime: metav1.NewTime(now)}
	if failure != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, stagingFailed, unstagedMessage(config)+printable.Excerpt(failure, api.NodeReasonText)
	}
	meta.SetStatusCondition(conditions, c)
}

func stagedMessage(config string) string { return fmt.Sprintf("MachineConfig %s is staged", config) }

func unstagedMessage(config string) string {
	return fmt.Sprintf("MachineConfig %s cannot be staged: ", config)
}

// IsStaged reports whether the daemon has staged a config that the controller requested. failure says why it cannot; empty if it has not failed.
func IsStaged(m *mcfgv1.MachineConfigNode, config string) (staged bool, failure string) {
	if !isStageRequested(m, config) {
		return false, ""
	}
	c := meta.FindStatusCondition(m.Status.Conditions, Staged)
	switch {
	case c == nil:
		return false, ""
	case c.Status == metav1.ConditionTrue:
		return c.Message == stagedMessage(config), ""
	}
	failure, _ = strings.CutPrefix(c.Message, unstagedMessage(config))
	if failure == c.Message { // of another config
		failure = ""
	}
	return false, failure
}

func isStageRequested(m *mcfgv1.MachineConfigNode, config string) bool {
	return m != nil && m.Annotations[api.StageAnnotation] == config
}

// stagingShare is the part of a pool that may stage at the same time: a fifth.
const stagingShare = 5

// Staging has the candidates of a pool that have not staged its config.
type Staging struct {
	// Request are the MachineConfigNodes of those that stage it next.
	Request []*mcfgv1.MachineConfigNode
	// Waiting says for each why it has no result yet, and Failed why it cannot stage the config, by name as a sentence without subject and period.
	Waiting, Failed map[string]string
}

// Stage returns the candidates that have not staged a config, and chooses those that stage it next, in order: at most a fifth of the pool's nodes
// stage at the same time, and at least one. machines are the MachineConfigNodes by name.
func Stage(config string, candidates []*corev1.Node, nodes int, machines map[string]*mcfgv1.MachineConfigNode) Staging {
	s := Staging{Waiting: map[string]string{}, Failed: map[string]string{}}
	most := max(nodes/stagingShare, 1)
	free := most
	var next []*mcfgv1.MachineConfigNode
	for _, n := range candidates {
		m := machines[n.Name]
		staged, failure := IsStaged(m, config)
		switch {
		case staged:
		case failure != "":
			s.Failed[n.Name] = Unstageable(config, failure)
		case m == nil:
			s.Waiting[n.Name] = "waits for its MachineConfigNode, which the controller creates"
		case isStageRequested(m, config):
			s.Waiting[n.Name] = stages(config)
			free--
		default:
			s.Waiting[n.Name] = fmt.Sprintf("waits for other nodes that stage MachineConfig %s: at most %s at the same time", config, printable.Count(most, "node"))
			next = append(next, m)
		}
	}
	s.Request = next[:min(max(free, 0), len(next))]
	for _, m := range s.Request {
		s.Waiting[m.Name] = stages(config)
	}
	return s
}

// Unstageable returns a sentence without subject and period about a node that cannot stage a config.
func Unstageable(config, failure string) string {
	return fmt.Sprintf("cannot stage MachineConfig %s: %s", config, failure)
}

func stages(config string) string { return fmt.Sprintf("stages MachineConfig %s", config) }
