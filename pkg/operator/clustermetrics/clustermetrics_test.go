package clustermetrics

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/exposition"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/golden"
)

// controlPlane is shared by all tests of the package.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// at returns a time in the life of the example cluster, in minutes after its ClusterVersion was created.
func at(minutes int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC).Add(time.Duration(minutes) * time.Minute))
}

func clusterCondition(kind, status, reason string, minutes int) configv1.ClusterOperatorStatusCondition {
	return configv1.ClusterOperatorStatusCondition{
		Type: configv1.ClusterStatusConditionType(kind), Status: configv1.ConditionStatus(status), Reason: reason, LastTransitionTime: at(minutes),
	}
}

// exampleCluster is an example cluster with a value for every metric. It was installed at 1.0.0, was updated to 1.1.0, and is in the middle
// of an update to 1.2.0.
func exampleCluster() observation {
	done := func(minutes int) *metav1.Time { t := at(minutes); return &t }
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version", CreationTimestamp: at(0)}}
	cv.Spec = configv1.ClusterVersionSpec{Channel: "stable", DesiredUpdate: &configv1.Update{Version: "1.2.0", Image: "example.com/r:1.2.0"}}
	cv.Status.Desired = configv1.Release{Version: "1.2.0", Image: "example.com/r:1.2.0"}
	cv.Status.History = []configv1.UpdateHistory{
		{State: configv1.PartialUpdate, StartedTime: at(200), Version: "1.2.0", Image: "example.com/r:1.2.0"},
		{State: configv1.CompletedUpdate, StartedTime: at(100), CompletionTime: done(110), Version: "1.1.0", Image: "example.com/r:1.1.0"},
		{State: configv1.PartialUpdate, StartedTime: at(90), CompletionTime: done(95), Version: "1.1.1", Image: "example.com/r:1.1.1"},
		{State: configv1.CompletedUpdate, StartedTime: at(1), CompletionTime: done(20), Version: "1.0.0", Image: "example.com/r:1.0.0"},
	}
	cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
		clusterCondition("Available", "True", "", 20), clusterCondition("Failing", "False", "", 20), clusterCondition("Progressing", "True", "ClusterOperatorUpdating", 200),
		clusterCondition("RetrievedUpdates", "True", "", 30), clusterCondition("ReleaseAccepted", "True", "PayloadLoaded", 200), clusterCondition("Upgradeable", "Unknown", "X", 40),
	}
	cv.Status.Capabilities.EnabledCapabilities = []configv1.ClusterVersionCapability{"Console"}
	cv.Status.Capabilities.KnownCapabilities = []configv1.ClusterVersionCapability{"Console", "baremetal"}
	cv.Status.AvailableUpdates = []configv1.Release{{Version: "1.2.1"}, {Version: "1.2.2"}}
	recommended := []metav1.Condition{{Type: "Recommended", Status: metav1.ConditionUnknown, Reason: "EvaluationFailed", LastTransitionTime: at(50)}, {Type: "Other"}}
	cv.Status.ConditionalUpdates = []configv1.ConditionalUpdate{{Release: configv1.Release{Version: "1.3.0"}, Conditions: recommended}, {Release: configv1.Release{Version: "1.3.0"}, Conditions: recommended}}
	applies := func(name, status, reason string) configv1.ConditionalUpdateRisk {
		return configv1.ConditionalUpdateRisk{Name: name, Conditions: []metav1.Condition{{Type: "Applies", Status: metav1.ConditionStatus(status), Reason: reason}}}
	}
	cv.Status.ConditionalUpdateRisks = []configv1.ConditionalUpdateRisk{
		applies("Fire", "True", "Matches"), applies("Water", "False", "DoesNotMatch"), applies("Air", "Unknown", "EvaluationFailed"),
	}
	operator := func(name, version string, conditions ...configv1.ClusterOperatorStatusCondition) configv1.ClusterOperator {
		co := configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: name}}
		co.Status.Conditions = conditions
		co.Status.Versions = []configv1.OperandVersion{{Name: "operand", Version: "7"}, {Name: "operator", Version: version}}
		return co
	}
	waits := report.Problem{
		ID: manifest.ID{Group: "config.openshift.io", Kind: "ClusterOperator", Name: "dns"}, State: gate.Waiting, Patience: gate.UntilSlow, Since: at(203).Time,
	}
	fight := report.Problem{ID: manifest.ID{Kind: "ConfigMap", Namespace: "a", Name: "b"}, State: gate.Settled, Patience: gate.Report, Reason: api.ReasonFight}
	return observation{
		now: at(210).Time, clusterVersion: cv,
		operators: []configv1.ClusterOperator{
			operator("dns", "1.1.0", clusterCondition("Available", "True", "AsExpected", 10), clusterCondition("Degraded", "False", "AsExpected", 10), clusterCondition("Upgradeable", "Unknown", "", 10)),
			operator("network", "1.2.0", clusterCondition("Available", "False", "Deploying", 205), clusterCondition("Degraded", "True", "Broken", 205)),
			operator("silent", ""),
		},
		transitions:    map[transition]int{{"dns", "Available"}: 2, {"network", "Degraded"}: 1},
		installer:      installation{"openshift-install", "v1.0.0", "user"},
		installerKnown: true,
		measured: clusterversion.Measured{
			Running: release.Release{Version: "1.2.0", Image: "example.com/r:1.2.0"}, Created: at(-1000).Time, Retrieved: at(30).Time,
			Progress: &report.Progress{
				Release: release.Release{Version: "1.2.0"}, Mode: release.Updating, Total: 10, Done: 4, Paused: &report.Pause{Before: 30},
				Problems:  []report.Problem{waits, fight},
				Runlevels: []report.Runlevel{{Runlevel: 10, Total: 3, Done: 3}, {Runlevel: 20, Total: 7, Done: 1}},
				Estimate:  &report.Estimate{Low: 90 * time.Second, High: 3 * time.Minute},
			},
		},
	}
}

// fixed collects one observation.
type fixed struct{ observation }

func (f fixed) Describe(out chan<- *prometheus.Desc) { (&collector{}).Describe(out) }

func (f fixed) Collect(out chan<- prometheus.Metric) {
	for _, m := range f.metrics() {
		out <- m
	}
}

// textOf returns the metrics of collectors as text.
func textOf(t *testing.T, collectors ...prometheus.Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		require.NoError(t, registry.Register(c))
	}
	return exposition.Text(t, registry)
}

func TestExpositionMatchesTheGoldenFile(t *testing.T) {
	golden.Assert(t, "exposition", textOf(t, fixed{exampleCluster()}))
}

// TestMetricsAreWellFormed runs Prometheus's linter over all of our metrics.
func TestMetricsAreWellFormed(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(fixed{exampleCluster()}))
	passes, err := rollout.NewMetrics(registry)
	require.NoError(t, err)
	require.NotNil(t, passes)
	counted, err := New(registry)
	require.NoError(t, err)
	counted.verifications.count(t.Context(), []release.Evidence{{Method: "openpgp"}}, nil)
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	assert.Empty(t, problems)

	check := exec.CommandContext(t.Context(), fixture.Promtool(t), "check", "metrics")
	check.Stdin = strings.NewReader(exposition.Text(t, registry))
	said, err := check.CombinedOutput()
	require.NoError(t, err, "promtool says: %s", said)
	assert.Empty(t, string(said))
}

func TestEmptyClusterHasMetrics(t *testing.T) {
	assert.Equal(t, `cluster_operator_conditions{condition="Available",name="version",reason="ClusterVersionNotFound"} 0
cluster_operator_up{name="version",reason="ClusterVersionNotFound",version=""} 0
cluster_version{from_version="",image="",type="current",version=""} 0
`, samples(textOf(t, fixed{observation{}})))
}

// samples removes the comments from a text.
func samples(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
	}
	return out.String()
}

func TestVersionMetricsFollowTheStatus(t *testing.T) {
	versions := func(o observation) string {
		var out strings.Builder
		for line := range strings.Lines(samples(textOf(t, fixed{o}))) {
			if rest, ok := strings.CutPrefix(line, "cluster_version{"); ok {
				out.WriteString(rest)
			}
		}
		return out.String()
	}
	t.Run("shows a first install", func(t *testing.T) {
		o := exampleCluster()
		o.clusterVersion.Status.History = o.clusterVersion.Status.History[3:]
		o.clusterVersion.Status.History[0].State, o.clusterVersion.Status.History[0].CompletionTime = configv1.PartialUpdate, nil
		o.clusterVersion.Spec.DesiredUpdate = nil
		o.measured.Running = release.Release{Version: "1.0.0", Image: "example.com/r:1.0.0"}
		assert.Equal(t, `from_version="",image="example.com/r:1.0.0",type="cluster",version="1.0.0"} 1.7673228e+09
from_version="",image="example.com/r:1.0.0",type="current",version="1.0.0"} 1.7672628e+09
from_version="",image="example.com/r:1.0.0",type="initial",version="1.0.0"} 1.7673228e+09
from_version="",image="example.com/r:1.0.0",type="updating",version="1.0.0"} 1.76732286e+09
`, versions(o))
	})
	t.Run("shows the requested release and its failure", func(t *testing.T) {
		o := exampleCluster()
		o.clusterVersion.Status.Conditions[1] = clusterCondition("Failing", "True", "X", 220)
		o.clusterVersion.Spec.DesiredUpdate = &configv1.Update{Version: "1.4.0", Image: "example.com/r:1.4.0"}
		got := versions(o)
		assert.Contains(t, got, `from_version="1.1.0",image="example.com/r:1.4.0",type="desired",version="1.4.0"} 1.767336e+09`)
		assert.Contains(t, got, `from_version="1.1.0",image="example.com/r:1.4.0",type="failure",version="1.4.0"} 1.767336e+09`)
		o.clusterVersion.Spec.DesiredUpdate = nil
		assert.Contains(t, versions(o), `from_version="1.1.0",image="example.com/r:1.2.0",type="failure",version="1.2.0"} 1.767336e+09`)
	})
	t.Run("shows the status before a release is accepted", func(t *testing.T) {
		o := exampleCluster()
		o.measured = clusterversion.Measured{}
		assert.Contains(t, versions(o), `from_version="1.1.0",image="example.com/r:1.2.0",type="current",version="1.2.0"} 0`)
	})
}

func TestGateMetricsAreOmittedAtRest(t *testing.T) {
	o := exampleCluster()
	o.measured.Progress.Mode, o.measured.Progress.Paused, o.measured.Progress.Estimate = release.Reconciling, nil, nil
	text := textOf(t, fixed{o})
	assert.NotContains(t, text, "cvo_gate_waiting_seconds")
	assert.NotContains(t, text, "cvo_rollout_remaining_seconds")
	assert.Contains(t, text, `cvo_rollout_mode{mode="Reconciling"} 1`)
	assert.Contains(t, text, "cvo_rollout_paused 0")
}

func TestMetricsAreBounded(t *testing.T) {
	o := observation{transitions: map[transition]int{}}
	long := strings.Repeat("é", maxLabel)
	for i := range maxSeries + 10 {
		o.operators = append(o.operators, configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("o", i, long)}})
		o.transitions[transition{fmt.Sprint(i), "a\xff"}] = i
	}
	count := map[string]int{}
	for line := range strings.Lines(samples(textOf(t, fixed{o}))) {
		name, _, _ := strings.Cut(line, "{")
		count[name]++
		assert.LessOrEqual(t, len(line), maxLabel+200)
	}
	assert.Equal(t, map[string]int{metricOperatorUp: maxSeries, metricOperatorConditions: 1, metricOperatorTransitions: maxSeries, metricVersion: 1}, count)
}

func TestTransitionsAreCounted(t *testing.T) {
	tr := newTransitions()
	state := func(conditions ...configv1.ClusterOperatorStatusCondition) *configv1.ClusterOperator {
		co := &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: "dns"}}
		co.Status.Conditions = conditions
		return co
	}
	up, down, degraded := clusterCondition("Available", "True", "", 1), clusterCondition("Available", "False", "", 2), clusterCondition("Degraded", "True", "", 2)
	up2 := up
	up2.Reason = "Other"
	h := tr.handler()
	h.OnAdd(state(up), true)
	assert.Empty(t, tr.counts())
	h.OnUpdate(state(up), state(up2))
	assert.Empty(t, tr.counts(), "the condition's status has not changed")
	h.OnUpdate(state(up), state(down))
	h.OnUpdate(state(down), state(up, degraded))
	h.OnUpdate(state(up, degraded), state(degraded))
	assert.Equal(t, map[transition]int{{"dns", "Available"}: 3, {"dns", "Degraded"}: 1}, tr.counts())
	h.OnUpdate("no", "object")
	h.OnDelete(state())
	assert.Empty(t, tr.counts())

	for i := range 2 * maxSeries {
		h.OnUpdate(state(), state(clusterCondition(fmt.Sprint("Type", i), "True", "", 1)))
	}
	h.OnUpdate(state(), state(clusterCondition("Type0", "True", "", 1)))
	assert.Len(t, tr.counts(), maxSeries, "the number of counted conditions is bounded")
	assert.Equal(t, 2, tr.counts()[transition{"dns", "Type0"}])
}

func TestInstallationIsReadFromItsConfigMap(t *testing.T) {
	assert.Equal(t, installation{"other", "<missing>", "<missing>"}, installationOf("other", nil))
	assert.Equal(t, installation{"openshift-install", "v1", "me"}, installationOf("openshift-install", map[string]string{"version": "v1", "invoker": "me"}))
	kept, err := installationValues("no ConfigMap")
	require.NoError(t, err)
	assert.Equal(t, "no ConfigMap", kept)
}

// counted lists the series with a nonzero value.
func counted(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(samples(textOf(t, c))) {
		if line = strings.TrimSpace(line); !strings.HasSuffix(line, " 0") {
			_, labels, _ := strings.Cut(line, "{")
			out.WriteString("{" + labels + "|")
		}
	}
	return out.String()
}

// signed is an Outside and Verifier with a given result.
type signed struct {
	accept.Outside
	evidence []release.Evidence
	err      error
	none     error
}

func (s signed) Verifier(context.Context, release.Image, *payload.Payload) (accept.Verifier, error) {
	return s, s.none
}

func (s signed) Verify(context.Context, release.Image) ([]release.Evidence, error) {
	return s.evidence, s.err
}

func TestVerificationsAreCountedByResult(t *testing.T) {
	for _, tt := range []struct {
		name   string
		signed signed
		want   string
	}{
		{"counts both methods", signed{evidence: []release.Evidence{{Method: "openpgp"}, {Method: "sigstore"}, {Method: "openpgp"}}}, `{method="openpgp",result="verified"} 1|{method="sigstore",result="verified"} 1|`},
		{"counts a missing signature", signed{err: fmt.Errorf("x: %w", verify.ErrUnverified)}, `{method="none",result="unverified"} 1|`},
		{"counts a missing root of trust", signed{none: policy.ErrNone}, `{method="none",result="no_trust"} 1|`},
		{"counts an unreadable trust policy", signed{none: errors.New("away")}, `{method="none",result="unknown"} 1|`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := newVerifications(prometheus.NewRegistry())
			require.NoError(t, err)
			verifier, err := v.outside(tt.signed).Verifier(t.Context(), release.Image{}, nil)
			if err == nil {
				_, err = verifier.Verify(t.Context(), release.Image{})
			}
			assert.Equal(t, errors.Join(tt.signed.err, tt.signed.none) == nil, err == nil)
			assert.Equal(t, tt.want, counted(t, v.total))
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v, err := newVerifications(prometheus.NewRegistry())
	require.NoError(t, err)
	v.count(ctx, nil, ctx.Err())
	assert.Empty(t, counted(t, v.total), "a canceled verification does not count")
	assert.Contains(t, textOf(t, v.total), `{method="none",result="unverified"} 0`, "the series for an alert exists from the start")
}

// TestOnlyTheLeaderServesClusterMetrics checks that only the leader serves the series. From two replicas they would look like two clusters.
func TestOnlyTheLeaderServesClusterMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(&collector{elected: make(chan struct{})}))
	assert.Empty(t, exposition.Text(t, registry))
}

// TestInstallerFollowsItsConfigMap reads the origin of the installation from a real API server and follows changes.
func TestInstallerFollowsItsConfigMap(t *testing.T) {
	core := kubernetes.NewForConfigOrDie(controlPlane.For(t).Config("test")).CoreV1()
	_, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.ConfigNamespace}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	in := newInstaller(core)
	_, known := in.found()
	assert.False(t, known)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- in.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	becomes := func(want installation) {
		t.Helper()
		require.Eventually(t, func() bool {
			got, known := in.found()
			return known && got == want
		}, time.Minute, 10*time.Millisecond)
	}
	leave := func(name string, data map[string]string) {
		t.Helper()
		_, err := core.ConfigMaps(api.ConfigNamespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	becomes(installation{})
	leave("openshift-install-manifests", map[string]string{"version": "v2", "rest": "not kept"})
	becomes(installation{"other", "v2", "<missing>"})
	leave("openshift-install", map[string]string{"version": "v1", "invoker": "user"})
	becomes(installation{"openshift-install", "v1", "user"})
	kept, found := in.manifests.Object()
	require.True(t, found)
	assert.Equal(t, map[string]string{"version": "v2"}, kept.Data)
}
