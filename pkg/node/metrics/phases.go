package metrics

import (
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// phases are the phases of a node's update. A phase begins when its condition becomes Unknown, and ends when the condition ends becomes true.
var phases = []struct {
	name            string
	condition, ends mcfgv1.StateProgress
}{
	{"Prepare", mcfgv1.MachineConfigNodeUpdatePrepared, mcfgv1.MachineConfigNodeUpdatePrepared},
	{"Drain", mcfgv1.MachineConfigNodeUpdateDrained, mcfgv1.MachineConfigNodeUpdateDrained},
	{"Apply", mcfgv1.MachineConfigNodeUpdateFilesAndOS, mcfgv1.MachineConfigNodeUpdateFilesAndOS},
	{"Resume", mcfgv1.MachineConfigNodeUpdateUncordoned, mcfgv1.MachineConfigNodeUpdated},
}

// NewPhases returns the histogram of the phases' durations.
func NewPhases() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "cvo_node_phase_duration_seconds",
		Help: "Time that nodes of the pool needed for a phase of their update: Prepare, Drain, Apply or Resume. A phase that ends without success is not counted.",
		// The times of conditions are full seconds. A drain can take hours.
		Buckets: []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400},
	}, []string{"pool", "phase"})
}

// observe counts the phases that ended between two versions of a MachineConfigNode. Both times are in the object, so a phase that began before
// this process is counted, too.
func observe(h *prometheus.HistogramVec, before, after *mcfgv1.MachineConfigNode) {
	for _, phase := range phases {
		begun := meta.FindStatusCondition(before.Status.Conditions, string(phase.condition))
		if begun == nil || begun.Status != metav1.ConditionUnknown {
			continue
		}
		if end := meta.FindStatusCondition(after.Status.Conditions, string(phase.ends)); end != nil && end.Status == metav1.ConditionTrue {
			h.WithLabelValues(after.Spec.Pool.Name, phase.name).Observe(end.LastTransitionTime.Sub(begun.LastTransitionTime.Time).Seconds())
		}
	}
}
