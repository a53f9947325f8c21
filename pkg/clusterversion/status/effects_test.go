package status

import (
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/release"
)

// texts holds the texts of conditions Failing and Progressing.
type texts struct{ failing, progressing string }

// TestErrorEffectsMatchOpenShift has a row for each effect of an error in OpenShift's operator, below and above its threshold and in
// each mode. If a row differs from that operator, differs gives the reason.
func TestErrorEffectsMatchOpenShift(t *testing.T) {
	const (
		counted     = "Working towards 1.1.0: 3 of 4 done (75% complete)"
		fine        = "False||Cluster version is 1.1.0"
		notFailing  = "False||"
		updatingDNS = "True|ClusterOperatorUpdating|" + counted + ", waiting on dns"
	)
	reporting := func(name string) report.Problem {
		return operatorProblem(name, gate.Report, api.ReasonClusterOperatorDegraded, "Cluster operator "+name+" is degraded", time.Minute)
	}
	absent := func(name string, ago time.Duration) report.Problem {
		return operatorProblem(name, gate.None, api.ReasonClusterOperatorNotAvailable, "Cluster operator "+name+" is not available", ago)
	}
	silent := func(name string, ago time.Duration) report.Problem {
		return operatorProblem(name, gate.UntilSlow, api.ReasonClusterOperatorNotAvailable, "Cluster operator "+name+" has not reported yet", ago)
	}
	plain := func(ago time.Duration) report.Problem { return apiFailure("a", api.ReasonPayloadFailed, ago) }
	reconcilingDegraded := texts{"True|ClusterOperatorDegraded|Cluster operator dns is degraded", "False|ClusterOperatorDegraded|Error while reconciling 1.1.0: the cluster operator dns is degraded"}
	reconcilingUpdating := texts{"True|ClusterOperatorUpdating|Cluster operator dns is updating versions", "False|ClusterOperatorUpdating|Error while reconciling 1.1.0: the cluster operator dns is updating versions"}

	for _, tt := range []struct {
		name     string
		problems []report.Problem
		// rolling applies to installs and updates.
		rolling, reconciling texts
		differs              string
	}{
		{
			name: "is healthy without an error", rolling: texts{notFailing, "True||" + counted}, reconciling: texts{notFailing, fine},
		},
		{
			name: "waits for an updating operator below 30 minutes", problems: []report.Problem{updating("dns", 30*minute-time.Second)},
			rolling: texts{notFailing, updatingDNS}, reconciling: reconcilingUpdating,
		},
		{
			name: "calls an updating operator slow above 30 minutes", problems: []report.Problem{updating("dns", 30*minute+time.Second)},
			rolling: texts{
				"Unknown|SlowClusterOperator|waiting on dns over 30 minutes which is longer than expected",
				"True|ClusterOperatorUpdating|" + counted + ", waiting on dns over 30 minutes which is longer than expected",
			}, reconciling: reconcilingUpdating,
		},
		{
			name: "waits for machine-config below 90 minutes", problems: []report.Problem{updating("machine-config", 90*minute-time.Second)},
			rolling: texts{notFailing, "True|ClusterOperatorUpdating|" + counted + ", waiting on machine-config"},
			reconciling: texts{
				"True|ClusterOperatorUpdating|Cluster operator machine-config is updating versions",
				"False|ClusterOperatorUpdating|Error while reconciling 1.1.0: the cluster operator machine-config is updating versions",
			},
		},
		{
			name: "calls machine-config slow above 90 minutes", problems: []report.Problem{updating("machine-config", 90*minute+time.Second)},
			rolling: texts{
				"Unknown|SlowClusterOperator|waiting on machine-config over 90 minutes which is longer than expected",
				"True|ClusterOperatorUpdating|" + counted + ", waiting on machine-config over 90 minutes which is longer than expected",
			},
			reconciling: texts{
				"True|ClusterOperatorUpdating|Cluster operator machine-config is updating versions",
				"False|ClusterOperatorUpdating|Error while reconciling 1.1.0: the cluster operator machine-config is updating versions",
			},
		},
		{
			name: "calls two operators slow and waits for another", problems: []report.Problem{updating("machine-config", 91*minute), updating("etcd", 31*minute), updating("dns", minute)},
			rolling: texts{
				"Unknown|SlowClusterOperator|waiting on etcd over 30 minutes and machine-config over 90 minutes which is longer than expected",
				"True|ClusterOperatorsUpdating|" + counted + ", waiting on etcd over 30 minutes and machine-config over 90 minutes which is longer than expected",
			},
			reconciling: texts{
				"True|ClusterOperatorsUpdating|Cluster operators dns, etcd, machine-config are updating versions",
				"False|ClusterOperatorsUpdating|Error while reconciling 1.1.0: the cluster operators dns, etcd, machine-config are updating versions",
			},
		},
		{
			name: "fails for an error with effect Report", problems: []report.Problem{reporting("dns")},
			rolling:     texts{"True|ClusterOperatorDegraded|Cluster operator dns is degraded", "True|ClusterOperatorDegraded|Unable to apply 1.1.0: the cluster operator dns is degraded"},
			reconciling: reconcilingDegraded,
		},
		{
			name: "fails for an error with effect Fail", problems: []report.Problem{absent("dns", 11*time.Second)},
			rolling:     texts{"True|ClusterOperatorNotAvailable|Cluster operator dns is not available", "True|ClusterOperatorNotAvailable|Unable to apply 1.1.0: the cluster operator dns is not available"},
			reconciling: texts{"True|ClusterOperatorNotAvailable|Cluster operator dns is not available", "False|ClusterOperatorNotAvailable|Error while reconciling 1.1.0: the cluster operator dns is not available"},
		},
		{
			name: "waits below 10 seconds for an error with effect Fail", problems: []report.Problem{absent("dns", 9*time.Second)},
			rolling:     texts{notFailing, "True|ClusterOperatorNotAvailable|" + counted + ", waiting on dns"},
			reconciling: texts{"True|ClusterOperatorNotAvailable|Cluster operator dns is not available", "False|ClusterOperatorNotAvailable|Error while reconciling 1.1.0: the cluster operator dns is not available"},
			differs:     "this operator checks at once and would report every replaced pod; that operator checks every few minutes",
		},
		{
			name: "waits for an operator without a report below 30 minutes", problems: []report.Problem{silent("dns", 29*minute)},
			rolling:     texts{notFailing, "True|ClusterOperatorNotAvailable|" + counted + ", waiting on dns"},
			reconciling: texts{"True|ClusterOperatorNotAvailable|Cluster operator dns has not reported yet", "False|ClusterOperatorNotAvailable|Error while reconciling 1.1.0: the cluster operator dns is not available"},
			differs:     "its pod may not have started yet; that operator considers it unavailable and fails",
		},
		{
			name: "calls an operator without a report slow above 30 minutes", problems: []report.Problem{silent("dns", 31*minute)},
			rolling: texts{
				"Unknown|SlowClusterOperator|waiting on dns over 30 minutes which is longer than expected",
				"True|ClusterOperatorNotAvailable|" + counted + ", waiting on dns over 30 minutes which is longer than expected",
			},
			reconciling: texts{"True|ClusterOperatorNotAvailable|Cluster operator dns has not reported yet", "False|ClusterOperatorNotAvailable|Error while reconciling 1.1.0: the cluster operator dns is not available"},
			differs:     "as above",
		},
		{
			name: "waits for a degraded operator below 40 minutes", problems: []report.Problem{degraded("dns", 40*minute-time.Second)},
			rolling:     texts{notFailing, "True|ClusterOperatorDegraded|" + counted + ", waiting up to 40 minutes on dns"},
			reconciling: reconcilingDegraded,
		},
		{
			name: "fails for a degraded operator above 40 minutes", problems: []report.Problem{degraded("dns", 40*minute+time.Second)},
			rolling: texts{
				"True|ClusterOperatorDegraded|Cluster operator dns is degraded",
				"True|ClusterOperatorDegraded|Unable to apply 1.1.0: wait has exceeded 40 minutes for these operators: dns",
			}, reconciling: reconcilingDegraded,
		},
		{
			name: "fails for several degraded operators if one is above 40 minutes", problems: []report.Problem{degraded("etcd", 41*minute), degraded("dns", minute)},
			rolling: texts{
				"True|ClusterOperatorsDegraded|Cluster operators dns, etcd are degraded",
				"True|ClusterOperatorsDegraded|Unable to apply 1.1.0: wait has exceeded 40 minutes for these operators: etcd",
			},
			reconciling: texts{
				"True|ClusterOperatorsDegraded|Cluster operators dns, etcd are degraded",
				"False|ClusterOperatorsDegraded|Error while reconciling 1.1.0: some cluster operators are degraded",
			},
			differs: "several degraded operators have their own summary; that operator reports an unknown error",
		},
		{
			name: "ignores a plain error below 10 seconds", problems: []report.Problem{plain(9 * time.Second)},
			rolling: texts{notFailing, "True||" + counted}, reconciling: texts{notFailing, fine},
			differs: "a failed request is retried within a second and usually succeeds; that operator retries three times before it reports",
		},
		{
			name: "fails for a plain error", problems: []report.Problem{plain(11 * time.Second)},
			rolling:     texts{"True|UpdatePayloadFailed|could not update a", "True|UpdatePayloadFailed|Unable to apply 1.1.0: the update could not be applied"},
			reconciling: texts{"True|UpdatePayloadFailed|could not update a", "False|UpdatePayloadFailed|Error while reconciling 1.1.0: the update could not be applied"},
		},
		{
			name: "waits for several updating operators", problems: []report.Problem{updating("dns", minute), silent("etcd", minute)},
			rolling: texts{notFailing, "True|ClusterOperatorUpdating|" + counted + ", waiting on dns, etcd"},
			reconciling: texts{
				"True|MultipleErrors|Multiple errors are preventing progress:\n* Cluster operator dns is updating versions\n* Cluster operator etcd has not reported yet",
				"False|MultipleErrors|Error while reconciling 1.1.0: an unknown error has occurred: MultipleErrors",
			},
		},
		{
			name: "fails for an error with effect Fail while another operator updates", problems: []report.Problem{updating("dns", 31*minute), absent("etcd", minute)},
			rolling: texts{
				"True|ClusterOperatorNotAvailable|Cluster operator etcd is not available",
				"True|ClusterOperatorNotAvailable|Unable to apply 1.1.0: the cluster operator etcd is not available",
			},
			reconciling: texts{
				"True|MultipleErrors|Multiple errors are preventing progress:\n* Cluster operator dns is updating versions\n* Cluster operator etcd is not available",
				"False|MultipleErrors|Error while reconciling 1.1.0: an unknown error has occurred: MultipleErrors",
			},
			differs: "Progressing also reports the remaining error; that operator reports the unknown error MultipleErrors",
		},
		{
			name: "fails for an error with effect Report while another operator updates", problems: []report.Problem{updating("dns", minute), reporting("etcd")},
			rolling: texts{
				"True|ClusterOperatorDegraded|Cluster operator etcd is degraded",
				"True|ClusterOperatorDegraded|Unable to apply 1.1.0: the cluster operator etcd is degraded",
			},
			reconciling: texts{
				"True|MultipleErrors|Multiple errors are preventing progress:\n* Cluster operator dns is updating versions\n* Cluster operator etcd is degraded",
				"False|MultipleErrors|Error while reconciling 1.1.0: an unknown error has occurred: MultipleErrors",
			},
		},
		{
			name: "waits for an updating operator and a degraded one below 40 minutes", problems: []report.Problem{updating("dns", minute), degraded("etcd", 39*minute)},
			rolling: texts{notFailing, "True|ClusterOperatorDegraded|" + counted + ", waiting on dns; waiting up to 40 minutes on etcd"},
			reconciling: texts{
				"True|MultipleErrors|Multiple errors are preventing progress:\n* Cluster operator dns is updating versions\n* Cluster operator etcd is degraded",
				"False|MultipleErrors|Error while reconciling 1.1.0: an unknown error has occurred: MultipleErrors",
			},
			differs: "an operator keeps its 40 minutes while another one is updating",
		},
		{
			name: "fails for a degraded operator above 40 minutes while another one updates", problems: []report.Problem{updating("dns", minute), degraded("etcd", 41*minute)},
			rolling: texts{
				"True|ClusterOperatorDegraded|Cluster operator etcd is degraded",
				"True|ClusterOperatorDegraded|Unable to apply 1.1.0: wait has exceeded 40 minutes for these operators: etcd",
			},
			reconciling: texts{
				"True|MultipleErrors|Multiple errors are preventing progress:\n* Cluster operator dns is updating versions\n* Cluster operator etcd is degraded",
				"False|MultipleErrors|Error while reconciling 1.1.0: an unknown error has occurred: MultipleErrors",
			},
		},
		{
			name: "reports several errors together", problems: []report.Problem{absent("dns", minute), plain(minute)},
			rolling: texts{
				"True|MultipleErrors|Multiple errors are preventing progress:\n* Cluster operator dns is not available\n* could not update a",
				"True|MultipleErrors|Unable to apply 1.1.0: an unknown error has occurred: MultipleErrors",
			},
			reconciling: texts{
				"True|MultipleErrors|Multiple errors are preventing progress:\n* Cluster operator dns is not available\n* could not update a",
				"False|MultipleErrors|Error while reconciling 1.1.0: an unknown error has occurred: MultipleErrors",
			},
		},
	} {
		for mode, cv := range map[release.Mode]*configv1.ClusterVersion{
			release.Initializing: clusterAt(partial("1.1.0")),
			release.Updating:     clusterAt(partial("1.1.0"), completed("1.0.0")),
			release.Reconciling:  clusterAt(completed("1.1.0")),
		} {
			t.Run(tt.name+", "+string(mode), func(t *testing.T) {
				a := acceptedRelease("1.1.0")
				status, _ := Next(cv, Observed{Accepted: &a, Latest: a, Target: a.Target, Progress: progressOf("1.1.0", 3, 4, tt.problems...), Now: now})
				want := tt.rolling
				if mode == release.Reconciling {
					want = tt.reconciling
				}
				assert.Equal(t, want, texts{said(status, api.Failing), said(status, configv1.OperatorProgressing)}, tt.differs)
			})
		}
	}
}
