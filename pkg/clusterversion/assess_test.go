package clusterversion

import (
	"errors"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func operatorProblem(name string, patience gate.Patience, reason, message string, ago time.Duration) rollout.Problem {
	p := rollout.Problem{
		ID:       manifest.ID{Group: "config.openshift.io", Kind: "ClusterOperator", Name: name},
		Patience: patience, Reason: reason, Message: message,
	}
	if ago >= 0 {
		p.Since = now.Add(-ago)
	}
	return p
}

func updating(name string, ago time.Duration) rollout.Problem {
	return operatorProblem(name, gate.UntilSlow, api.ReasonClusterOperatorUpdating, "Cluster operator "+name+" is updating versions", ago)
}

func degraded(name string, ago time.Duration) rollout.Problem {
	return operatorProblem(name, gate.UntilFailed, api.ReasonClusterOperatorDegraded, "Cluster operator "+name+" is degraded", ago)
}

func unavailable(name string) rollout.Problem {
	return operatorProblem(name, gate.None, api.ReasonClusterOperatorNotAvailable, "Cluster operator "+name+" is not available", time.Minute)
}

func unversioned(name string) rollout.Problem {
	return operatorProblem(name, gate.None, api.ReasonClusterOperatorNoVersions, "Cluster operator "+name+" does not declare expected versions", time.Minute)
}

func workload(name string, patience gate.Patience, reason string) rollout.Problem {
	return rollout.Problem{
		ID:       manifest.ID{Group: "apps", Kind: "Deployment", Namespace: "ns", Name: name},
		Patience: patience, Reason: reason, Message: "Deployment ns/" + name + " has trouble", Since: now.Add(-time.Minute),
	}
}

func apiFailure(name, reason string, ago time.Duration) rollout.Problem {
	return rollout.Problem{
		ID:     manifest.ID{Kind: "ConfigMap", Namespace: "ns", Name: name},
		Reason: reason, Message: "could not update " + name, Since: now.Add(-ago), Err: errors.New("no"),
	}
}

const minute = time.Minute

func TestAssess(t *testing.T) {
	for _, tt := range []struct {
		name     string
		mode     release.Mode
		problems []rollout.Problem

		failing    configv1.ConditionStatus // default False
		reason     string
		message    string
		summary    string
		waiting    string
		waitReason string
		recheck    time.Duration
	}{
		{name: "finds nothing wrong with nothing"},
		{
			name: "waits for one operator", problems: []rollout.Problem{updating("etcd", minute)},
			waiting: "waiting on etcd", waitReason: "ClusterOperatorUpdating", recheck: 29 * minute,
		},
		{
			name: "waits for several, sorted", problems: []rollout.Problem{updating("kube-apiserver", 2*minute), updating("etcd", minute)},
			waiting: "waiting on etcd, kube-apiserver", waitReason: "ClusterOperatorsUpdating", recheck: 28 * minute,
		},
		{
			name: "calls an operator slow after 30 minutes", problems: []rollout.Problem{updating("b", 30*minute), updating("a", 31*minute), updating("c", minute)},
			failing: "Unknown", reason: "SlowClusterOperator", message: "waiting on a, b over 30 minutes which is longer than expected",
			waiting: "waiting on a, b over 30 minutes which is longer than expected", waitReason: "ClusterOperatorsUpdating", recheck: 29 * minute,
		},
		{
			name: "gives machine-config 90 minutes", problems: []rollout.Problem{updating("machine-config", 89*minute)},
			waiting: "waiting on machine-config", waitReason: "ClusterOperatorUpdating", recheck: minute,
		},
		{
			name: "and not more", problems: []rollout.Problem{updating("machine-config", 90*minute)},
			failing: "Unknown", reason: "SlowClusterOperator", message: "waiting on machine-config over 90 minutes which is longer than expected",
			waiting: "waiting on machine-config over 90 minutes which is longer than expected", waitReason: "ClusterOperatorUpdating",
		},
		{
			name: "names both limits", problems: []rollout.Problem{updating("machine-config", 95*minute), updating("dns", 45*minute)},
			failing: "Unknown", reason: "SlowClusterOperator", message: "waiting on dns over 30 minutes and machine-config over 90 minutes which is longer than expected",
			waiting: "waiting on dns over 30 minutes and machine-config over 90 minutes which is longer than expected", waitReason: "ClusterOperatorsUpdating",
		},
		{
			name: "calls nobody slow whose start is unknown, and does not look again", problems: []rollout.Problem{updating("dns", -1)},
			waiting: "waiting on dns", waitReason: "ClusterOperatorUpdating",
		},
		{
			name: "waits 40 minutes for a degraded operator", problems: []rollout.Problem{degraded("authentication", 39*minute+59*time.Second)},
			waiting: "waiting up to 40 minutes on authentication", waitReason: "ClusterOperatorDegraded", recheck: time.Second,
		},
		{
			name: "fails after 40 minutes", problems: []rollout.Problem{degraded("authentication", 40*minute)},
			failing: "True", reason: "ClusterOperatorDegraded", message: "Cluster operator authentication is degraded",
			summary: "wait has exceeded 40 minutes for these operators: authentication",
		},
		{
			name: "fails for several, and names those whose time is up", problems: []rollout.Problem{degraded("kube-apiserver", 41*minute), degraded("etcd", 44*minute), degraded("dns", 10*minute)},
			failing: "True", reason: "ClusterOperatorsDegraded", message: "Cluster operators dns, etcd, kube-apiserver are degraded",
			summary: "wait has exceeded 40 minutes for these operators: etcd, kube-apiserver", recheck: 30 * minute,
		},
		{
			name: "counts an unknown start of degradation as long ago", problems: []rollout.Problem{degraded("dns", -1)},
			failing: "True", reason: "ClusterOperatorDegraded", message: "Cluster operator dns is degraded",
			summary: "wait has exceeded 40 minutes for these operators: dns",
		},
		{
			name: "tells both kinds of waiting", problems: []rollout.Problem{updating("dns", minute), degraded("etcd", minute)},
			waiting: "waiting on dns; waiting up to 40 minutes on etcd", waitReason: "ClusterOperatorDegraded", recheck: 29 * minute,
		},
		{
			name: "fails for an operator that stays not available", problems: []rollout.Problem{unavailable("dns"), updating("etcd", minute)},
			failing: "True", reason: "ClusterOperatorNotAvailable", message: "Cluster operator dns is not available",
			summary: "the cluster operator dns is not available",
		},
		{
			name:     "waits for an operator that has only just started",
			problems: []rollout.Problem{operatorProblem("dns", gate.None, api.ReasonClusterOperatorNotAvailable, "Cluster operator dns is not available", 4*time.Second)},
			waiting:  "waiting on dns", waitReason: "ClusterOperatorNotAvailable", recheck: 6 * time.Second,
		},
		{
			name: "fails for several that are not available", problems: []rollout.Problem{unavailable("etcd"), unavailable("dns")},
			failing: "True", reason: "ClusterOperatorsNotAvailable", message: "Cluster operators dns, etcd are not available",
			summary: "some cluster operators are not available",
		},
		{
			name: "fails for an operator without versions", problems: []rollout.Problem{unversioned("dns")},
			failing: "True", reason: "ClusterOperatorNoVersions", message: "Cluster operator dns does not declare expected versions",
			summary: "the cluster operator dns does not declare expected versions",
		},
		{
			name: "fails for several without versions", problems: []rollout.Problem{unversioned("etcd"), unversioned("dns")},
			failing: "True", reason: "ClusterOperatorsNoVersions", message: "Cluster operators dns, etcd do not declare expected versions",
			summary: "dns, etcd has an unknown error: ClusterOperatorsNoVersions",
		},
		{
			name: "lists different errors, each once, sorted", problems: []rollout.Problem{
				apiFailure("b", api.ReasonResourceForbidden, minute), apiFailure("a", api.ReasonResourceInvalid, minute),
				apiFailure("a", api.ReasonResourceInvalid, minute), unavailable("dns"), updating("etcd", minute), degraded("x", minute),
			},
			failing: "True", reason: "MultipleErrors",
			message: "Multiple errors are preventing progress:\n* Cluster operator dns is not available\n* could not update a\n* could not update b",
			summary: "an unknown error has occurred: MultipleErrors", recheck: 39 * minute,
		},
		{
			name: "does not lose one of two operators with an error that has no plural", problems: []rollout.Problem{
				operatorProblem("a", gate.None, "Deleting", "a is being deleted", minute), operatorProblem("b", gate.None, "Deleting", "b is being deleted", minute),
			},
			failing: "True", reason: "MultipleErrors", message: "Multiple errors are preventing progress:\n* a is being deleted\n* b is being deleted",
			summary: "an unknown error has occurred: MultipleErrors",
		},
		{
			name: "keeps quiet about requests that failed just now", problems: []rollout.Problem{apiFailure("a", api.ReasonClusterDown, 4*time.Second)},
			recheck: 6 * time.Second,
		},
		{
			name: "but not about those that go on failing", problems: []rollout.Problem{apiFailure("a", api.ReasonClusterDown, 10*time.Second)},
			failing: "True", reason: "UpdatePayloadClusterDown", message: "could not update a", summary: "the control plane is down or not responding",
		},
		{
			name: "reports what an install only reports", mode: release.Initializing,
			problems: []rollout.Problem{operatorProblem("dns", gate.Report, api.ReasonClusterOperatorDegraded, "Cluster operator dns is degraded", minute)},
			failing:  "True", reason: "ClusterOperatorDegraded", message: "Cluster operator dns is degraded", summary: "the cluster operator dns is degraded",
		},
		{
			name: "tolerates nothing once reconciling: updating", mode: release.Reconciling, problems: []rollout.Problem{updating("dns", 0)},
			failing: "True", reason: "ClusterOperatorUpdating", message: "Cluster operator dns is updating versions",
			summary: "dns has an unknown error: ClusterOperatorUpdating",
		},
		{
			name: "tolerates nothing once reconciling: degraded", mode: release.Reconciling, problems: []rollout.Problem{degraded("machine-config", 0)},
			failing: "True", reason: "ClusterOperatorDegraded", message: "Cluster operator machine-config is degraded",
			summary: "the cluster operator machine-config is degraded",
		},
		{
			name: "tolerates nothing once reconciling: several degraded", mode: release.Reconciling, problems: []rollout.Problem{degraded("b", 0), degraded("a", 0)},
			failing: "True", reason: "ClusterOperatorsDegraded", message: "Cluster operators a, b are degraded",
			summary: "some cluster operators are degraded",
		},
		{
			name: "tolerates a workload for a moment once reconciling", mode: release.Reconciling,
			problems: []rollout.Problem{{ID: manifest.ID{Kind: "x"}, Patience: gate.UntilSlow, Since: now.Add(-9 * time.Second)}}, recheck: time.Second,
		},
		{
			name: "names a workload", problems: []rollout.Problem{workload("dns", gate.None, api.ReasonWorkloadNotAvailable)},
			failing: "True", reason: "WorkloadNotAvailable", message: "Deployment ns/dns has trouble",
			summary: "the workload ns/dns has not yet successfully rolled out",
		},
		{
			name: "waits for workloads if for no operator, and names three", problems: []rollout.Problem{
				workload("d", gate.UntilSlow, "x"), workload("c", gate.UntilSlow, "x"), workload("b", gate.UntilSlow, "x"), workload("a", gate.UntilSlow, "x"),
			},
			waiting: "waiting on ns/a, ns/b, ns/c and 1 more",
		},
		{
			name: "names operators before workloads", problems: []rollout.Problem{workload("d", gate.UntilSlow, "x"), updating("dns", minute)},
			waiting: "waiting on dns", waitReason: "ClusterOperatorUpdating", recheck: 29 * minute,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := assessment{
				failing: tt.failing, reason: tt.reason, message: tt.message, summary: tt.summary,
				waiting: tt.waiting, waitReason: tt.waitReason, recheck: tt.recheck,
			}
			if want.failing == "" {
				want.failing = configv1.ConditionFalse
			}
			if tt.mode == "" {
				tt.mode = release.Updating
			}
			for range 3 {
				assert.Equal(t, want, assess(tt.problems, tt.mode, now))
			}
		})
	}
}

func TestSummaries(t *testing.T) {
	for reason, want := range map[string]string{
		api.ReasonResourceNotFound:        "some resources could not be updated",
		api.ReasonResourceConflict:        "some resources could not be updated",
		api.ReasonClusterDown:             "the control plane is down or not responding",
		api.ReasonClusterError:            "the control plane is reporting an internal error",
		api.ReasonClusterOverloaded:       "the control plane is overloaded and is not accepting updates",
		api.ReasonClusterUnauthorized:     "could not authenticate to the server",
		api.ReasonPayloadRetrievalFailed:  "could not download the update",
		api.ReasonResourceForbidden:       "the server is rejecting updates",
		api.ReasonResourceTypeMissing:     "a required extension is not available to update",
		api.ReasonResourceInvalid:         "some cluster configuration is invalid",
		api.ReasonPayloadIntegrity:        "the contents of the update are invalid",
		api.ReasonImageVerificationFailed: "the image may not be safe to use",
		api.ReasonPreconditionCheckFailed: "it may not be safe to apply this update",
		api.ReasonWorkloadNotAvailable:    "the workload ns/a has not yet successfully rolled out",
		api.ReasonWorkloadNotProgressing:  "the workload ns/a cannot roll out",
		api.ReasonPayloadFailed:           "the update could not be applied",
		"UpdatePayloadSomethingNew":       "the update could not be applied",
		"NotEstablished":                  "ns/a has an unknown error: NotEstablished",
	} {
		a := assess([]rollout.Problem{apiFailure("a", reason, time.Hour)}, release.Updating, now)
		assert.Equal(t, want, a.summary, reason)
		assert.Equal(t, reason, a.reason)
	}
}
