package firing_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/update/firing"
)

func alert(labels ...string) firing.Alert {
	a := firing.Alert{Labels: map[string]string{}}
	for i := 0; i < len(labels); i += 2 {
		a.Labels[labels[i]] = labels[i+1]
	}
	return a
}

func TestAlertHasEffects(t *testing.T) {
	all := []firing.Effect{firing.Cluster, firing.Drains, firing.ImagePulls, firing.Nodes, firing.Machines, firing.Precheck}
	for _, tt := range []struct {
		name  string
		alert firing.Alert
		want  []firing.Effect
	}{
		{"none without labels", alert(), nil},
		{"none of a mere warning", alert("alertname", "Etcd", "severity", "warning"), nil},
		{"a critical one", alert("alertname", "Etcd", "severity", "critical"), []firing.Effect{firing.Cluster}},
		{"a budget at its limit", alert("alertname", "PodDisruptionBudgetAtLimit"), []firing.Effect{firing.Drains}},
		{"an exceeded budget, by its severity only", alert("alertname", "PodDisruptionBudgetLimit"), nil},
		{"image pulls", alert("alertname", "KubeContainerWaiting"), []firing.Effect{firing.ImagePulls}},
		{"several", alert("alertname", "KubeNodeNotReady", "severity", "critical", "openShiftUpdatePrecheck", "true"), []firing.Effect{firing.Cluster, firing.Nodes, firing.Precheck}},
		{"virtual machines", alert("alertname", "VMCannotBeEvicted", "openShiftUpdatePrecheck", "false"), []firing.Effect{firing.Machines}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []firing.Effect
			for _, e := range all {
				if tt.alert.Has(e) {
					got = append(got, e)
				}
				assert.NotEmpty(t, e.Concern())
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestDescribedJoinsTheTexts(t *testing.T) {
	a := firing.Alert{Annotations: map[string]string{"description": "Bad.", "message": "Worse."}}
	assert.Equal(t, "The alert description is: Bad. | Worse.", a.Described())
	assert.Equal(t, "The alert has no description.", firing.Alert{}.Described())
}
