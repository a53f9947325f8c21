package precondition_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/precondition"
)

func TestRecommendedUpdateWarnsOfOtherUpdates(t *testing.T) {
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
		served       bool
		want         string
	}{
		{name: "it accepts a recommended update", target: "4.19.9", edit: func(cv *configv1.ClusterVersion) {
			cv.Status.AvailableUpdates = []configv1.Release{{Version: "4.19.9"}}
		}},
		{name: "it accepts a conditional update that is recommended to this cluster", target: "4.20.0", edit: conditional(metav1.Condition{Type: "Applies", Status: "False"}, metav1.Condition{Type: "Recommended", Status: "True"})},
		{
			name: "it warns of an update that is not recommended to this cluster", target: "4.20.0",
			edit: conditional(metav1.Condition{Type: "Recommended", Status: "False", Reason: "SomeRisk", Message: "Disks may vanish. https://example.com"}),
			want: "*SomeRisk: Update from 4.19.3 to 4.20.0 is not recommended:\n\nDisks may vanish. https://example.com",
		},
		{
			name: "it warns of an update with unknown risks", target: "4.20.0",
			edit: conditional(metav1.Condition{Type: "Recommended", Status: "Unknown", Reason: "EvaluationFailed", Message: "no Prometheus"}),
			want: "*EvaluationFailed: Update from 4.19.3 to 4.20.0 is Recommended=Unknown: EvaluationFailed: no Prometheus",
		},
		{
			name: "it warns of an update without a recommendation", target: "4.20.0", edit: conditional(),
			want: "*UnknownConditionType: Update from 4.19.3 to 4.20.0 has a status.conditionalUpdates entry, but no Recommended condition.",
		},
		{
			name: "it warns without a channel if the operator has a service", target: "4.20.0", served: true, edit: func(cv *configv1.ClusterVersion) { cv.Spec.Channel = "" },
			want: "*NoChannel: Configured channel is unset, so the recommended status of updating from 4.19.3 to 4.20.0 is unknown.",
		},
		{
			name: "it warns without a channel if the ClusterVersion names a service", target: "4.20.0",
			edit: func(cv *configv1.ClusterVersion) {
				cv.Spec.Channel, cv.Spec.Upstream = "", "https://updates.example.com/graph"
			},
			want: "*NoChannel: Configured channel is unset, so the recommended status of updating from 4.19.3 to 4.20.0 is unknown.",
		},
		{name: "it accepts every update without a channel and a service", target: "4.20.0", edit: func(cv *configv1.ClusterVersion) { cv.Spec.Channel = "" }},
		{
			name: "it warns before updates were retrieved", target: "4.20.0",
			want: "*UnknownUpdate: No RetrievedUpdates, so the recommended status of updating from 4.19.3 to 4.20.0 is unknown.",
		},
		{
			name: "it warns of an update that the service does not know", target: "4.20.0", edit: retrieved("True", "AsExpected"),
			want: "*UnknownUpdate: RetrievedUpdates=True (AsExpected), so the update from 4.19.3 to 4.20.0 is probably neither recommended nor supported.",
		},
		{
			name: "it warns while the service does not respond", target: "4.20.0", edit: retrieved("False", "RemoteFailed"),
			want: "*UnknownUpdate: RetrievedUpdates=False (RemoteFailed), so the recommended status of updating from 4.19.3 to 4.20.0 is unknown.",
		},
		{name: "it does not warn of the running version", target: "4.19.3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cv := &configv1.ClusterVersion{}
			cv.Spec.Channel, cv.Status.Desired.Version = "stable", "4.19.3"
			if tt.edit != nil {
				tt.edit(cv)
			}
			in := precondition.Input{ClusterVersion: cv, Target: release.Release{Version: tt.target}, NamesService: tt.served}
			assert.Equal(t, tt.want, said(checked(t, "ClusterVersionRecommendedUpdate", in)))
		})
	}
}
