package gate_test

import (
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// operatorManifest returns the manifest of a ClusterOperator with these versions.
func operatorManifest(versions ...any) *manifest.Manifest {
	m := of("config.openshift.io/v1", "ClusterOperator", "", "dns")
	if versions != nil {
		m.Object.Object["status"] = map[string]any{"versions": versions}
	}
	return m
}

func version(name, version string) map[string]any {
	return map[string]any{"name": name, "version": version}
}

// operator returns a ClusterOperator. An empty status omits the condition.
func operator(available, degraded configv1.ConditionStatus, versions ...configv1.OperandVersion) *configv1.ClusterOperator {
	co := &configv1.ClusterOperator{}
	co.Name = "dns"
	for kind, status := range map[configv1.ClusterStatusConditionType]configv1.ConditionStatus{
		configv1.OperatorAvailable: available, configv1.OperatorDegraded: degraded,
	} {
		if status != "" {
			co.Status.Conditions = append(co.Status.Conditions,
				configv1.ClusterOperatorStatusCondition{Type: kind, Status: status, LastTransitionTime: then})
		}
	}
	co.Status.Versions = versions
	return co
}

func TestClusterOperatorSettlesOnceItsVersionsMatch(t *testing.T) {
	const yes, no, unknown, missing = configv1.ConditionTrue, configv1.ConditionFalse, configv1.ConditionUnknown, ""
	atNew := []configv1.OperandVersion{{Name: "operator", Version: "2"}, {Name: "coredns", Version: "1.9"}}
	atOld := []configv1.OperandVersion{{Name: "operator", Version: "1"}, {Name: "coredns", Version: "1.9"}}
	notAvailable := gate.Verdict{State: gate.Failed, Reason: "ClusterOperatorNotAvailable", Message: "Cluster operator dns is not available"}
	degraded := gate.Verdict{State: gate.Failed, Patience: gate.UntilFailed, Reason: "ClusterOperatorDegraded", Message: "Cluster operator dns is degraded"}
	reported := gate.Verdict{State: gate.Settled, Patience: gate.Report, Reason: degraded.Reason, Message: degraded.Message}
	updating := gate.Verdict{State: gate.Waiting, Patience: gate.UntilSlow, Reason: "ClusterOperatorUpdating", Message: "Cluster operator dns is updating versions"}
	silent := gate.Verdict{State: gate.Waiting, Patience: gate.UntilSlow, Reason: "ClusterOperatorNotAvailable", Message: "Cluster operator dns has not reported yet"}
	settled := gate.Verdict{State: gate.Settled}

	for _, tt := range []struct {
		name       string
		co         *configv1.ClusterOperator
		since      bool
		installing gate.Verdict
		running    gate.Verdict
	}{
		{"settles if available, not degraded and up to date", operator(yes, no, atNew...), false, settled, settled},
		{"ignores additional versions", operator(yes, no, append(atNew, configv1.OperandVersion{Name: "x"})...), false, settled, settled},
		{"waits for the versions", operator(yes, no, atOld...), false, settled, updating},
		{"waits for versions that are not reported", operator(yes, no, atNew[:1]...), false, settled, updating},
		{"waits if the status has no versions", operator(yes, no), false, settled, updating},
		{"fails if not available", operator(no, no, atNew...), true, notAvailable, notAvailable},
		{"fails if available is unknown", operator(unknown, no, atNew...), true, notAvailable, notAvailable},
		{"fails if available is missing", operator(missing, no, atNew...), false, notAvailable, notAvailable},
		{"waits for an operator without conditions", operator(missing, missing), false, silent, silent},
		{"reports not available before degraded", operator(no, yes, atOld...), true, notAvailable, notAvailable},
		{"reports degraded before versions", operator(yes, yes, atOld...), true, reported, degraded},
		{"treats an unknown condition as degraded", operator(yes, unknown, atNew...), true, reported, degraded},
		{"treats a missing condition as degraded", operator(yes, missing, atNew...), false, reported, degraded},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			for mode, want := range map[release.Mode]gate.Verdict{
				release.Initializing: tt.installing, release.Updating: tt.running, release.Reconciling: tt.running,
			} {
				want.Since = time.Time{}
				if tt.since {
					want.Since = then.Time
				}
				m := operatorManifest(version("operator", "2"), version("coredns", "1.9"))
				assert.Equal(t, want, gate.Check(tt.co, gate.Want{Manifest: m, Mode: mode}), mode)
			}
		})
	}
}

func TestClusterOperatorWithoutVersionsFails(t *testing.T) {
	for _, m := range []*manifest.Manifest{operatorManifest(), operatorManifest("text"), operatorManifest(version("", "2"))} {
		for _, mode := range release.Modes() {
			got := gate.ClusterOperator(operator("True", "False"), gate.Want{Manifest: m, Mode: mode})
			assert.Equal(t, gate.Verdict{
				State: gate.Failed, Reason: "ClusterOperatorNoVersions",
				Message: "Cluster operator dns does not declare expected versions",
			}, got)
		}
	}
}

func TestClusterOperatorWaitsForAnEmptyVersion(t *testing.T) {
	want := gate.Want{Manifest: operatorManifest(version("operator", "")), Mode: release.Updating}
	assert.Equal(t, gate.Waiting, gate.ClusterOperator(operator("True", "False"), want).State)
	empty := configv1.OperandVersion{Name: "operator"}
	assert.Equal(t, gate.Settled, gate.ClusterOperator(operator("True", "False", empty), want).State)
}

func TestOperandVersionsAreReadFromTheManifest(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status any
		want   []configv1.OperandVersion
	}{
		{"has no versions without a status", nil, []configv1.OperandVersion{}},
		{"has no versions if status is not an object", "text", []configv1.OperandVersion{}},
		{"has no versions if versions is not a list", map[string]any{"versions": "1"}, []configv1.OperandVersion{}},
		{
			"ignores invalid versions and keeps the order",
			map[string]any{"versions": []any{version("b", "2"), int64(5), nil, version("", "1"), map[string]any{"name": int64(1)}, version("a", "1")}},
			[]configv1.OperandVersion{{Name: "b", Version: "2"}, {Name: "a", Version: "1"}},
		},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			m := operatorManifest()
			m.Object.Object["status"] = tt.status
			assert.Equal(t, tt.want, gate.OperandVersions(m))
		})
	}
}
