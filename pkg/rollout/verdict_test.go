package rollout_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/observe"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

func TestRunTellsWhatKeepsANamespaceFromGoing(t *testing.T) {
	condition := func(status, message string) any {
		return map[string]any{"type": "any", "status": status, "message": message}
	}
	for _, tt := range []struct {
		name   string
		status any
		want   string
	}{
		{name: "by its conditions", status: map[string]any{"conditions": []any{
			condition("True", "Some resources are remaining: configmaps. has 1 resource instances"),
			condition("False", "All legacy kube types successfully parsed"),
			condition("True", "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"),
		}}, want: " (Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances; " +
			"Some resources are remaining: configmaps. has 1 resource instances)"},
		{name: "as far as a message goes", status: map[string]any{"conditions": []any{condition("True", strings.Repeat("x", 501))}}, want: " (" + strings.Repeat("x", 500) + "…)"},
		{name: "or where to look", status: map[string]any{"conditions": "none"}, want: " (its conditions tell what is left in it)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster()
			namespace := parse(t, "10_a_01", `{apiVersion: v1, kind: Namespace, metadata: {name: a}}`)
			plan := newPlan(t, release.Updating, namespace)
			_, settled := c.roll(t, plan, rollout.Settled{})
			c.touch("a", func(s *observe.State) { s.Deleting = true })
			c.live["a"] = map[string]any{"status": tt.status}
			progress, _ := c.roll(t, plan, settled)
			require.Len(t, progress.Problems, 1)
			assert.Equal(t, rollout.ReasonDeleting, progress.Problems[0].Reason)
			assert.Contains(t, progress.Problems[0].Message, "Namespace a is being deleted by somebody else"+tt.want+"; it is created again once it is gone")
		})
	}
}
