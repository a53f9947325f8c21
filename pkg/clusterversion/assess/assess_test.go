package assess

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestAssessReportsWaitsAndFailures(t *testing.T) {
	for _, tt := range []struct {
		name     string
		mode     release.Mode
		problems []report.Problem

		failing    configv1.ConditionStatus // default False
		reason     string
		message    string
		summary    string
		waiting    string
		waitReason string
		recheck    time.Duration
	}{
		{name: "reports no failure without problems"},
		{
			name: "waits for one operator", problems: []report.Problem{updating("etcd", minute)},
			waiting: "waiting on etcd", waitReason: "ClusterOperatorUpdating", recheck: 29 * minute,
		},
		{
			name: "waits for several operators and sorts them", problems: []report.Problem{updating("kube-apiserver", 2*minute), updating("etcd", minute)},
			waiting: "waiting on etcd, kube-apiserver", waitReason: "ClusterOperatorsUpdating", recheck: 28 * minute,
		},
		{
			name: "calls an operator slow after 30 minutes", problems: []report.Problem{updating("b", 30*minute), updating("a", 31*minute), updating("c", minute)},
			failing: "Unknown", reason: "SlowClusterOperator", message: "waiting on a, b over 30 minutes which is longer than expected",
			waiting: "waiting on a, b over 30 minutes which is longer than expected", waitReason: "ClusterOperatorsUpdating", recheck: 29 * minute,
		},
		{
			name: "gives machine-config 90 minutes", problems: []report.Problem{updating("machine-config", 89*minute)},
			waiting: "waiting on machine-config", waitReason: "ClusterOperatorUpdating", recheck: minute,
		},
		{
			name: "calls machine-config slow after 90 minutes", problems: []report.Problem{updating("machine-config", 90*minute)},
			failing: "Unknown", reason: "SlowClusterOperator", message: "waiting on machine-config over 90 minutes which is longer than expected",
			waiting: "waiting on machine-config over 90 minutes which is longer than expected", waitReason: "ClusterOperatorUpdating",
		},
		{
			name: "names both time limits", problems: []report.Problem{updating("machine-config", 95*minute), updating("dns", 45*minute)},
			failing: "Unknown", reason: "SlowClusterOperator", message: "waiting on dns over 30 minutes and machine-config over 90 minutes which is longer than expected",
			waiting: "waiting on dns over 30 minutes and machine-config over 90 minutes which is longer than expected", waitReason: "ClusterOperatorsUpdating",
		},
		{
			name: "calls no operator slow if its start is unknown", problems: []report.Problem{updating("dns", -1)},
			waiting: "waiting on dns", waitReason: "ClusterOperatorUpdating",
		},
		{
			name: "waits 40 minutes for a degraded operator", problems: []report.Problem{degraded("authentication", 39*minute+59*time.Second)},
			waiting: "waiting up to 40 minutes on authentication", waitReason: "ClusterOperatorDegraded", recheck: time.Second,
		},
		{
			name: "fails for a degraded operator after 40 minutes", problems: []report.Problem{degraded("authentication", 40*minute)},
			failing: "True", reason: "ClusterOperatorDegraded", message: "Cluster operator authentication is degraded",
			summary: "wait has exceeded 40 minutes for these operators: authentication",
		},
		{
			name: "fails for several operators and names those over the limit", problems: []report.Problem{degraded("kube-apiserver", 41*minute), degraded("etcd", 44*minute), degraded("dns", 10*minute)},
			failing: "True", reason: "ClusterOperatorsDegraded", message: "Cluster operators dns, etcd, kube-apiserver are degraded",
			summary: "wait has exceeded 40 minutes for these operators: etcd, kube-apiserver", recheck: 30 * minute,
		},
		{
			name: "fails for a degraded operator with an unknown start", problems: []report.Problem{degraded("dns", -1)},
			failing: "True", reason: "ClusterOperatorDegraded", message: "Cluster operator dns is degraded",
			summary: "wait has exceeded 40 minutes for these operators: dns",
		},
		{
			name: "reports slow and degraded operators together", problems: []report.Problem{updating("dns", minute), degraded("etcd", minute)},
			waiting: "waiting on dns; waiting up to 40 minutes on etcd", waitReason: "ClusterOperatorDegraded", recheck: 29 * minute,
		},
		{
			name: "fails for an operator that stays unavailable", problems: []report.Problem{unavailable("dns"), updating("etcd", minute)},
			failing: "True", reason: "ClusterOperatorNotAvailable", message: "Cluster operator dns is not available",
			summary: "the cluster operator dns is not available",
		},
		{
			name:     "waits for an operator that has just started",
			problems: []report.Problem{operatorProblem("dns", gate.None, api.ReasonClusterOperatorNotAvailable, "Cluster operator dns is not available", 4*time.Second)},
			waiting:  "waiting on dns", waitReason: "ClusterOperatorNotAvailable", recheck: 6 * time.Second,
		},
		{
			name: "fails for several unavailable operators", problems: []report.Problem{unavailable("etcd"), unavailable("dns")},
			failing: "True", reason: "ClusterOperatorsNotAvailable", message: "Cluster operators dns, etcd are not available",
			summary: "some cluster operators are not available",
		},
		{
			name: "fails for an operator without versions", problems: []report.Problem{unversioned("dns")},
			failing: "True", reason: "ClusterOperatorNoVersions", message: "Cluster operator dns does not declare expected versions",
			summary: "the cluster operator dns does not declare expected versions",
		},
		{
			name: "fails for several operators without versions", problems: []report.Problem{unversioned("etcd"), unversioned("dns")},
			failing: "True", reason: "ClusterOperatorsNoVersions", message: "Cluster operators dns, etcd do not declare expected versions",
			summary: "the cluster operators dns, etcd do not declare expected versions",
		},
		{
			name: "sorts different errors and lists each once", problems: []report.Problem{
				apiFailure("b", api.ReasonResourceForbidden, minute), apiFailure("a", api.ReasonResourceInvalid, minute),
				apiFailure("a", api.ReasonResourceInvalid, minute), unavailable("dns"), updating("etcd", minute), degraded("x", minute),
			},
			failing: "True", reason: "MultipleErrors",
			message: "Multiple errors are preventing progress:\n* Cluster operator dns is not available\n* could not update a\n* could not update b",
			summary: "an unknown error has occurred: MultipleErrors", recheck: 39 * minute,
		},
		{
			name: "lists both operators for an error without a plural form", problems: []report.Problem{
				operatorProblem("a", gate.None, "Deleting", "a is being deleted", minute), operatorProblem("b", gate.None, "Deleting", "b is being deleted", minute),
			},
			failing: "True", reason: "MultipleErrors", message: "Multiple errors are preventing progress:\n* a is being deleted\n* b is being deleted",
			summary: "an unknown error has occurred: MultipleErrors",
		},
		{
			name: "does not report requests that have just failed", problems: []report.Problem{apiFailure("a", api.ReasonClusterDown, 4*time.Second)},
			recheck: 6 * time.Second,
		},
		{
			name: "reports requests that keep failing", problems: []report.Problem{apiFailure("a", api.ReasonClusterDown, 10*time.Second)},
			failing: "True", reason: "UpdatePayloadClusterDown", message: "could not update a", summary: "the control plane is down or not responding",
		},
		{
			name: "fails for a degraded operator during an install", mode: release.Initializing,
			problems: []report.Problem{operatorProblem("dns", gate.Report, api.ReasonClusterOperatorDegraded, "Cluster operator dns is degraded", minute)},
			failing:  "True", reason: "ClusterOperatorDegraded", message: "Cluster operator dns is degraded", summary: "the cluster operator dns is degraded",
		},
		{
			name: "fails for an updating operator when reconciling", mode: release.Reconciling, problems: []report.Problem{updating("dns", 0)},
			failing: "True", reason: "ClusterOperatorUpdating", message: "Cluster operator dns is updating versions",
			summary: "the cluster operator dns is updating versions",
		},
		{
			name: "fails for a degraded operator when reconciling", mode: release.Reconciling, problems: []report.Problem{degraded("machine-config", 0)},
			failing: "True", reason: "ClusterOperatorDegraded", message: "Cluster operator machine-config is degraded",
			summary: "the cluster operator machine-config is degraded",
		},
		{
			name: "fails for several degraded operators when reconciling", mode: release.Reconciling, problems: []report.Problem{degraded("b", 0), degraded("a", 0)},
			failing: "True", reason: "ClusterOperatorsDegraded", message: "Cluster operators a, b are degraded",
			summary: "some cluster operators are degraded",
		},
		{
			name: "tolerates an unsettled workload briefly when reconciling", mode: release.Reconciling,
			problems: []report.Problem{{ID: manifest.ID{Kind: "x"}, Patience: gate.UntilSlow, Since: now.Add(-9 * time.Second)}}, recheck: time.Second,
		},
		{
			name: "fails for a workload that is not available", problems: []report.Problem{workload("dns", gate.None, api.ReasonWorkloadNotAvailable)},
			failing: "True", reason: "WorkloadNotAvailable", message: "Deployment ns/dns has trouble",
			summary: "the workload ns/dns has not yet successfully rolled out",
		},
		{
			name: "waits for a Deployment whose namespace has just been created", mode: release.Initializing,
			problems: []report.Problem{since(workload("web", gate.None, api.ReasonWorkloadNotProgressing), 4*time.Second)},
			waiting:  "waiting on ns/web", recheck: 6 * time.Second,
		},
		{
			name: "reports an unavailable workload at once when reconciling", mode: release.Reconciling,
			problems: []report.Problem{since(workload("web", gate.None, api.ReasonWorkloadNotAvailable), 4*time.Second)},
			failing:  "True", reason: "WorkloadNotAvailable", message: "Deployment ns/web has trouble", summary: "the workload ns/web has not yet successfully rolled out",
		},
		{
			name: "names every workload if no operator is pending, and the pod in trouble", problems: []report.Problem{
				workload("d", gate.UntilSlow, "x"), workload("c", gate.UntilSlow, "x"), blocked(workload("b", gate.UntilSlow, "x")), workload("a", gate.UntilSlow, "x"),
			},
			waiting: "waiting on ns/a, ns/b (pod b-1: ImagePullBackOff), ns/c, ns/d",
		},
		{
			name: "names 50 workloads at most", problems: slices.Repeat([]report.Problem{workload("a", gate.UntilSlow, "x")}, 53),
			waiting: "waiting on " + strings.Repeat("ns/a, ", 49) + "ns/a and 3 more",
		},
		{
			name: "names three other objects at most", problems: []report.Problem{job("d"), job("c"), job("b"), job("a")},
			waiting: "waiting on ns/a, ns/b, ns/c and 1 more",
		},
		{
			name: "names operators and workloads during an install", mode: release.Initializing,
			problems: []report.Problem{blocked(workload("b", gate.UntilSlow, "x")), updating("dns", minute), job("a")},
			waiting:  "waiting on dns, ns/b (pod b-1: ImagePullBackOff)", waitReason: "ClusterOperatorUpdating", recheck: 29 * minute,
		},
		{
			name:     "names pending workloads of the current level and a degraded operator below it",
			problems: []report.Problem{degraded("dns", minute), workload("d", gate.UntilSlow, "x")},
			waiting:  "waiting on ns/d; waiting up to 40 minutes on dns", waitReason: "ClusterOperatorDegraded", recheck: 39 * minute,
		},
		{
			name: "names operators before workloads", problems: []report.Problem{workload("d", gate.UntilSlow, "x"), updating("dns", minute)},
			waiting: "waiting on dns", waitReason: "ClusterOperatorUpdating", recheck: 29 * minute,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := Assessment{
				Failing: tt.failing, Reason: tt.reason, Message: tt.message, Summary: tt.summary,
				Waiting: tt.waiting, WaitReason: tt.waitReason, Recheck: tt.recheck,
			}
			if want.Failing == "" {
				want.Failing = configv1.ConditionFalse
			}
			if tt.mode == "" {
				tt.mode = release.Updating
			}
			for range 3 {
				assert.Equal(t, want, Rollout(tt.problems, tt.mode, now))
			}
		})
	}
}

func TestSummariesGroupReasons(t *testing.T) {
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
		"NotEstablished":                  "the custom resource definition ns/a is not established",
	} {
		a := Rollout([]report.Problem{apiFailure("a", reason, time.Hour)}, release.Updating, now)
		assert.Equal(t, want, a.Summary, reason)
		assert.Equal(t, reason, a.Reason)
	}
}

// TestEveryReasonHasAText covers the reasons of Failing and Progressing that package api declares, so it fails for a new reason without a
// text. Other packages use only these constants.
func TestEveryReasonHasAText(t *testing.T) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "../../api/conditions.go", nil, parser.ParseComments)
	require.NoError(t, err)
	seen := 0
	for _, d := range file.Decls {
		block, ok := d.(*ast.GenDecl)
		if !ok || !strings.Contains(block.Doc.Text(), "Failing and Progressing") {
			continue
		}
		for _, spec := range block.Specs {
			reason, err := strconv.Unquote(spec.(*ast.ValueSpec).Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			words := (&cause{reason: reason, names: []string{"x"}}).summarize()
			seen++
			if reason == api.ReasonMultipleErrors {
				assert.Equal(t, "an unknown error has occurred: MultipleErrors", words, "the text of OpenShift's operator")
				continue
			}
			assert.NotContains(t, words, reason)
			assert.NotContains(t, words, "unknown error")
		}
	}
	assert.Greater(t, seen, 30)

	for _, dir := range []string{"../../engine/gate", "../../engine/rollout", "../../apply"} {
		packages, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, packages, dir)
		for _, name := range packages {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(files, name, nil, 0)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				var reason ast.Expr
				switch n := n.(type) {
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.Ident); ok && slices.Contains([]string{"waiting", "failed", "failedSince"}, f.Name) {
						reason = n.Args[min(len(n.Args)-1, map[string]int{"failedSince": 1}[f.Name])]
					}
				case *ast.KeyValueExpr:
					if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Reason" {
						reason = n.Value
					}
				}
				if literal, ok := reason.(*ast.BasicLit); ok {
					assert.Fail(t, "this reason is not declared in package api", "%s: %s", files.Position(literal.Pos()), literal.Value)
				}
				return true
			})
		}
	}
}

func TestFightIsReportedWithoutFailing(t *testing.T) {
	fight := report.Problem{
		ID: manifest.ID{Kind: "ConfigMap", Namespace: "ns", Name: "a"}, Reason: api.ReasonFight, Message: "a was changed again and again",
	}
	fight.State, fight.Patience = gate.Settled, gate.Notice
	a := Rollout([]report.Problem{fight}, release.Reconciling, now)
	assert.Equal(t, configv1.ConditionFalse, a.Failing)
	fight.State, fight.Patience = gate.Waiting, gate.UntilSlow
	a = Rollout([]report.Problem{fight}, release.Updating, now)
	assert.Equal(t, configv1.ConditionFalse, a.Failing)
	assert.Equal(t, "waiting on ns/a", a.Waiting)
	fight.State, fight.Patience = gate.Settled, gate.Report
	a = Rollout([]report.Problem{fight}, release.Reconciling, now)
	assert.Equal(t, configv1.ConditionTrue, a.Failing)
	assert.Equal(t, "another client keeps changing ns/a", a.Summary)
}

func TestFailsFollowsThePatienceOfFailing(t *testing.T) {
	for _, tt := range []struct {
		name    string
		problem report.Problem
		mode    release.Mode
		want    bool
	}{
		{"a new operator is not available", since(unavailable("dns"), 9*time.Second), release.Updating, false},
		{"an operator stays unavailable", since(unavailable("dns"), 10*time.Second), release.Updating, true},
		{"an operator is degraded", degraded("dns", 39*minute), release.Updating, false},
		{"an operator stays degraded", degraded("dns", 40*minute), release.Updating, true},
		{"a request has just failed", apiFailure("a", api.ReasonClusterDown, 9*time.Second), release.Initializing, false},
		{"requests keep failing", apiFailure("a", api.ReasonClusterDown, 10*time.Second), release.Initializing, true},
		{"a new Deployment has a replica failure", since(workload("a", gate.None, api.ReasonWorkloadNotProgressing), 9*time.Second), release.Initializing, false},
		{"a Deployment keeps a replica failure", since(workload("a", gate.None, api.ReasonWorkloadNotProgressing), 10*time.Second), release.Initializing, true},
		{"a workload is slow", since(workload("a", gate.UntilSlow, api.ReasonWorkloadNotAvailable), 5*time.Hour), release.Initializing, false},
	} {
		assert.Equal(t, tt.want, Fails(tt.problem, tt.mode, now), tt.name)
	}
}

func TestViewsReportNoFailureBeforeFailingDoes(t *testing.T) {
	problem := func(name string, ago time.Duration) report.Problem {
		p := since(unavailable(name), ago)
		p.State = gate.Failed
		return p
	}
	object := func(p report.Problem) report.Object { return report.Object{ID: p.ID, State: report.StateFailed} }
	fresh, lasting, unreported := problem("fresh", 9*time.Second), problem("lasting", 11*time.Second), problem("unreported", 0)
	shared := []report.Problem{fresh, lasting}
	snapshot := report.Snapshot{
		At: now, Progress: report.Progress{Mode: release.Initializing, Problems: shared},
		Objects: []report.Object{object(fresh), object(lasting), object(unreported), {State: report.StateSettled}},
	}
	Patiently(&snapshot)
	assert.Equal(t, []gate.State{gate.Waiting, gate.Failed}, []gate.State{snapshot.Progress.Problems[0].State, snapshot.Progress.Problems[1].State})
	var states []report.State
	for _, o := range snapshot.Objects {
		states = append(states, o.State)
	}
	assert.Equal(t, []report.State{report.StateWaiting, report.StateFailed, report.StateWaiting, report.StateSettled}, states)
	assert.Equal(t, gate.Failed, shared[0].State, "the progress of the rollout does not change")
}
