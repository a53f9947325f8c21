package clusterversion

import (
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// told is what conditions Failing and Progressing say.
type told struct{ failing, progressing string }

// TestEffects has a row for each effect that an error has in OpenShift's operator, below and above its threshold, in each
// mode. Where a row says something else than that operator would, differs tells why.
func TestEffects(t *testing.T) {
	const (
		counted     = "Working towards 1.1.0: 3 of 4 done (75% complete)"
		fine        = "False||Cluster version is 1.1.0"
		notFailing  = "False||"
		updatingDNS = "True|ClusterOperatorUpdating|" + counted + ", waiting on dns"
	)
	report := func(name string) rollout.Problem {
		return operatorProblem(name, gate.Report, api.ReasonClusterOperatorDegraded, "Cluster operator "+name+" is degraded", time.Minute)
	}
	absent := func(name string, ago time.Duration) rollout.Problem {
		return operatorProblem(name, gate.None, api.ReasonClusterOperatorNotAvailable, "Cluster operator "+name+" is not available", ago)
	}
	silent := func(name string, ago time.Duration) rollout.Problem {
		return operatorProblem(name, gate.UntilSlow, api.ReasonClusterOperatorNotAvailable, "Cluster operator "+name+" has not reported yet", ago)
	}
	plain := func(ago time.Duration) rollout.Problem { return apiFailure("a", api.ReasonPayloadFailed, ago) }
	reconcilingDegraded := told{"True|ClusterOperatorDegraded|Cluster operator dns is degraded", "False|ClusterOperatorDegraded|Error while reconciling 1.1.0: the cluster operator dns is degraded"}
	reconcilingUpdating := told{"True|ClusterOperatorUpdating|Cluster operator dns is updating versions", "False|ClusterOperatorUpdating|Error while reconciling 1.1.0: dns has an unknown error: ClusterOperatorUpdating"}

	for _, tt := range []struct {
		name     string
		problems []rollout.Problem
		// rolling holds for installs and updates.
		rolling, reconciling told
		differs              string
	}{
		{
			name: "no error", rolling: told{notFailing, "True||" + counted}, reconciling: told{notFailing, fine},
		},
		{
			name: "None, below 30 minutes", problems: []rollout.Problem{updating("dns", 30*minute-time.Second)},
			rolling: told{notFailing, updatingDNS}, reconciling: reconcilingUpdating,
		},
		{
			name: "None, above 30 minutes", problems: []rollout.Problem{updating("dns", 30*minute+time.Second)},
			rolling: told{
				"Unknown|SlowClusterOperator|waiting on dns over 30 minutes which is longer than expected",
				"True|ClusterOperatorUpdating|" + counted + ", waiting on dns over 30 minutes which is longer than expected",
			}, reconciling: reconcilingUpdating,
		},
		{
			name: "None, machine-config below 90 minutes", problems: []rollout.Problem{updating("machine-config", 90*minute-time.Second)},
			rolling: told{notFailing, "True|ClusterOperatorUpdating|" + counted + ", waiting on machine-config"},
			reconciling: told{
				"True|ClusterOperatorUpdating|Cluster operator machine-config is updating versions",
				"False|ClusterOperatorUpdating|Error while reconciling 1.1.0: machine-config has an unknown error: ClusterOperatorUpdating",
			},
		},
		{
			name: "None, machine-config above 90 minutes", problems: []rollout.Problem{updating("machine-config", 90*minute+time.Second)},
			rolling: told{
				"Unknown|SlowClusterOperator|waiting on machine-config over 90 minutes which is longer than expected",
				"True|ClusterOperatorUpdating|" + counted + ", waiting on machine-config over 90 minutes which is longer than expected",
			},
			reconciling: told{
				"True|ClusterOperatorUpdating|Cluster operator machine-config is updating versions",
				"False|ClusterOperatorUpdating|Error while reconciling 1.1.0: machine-config has an unknown error: ClusterOperatorUpdating",
			},
		},
		{
			name: "None, several, one of them above", problems: []rollout.Problem{updating("machine-config", 91*minute), updating("etcd", 31*minute), updating("dns", minute)},
			rolling: told{
				"Unknown|SlowClusterOperator|waiting on etcd over 30 minutes and machine-config over 90 minutes which is longer than expected",
				"True|ClusterOperatorsUpdating|" + counted + ", waiting on etcd over 30 minutes and machine-config over 90 minutes which is longer than expected",
			},
			reconciling: told{
				"True|ClusterOperatorsUpdating|Cluster operators dns, etcd, machine-config are updating versions",
				"False|ClusterOperatorsUpdating|Error while reconciling 1.1.0: dns, etcd, machine-config has an unknown error: ClusterOperatorsUpdating",
			},
		},
		{
			name: "Report", problems: []rollout.Problem{report("dns")},
			rolling:     told{"True|ClusterOperatorDegraded|Cluster operator dns is degraded", "True|ClusterOperatorDegraded|Unable to apply 1.1.0: the cluster operator dns is degraded"},
			reconciling: reconcilingDegraded,
		},
		{
			name: "Fail", problems: []rollout.Problem{absent("dns", 11*time.Second)},
			rolling:     told{"True|ClusterOperatorNotAvailable|Cluster operator dns is not available", "True|ClusterOperatorNotAvailable|Unable to apply 1.1.0: the cluster operator dns is not available"},
			reconciling: told{"True|ClusterOperatorNotAvailable|Cluster operator dns is not available", "False|ClusterOperatorNotAvailable|Error while reconciling 1.1.0: the cluster operator dns is not available"},
		},
		{
			name: "Fail, below 10 seconds", problems: []rollout.Problem{absent("dns", 9*time.Second)},
			rolling:     told{notFailing, "True|ClusterOperatorNotAvailable|" + counted + ", waiting on dns"},
			reconciling: told{"True|ClusterOperatorNotAvailable|Cluster operator dns is not available", "False|ClusterOperatorNotAvailable|Error while reconciling 1.1.0: the cluster operator dns is not available"},
			differs:     "we look at once where that operator comes by every few minutes, and would tell of every pod that is replaced",
		},
		{
			name: "an operator that has reported nothing, below 30 minutes", problems: []rollout.Problem{silent("dns", 29*minute)},
			rolling:     told{notFailing, "True|ClusterOperatorNotAvailable|" + counted + ", waiting on dns"},
			reconciling: told{"True|ClusterOperatorNotAvailable|Cluster operator dns has not reported yet", "False|ClusterOperatorNotAvailable|Error while reconciling 1.1.0: the cluster operator dns is not available"},
			differs:     "its pod has only been asked for; that operator calls it not available and fails",
		},
		{
			name: "an operator that has reported nothing, above 30 minutes", problems: []rollout.Problem{silent("dns", 31*minute)},
			rolling: told{
				"Unknown|SlowClusterOperator|waiting on dns over 30 minutes which is longer than expected",
				"True|ClusterOperatorNotAvailable|" + counted + ", waiting on dns over 30 minutes which is longer than expected",
			},
			reconciling: told{"True|ClusterOperatorNotAvailable|Cluster operator dns has not reported yet", "False|ClusterOperatorNotAvailable|Error while reconciling 1.1.0: the cluster operator dns is not available"},
			differs:     "as above",
		},
		{
			name: "FailAfterInterval, below 40 minutes", problems: []rollout.Problem{degraded("dns", 40*minute-time.Second)},
			rolling:     told{notFailing, "True|ClusterOperatorDegraded|" + counted + ", waiting up to 40 minutes on dns"},
			reconciling: reconcilingDegraded,
		},
		{
			name: "FailAfterInterval, above 40 minutes", problems: []rollout.Problem{degraded("dns", 40*minute+time.Second)},
			rolling: told{
				"True|ClusterOperatorDegraded|Cluster operator dns is degraded",
				"True|ClusterOperatorDegraded|Unable to apply 1.1.0: wait has exceeded 40 minutes for these operators: dns",
			}, reconciling: reconcilingDegraded,
		},
		{
			name: "FailAfterInterval, several, one of them above", problems: []rollout.Problem{degraded("etcd", 41*minute), degraded("dns", minute)},
			rolling: told{
				"True|ClusterOperatorsDegraded|Cluster operators dns, etcd are degraded",
				"True|ClusterOperatorsDegraded|Unable to apply 1.1.0: wait has exceeded 40 minutes for these operators: etcd",
			},
			reconciling: told{
				"True|ClusterOperatorsDegraded|Cluster operators dns, etcd are degraded",
				"False|ClusterOperatorsDegraded|Error while reconciling 1.1.0: some cluster operators are degraded",
			},
			differs: "the summary of several has words of its own, where that operator has an unknown error",
		},
		{
			name: "plain error, below 10 seconds", problems: []rollout.Problem{plain(9 * time.Second)},
			rolling: told{notFailing, "True||" + counted}, reconciling: told{notFailing, fine},
			differs: "a request that fails is tried again within a second, and most pass then; that operator tries three times before it tells",
		},
		{
			name: "plain error", problems: []rollout.Problem{plain(11 * time.Second)},
			rolling:     told{"True|UpdatePayloadFailed|could not update a", "True|UpdatePayloadFailed|Unable to apply 1.1.0: the update could not be applied"},
			reconciling: told{"True|UpdatePayloadFailed|could not update a", "False|UpdatePayloadFailed|Error while reconciling 1.1.0: the update could not be applied"},
		},
		{
			name: "Multiple, None and None", problems: []rollout.Problem{updating("dns", minute), silent("etcd", minute)},
			rolling: told{notFailing, "True|ClusterOperatorUpdating|" + counted + ", waiting on dns, etcd"},
			reconciling: told{
				"True|MultipleErrors|Multiple errors are preventing progress:\n* Cluster operator dns is updating versions\n* Cluster operator etcd has not reported yet",
				"False|MultipleErrors|Error while reconciling 1.1.0: an unknown error has occurred: MultipleErrors",
			},
		},
		{
			name: "Multiple, None and Fail", problems: []rollout.Problem{updating("dns", 31*minute), absent("etcd", minute)},
			rolling: told{
				"True|ClusterOperatorNotAvailable|Cluster operator etcd is not available",
				"True|ClusterOperatorNotAvailable|Unable to apply 1.1.0: the cluster operator etcd is not available",
			},
			reconciling: told{
				"True|MultipleErrors|Multiple errors are preventing progress:\n* Cluster operator dns is updating versions\n* Cluster operator etcd is not available",
				"False|MultipleErrors|Error while reconciling 1.1.0: an unknown error has occurred: MultipleErrors",
			},
			differs: "what is left of several errors is told by Progressing as well, where that operator has an unknown error MultipleErrors",
		},
		{
			name: "Multiple, None and Report", problems: []rollout.Problem{updating("dns", minute), report("etcd")},
			rolling: told{
				"True|ClusterOperatorDegraded|Cluster operator etcd is degraded",
				"True|ClusterOperatorDegraded|Unable to apply 1.1.0: the cluster operator etcd is degraded",
			},
			reconciling: told{
				"True|MultipleErrors|Multiple errors are preventing progress:\n* Cluster operator dns is updating versions\n* Cluster operator etcd is degraded",
				"False|MultipleErrors|Error while reconciling 1.1.0: an unknown error has occurred: MultipleErrors",
			},
		},
		{
			name: "Multiple, None and FailAfterInterval, below", problems: []rollout.Problem{updating("dns", minute), degraded("etcd", 39*minute)},
			rolling: told{notFailing, "True|ClusterOperatorDegraded|" + counted + ", waiting on dns; waiting up to 40 minutes on etcd"},
			reconciling: told{
				"True|MultipleErrors|Multiple errors are preventing progress:\n* Cluster operator dns is updating versions\n* Cluster operator etcd is degraded",
				"False|MultipleErrors|Error while reconciling 1.1.0: an unknown error has occurred: MultipleErrors",
			},
			differs: "an operator does not lose its 40 minutes because another one is updating",
		},
		{
			name: "Multiple, None and FailAfterInterval, above", problems: []rollout.Problem{updating("dns", minute), degraded("etcd", 41*minute)},
			rolling: told{
				"True|ClusterOperatorDegraded|Cluster operator etcd is degraded",
				"True|ClusterOperatorDegraded|Unable to apply 1.1.0: wait has exceeded 40 minutes for these operators: etcd",
			},
			reconciling: told{
				"True|MultipleErrors|Multiple errors are preventing progress:\n* Cluster operator dns is updating versions\n* Cluster operator etcd is degraded",
				"False|MultipleErrors|Error while reconciling 1.1.0: an unknown error has occurred: MultipleErrors",
			},
		},
		{
			name: "Multiple, Fail and plain error", problems: []rollout.Problem{absent("dns", minute), plain(minute)},
			rolling: told{
				"True|MultipleErrors|Multiple errors are preventing progress:\n* Cluster operator dns is not available\n* could not update a",
				"True|MultipleErrors|Unable to apply 1.1.0: an unknown error has occurred: MultipleErrors",
			},
			reconciling: told{
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
				status, _ := nextStatus(cv, observed{accepted: &a, latest: a, target: a.Target, progress: progressOf("1.1.0", 3, 4, tt.problems...), now: now})
				want := tt.rolling
				if mode == release.Reconciling {
					want = tt.reconciling
				}
				assert.Equal(t, want, told{said(status, api.Failing), said(status, configv1.OperatorProgressing)}, tt.differs)
			})
		}
	}
}
