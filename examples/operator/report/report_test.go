package report

import (
	"errors"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cluster-version/cvo/examples/operator/switches"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func deployment(version string, updated, available int32) Operand {
	return Operand{Kind: "Deployment", Name: "server", Object: &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "dns", Name: "server"},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Template: template(version)},
		Status:     appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: updated, AvailableReplicas: available},
	}}
}

func template(version string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "server", Env: []corev1.EnvVar{{Name: VersionVariable, Value: version}}},
	}}}
}

func TestStatusReportsTheOperands(t *testing.T) {
	running := func() Observed {
		return Observed{Version: "1.1.0", Operands: []Operand{deployment("1.1.0", 2, 2)}, SettledSince: now.Add(-10 * time.Second)}
	}
	before := []configv1.OperandVersion{{Name: "operator", Version: "1.0.0"}}
	tests := []struct {
		name     string
		old      []configv1.OperandVersion
		change   func(*Observed)
		versions []configv1.OperandVersion
		again    time.Duration
		// conditions are the unexpected conditions, as "Type=Status Reason: Message"
		conditions []string
	}{
		{name: "reports a version that all operands have reached", old: before, versions: []configv1.OperandVersion{{Name: "operator", Version: "1.1.0"}}},
		{
			name: "reports additional versions with its own", old: before,
			change:   func(o *Observed) { o.Others = []configv1.OperandVersion{{Name: "cni", Version: "1.5.1"}} },
			versions: []configv1.OperandVersion{{Name: "operator", Version: "1.1.0"}, {Name: "cni", Version: "1.5.1"}},
		},
		{
			name: "waits for a missing operand", change: func(o *Observed) { o.Operands[0].Object = nil },
			conditions: []string{
				"Available=False OperandUnavailable: No available pods: Deployment server",
				"Progressing=True RollingOut: Moving to 1.1.0: Deployment server is missing",
			},
		},
		{
			name: "waits for an operand of another version", old: before, versions: before,
			change:     func(o *Observed) { o.Operands[0] = deployment("1.0.0", 2, 2) },
			conditions: []string{"Progressing=True RollingOut: Moving to 1.1.0: Deployment server has version \"1.0.0\""},
		},
		{
			name: "waits for all replicas", old: before, versions: before,
			change:     func(o *Observed) { o.Operands[0] = deployment("1.1.0", 1, 2) },
			conditions: []string{"Progressing=True RollingOut: Moving to 1.1.0: Deployment dns/server has 1 of 2 replicas updated and 2 available"},
		},
		{
			name: "delays its report if a switch says so", old: before, versions: before, again: 20 * time.Second,
			change:     func(o *Observed) { o.Switches.Slow = 30 * time.Second },
			conditions: []string{"Progressing=True SetBySwitch: Moving to 1.1.0: taking 30s because of a switch"},
		},
		{
			name: "reports the version after the delay", old: before, versions: []configv1.OperandVersion{{Name: "operator", Version: "1.1.0"}},
			change: func(o *Observed) { o.Switches.Slow = 10 * time.Second },
		},
		{
			name: "keeps a version that it has reached", old: []configv1.OperandVersion{{Name: "operator", Version: "1.1.0"}},
			versions:   []configv1.OperandVersion{{Name: "operator", Version: "1.1.0"}},
			change:     func(o *Observed) { o.Operands[0] = deployment("1.1.0", 2, 0) },
			conditions: []string{"Available=False OperandUnavailable: No available pods: Deployment server"},
		},
		{
			name: "reports the conditions that switches set", old: before, versions: []configv1.OperandVersion{{Name: "operator", Version: "1.1.0"}},
			change: func(o *Observed) { o.Switches = switches.Set{Degraded: true, Unavailable: true, NotUpgradeable: true} },
			conditions: []string{
				"Available=False SetBySwitch: A switch makes this component unavailable",
				"Degraded=True SetBySwitch: A switch makes this component degraded",
				"Upgradeable=False SetBySwitch: A switch blocks updates of this cluster",
			},
		},
		{
			name: "reports invalid switches", old: before, versions: []configv1.OperandVersion{{Name: "operator", Version: "1.1.0"}},
			change:     func(o *Observed) { o.SwitchError = errors.New("what?") },
			conditions: []string{"Degraded=True InvalidSwitch: ConfigMap example-switches: what?"},
		},
		{
			name: "is degraded by a failed rollout", old: before, versions: before,
			change: func(o *Observed) {
				d := deployment("1.1.0", 1, 1)
				d.Object.(*appsv1.Deployment).Status.Conditions = []appsv1.DeploymentCondition{
					{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "no quota"},
				}
				o.Operands[0] = d
			},
			conditions: []string{
				"Degraded=True OperandFailed: Deployment dns/server has a replica failure FailedCreate: no quota",
				"Progressing=True RollingOut: Moving to 1.1.0: Deployment dns/server has a replica failure FailedCreate: no quota",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := running()
			if tt.change != nil {
				tt.change(&o)
			}
			status, again := Status(configv1.ClusterOperatorStatus{Versions: tt.old}, o, now)
			assert.Equal(t, tt.versions, status.Versions)
			assert.Equal(t, tt.again, again)
			var unexpected []string
			for _, c := range status.Conditions {
				if c.Reason != AsExpected {
					unexpected = append(unexpected, string(c.Type)+"="+string(c.Status)+" "+c.Reason+": "+c.Message)
				}
			}
			assert.ElementsMatch(t, tt.conditions, unexpected)
			assert.Len(t, status.Conditions, 4)
		})
	}
}

func TestStatusIsStable(t *testing.T) {
	o := Observed{
		Version: "1.1.0", Operands: []Operand{deployment("1.1.0", 2, 2)}, SettledSince: now,
		Related: []configv1.ObjectReference{{Resource: "namespaces", Name: "dns"}},
	}
	first, _ := Status(configv1.ClusterOperatorStatus{}, o, now)
	later, _ := Status(first, o, now.Add(time.Hour))
	assert.Equal(t, first, later, "nothing has changed")

	o.Switches.Degraded = true
	later, _ = Status(first, o, now.Add(time.Hour))
	for i, c := range later.Conditions {
		if c.Type == configv1.OperatorDegraded {
			assert.Equal(t, now.Add(time.Hour), c.LastTransitionTime.Time)
			continue
		}
		assert.Equal(t, first.Conditions[i], c)
	}
}

func TestOperandsAreReadByKind(t *testing.T) {
	daemons := &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: template("1.1.0")}}
	daemons.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, UpdatedNumberScheduled: 2, NumberAvailable: 3}
	stateful := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: template("1.1.0")}}
	operands := []Operand{{Kind: "DaemonSet", Name: "agent", Object: daemons}, {Kind: "StatefulSet", Name: "store", Object: stateful}}
	assert.Len(t, Waiting(operands, "1.1.0"), 2)
	assert.True(t, available(daemons))
	assert.False(t, available(stateful))

	daemons.Status.UpdatedNumberScheduled = 3
	stateful.Status = appsv1.StatefulSetStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	assert.Empty(t, Waiting(operands, "1.1.0"))
	assert.True(t, available(stateful))
}
