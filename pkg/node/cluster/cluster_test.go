package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/cluster-version/cvo/pkg/node/plan"
)

func TestOnlyUpdatesThatFreeABudgetAreReported(t *testing.T) {
	allows := func(n int32) client.Object {
		return &policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: n}}
	}
	p := OnChanges(plan.Frees)
	for _, tt := range []struct {
		name          string
		before, after client.Object
		want          bool
	}{
		{"a budget allows more disruptions", allows(0), allows(1), true},
		{"a budget allows fewer disruptions", allows(1), allows(0), false},
		{"a budget does not change", allows(1), allows(1), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, p.Update(event.UpdateEvent{ObjectOld: tt.before, ObjectNew: tt.after}))
		})
	}
	assert.True(t, p.Create(event.CreateEvent{Object: allows(0)}))
	assert.True(t, p.Delete(event.DeleteEvent{Object: allows(0)}), "it protects no pod anymore")
}
