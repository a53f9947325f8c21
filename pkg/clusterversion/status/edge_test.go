package status

import (
	"slices"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

func TestIsEdgeFindsImportantChanges(t *testing.T) {
	base := func() configv1.ClusterVersionStatus {
		return configv1.ClusterVersionStatus{
			History: []configv1.UpdateHistory{partial("1.1.0"), completed("1.0.0")}, VersionHash: "hash", ObservedGeneration: 1,
			Conditions: []configv1.ClusterOperatorStatusCondition{
				{Type: configv1.OperatorAvailable, Status: configv1.ConditionTrue},
				{Type: api.Failing, Status: configv1.ConditionFalse},
				{Type: configv1.OperatorProgressing, Status: configv1.ConditionTrue, Message: "Working towards 1.1.0: 1 of 9 done (11% complete)"},
				{Type: api.ReleaseAccepted, Status: configv1.ConditionTrue, Reason: api.ReasonPayloadLoaded, Message: "Payload loaded"},
				{Type: configv1.OperatorUpgradeable, Status: configv1.ConditionTrue},
			},
		}
	}
	condition := func(kind configv1.ClusterStatusConditionType, change func(c *configv1.ClusterOperatorStatusCondition)) func(*configv1.ClusterVersionStatus) {
		return func(s *configv1.ClusterVersionStatus) { change(api.FindCondition(s.Conditions, kind)) }
	}
	status := func(value configv1.ConditionStatus) func(*configv1.ClusterOperatorStatusCondition) {
		return func(c *configv1.ClusterOperatorStatusCondition) { c.Status = value }
	}
	message := func(text string) func(*configv1.ClusterOperatorStatusCondition) {
		return func(c *configv1.ClusterOperatorStatusCondition) { c.Message = text }
	}
	for _, tt := range []struct {
		name   string
		change func(*configv1.ClusterVersionStatus)
		want   bool
	}{
		{"ignores an equal status", func(*configv1.ClusterVersionStatus) {}, false},
		{"finds another target", func(s *configv1.ClusterVersionStatus) { s.History = slices.Insert(s.History, 0, partial("1.2.0")) }, true},
		{"finds another target in a full history", func(s *configv1.ClusterVersionStatus) { s.History[0] = partial("1.2.0") }, true},
		{"finds a restart of the same target", func(s *configv1.ClusterVersionStatus) { s.History[0].StartedTime = metav1.NewTime(now) }, true},
		{"finds the end of an update", func(s *configv1.ClusterVersionStatus) { s.History[0].State = configv1.CompletedUpdate }, true},
		{"finds a removed history", func(s *configv1.ClusterVersionStatus) { s.History = nil }, true},
		{"ignores an older entry", func(s *configv1.ClusterVersionStatus) { s.History = s.History[:1] }, false},
		{"finds other manifests of the same release", func(s *configv1.ClusterVersionStatus) { s.VersionHash = "other" }, true},
		{"finds another capability", func(s *configv1.ClusterVersionStatus) {
			s.Capabilities.EnabledCapabilities = []configv1.ClusterVersionCapability{"Console"}
		}, true},
		{"finds a rejected release", condition(api.ReleaseAccepted, status(configv1.ConditionFalse)), true},
		{"finds another accepted release", condition(api.ReleaseAccepted, message("Payload loaded image=other")), true},
		{"ignores a release that is being retrieved", condition(api.ReleaseAccepted, status(configv1.ConditionUnknown)), false},
		{"finds a failing rollout", condition(api.Failing, status(configv1.ConditionTrue)), true},
		{"finds a slow rollout", condition(api.Failing, status(configv1.ConditionUnknown)), true},
		{"ignores another cause of a failure", condition(api.Failing, message("another")), false},
		{"finds the end of a rollout", condition(configv1.OperatorProgressing, status(configv1.ConditionFalse)), true},
		{"ignores a count", condition(configv1.OperatorProgressing, message("Working towards 1.1.0: 2 of 9 done (22% complete)")), false},
		{"finds the first completed release", condition(configv1.OperatorAvailable, status(configv1.ConditionFalse)), true},
		{"finds an invalid spec", func(s *configv1.ClusterVersionStatus) {
			s.Conditions = append(s.Conditions, configv1.ClusterOperatorStatusCondition{Type: api.Invalid, Status: configv1.ConditionTrue})
		}, true},
		{"ignores an obstacle to updates", condition(configv1.OperatorUpgradeable, status(configv1.ConditionFalse)), false},
		{"ignores a generation", func(s *configv1.ClusterVersionStatus) { s.ObservedGeneration = 2 }, false},
		{"ignores a recommended update", func(s *configv1.ClusterVersionStatus) { s.AvailableUpdates = []configv1.Release{{Version: "2"}} }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, after := base(), base()
			tt.change(&after)
			assert.Equal(t, tt.want, IsEdge(before, after))
		})
	}
}
