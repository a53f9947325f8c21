package precondition_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/precondition"
)

func TestUpgradeableBlocksMinorUpdates(t *testing.T) {
	objects := &configv1.ClusterOperatorStatusCondition{Status: configv1.ConditionFalse, Reason: "AdminAckRequired", Message: "APIs are removed."}
	unknown := &configv1.ClusterOperatorStatusCondition{Status: configv1.ConditionUnknown, Reason: "EvaluationFailed", Message: "ClusterOperators: no answer"}
	const overridden = "*ClusterVersionOverridesSet: Disabling ownership via cluster version overrides prevents updates between minor or major versions. Please remove overrides before requesting a minor or major version update."
	for _, tt := range []struct {
		name            string
		target          string
		edit            func(*configv1.ClusterVersion)
		upgradeable     *configv1.ClusterOperatorStatusCondition
		accepted        *configv1.ClusterOperatorStatusCondition
		completed, want string
	}{
		{name: "it accepts a minor update without obstacles", target: "4.20.0"},
		{name: "it refuses a minor update and reports the obstacles", target: "4.20.0", upgradeable: objects, want: "AdminAckRequired: APIs are removed."},
		{name: "it refuses a major update", target: "5.0.0", upgradeable: objects, want: "AdminAckRequired: APIs are removed."},
		{name: "it refuses while obstacles are unknown", target: "4.20.0", upgradeable: unknown, want: "UnknownError: ClusterOperators: no answer"},
		{name: "it accepts a patch despite obstacles", target: "4.19.9", upgradeable: objects},
		{name: "it accepts the same version", target: "4.19.3", upgradeable: objects},
		{name: "it ignores rollbacks", target: "4.18.1", upgradeable: objects},
		{name: "it warns of accepted obstacles", target: "4.20.0", accepted: objects, want: "*AdminAckRequired: APIs are removed."},
		{name: "it refuses if only another risk was accepted", target: "4.20.0", accepted: objects, upgradeable: &configv1.ClusterOperatorStatusCondition{Status: "False", Reason: "X", Message: "y"}, want: "X: y"},
		{
			name: "it warns of overrides for a patch", target: "4.19.9", upgradeable: objects, want: overridden,
			edit: func(cv *configv1.ClusterVersion) { cv.Spec.Overrides = []configv1.ComponentOverride{{Unmanaged: true}} },
		},
		{
			name: "it does not warn of managed overrides", target: "4.19.9",
			edit: func(cv *configv1.ClusterVersion) { cv.Spec.Overrides = []configv1.ComponentOverride{{}} },
		},
		{
			name: "it warns of a new target during a minor update", target: "4.19.9", completed: "4.18.30",
			want: "*MinorVersionClusterUpdateInProgress: Retarget to 4.19.9 while a minor version update from 4.18.30 to 4.19.3 is in progress",
		},
		{
			name: "it warns of a new target during a major update", target: "4.19.9", completed: "3.11.0",
			want: "*MajorVersionClusterUpdateInProgress: Retarget to 4.19.9 while a major version update from 3.11.0 to 4.19.3 is in progress",
		},
		{name: "it does not warn during a patch update", target: "4.19.9", completed: "4.19.1"},
		{
			name: "it does not warn after a minor update", target: "4.19.9", completed: "4.18.30",
			edit: func(cv *configv1.ClusterVersion) { cv.Status.Conditions[0].Status = configv1.ConditionFalse },
		},
		{
			name: "it ignores a cluster without a version", target: "4.20.0", upgradeable: objects,
			edit: func(cv *configv1.ClusterVersion) { cv.Status.Desired.Version = "banana" },
		},
		{name: "it ignores invalid versions", target: "four", upgradeable: objects},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cv := &configv1.ClusterVersion{}
			cv.Status.Desired.Version = "4.19.3"
			cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{{Type: configv1.OperatorProgressing, Status: configv1.ConditionTrue}}
			cv.Status.History = []configv1.UpdateHistory{{State: configv1.PartialUpdate, Version: "4.19.3"}}
			if tt.completed != "" {
				cv.Status.History = append(cv.Status.History, configv1.UpdateHistory{State: configv1.CompletedUpdate, Version: tt.completed})
			}
			if tt.edit != nil {
				tt.edit(cv)
			}
			in := precondition.Input{ClusterVersion: cv, Target: release.Release{Version: tt.target}, Upgradeable: tt.upgradeable, Accepted: tt.accepted}
			assert.Equal(t, tt.want, said(checked(t, "ClusterVersionUpgradeable", in)))
		})
	}
}
