package status

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/control"
	"github.com/cluster-version/cvo/pkg/clusterversion/history"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/clusterversion/updates"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/release"
)

// TestConditionsMatchRealClusters compares with conditions of OpenShift clusters, word for word.
func TestConditionsMatchRealClusters(t *testing.T) {
	for _, tt := range []struct {
		name        string
		version     string
		progress    *report.Progress
		reconciling bool
		progressing string
		failing     string
	}{
		{
			name: "waits on one operator", version: "4.14.1", progress: progressOf("4.14.1", 139, 859, updating("kube-scheduler", minute)),
			progressing: "True|ClusterOperatorUpdating|Working towards 4.14.1: 139 of 859 done (16% complete), waiting on kube-scheduler", failing: "False||",
		},
		{
			name: "waits on two operators", version: "4.15.0-ec.2", progress: progressOf("4.15.0-ec.2", 106, 863, updating("kube-apiserver", minute), updating("etcd", minute)),
			progressing: "True|ClusterOperatorsUpdating|Working towards 4.15.0-ec.2: 106 of 863 done (12% complete), waiting on etcd, kube-apiserver", failing: "False||",
		},
		{
			name: "waits on degraded operators", version: "4.20.0-0.ci", progress: progressOf("4.20.0-0.ci", 747, 957, degraded("openshift-apiserver", minute), degraded("authentication", minute)),
			progressing: "True|ClusterOperatorsDegraded|Working towards 4.20.0-0.ci: 747 of 957 done (78% complete), waiting up to 40 minutes on authentication, openshift-apiserver", failing: "False||",
		},
		{
			name: "reports a slow operator", version: "4.14.1", progress: progressOf("4.14.1", 106, 863, degraded("kube-apiserver", 41*minute), degraded("etcd", 42*minute)),
			progressing: "True|ClusterOperatorsDegraded|Unable to apply 4.14.1: wait has exceeded 40 minutes for these operators: etcd, kube-apiserver",
			failing:     "True|ClusterOperatorsDegraded|Cluster operators etcd, kube-apiserver are degraded",
		},
		{
			name: "reports a degraded operator after the update", version: "4.16.0-ec.3", reconciling: true, progress: progressOf("4.16.0-ec.3", 800, 863, degraded("machine-config", 0)),
			progressing: "False|ClusterOperatorDegraded|Error while reconciling 4.16.0-ec.3: the cluster operator machine-config is degraded",
			failing:     "True|ClusterOperatorDegraded|Cluster operator machine-config is degraded",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cv := clusterAt(partial(tt.version), completed("4.13.0"))
			if tt.reconciling {
				cv = clusterAt(completed(tt.version))
			}
			a := acceptedRelease(tt.version)
			status, _ := Next(cv, Observed{Accepted: &a, Latest: a, Target: a.Target, Progress: tt.progress, Now: now})
			assert.Equal(t, tt.progressing, said(status, configv1.OperatorProgressing))
			assert.Equal(t, tt.failing, said(status, api.Failing))
		})
	}
}

func invalidSpec() field.ErrorList {
	return field.ErrorList{field.Required(field.NewPath("spec", "desiredUpdate"), "must specify architecture, version, or image")}
}

func TestProgressingDescribesTheRollout(t *testing.T) {
	a := acceptedRelease("1.1.0")
	updatingCV := func() *configv1.ClusterVersion { return clusterAt(partial("1.1.0"), completed("1.0.0")) }
	for _, tt := range []struct {
		name     string
		cv       *configv1.ClusterVersion
		progress *report.Progress
		invalid  field.ErrorList
		want     string
	}{
		{name: "names only the version if nothing is done", cv: updatingCV(), progress: progressOf("1.1.0", 0, 9), want: "True||Working towards 1.1.0"},
		{name: "names the pending operator if nothing is done", cv: updatingCV(), progress: progressOf("1.1.0", 0, 9, updating("dns", 0)), want: "True|ClusterOperatorUpdating|Working towards 1.1.0: waiting on dns"},
		{name: "rounds percentages down", cv: updatingCV(), progress: progressOf("1.1.0", 2, 3), want: "True||Working towards 1.1.0: 2 of 3 done (66% complete)"},
		{name: "reports a complete rollout", cv: updatingCV(), progress: progressOf("1.1.0", 3, 3), want: "False||Cluster version is 1.1.0"},
		{name: "counts during an install", cv: clusterAt(partial("1.1.0")), progress: progressOf("1.1.0", 1, 4), want: "True||Working towards 1.1.0: 1 of 4 done (25% complete)"},
		{name: "keeps the current release", cv: clusterAt(completed("1.1.0")), progress: progressOf("1.1.0", 3, 4), want: "False||Cluster version is 1.1.0"},
		{name: "reports an invalid spec during an update", cv: updatingCV(), progress: progressOf("1.1.0", 1, 4), invalid: invalidSpec(), want: "True|InvalidClusterVersion|Reconciling 1.1.0: the cluster version is invalid"},
		{name: "reports an invalid spec at rest", cv: clusterAt(completed("1.1.0")), progress: progressOf("1.1.0", 4, 4), invalid: invalidSpec(), want: "False|InvalidClusterVersion|Stopped at 1.1.0: the cluster version is invalid"},
		{name: "reports a failure during an update", cv: updatingCV(), progress: progressOf("1.1.0", 1, 4, unavailable("dns")), invalid: invalidSpec(), want: "True|ClusterOperatorNotAvailable|Unable to apply 1.1.0: the cluster operator dns is not available"},
		{
			name: "reports a slow operator", cv: updatingCV(), progress: progressOf("1.1.0", 1, 4, updating("dns", time.Hour)),
			want: "True|ClusterOperatorUpdating|Working towards 1.1.0: 1 of 4 done (25% complete), waiting on dns over 30 minutes which is longer than expected",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, _ := Next(tt.cv, Observed{Accepted: &a, Latest: a, Target: a.Target, Progress: tt.progress, Invalid: tt.invalid, Now: now})
			assert.Equal(t, tt.want, said(status, configv1.OperatorProgressing))
		})
	}
}

func TestReleaseAcceptedNamesTheStep(t *testing.T) {
	target := request.Target{Image: "example.com/r:1.1", Version: "1.1.0"}
	for _, tt := range []struct {
		name   string
		latest accept.Acceptance
		want   string
	}{
		{name: "is Unknown before the first step", want: `Unknown|RetrievePayload|Retrieving and verifying payload version="1.1.0" image="example.com/r:1.1"`},
		{name: "is Unknown during retrieval", latest: accept.Acceptance{Step: "RetrievePayload", Message: "m"}, want: "Unknown|RetrievePayload|m"},
		{name: "is Unknown during loading", latest: accept.Acceptance{Step: "LoadPayload", Message: "m"}, want: "Unknown|LoadPayload|m"},
		{name: "is Unknown during the version check", latest: accept.Acceptance{Step: "VerifyPayloadVersion", Message: "m"}, want: "Unknown|VerifyPayloadVersion|m"},
		{name: "is Unknown during the precondition checks", latest: accept.Acceptance{Step: "PreconditionChecks", Message: "m"}, want: "Unknown|PreconditionChecks|m"},
		{name: "is False after a failed retrieval", latest: accept.Acceptance{Step: "RetrievePayload", Message: "m", Err: errors.New("e")}, want: "False|RetrievePayload|m"},
		{name: "is safe for a terminal", latest: accept.Acceptance{Step: "LoadPayload", Message: "m\x1b[31m\a", Err: errors.New("e")}, want: "False|LoadPayload|m?[31m?"},
		{name: "is False after failed loading", latest: accept.Acceptance{Step: "LoadPayload", Message: "m", Err: errors.New("e")}, want: "False|LoadPayload|m"},
		{name: "is False for another version", latest: accept.Acceptance{Step: "VerifyPayloadVersion", Message: "m", Err: errors.New("e")}, want: "False|VerifyPayloadVersion|m"},
		{name: "is False if a precondition blocks", latest: accept.Acceptance{Step: "PreconditionChecks", Message: "m", Err: errors.New("e")}, want: "False|PreconditionChecks|m"},
		{name: "is True if accepted", latest: acceptedRelease("1.1.0"), want: `True|PayloadLoaded|Payload loaded version="1.1.0"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			current := acceptedRelease("1.0.0")
			for _, in := range []Observed{{Target: target, Latest: tt.latest, Now: now}, {Target: target, Latest: tt.latest, Accepted: &current, Now: now}} {
				status, _ := Next(clusterAt(), in)
				assert.Equal(t, tt.want, said(status, api.ReleaseAccepted))
			}
		})
	}
}

//threat:long-texts
func TestConditionsFitIntoAStatus(t *testing.T) {
	latest := accept.Acceptance{Step: "LoadPayload", Message: strings.Repeat("x", 3<<20), Err: errors.New("e")}
	status, _ := Next(clusterAt(), Observed{Latest: latest, Now: now})
	assert.LessOrEqual(t, len(said(status, api.ReleaseAccepted)), 33<<10)
}

func TestFirstStatusNamesTheTarget(t *testing.T) {
	target := request.Target{Image: "example.com/r:1.0", Own: true}
	status, recheck := Next(clusterAt(), Observed{Target: target, Now: now})
	assert.Zero(t, recheck)
	assert.Equal(t, int64(7), status.ObservedGeneration)
	assert.Equal(t, configv1.Release{Image: "example.com/r:1.0"}, status.Desired)
	assert.Empty(t, status.History)
	assert.Equal(t, "False||", said(status, configv1.OperatorAvailable))
	assert.Equal(t, "False||", said(status, api.Failing))
	assert.Equal(t, "True||Working towards example.com/r:1.0", said(status, configv1.OperatorProgressing))
	assert.Equal(t, "False|AsExpected|Capabilities match configured spec", said(status, api.ImplicitlyEnabledCapabilities))
	assert.Equal(t, "False||", said(status, configv1.RetrievedUpdates))
	assert.Empty(t, said(status, api.Invalid))
}

// TestStatusFollowsInstallAndUpdate computes one status after another, from an empty one to an update.
func TestStatusFollowsInstallAndUpdate(t *testing.T) {
	a := acceptedRelease("1.0.0")
	cv := clusterAt()
	at := now
	step := func(in Observed) configv1.ClusterVersionStatus {
		at = at.Add(time.Minute)
		in.Now = at
		if in.Latest.Step == "" && in.Accepted != nil {
			in.Latest, in.Target = *in.Accepted, in.Accepted.Target
		}
		before := cv.Status.DeepCopy()
		status, _ := Next(cv, in)
		assert.Equal(t, *before, cv.Status, "the input does not change")
		again, _ := Next(cv, in)
		assert.Equal(t, status, again, "the same input gives the same status")
		for i, c := range before.Conditions {
			assert.Equal(t, c.Type, status.Conditions[i].Type, "the order of conditions is stable")
			if c.Status == status.Conditions[i].Status {
				assert.Equal(t, c.LastTransitionTime, status.Conditions[i].LastTransitionTime, c.Type)
			} else {
				assert.Equal(t, at, status.Conditions[i].LastTransitionTime.Time, c.Type)
			}
		}
		cv.Status = status
		return status
	}
	step(Observed{Target: a.Target})
	on := inclusion.Capabilities{Known: sets.New[configv1.ClusterVersionCapability]("b", "a"), Enabled: sets.New[configv1.ClusterVersionCapability]("b", "a")}
	a.Filter.Capabilities = on
	status := step(Observed{Accepted: &a})
	assert.Equal(t, configv1.Release{Version: "1.0.0", Image: imageOf("1.0.0"), URL: "https://example.com/1.0.0", Channels: []string{"stable"}}, status.Desired)
	assert.Equal(t, "hash-1.0.0", status.VersionHash)
	assert.Equal(t, []configv1.ClusterVersionCapability{"a", "b"}, status.Capabilities.EnabledCapabilities)
	assert.Equal(t, []configv1.ClusterVersionCapability{"a", "b"}, status.Capabilities.KnownCapabilities)
	started := metav1.NewTime(at)
	assert.Equal(t, []configv1.UpdateHistory{{State: "Partial", StartedTime: started, Version: "1.0.0", Image: imageOf("1.0.0"), Verified: true}}, status.History)
	assert.Equal(t, "True||Working towards 1.0.0", said(status, configv1.OperatorProgressing))

	status = step(Observed{Accepted: &a, Progress: progressOf("1.0.0", 5, 10)})
	assert.Equal(t, "False||", said(status, configv1.OperatorAvailable))
	report := operatorProblem("dns", gate.Report, api.ReasonClusterOperatorDegraded, "Cluster operator dns is degraded", 0)
	status = step(Observed{Accepted: &a, Progress: progressOf("1.0.0", 10, 10, report)})
	assert.Equal(t, "True||Done applying 1.0.0", said(status, configv1.OperatorAvailable))
	assert.Equal(t, "True|ClusterOperatorDegraded|Cluster operator dns is degraded", said(status, api.Failing), "an install completes with a degraded operator and reports it")
	assert.Equal(t, configv1.CompletedUpdate, status.History[0].State)
	assert.Equal(t, at, status.History[0].CompletionTime.Time)
	completedAt := at
	status = step(Observed{Accepted: &a, Progress: progressOf("1.0.0", 10, 10)})
	assert.Equal(t, completedAt, status.History[0].CompletionTime.Time, "the entry completes once")
	assert.Equal(t, "False||", said(status, api.Failing))
	assert.Equal(t, "False||Cluster version is 1.0.0", said(status, configv1.OperatorProgressing))

	b := acceptedRelease("1.1.0")
	status = step(Observed{Accepted: &a, Progress: progressOf("1.0.0", 10, 10), Target: b.Target, Latest: accept.Acceptance{Step: "RetrievePayload"}})
	assert.Equal(t, "1.0.0", status.Desired.Version, "the old release stays until the new one is accepted")
	assert.Len(t, status.History, 1)
	status = step(Observed{Accepted: &b})
	assert.Equal(t, []configv1.UpdateState{"Partial", "Completed"}, []configv1.UpdateState{status.History[0].State, status.History[1].State})
	assert.Equal(t, "True||Working towards 1.1.0", said(status, configv1.OperatorProgressing))
	assert.Equal(t, "True||Done applying 1.0.0", said(status, configv1.OperatorAvailable), "Available never returns to False")
	status = step(Observed{Accepted: &b, Progress: progressOf("1.1.0", 3, 10, updating("dns", minute))})
	assert.Equal(t, "False||", said(status, api.Failing))
	status = step(Observed{Accepted: &b, Progress: progressOf("1.1.0", 10, 10)})
	assert.Equal(t, "True||Done applying 1.1.0", said(status, configv1.OperatorAvailable))
}

// TestRestartKeepsConditions starts a process, which knows no state yet and at first changes no condition.
func TestRestartKeepsConditions(t *testing.T) {
	a := acceptedRelease("1.1.0")
	for _, tt := range []struct {
		name     string
		cv       *configv1.ClusterVersion
		progress *report.Progress
	}{
		{"during an update", clusterAt(partial("1.1.0"), completed("1.0.0")), progressOf("1.1.0", 5, 10, updating("dns", minute))},
		{"during a failing update", clusterAt(partial("1.1.0"), completed("1.0.0")), progressOf("1.1.0", 5, 10, unavailable("dns"))},
		{"during an install", clusterAt(partial("1.1.0")), progressOf("1.1.0", 5, 10)},
		{"at rest", clusterAt(completed("1.1.0")), progressOf("1.1.0", 10, 10)},
		{"with a broken operator", clusterAt(completed("1.1.0")), progressOf("1.1.0", 10, 10, degraded("dns", minute))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := Observed{Accepted: &a, Latest: a, Target: a.Target, Progress: tt.progress, Now: now}
			tt.cv.Status, _ = Next(tt.cv, in)
			for what, in := range map[string]Observed{
				"nothing":    {Target: a.Target},
				"retrieving": {Target: a.Target, Latest: accept.Acceptance{Step: "RetrievePayload"}},
				"accepted":   {Target: a.Target, Latest: a, Accepted: &a},
				"rolled out": {Target: a.Target, Latest: a, Accepted: &a, Progress: tt.progress},
			} {
				in.Asked, in.Now = now, now.Add(time.Second)
				status, _ := Next(tt.cv, in)
				assert.Equal(t, tt.cv.Status, status, what)
			}
		})
	}
}

func TestInvalidSpecIsReported(t *testing.T) {
	a := acceptedRelease("1.1.0")
	cv := clusterAt(completed("1.1.0"))
	in := Observed{Accepted: &a, Latest: a, Target: a.Target, Progress: progressOf("1.1.0", 1, 1), Now: now}
	in.Invalid = invalidSpec()
	cv.Status, _ = Next(cv, in)
	assert.Equal(t, "True|InvalidClusterVersion|The cluster version is invalid: spec.desiredUpdate: Required value: must specify architecture, version, or image", said(cv.Status, api.Invalid))
	in.Invalid = append(in.Invalid, field.Invalid(field.NewPath("spec", "clusterID"), "x", "must be an RFC4122-variant UUID"))
	cv.Status, _ = Next(cv, in)
	assert.Equal(t, "True|InvalidClusterVersion|The cluster version is invalid:\n"+
		"* spec.desiredUpdate: Required value: must specify architecture, version, or image\n"+
		"* spec.clusterID: Invalid value: \"x\": must be an RFC4122-variant UUID", said(cv.Status, api.Invalid))
	in.Invalid = nil
	cv.Status, _ = Next(cv, in)
	assert.Empty(t, said(cv.Status, api.Invalid))
	assert.Equal(t, "False||Cluster version is 1.1.0", said(cv.Status, configv1.OperatorProgressing))
}

func TestDesiredFillsGapsFromAvailableUpdates(t *testing.T) {
	a := acceptedRelease("1.1.0")
	a.Payload.Release.URL, a.Payload.Release.Channels = "", nil
	got := desired(a, []configv1.Release{{Image: "other", URL: "no"}, {Image: a.Image(), URL: "yes", Channels: []string{"fast"}}})
	assert.Equal(t, configv1.Release{Version: "1.1.0", Image: a.Image(), URL: "yes", Channels: []string{"fast"}}, got)
}

func TestStatusReportsImplicitCapabilities(t *testing.T) {
	cv := &configv1.ClusterVersion{}
	cv.Spec.Capabilities = &configv1.ClusterVersionCapabilitiesSpec{
		BaselineCapabilitySet:         configv1.ClusterVersionCapabilitySetNone,
		AdditionalEnabledCapabilities: []configv1.ClusterVersionCapability{"Console"},
	}
	for _, tt := range []struct {
		name string
		on   []configv1.ClusterVersionCapability
		want string
	}{
		{"reports that the cluster matches the spec", []configv1.ClusterVersionCapability{"Console"}, "False|AsExpected|Capabilities match configured spec"},
		{
			"names capabilities that stay enabled without a request",
			[]configv1.ClusterVersionCapability{"Console", "Storage", "Ingress"},
			"True|CapabilitiesImplicitlyEnabled|The following capabilities could not be disabled: Ingress, Storage",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := acceptedRelease("1.0.0")
			a.Filter.Capabilities = inclusion.Capabilities{Known: sets.New(inclusion.KnownCapabilities()...), Enabled: sets.New(tt.on...)}
			status, _ := Next(cv, Observed{Accepted: &a, Now: time.Unix(0, 0)})
			assert.Equal(t, tt.want, said(status, api.ImplicitlyEnabledCapabilities))
		})
	}
}

// TestRestartKeepsImplicitCapabilities starts a process, which knows the implicit capabilities only after it has resumed the release of the
// history.
func TestRestartKeepsImplicitCapabilities(t *testing.T) {
	cv := &configv1.ClusterVersion{}
	cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
		{Type: api.ImplicitlyEnabledCapabilities, Status: configv1.ConditionTrue, Reason: "CapabilitiesImplicitlyEnabled", Message: "Console"},
	}
	status, _ := Next(cv, Observed{Now: time.Unix(0, 0)})
	assert.Equal(t, "True|CapabilitiesImplicitlyEnabled|Console", said(status, api.ImplicitlyEnabledCapabilities))
}

// TestAdditionsToACompletedReleaseGetNoHistoryEntry adds objects to a completed release. They are rolled out like an update, but without a
// history entry.
func TestAdditionsToACompletedReleaseGetNoHistoryEntry(t *testing.T) {
	with := func(hash string, on ...configv1.ClusterVersionCapability) *accept.Acceptance {
		a := acceptedRelease("1.1.0")
		a.Payload.Hash = hash
		a.Filter.Capabilities = inclusion.Capabilities{Known: sets.New(inclusion.KnownCapabilities()...), Enabled: sets.New(on...)}
		return &a
	}
	for _, tt := range []struct {
		name   string
		change *accept.Acceptance
	}{
		{"adds a capability", with("hash", "Console", "Insights")},
		{"adds a feature gate", with("another", "Console")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cv := clusterAt(completed("1.1.0"), completed("1.0.0"))
			see := func(a *accept.Acceptance, progress *report.Progress) {
				cv.Status, _ = Next(cv, Observed{Accepted: a, Latest: *a, Target: a.Target, Progress: progress, Now: now})
			}
			before := with("hash", "Console")
			see(before, nil)
			see(before, progressOf("1.1.0", 5, 5))
			assert.Equal(t, "False||Cluster version is 1.1.0", said(cv.Status, configv1.OperatorProgressing))
			assert.True(t, Recorded(cv.Status, *before, control.Schema{}))
			assert.Equal(t, release.Reconciling, history.Mode(cv, imageOf("1.1.0")))
			entries := cv.Status.DeepCopy().History

			assert.False(t, Recorded(cv.Status, *tt.change, control.Schema{}), "nothing is rolled out before the status records it")
			see(tt.change, nil)
			assert.True(t, Recorded(cv.Status, *tt.change, control.Schema{}))
			assert.Equal(t, "True||Working towards 1.1.0", said(cv.Status, configv1.OperatorProgressing))
			assert.Equal(t, "True||Done applying 1.1.0", said(cv.Status, configv1.OperatorAvailable))
			assert.Equal(t, release.Updating, history.Mode(cv, imageOf("1.1.0")), "a process that has just started uses the same mode")
			see(tt.change, progressOf("1.1.0", 5, 6, updating("insights", minute)))
			assert.Equal(t, "True|ClusterOperatorUpdating|Working towards 1.1.0: 5 of 6 done (83% complete), waiting on insights", said(cv.Status, configv1.OperatorProgressing))
			assert.Equal(t, "False||", said(cv.Status, api.Failing), "a new operator has a grace period")
			see(tt.change, progressOf("1.1.0", 6, 6))
			assert.Equal(t, "False||Cluster version is 1.1.0", said(cv.Status, configv1.OperatorProgressing))
			assert.Equal(t, release.Reconciling, history.Mode(cv, imageOf("1.1.0")))
			assert.Equal(t, entries, cv.Status.History)
		})
	}
}

// TestUndefinedCapabilitiesAreOmitted has a capability that the definition lacks. For one unknown name, the API server would reject the
// whole status.
func TestUndefinedCapabilitiesAreOmitted(t *testing.T) {
	a := acceptedRelease("1.1.0")
	a.Filter.Capabilities = inclusion.AllCapabilities(inclusion.CapabilityGates())
	schema := control.Schema{Capabilities: ",Console,Ingress,"}
	cv := clusterAt(completed("1.1.0"))
	cv.Status, _ = Next(cv, Observed{Accepted: &a, Latest: a, Target: a.Target, Schema: schema, Now: now})
	want := []configv1.ClusterVersionCapability{"Console", "Ingress"}
	assert.Equal(t, configv1.ClusterVersionCapabilitiesStatus{EnabledCapabilities: want, KnownCapabilities: want}, cv.Status.Capabilities)
	assert.True(t, Recorded(cv.Status, a, schema))
	assert.Len(t, capabilities(a, control.Schema{}).KnownCapabilities, 19)
}

// idle is a Runner that does nothing.
type idle struct{}

func (idle) Start(string, string, func(context.Context) background.Next) {}
func (idle) Wake(string)                                                 {}
func (idle) Stop()                                                       {}

// TestAcceptedRisksAreRecordedOnce lists in the history the risks that were accepted by name when the update started.
func TestAcceptedRisksAreRecordedOnce(t *testing.T) {
	a := acceptedRelease("1.1.0")
	cv := clusterAt(completed("1.0.0"))
	cv.Spec.Channel, cv.Spec.Upstream = "stable", "https://example.com/graph"
	cv.Spec.DesiredUpdate = &configv1.Update{Image: a.Image(), AcceptRisks: []configv1.AcceptRisk{{Name: "Fire"}}}
	cv.Status.ConditionalUpdates = []configv1.ConditionalUpdate{{
		Release: configv1.Release{Version: "1.1.0", Image: a.Image()},
		Risks:   []configv1.ConditionalUpdateRisk{{Name: "Fire", Conditions: []metav1.Condition{{Type: "Applies", Status: metav1.ConditionTrue}}}},
	}}
	known := updates.New(clocktesting.NewFakePassiveClock(now), idle{}, func() {}, updates.Options{}).Look(t.Context(), cv, true)
	in := Observed{Accepted: &a, Updates: known, Now: now}
	want := "The target release " + a.Image() + " is exposed to the risks [Fire] which were all explicitly accepted by the cluster administrator."
	cv.Status, _ = Next(cv, in)
	assert.Equal(t, want, cv.Status.History[0].AcceptedRisks)
	cv.Status, _ = Next(cv, in)
	assert.Equal(t, want, cv.Status.History[0].AcceptedRisks)

	assert.NotEmpty(t, cv.Status.ConditionalUpdates)
	own := a
	own.Target.Own = true
	listed := cv.Status.ConditionalUpdates
	cv = clusterAt(completed("1.0.0"))
	cv.Status.ConditionalUpdates = listed
	in.Accepted = &own
	after, _ := Next(cv, in)
	assert.Empty(t, after.History[0].AcceptedRisks, "the operator's own release has no accepted risks")
}
