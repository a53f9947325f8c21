package precondition_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/precondition"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestRecommendedUpdate(t *testing.T) {
	conditional := func(conditions ...metav1.Condition) func(*configv1.ClusterVersion) {
		return func(cv *configv1.ClusterVersion) {
			cv.Status.ConditionalUpdates = []configv1.ConditionalUpdate{
				{Release: configv1.Release{Version: "4.20.1"}}, {Release: configv1.Release{Version: "4.20.0"}, Conditions: conditions},
			}
		}
	}
	retrieved := func(status configv1.ConditionStatus, reason string) func(*configv1.ClusterVersion) {
		return func(cv *configv1.ClusterVersion) {
			cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{{Type: configv1.RetrievedUpdates, Status: status, Reason: reason}}
		}
	}
	for _, tt := range []struct {
		name, target string
		edit         func(*configv1.ClusterVersion)
		want         string
	}{
		{name: "it lets a recommended update pass", target: "4.19.9", edit: func(cv *configv1.ClusterVersion) {
			cv.Status.AvailableUpdates = []configv1.Release{{Version: "4.19.9"}}
		}},
		{name: "it lets a conditional update pass that is recommended here", target: "4.20.0", edit: conditional(metav1.Condition{Type: "Applies", Status: "False"}, metav1.Condition{Type: "Recommended", Status: "True"})},
		{
			name: "it warns of an update that is not recommended here", target: "4.20.0",
			edit: conditional(metav1.Condition{Type: "Recommended", Status: "False", Reason: "SomeRisk", Message: "Disks may vanish. https://example.com"}),
			want: "*SomeRisk: Update from 4.19.3 to 4.20.0 is not recommended:\n\nDisks may vanish. https://example.com",
		},
		{
			name: "it warns of an update of which that is not known", target: "4.20.0",
			edit: conditional(metav1.Condition{Type: "Recommended", Status: "Unknown", Reason: "EvaluationFailed", Message: "no Prometheus"}),
			want: "*EvaluationFailed: Update from 4.19.3 to 4.20.0 is Recommended=Unknown: EvaluationFailed: no Prometheus",
		},
		{
			name: "it warns of an update that nothing is said of", target: "4.20.0", edit: conditional(),
			want: "*UnknownConditionType: Update from 4.19.3 to 4.20.0 has a status.conditionalUpdates entry, but no Recommended condition.",
		},
		{
			name: "it warns without a channel", target: "4.20.0", edit: func(cv *configv1.ClusterVersion) { cv.Spec.Channel = "" },
			want: "*NoChannel: Configured channel is unset, so the recommended status of updating from 4.19.3 to 4.20.0 is unknown.",
		},
		{
			name: "it warns before updates were retrieved", target: "4.20.0",
			want: "*UnknownUpdate: No RetrievedUpdates, so the recommended status of updating from 4.19.3 to 4.20.0 is unknown.",
		},
		{
			name: "it warns of an update that the service does not know", target: "4.20.0", edit: retrieved("True", "AsExpected"),
			want: "*UnknownUpdate: RetrievedUpdates=True (AsExpected), so the update from 4.19.3 to 4.20.0 is probably neither recommended nor supported.",
		},
		{
			name: "it warns while the service does not answer", target: "4.20.0", edit: retrieved("False", "RemoteFailed"),
			want: "*UnknownUpdate: RetrievedUpdates=False (RemoteFailed), so the recommended status of updating from 4.19.3 to 4.20.0 is unknown.",
		},
		{name: "it has nothing to say of the version that the cluster is at", target: "4.19.3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cv := &configv1.ClusterVersion{}
			cv.Spec.Channel, cv.Status.Desired.Version = "stable", "4.19.3"
			if tt.edit != nil {
				tt.edit(cv)
			}
			in := precondition.Input{ClusterVersion: cv, Target: release.Release{Version: tt.target}}
			assert.Equal(t, tt.want, said(checked(t, "ClusterVersionRecommendedUpdate", in)))
		})
	}
}
