package overview

import (
	"bytes"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/clusterversions"
	"github.com/cluster-version/cvo/test/golden"
)

func TestOverviewMatchesTheGoldenFiles(t *testing.T) {
	states := map[string]func(*configv1.ClusterVersion){
		"none":        func(*configv1.ClusterVersion) {},
		"no-channel":  func(cv *configv1.ClusterVersion) { cv.Spec.Channel = "" },
		"recommended": func(cv *configv1.ClusterVersion) { clusterversions.WithUpdates(cv).Status.ConditionalUpdates = nil },
		"conditional": func(cv *configv1.ClusterVersion) {
			clusterversions.WithUpdates(cv).Spec.Upstream = "https://updates.example/graph"
		},
		"conditional-false": func(cv *configv1.ClusterVersion) {
			clusterversions.WithUpdates(cv).Status.ConditionalUpdates = cv.Status.ConditionalUpdates[:1]
			cv.Status.AvailableUpdates = nil
		},
		"applies": func(cv *configv1.ClusterVersion) {
			update := clusterversions.Conditional("4.14.4", "4", metav1.ConditionFalse, "SlowDisks", "Slow disks get slower.")
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
			clusterversions.Set(cv, api.Failing, configv1.ConditionTrue, "MultipleErrors", "Multiple errors are preventing progress:\n* one\n* two")
		},
		"progressing": func(cv *configv1.ClusterVersion) {
			clusterversions.WithUpdates(cv)
			clusterversions.Set(cv, api.Failing, configv1.ConditionUnknown, "SlowClusterOperator", "waiting on dns over 30 minutes")
			clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working towards 4.14.3: 139 of 859 done (16% complete), waiting on dns")
		},
		"not-upgradeable": func(cv *configv1.ClusterVersion) {
			clusterversions.Set(clusterversions.WithUpdates(cv), configv1.OperatorUpgradeable, configv1.ConditionFalse, "AdminAckRequired", "Kubernetes 1.28 removes APIs.\nSee https://docs.example/ack")
		},
		"not-accepted": func(cv *configv1.ClusterVersion) {
			clusterversions.Set(cv, api.ReleaseAccepted, configv1.ConditionFalse, "RetrievePayload", `Retrieving payload failed version="4.14.3" image="registry.example/rel" failure=unsigned`)
		},
		"not-retrieved": func(cv *configv1.ClusterVersion) {
			clusterversions.Set(cv, configv1.RetrievedUpdates, configv1.ConditionFalse, "RemoteFailed", "Unable to retrieve available updates:\ndial tcp: i/o timeout")
		},
		"not-refreshed": func(cv *configv1.ClusterVersion) {
			clusterversions.Set(clusterversions.WithUpdates(cv), configv1.RetrievedUpdates, configv1.ConditionFalse, "VersionNotFound", "currently reconciling cluster version 4.14.1 not found")
		},
		"unobserved": func(cv *configv1.ClusterVersion) { cv.Generation = cv.Status.ObservedGeneration + 1 },
		"empty": func(cv *configv1.ClusterVersion) {
			cv.Spec.Channel, cv.Status = "", configv1.ClusterVersionStatus{}
		},
		"hostile": func(cv *configv1.ClusterVersion) {
			clusterversions.WithUpdates(cv).Status.AvailableUpdates[0].Version = "4.14.3\t\x1b[2J\n\u202egnp.exe"
			clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionFalse, "", "Cluster \x1b]0;owned\x07version\r\nis\x9b31m \u009b31m4.14.1\x00")
			clusterversions.Set(cv, api.Failing, configv1.ConditionTrue, "\x1b[31m", "a\rb")
			cv.Spec.Channel = "stable\n\x1b[1mRecommended updates:"
			cv.Status.ConditionalUpdates[0].Risks[0].URL = "https://issues.example/\x1b[8m"
		},
	}
	for name, change := range states {
		for flag, all := range map[string]bool{"": false, "-all": true} {
			t.Run("prints "+name+flag, func(t *testing.T) {
				cv := clusterversions.Resting()
				change(cv)
				var out, errs bytes.Buffer
				require.NoError(t, New(cv).Print(&out, &errs, all))
				got := out.String() + "--- stderr\n" + errs.String()
				golden.Assert(t, "upgrade-overview/"+name+flag, got)
				assert.NotContains(t, got, "\x1b")
			})
		}
	}
}

func TestOverviewReportsTheState(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*configv1.ClusterVersion)
		want   State
	}{
		{"is at rest", func(*configv1.ClusterVersion) {}, AtRest},
		{"has not seen a request", func(cv *configv1.ClusterVersion) { cv.Generation = cv.Status.ObservedGeneration + 1 }, Unknown},
		{"is at rest with a slow operator", func(cv *configv1.ClusterVersion) {
			clusterversions.Set(cv, api.Failing, configv1.ConditionUnknown, "", "")
		}, AtRest},
		{"updates", func(cv *configv1.ClusterVersion) {
			clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "", "")
		}, Updating},
		{"needs attention while it updates", func(cv *configv1.ClusterVersion) {
			clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "", "")
			clusterversions.Set(cv, api.Failing, configv1.ConditionTrue, "", "")
		}, Attention},
		{"needs attention if a release was not accepted", func(cv *configv1.ClusterVersion) {
			clusterversions.Set(cv, api.ReleaseAccepted, configv1.ConditionFalse, "", "")
		}, Attention},
		{"does not report a release as rejected during its examination", func(cv *configv1.ClusterVersion) {
			clusterversions.Set(cv, api.ReleaseAccepted, configv1.ConditionUnknown, "", "")
		}, AtRest},
		{"needs attention if the spec is invalid", func(cv *configv1.ClusterVersion) {
			clusterversions.Set(cv, api.Invalid, configv1.ConditionTrue, "", "")
		}, Attention},
		{"reports unknown without conditions", func(cv *configv1.ClusterVersion) { cv.Status.Conditions = nil }, Unknown},
		{"reports unknown without Progressing", func(cv *configv1.ClusterVersion) { clusterversions.Unset(cv, configv1.OperatorProgressing) }, Unknown},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			cv := clusterversions.Resting()
			test.change(cv)
			assert.Equal(t, test.want, New(cv).State)
		})
	}
}

// TestPreflightShowsItsEnd has a result that may be older than the release that the cluster runs, and a preflight that is running.
func TestPreflightShowsItsEnd(t *testing.T) {
	cv := clusterversions.Resting()
	cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.3", Mode: configv1.UpdateModePreflight}
	v := New(cv)
	printed := func() string {
		var out, errs bytes.Buffer
		require.NoError(t, v.Print(&out, &errs, false))
		return out.String()
	}
	v.Preflight = &api.Preflight{Version: "4.14.3", State: api.PreflightRunning, Step: api.PreflightDryRun}
	assert.Contains(t, printed(), "\nPreflight of 4.14.3: Running\n\n  Step: DryRun\n")
	v.Preflight.State, v.Preflight.EndedAt = api.PreflightObjected, new(metav1.NewTime(time.Date(2026, 1, 2, 11, 1, 0, 0, time.FixedZone("", 3600))))
	assert.Contains(t, printed(), "\nPreflight of 4.14.3: Objected\n\n  Ended: 2026-01-02T10:01:00Z\n  Step: DryRun\n")
}

func TestOverviewSortsVersions(t *testing.T) {
	var releases []configv1.Release
	for _, version := range []string{"odd", "4.9.0", "4.10.0-rc.1", "", "4.10.0", "other"} {
		releases = append(releases, configv1.Release{Version: version})
	}
	cv := clusterversions.Resting()
	cv.Status.AvailableUpdates = releases
	var got []string
	for _, update := range New(cv).Recommended {
		got = append(got, update.Version)
	}
	assert.Equal(t, []string{"4.10.0", "4.10.0-rc.1", "4.9.0", "other", "odd", ""}, got)
	assert.Equal(t, "odd", cv.Status.AvailableUpdates[0].Version, "the ClusterVersion is unchanged")
}

func TestOverviewWarnsOfAnInvalidSpec(t *testing.T) {
	cv := clusterversions.Resting()
	clusterversions.Set(cv, api.Invalid, configv1.ConditionTrue, "", "The cluster version is invalid: spec.desiredUpdate: Required value")
	var out, warnings bytes.Buffer
	require.NoError(t, New(cv).Print(&out, &warnings, false))
	assert.Equal(t, "warning: The cluster version is invalid: spec.desiredUpdate: Required value\n", warnings.String())
}
