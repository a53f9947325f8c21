package clusterversion

import (
	"errors"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// TestConditionsOfRealClusters compares with what clusters of OpenShift have said, word for word.
func TestConditionsOfRealClusters(t *testing.T) {
	for _, tt := range []struct {
		name        string
		version     string
		progress    *rollout.Progress
		reconciling bool
		progressing string
		failing     string
	}{
		{
			name: "waits on one operator", version: "4.14.1", progress: progressOf("4.14.1", 139, 859, updating("kube-scheduler", minute)),
			progressing: "True|ClusterOperatorUpdating|Working towards 4.14.1: 139 of 859 done (16% complete), waiting on kube-scheduler", failing: "False||",
		},
		{
			name: "waits on two", version: "4.15.0-ec.2", progress: progressOf("4.15.0-ec.2", 106, 863, updating("kube-apiserver", minute), updating("etcd", minute)),
			progressing: "True|ClusterOperatorsUpdating|Working towards 4.15.0-ec.2: 106 of 863 done (12% complete), waiting on etcd, kube-apiserver", failing: "False||",
		},
		{
			name: "waits on degraded ones", version: "4.20.0-0.ci", progress: progressOf("4.20.0-0.ci", 747, 957, degraded("openshift-apiserver", minute), degraded("authentication", minute)),
			progressing: "True|ClusterOperatorsDegraded|Working towards 4.20.0-0.ci: 747 of 957 done (78% complete), waiting up to 40 minutes on authentication, openshift-apiserver", failing: "False||",
		},
		{
			name: "loses patience", version: "4.14.1", progress: progressOf("4.14.1", 106, 863, degraded("kube-apiserver", 41*minute), degraded("etcd", 42*minute)),
			progressing: "True|ClusterOperatorsDegraded|Unable to apply 4.14.1: wait has exceeded 40 minutes for these operators: etcd, kube-apiserver",
			failing:     "True|ClusterOperatorsDegraded|Cluster operators etcd, kube-apiserver are degraded",
		},
		{
			name: "is degraded afterwards", version: "4.16.0-ec.3", reconciling: true, progress: progressOf("4.16.0-ec.3", 800, 863, degraded("machine-config", 0)),
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
			status, _ := nextStatus(cv, observed{accepted: &a, latest: a, target: a.Target, progress: tt.progress, now: now})
			assert.Equal(t, tt.progressing, said(status, configv1.OperatorProgressing))
			assert.Equal(t, tt.failing, said(status, api.Failing))
		})
	}
}

func invalidSpec() field.ErrorList {
	return field.ErrorList{field.Required(field.NewPath("spec", "desiredUpdate"), "must specify architecture, version, or image")}
}

func TestProgressing(t *testing.T) {
	a := acceptedRelease("1.1.0")
	updatingCV := func() *configv1.ClusterVersion { return clusterAt(partial("1.1.0"), completed("1.0.0")) }
	for _, tt := range []struct {
		name     string
		cv       *configv1.ClusterVersion
		progress *rollout.Progress
		invalid  field.ErrorList
		want     string
	}{
		{name: "has nothing to count yet", cv: updatingCV(), progress: progressOf("1.1.0", 0, 9), want: "True||Working towards 1.1.0"},
		{name: "waits with nothing done", cv: updatingCV(), progress: progressOf("1.1.0", 0, 9, updating("dns", 0)), want: "True|ClusterOperatorUpdating|Working towards 1.1.0: waiting on dns"},
		{name: "truncates percents", cv: updatingCV(), progress: progressOf("1.1.0", 2, 3), want: "True||Working towards 1.1.0: 2 of 3 done (66% complete)"},
		{name: "is done", cv: updatingCV(), progress: progressOf("1.1.0", 3, 3), want: "False||Cluster version is 1.1.0"},
		{name: "installs", cv: clusterAt(partial("1.1.0")), progress: progressOf("1.1.0", 1, 4), want: "True||Working towards 1.1.0: 1 of 4 done (25% complete)"},
		{name: "stays", cv: clusterAt(completed("1.1.0")), progress: progressOf("1.1.0", 3, 4), want: "False||Cluster version is 1.1.0"},
		{name: "is invalid on the way", cv: updatingCV(), progress: progressOf("1.1.0", 1, 4), invalid: invalidSpec(), want: "True|InvalidClusterVersion|Reconciling 1.1.0: the cluster version is invalid"},
		{name: "is invalid at rest", cv: clusterAt(completed("1.1.0")), progress: progressOf("1.1.0", 4, 4), invalid: invalidSpec(), want: "False|InvalidClusterVersion|Stopped at 1.1.0: the cluster version is invalid"},
		{name: "fails on the way", cv: updatingCV(), progress: progressOf("1.1.0", 1, 4, unavailable("dns")), invalid: invalidSpec(), want: "True|ClusterOperatorNotAvailable|Unable to apply 1.1.0: the cluster operator dns is not available"},
		{
			name: "is slow", cv: updatingCV(), progress: progressOf("1.1.0", 1, 4, updating("dns", time.Hour)),
			want: "True|ClusterOperatorUpdating|Working towards 1.1.0: 1 of 4 done (25% complete), waiting on dns over 30 minutes which is longer than expected",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, _ := nextStatus(tt.cv, observed{accepted: &a, latest: a, target: a.Target, progress: tt.progress, invalid: tt.invalid, now: now})
			assert.Equal(t, tt.want, said(status, configv1.OperatorProgressing))
		})
	}
}

func TestReleaseAccepted(t *testing.T) {
	target := Target{Image: "example.com/r:1.1", Version: "1.1.0"}
	for _, tt := range []struct {
		name   string
		latest Acceptance
		want   string
	}{
		{name: "nothing known", want: `Unknown|RetrievePayload|Retrieving and verifying payload version="1.1.0" image="example.com/r:1.1"`},
		{name: "retrieving", latest: Acceptance{Step: "RetrievePayload", Message: "m"}, want: "Unknown|RetrievePayload|m"},
		{name: "loading", latest: Acceptance{Step: "LoadPayload", Message: "m"}, want: "Unknown|LoadPayload|m"},
		{name: "checking the version", latest: Acceptance{Step: "VerifyPayloadVersion", Message: "m"}, want: "Unknown|VerifyPayloadVersion|m"},
		{name: "weighing", latest: Acceptance{Step: "PreconditionChecks", Message: "m"}, want: "Unknown|PreconditionChecks|m"},
		{name: "not retrieved", latest: Acceptance{Step: "RetrievePayload", Message: "m", Err: errors.New("e")}, want: "False|RetrievePayload|m"},
		{name: "not loaded", latest: Acceptance{Step: "LoadPayload", Message: "m", Err: errors.New("e")}, want: "False|LoadPayload|m"},
		{name: "of another version", latest: Acceptance{Step: "VerifyPayloadVersion", Message: "m", Err: errors.New("e")}, want: "False|VerifyPayloadVersion|m"},
		{name: "blocked", latest: Acceptance{Step: "PreconditionChecks", Message: "m", Err: errors.New("e")}, want: "False|PreconditionChecks|m"},
		{name: "accepted", latest: acceptedRelease("1.1.0"), want: `True|PayloadLoaded|Payload loaded version="1.1.0"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			current := acceptedRelease("1.0.0")
			for _, in := range []observed{{target: target, latest: tt.latest, now: now}, {target: target, latest: tt.latest, accepted: &current, now: now}} {
				status, _ := nextStatus(clusterAt(), in)
				assert.Equal(t, tt.want, said(status, api.ReleaseAccepted))
			}
		})
	}
}

func TestFirstStatus(t *testing.T) {
	target := Target{Image: "example.com/r:1.0", Own: true}
	status, recheck := nextStatus(clusterAt(), observed{target: target, now: now})
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

// TestInstallAndUpdate follows one status from nothing to an update.
func TestInstallAndUpdate(t *testing.T) {
	a := acceptedRelease("1.0.0")
	cv := clusterAt()
	at := now
	step := func(in observed) configv1.ClusterVersionStatus {
		at = at.Add(time.Minute)
		in.now = at
		if in.latest.Step == "" && in.accepted != nil {
			in.latest, in.target = *in.accepted, in.accepted.Target
		}
		before := cv.Status.DeepCopy()
		status, _ := nextStatus(cv, in)
		assert.Equal(t, *before, cv.Status, "the input stays as it is")
		again, _ := nextStatus(cv, in)
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
	step(observed{target: a.Target})
	on := manifest.Capabilities{Known: sets.New[configv1.ClusterVersionCapability]("b", "a"), Enabled: sets.New[configv1.ClusterVersionCapability]("b", "a")}
	a.filter.Capabilities = on
	status := step(observed{accepted: &a})
	assert.Equal(t, configv1.Release{Version: "1.0.0", Image: imageOf("1.0.0"), URL: "https://example.com/1.0.0", Channels: []string{"stable"}}, status.Desired)
	assert.Equal(t, "hash-1.0.0", status.VersionHash)
	assert.Equal(t, []configv1.ClusterVersionCapability{"a", "b"}, status.Capabilities.EnabledCapabilities)
	assert.Equal(t, []configv1.ClusterVersionCapability{"a", "b"}, status.Capabilities.KnownCapabilities)
	started := metav1.NewTime(at)
	assert.Equal(t, []configv1.UpdateHistory{{State: "Partial", StartedTime: started, Version: "1.0.0", Image: imageOf("1.0.0"), Verified: true}}, status.History)
	assert.Equal(t, "True||Working towards 1.0.0", said(status, configv1.OperatorProgressing))

	status = step(observed{accepted: &a, progress: progressOf("1.0.0", 5, 10)})
	assert.Equal(t, "False||", said(status, configv1.OperatorAvailable))
	report := operatorProblem("dns", gate.Report, api.ReasonClusterOperatorDegraded, "Cluster operator dns is degraded", 0)
	status = step(observed{accepted: &a, progress: progressOf("1.0.0", 10, 10, report)})
	assert.Equal(t, "True||Done applying 1.0.0", said(status, configv1.OperatorAvailable))
	assert.Equal(t, "True|ClusterOperatorDegraded|Cluster operator dns is degraded", said(status, api.Failing), "an install completes with a degraded operator, and says so")
	assert.Equal(t, configv1.CompletedUpdate, status.History[0].State)
	assert.Equal(t, at, status.History[0].CompletionTime.Time)
	completedAt := at
	status = step(observed{accepted: &a, progress: progressOf("1.0.0", 10, 10)})
	assert.Equal(t, completedAt, status.History[0].CompletionTime.Time, "it completes once")
	assert.Equal(t, "False||", said(status, api.Failing))
	assert.Equal(t, "False||Cluster version is 1.0.0", said(status, configv1.OperatorProgressing))

	b := acceptedRelease("1.1.0")
	status = step(observed{accepted: &a, progress: progressOf("1.0.0", 10, 10), target: b.Target, latest: Acceptance{Step: "RetrievePayload"}})
	assert.Equal(t, "1.0.0", status.Desired.Version, "until it is accepted, the old release goes on")
	assert.Len(t, status.History, 1)
	status = step(observed{accepted: &b})
	assert.Equal(t, []configv1.UpdateState{"Partial", "Completed"}, []configv1.UpdateState{status.History[0].State, status.History[1].State})
	assert.Equal(t, "True||Working towards 1.1.0", said(status, configv1.OperatorProgressing))
	assert.Equal(t, "True||Done applying 1.0.0", said(status, configv1.OperatorAvailable), "it never returns to False")
	status = step(observed{accepted: &b, progress: progressOf("1.1.0", 3, 10, updating("dns", minute))})
	assert.Equal(t, "False||", said(status, api.Failing))
	status = step(observed{accepted: &b, progress: progressOf("1.1.0", 10, 10)})
	assert.Equal(t, "True||Done applying 1.1.0", said(status, configv1.OperatorAvailable))
}

// TestRestartKeepsConditions: a process that has just started knows nothing, and so changes nothing.
func TestRestartKeepsConditions(t *testing.T) {
	a := acceptedRelease("1.1.0")
	for _, tt := range []struct {
		name     string
		cv       *configv1.ClusterVersion
		progress *rollout.Progress
	}{
		{"in the middle of an update", clusterAt(partial("1.1.0"), completed("1.0.0")), progressOf("1.1.0", 5, 10, updating("dns", minute))},
		{"in an update that fails", clusterAt(partial("1.1.0"), completed("1.0.0")), progressOf("1.1.0", 5, 10, unavailable("dns"))},
		{"in an install", clusterAt(partial("1.1.0")), progressOf("1.1.0", 5, 10)},
		{"at rest", clusterAt(completed("1.1.0")), progressOf("1.1.0", 10, 10)},
		{"with a broken operator", clusterAt(completed("1.1.0")), progressOf("1.1.0", 10, 10, degraded("dns", minute))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := observed{accepted: &a, latest: a, target: a.Target, progress: tt.progress, now: now}
			tt.cv.Status, _ = nextStatus(tt.cv, in)
			for what, in := range map[string]observed{
				"nothing":    {target: a.Target},
				"retrieving": {target: a.Target, latest: Acceptance{Step: "RetrievePayload"}},
				"accepted":   {target: a.Target, latest: a, accepted: &a},
				"rolled out": {target: a.Target, latest: a, accepted: &a, progress: tt.progress},
			} {
				in.now = now.Add(time.Second)
				status, _ := nextStatus(tt.cv, in)
				assert.Equal(t, tt.cv.Status, status, what)
			}
		})
	}
}

func TestInvalid(t *testing.T) {
	a := acceptedRelease("1.1.0")
	cv := clusterAt(completed("1.1.0"))
	in := observed{accepted: &a, latest: a, target: a.Target, progress: progressOf("1.1.0", 1, 1), now: now}
	in.invalid = invalidSpec()
	cv.Status, _ = nextStatus(cv, in)
	assert.Equal(t, "True|InvalidClusterVersion|The cluster version is invalid: spec.desiredUpdate: Required value: must specify architecture, version, or image", said(cv.Status, api.Invalid))
	in.invalid = append(in.invalid, field.Invalid(field.NewPath("spec", "clusterID"), "x", "must be an RFC4122-variant UUID"))
	cv.Status, _ = nextStatus(cv, in)
	assert.Equal(t, "True|InvalidClusterVersion|The cluster version is invalid:\n"+
		"* spec.desiredUpdate: Required value: must specify architecture, version, or image\n"+
		"* spec.clusterID: Invalid value: \"x\": must be an RFC4122-variant UUID", said(cv.Status, api.Invalid))
	in.invalid = nil
	cv.Status, _ = nextStatus(cv, in)
	assert.Empty(t, said(cv.Status, api.Invalid))
	assert.Equal(t, "False||Cluster version is 1.1.0", said(cv.Status, configv1.OperatorProgressing))
}

func TestDesiredFillsGapsFromAvailableUpdates(t *testing.T) {
	a := acceptedRelease("1.1.0")
	a.Payload.Release.URL, a.Payload.Release.Channels = "", nil
	got := desired(a, []configv1.Release{{Image: "other", URL: "no"}, {Image: a.Image(), URL: "yes", Channels: []string{"fast"}}})
	assert.Equal(t, configv1.Release{Version: "1.1.0", Image: a.Image(), URL: "yes", Channels: []string{"fast"}}, got)
}

func TestStatusTellsImplicitCapabilities(t *testing.T) {
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
		{"says that all is as asked for", []configv1.ClusterVersionCapability{"Console"}, "False|AsExpected|Capabilities match configured spec"},
		{
			"names what stays on unasked",
			[]configv1.ClusterVersionCapability{"Console", "Storage", "Ingress"},
			"True|CapabilitiesImplicitlyEnabled|The following capabilities could not be disabled: Ingress, Storage",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := acceptedRelease("1.0.0")
			a.filter.Capabilities = manifest.Capabilities{Known: sets.New(manifest.KnownCapabilities()...), Enabled: sets.New(tt.on...)}
			status, _ := nextStatus(cv, observed{accepted: &a, now: time.Unix(0, 0)})
			assert.Equal(t, tt.want, said(status, api.ImplicitlyEnabledCapabilities))
		})
	}
}

// What is on unasked is not known before the release of the history is taken up again.
func TestRestartKeepsImplicitCapabilities(t *testing.T) {
	cv := &configv1.ClusterVersion{}
	cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
		{Type: api.ImplicitlyEnabledCapabilities, Status: configv1.ConditionTrue, Reason: "CapabilitiesImplicitlyEnabled", Message: "Console"},
	}
	status, _ := nextStatus(cv, observed{now: time.Unix(0, 0)})
	assert.Equal(t, "True|CapabilitiesImplicitlyEnabled|Console", said(status, api.ImplicitlyEnabledCapabilities))
}

// TestChangeOfACompletedRelease: what a cluster gets anew of the release that it has completed is rolled out like an
// update, and the history knows nothing of it.
func TestChangeOfACompletedRelease(t *testing.T) {
	with := func(hash string, on ...configv1.ClusterVersionCapability) *Acceptance {
		a := acceptedRelease("1.1.0")
		a.Payload.Hash = hash
		a.filter.Capabilities = manifest.Capabilities{Known: sets.New(manifest.KnownCapabilities()...), Enabled: sets.New(on...)}
		return &a
	}
	for _, tt := range []struct {
		name   string
		change *Acceptance
	}{
		{"a capability", with("hash", "Console", "Insights")},
		{"a feature gate", with("another", "Console")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cv := clusterAt(completed("1.1.0"), completed("1.0.0"))
			see := func(a *Acceptance, progress *rollout.Progress) {
				cv.Status, _ = nextStatus(cv, observed{accepted: a, latest: *a, target: a.Target, progress: progress, now: now})
			}
			before := with("hash", "Console")
			see(before, nil)
			see(before, progressOf("1.1.0", 5, 5))
			assert.Equal(t, "False||Cluster version is 1.1.0", said(cv.Status, configv1.OperatorProgressing))
			assert.True(t, recorded(cv.Status, *before, Schema{}))
			assert.Equal(t, release.Reconciling, modeOf(cv, imageOf("1.1.0")))
			history := cv.Status.DeepCopy().History

			assert.False(t, recorded(cv.Status, *tt.change, Schema{}), "nothing is rolled out before status says so")
			see(tt.change, nil)
			assert.True(t, recorded(cv.Status, *tt.change, Schema{}))
			assert.Equal(t, "True||Working towards 1.1.0", said(cv.Status, configv1.OperatorProgressing))
			assert.Equal(t, "True||Done applying 1.1.0", said(cv.Status, configv1.OperatorAvailable))
			assert.Equal(t, release.Updating, modeOf(cv, imageOf("1.1.0")), "also for a process that has just started")
			see(tt.change, progressOf("1.1.0", 5, 6, updating("insights", minute)))
			assert.Equal(t, "True|ClusterOperatorUpdating|Working towards 1.1.0: 5 of 6 done (83% complete), waiting on insights", said(cv.Status, configv1.OperatorProgressing))
			assert.Equal(t, "False||", said(cv.Status, api.Failing), "an operator that has only just been asked for has its time")
			see(tt.change, progressOf("1.1.0", 6, 6))
			assert.Equal(t, "False||Cluster version is 1.1.0", said(cv.Status, configv1.OperatorProgressing))
			assert.Equal(t, release.Reconciling, modeOf(cv, imageOf("1.1.0")))
			assert.Equal(t, history, cv.Status.History)
		})
	}
}

// TestCapabilitiesThatTheDefinitionLacks: one name too many would have the API server refuse the whole status.
func TestCapabilitiesThatTheDefinitionLacks(t *testing.T) {
	a := acceptedRelease("1.1.0")
	a.filter.Capabilities = manifest.AllCapabilities(manifest.CapabilityGates())
	schema := Schema{Capabilities: ",Console,Ingress,"}
	cv := clusterAt(completed("1.1.0"))
	cv.Status, _ = nextStatus(cv, observed{accepted: &a, latest: a, target: a.Target, control: control{schema: schema}, now: now})
	want := []configv1.ClusterVersionCapability{"Console", "Ingress"}
	assert.Equal(t, configv1.ClusterVersionCapabilitiesStatus{EnabledCapabilities: want, KnownCapabilities: want}, cv.Status.Capabilities)
	assert.True(t, recorded(cv.Status, a, schema))
	assert.Len(t, capabilities(a, Schema{}).KnownCapabilities, 19)
}
