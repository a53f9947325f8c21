package cli

import (
	"bytes"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/golden"
)

func digestOfChar(char string) string { return "sha256:" + strings.Repeat(char, 64) }

func releaseOf(version, char string) configv1.Release {
	return configv1.Release{Version: version, Image: "registry.example/rel@" + digestOfChar(char)}
}

// restingCluster is at 4.14.1, well, and knows of no updates.
func restingCluster() *configv1.ClusterVersion {
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
	cv.Spec.ClusterID = "c2b1d2a0-7f61-4b6e-9f30-0d5d1a3b5a6d"
	cv.Spec.Channel = "stable-4.14"
	cv.Status.Desired = releaseOf("4.14.1", "1")
	cv.Status.Desired.Channels = []string{"candidate-4.14", "fast-4.14", "stable-4.14"}
	cv.Status.History = []configv1.UpdateHistory{
		{State: configv1.CompletedUpdate, Version: "4.14.1", Image: cv.Status.Desired.Image, StartedTime: metav1.Unix(1000, 0), CompletionTime: new(metav1.Unix(2000, 0))},
		{State: configv1.CompletedUpdate, Version: "4.14.0", Image: releaseOf("", "0").Image, StartedTime: metav1.Unix(100, 0), CompletionTime: new(metav1.Unix(200, 0))},
	}
	set(cv, api.Failing, configv1.ConditionFalse, "", "")
	set(cv, configv1.OperatorProgressing, configv1.ConditionFalse, "", "Cluster version is 4.14.1")
	set(cv, configv1.RetrievedUpdates, configv1.ConditionTrue, "", "")
	set(cv, api.ReleaseAccepted, configv1.ConditionTrue, "PayloadLoaded", "Payload loaded")
	return cv
}

// set sets a condition.
func set(cv *configv1.ClusterVersion, name configv1.ClusterStatusConditionType, status configv1.ConditionStatus, reason, message string) {
	c := api.FindCondition(cv.Status.Conditions, name)
	if c == nil {
		cv.Status.Conditions = append(cv.Status.Conditions, configv1.ClusterOperatorStatusCondition{Type: name, LastTransitionTime: metav1.Unix(3000, 0)})
		c = &cv.Status.Conditions[len(cv.Status.Conditions)-1]
	}
	c.Status, c.Reason, c.Message = status, reason, message
}

func unset(cv *configv1.ClusterVersion, name configv1.ClusterStatusConditionType) {
	var kept []configv1.ClusterOperatorStatusCondition
	for _, c := range cv.Status.Conditions {
		if c.Type != name {
			kept = append(kept, c)
		}
	}
	cv.Status.Conditions = kept
}

// conditional is an update with two risks, one with its URL in the message as the original has it.
func conditional(version, char string, status metav1.ConditionStatus, reason, message string) configv1.ConditionalUpdate {
	return configv1.ConditionalUpdate{
		Release: releaseOf(version, char),
		Risks: []configv1.ConditionalUpdateRisk{
			{Name: "SlowDisks", URL: "https://issues.example/1", Message: "Slow disks get slower.", MatchingRules: []configv1.ClusterCondition{{Type: "Always"}}},
			{Name: "LostLeases", URL: "https://issues.example/2", Message: "Leases get lost.", MatchingRules: []configv1.ClusterCondition{{Type: "Always"}}},
		},
		Conditions: []metav1.Condition{{Type: recommended, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Unix(3000, 0)}},
	}
}

// withUpdates knows three recommended updates, out of order, and two that are not.
func withUpdates(cv *configv1.ClusterVersion) *configv1.ClusterVersion {
	cv.Status.AvailableUpdates = []configv1.Release{releaseOf("4.14.3", "3"), releaseOf("4.14.10", "a"), releaseOf("4.14.9-rc.1", "9")}
	cv.Status.ConditionalUpdates = []configv1.ConditionalUpdate{
		conditional("4.14.4", "4", metav1.ConditionFalse, "MultipleReasons",
			"Slow disks get slower. https://issues.example/1\n\nLeases get lost. https://issues.example/2"),
		conditional("4.14.12", "c", metav1.ConditionUnknown, "EvaluationFailed", "Could not evaluate exposure to update risk SlowDisks"),
		conditional("4.14.3", "3", metav1.ConditionTrue, "AsExpected", "The update is recommended, because none of the conditional update risks apply to this cluster."),
	}
	return cv
}

func TestUpgradeOverviewGolden(t *testing.T) {
	states := map[string]func(*configv1.ClusterVersion){
		"none":        func(*configv1.ClusterVersion) {},
		"no-channel":  func(cv *configv1.ClusterVersion) { cv.Spec.Channel = "" },
		"recommended": func(cv *configv1.ClusterVersion) { withUpdates(cv).Status.ConditionalUpdates = nil },
		"conditional": func(cv *configv1.ClusterVersion) {
			withUpdates(cv).Spec.Upstream = "https://updates.example/graph"
		},
		"conditional-false": func(cv *configv1.ClusterVersion) {
			withUpdates(cv).Status.ConditionalUpdates = cv.Status.ConditionalUpdates[:1]
			cv.Status.AvailableUpdates = nil
		},
		"applies": func(cv *configv1.ClusterVersion) {
			update := conditional("4.14.4", "4", metav1.ConditionFalse, "SlowDisks", "Slow disks get slower.")
			for i, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse} {
				risk := update.Risks[i].DeepCopy()
				risk.Conditions = []metav1.Condition{{Type: "Applies", Status: status}}
				if status == metav1.ConditionTrue {
					update.Risks[i] = *risk
				} else {
					cv.Status.ConditionalUpdateRisks = append(cv.Status.ConditionalUpdateRisks, *risk)
				}
			}
			cv.Status.ConditionalUpdates = []configv1.ConditionalUpdate{update}
		},
		"failing": func(cv *configv1.ClusterVersion) {
			set(cv, api.Failing, configv1.ConditionTrue, "MultipleErrors", "Multiple errors are preventing progress:\n* one\n* two")
		},
		"progressing": func(cv *configv1.ClusterVersion) {
			withUpdates(cv)
			set(cv, api.Failing, configv1.ConditionUnknown, "SlowClusterOperator", "waiting on dns over 30 minutes")
			set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working towards 4.14.3: 139 of 859 done (16% complete), waiting on dns")
		},
		"not-upgradeable": func(cv *configv1.ClusterVersion) {
			set(withUpdates(cv), configv1.OperatorUpgradeable, configv1.ConditionFalse, "AdminAckRequired", "Kubernetes 1.28 removes APIs.\nSee https://docs.example/ack")
		},
		"not-accepted": func(cv *configv1.ClusterVersion) {
			set(cv, api.ReleaseAccepted, configv1.ConditionFalse, "RetrievePayload", `Retrieving payload failed version="4.14.3" image="registry.example/rel" failure=unsigned`)
		},
		"not-retrieved": func(cv *configv1.ClusterVersion) {
			set(cv, configv1.RetrievedUpdates, configv1.ConditionFalse, "RemoteFailed", "Unable to retrieve available updates:\ndial tcp: i/o timeout")
		},
		"not-refreshed": func(cv *configv1.ClusterVersion) {
			set(withUpdates(cv), configv1.RetrievedUpdates, configv1.ConditionFalse, "VersionNotFound", "currently reconciling cluster version 4.14.1 not found")
		},
		"empty": func(cv *configv1.ClusterVersion) {
			cv.Spec.Channel, cv.Status = "", configv1.ClusterVersionStatus{}
		},
		"hostile": func(cv *configv1.ClusterVersion) {
			withUpdates(cv).Status.AvailableUpdates[0].Version = "4.14.3\t\x1b[2J\n\u202egnp.exe"
			set(cv, configv1.OperatorProgressing, configv1.ConditionFalse, "", "Cluster \x1b]0;owned\x07version\r\nis\x9b31m \u009b31m4.14.1\x00")
			set(cv, api.Failing, configv1.ConditionTrue, "\x1b[31m", "a\rb")
			cv.Spec.Channel = "stable\n\x1b[1mRecommended updates:"
			cv.Status.ConditionalUpdates[0].Risks[0].URL = "https://issues.example/\x1b[8m"
		},
	}
	for name, change := range states {
		for flag, all := range map[string]bool{"": false, "-all": true} {
			t.Run("prints "+name+flag, func(t *testing.T) {
				cv := restingCluster()
				change(cv)
				var out, errs bytes.Buffer
				o := &upgradeOptions{includeNotRecommended: all}
				require.NoError(t, o.printOverview(Streams{Out: &out, Err: &errs}, newUpgradeOverview(cv)))
				got := out.String() + "--- stderr\n" + errs.String()
				golden.Assert(t, "upgrade-overview/"+name+flag, got)
				assert.NotContains(t, got, "\x1b")
			})
		}
	}
}

func TestUpgradeOverviewTellsTheState(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*configv1.ClusterVersion)
		want   clusterState
	}{
		{"is at rest", func(*configv1.ClusterVersion) {}, stateAtRest},
		{"is at rest with a slow operator", func(cv *configv1.ClusterVersion) { set(cv, api.Failing, configv1.ConditionUnknown, "", "") }, stateAtRest},
		{"updates", func(cv *configv1.ClusterVersion) {
			set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "", "")
		}, stateUpdating},
		{"needs attention while it updates", func(cv *configv1.ClusterVersion) {
			set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "", "")
			set(cv, api.Failing, configv1.ConditionTrue, "", "")
		}, stateAttention},
		{"needs attention if a release was not accepted", func(cv *configv1.ClusterVersion) { set(cv, api.ReleaseAccepted, configv1.ConditionFalse, "", "") }, stateAttention},
		{"does not call a release rejected that is being looked at", func(cv *configv1.ClusterVersion) { set(cv, api.ReleaseAccepted, configv1.ConditionUnknown, "", "") }, stateAtRest},
		{"needs attention if the spec is invalid", func(cv *configv1.ClusterVersion) { set(cv, api.Invalid, configv1.ConditionTrue, "", "") }, stateAttention},
		{"does not know without conditions", func(cv *configv1.ClusterVersion) { cv.Status.Conditions = nil }, stateUnknown},
		{"does not know without Progressing", func(cv *configv1.ClusterVersion) { unset(cv, configv1.OperatorProgressing) }, stateUnknown},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			cv := restingCluster()
			test.change(cv)
			assert.Equal(t, test.want, newUpgradeOverview(cv).State)
		})
	}
}
