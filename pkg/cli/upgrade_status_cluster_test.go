package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/view/collect"
	"github.com/cluster-version/cvo/pkg/view/insight"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

// updatingCluster is a real API server on which a test creates the objects of an updating cluster, step by step.
type updatingCluster struct {
	*testing.T
	config *rest.Config
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (c *updatingCluster) crds(patterns ...string) {
	c.Helper()
	module, err := exec.CommandContext(c.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	require.NoError(c, err)
	var files []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(module)), pattern))
		require.NoError(c, err)
		require.Len(c, found, 1, pattern)
		files = append(files, found...)
	}
	_, err = envtest.InstallCRDs(c.config, envtest.CRDInstallOptions{Paths: files, ErrorIfPathMissing: true})
	require.NoError(c, err)
}

func (c *updatingCluster) put(object *unstructured.Unstructured) {
	c.Helper()
	api, err := client.New(c.config, client.Options{})
	require.NoError(c, err)
	status, hasStatus := object.Object["status"]
	require.NoError(c, api.Create(c.Context(), object))
	if hasStatus {
		object.Object["status"] = status
		require.NoError(c, api.Status().Update(c.Context(), object))
	}
}

// putText creates the object, or the objects of the list, in a text.
func (c *updatingCluster) putText(text []byte) {
	c.Helper()
	objects, err := collect.ParseObjects[map[string]any](text)
	require.NoError(c, err)
	for _, object := range objects {
		c.put(&unstructured.Unstructured{Object: object})
	}
}

func (c *updatingCluster) putDump(suffixes ...string) {
	c.Helper()
	for _, suffix := range suffixes {
		data, err := os.ReadFile("testdata/upgrade-status/nodes-" + suffix + ".yaml")
		require.NoError(c, err)
		c.putText(data)
	}
}

// assess returns the assessment, its text and the reasons why sections are incomplete.
func (c *updatingCluster) assess(config *rest.Config) (a *insight.Assessment, text string, missing map[insight.Section]string) {
	c.Helper()
	a, err := collect.Assess(c.Context(), config, api.OperatorNamespace, "version")
	require.NoError(c, err)
	var out bytes.Buffer
	require.NoError(c, a.Text(&out, insight.Details{Nodes: true}))
	missing = map[insight.Section]string{}
	for _, m := range a.Missing {
		missing[m.Section] += m.Reason
	}
	return a, out.String(), missing
}

// noVersionNeeded contains the commands that read a cluster and need no ClusterVersion, with the reason.
var noVersionNeeded = map[string]string{
	"cvo install":                 "creates the ClusterVersion",
	"cvo start":                   "waits for the ClusterVersion",
	"cvo release mirror":          "applies only a signature",
	"cvo release new":             "reads only an image stream",
	"cvo uninstall":               "removes what remains of an operator",
	"cvo trust from-image-policy": "prints the trust policy for an install",
}

// clusterCommands returns the paths of all commands that can read a cluster.
func clusterCommands(cmd *cobra.Command) (paths []string) {
	if cmd.Runnable() && cmd.Flag("kubeconfig") != nil {
		paths = append(paths, cmd.CommandPath())
	}
	for _, sub := range cmd.Commands() {
		paths = append(paths, clusterCommands(sub)...)
	}
	return paths
}

// assertNoVersion checks that every command reports a cluster without a ClusterVersion in the same words.
func assertNoVersion(t *testing.T, kubeconfig string) {
	t.Helper()
	covered := slices.Collect(maps.Keys(noVersionNeeded))
	for _, tt := range []struct {
		command string
		args    []string
	}{
		{"nodes pause", []string{"worker"}},
		{"nodes plan", nil},
		{"nodes release", []string{"worker-0"}},
		{"nodes resume", []string{"worker"}},
		{"nodes retry", []string{"worker-0"}},
		{"nodes status", nil},
		{"release diff", []string{"1.0.0", "1.1.0"}},
		{"release extract", nil},
		{"release graph", []string{"1.1.0"}},
		{"release info", nil},
		{"release lint", []string{"1.1.0"}},
		{"release rbac", []string{"1.1.0"}},
		{"status", nil},
		{"status", []string{"-o", "json"}},
		{"status", []string{"--watch"}},
		{"status", []string{"--orphans"}},
		{"status", []string{"--signatures"}},
		{"upgrade", nil},
		{"upgrade", []string{"--to=1.1.0"}},
		{"upgrade", []string{"--clear"}},
		{"upgrade accept", []string{"Risk"}},
		{"upgrade channel", []string{"stable"}},
		{"upgrade diff", []string{t.TempDir()}},
		{"upgrade history", nil},
		{"upgrade pause", nil},
		{"upgrade recommend", nil},
		{"upgrade resume", nil},
		{"upgrade rollback", nil},
		{"upgrade status", nil},
		{"upgrade wait", nil},
		{"version", nil},
	} {
		covered = append(covered, "cvo "+tt.command)
		var out, errs bytes.Buffer
		streams := command.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}
		cmd := cli.New(streams)
		args := append(strings.Fields(tt.command), tt.args...)
		cmd.SetArgs(append(args, "--kubeconfig", kubeconfig))
		err := cmd.ExecuteContext(t.Context())
		command.PrintError(&errs, err)
		assert.Contains(t, errs.String(), "this cluster has no ClusterVersion, so no platform is installed: run 'cvo install', "+
			"or select another cluster with --context (current: ", "%v", args)
		if tt.command == "version" { // the version of the program is known
			assert.Equal(t, command.ExitSucceeded, command.ExitCode(err))
			continue
		}
		assert.Equal(t, command.ExitFailed, command.ExitCode(err), "%v", args)
		assert.Empty(t, out.String(), "%v", args)
	}
	slices.Sort(covered)
	all := clusterCommands(cli.New(command.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}))
	slices.Sort(all)
	assert.Equal(t, all, slices.Compact(covered), "a command that reads a cluster is missing in this test")
}

// deadOperator creates the Lease of an operator that was stopped.
func (c *updatingCluster) deadOperator() {
	c.Helper()
	c.putText([]byte(`{kind: List, items: [{apiVersion: v1, kind: Namespace, metadata: {name: openshift-cluster-version}},
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: version, namespace: openshift-cluster-version},
spec: {holderIdentity: "", leaseDurationSeconds: 1, renewTime: "2026-01-02T10:00:00.000000Z"}}]}`))
	// Without managedFields, the age of the Lease is that of renewTime.
	_, err := kubernetes.NewForConfigOrDie(c.config).CoordinationV1().Leases("openshift-cluster-version").Patch(
		c.Context(), "version", types.MergePatchType, []byte(`{"metadata": {"managedFields": [{}]}}`), metav1.PatchOptions{})
	require.NoError(c, err)
}

const deadOperator = "No version operator leads: Lease openshift-cluster-version/version was released"

func TestUpgradeStatusReadsACluster(t *testing.T) {
	e := env.New(t, env.Options{Audit: env.AuditNone})
	c := &updatingCluster{T: t, config: e.Config("tests")}

	_, err := collect.Assess(t.Context(), c.config, api.OperatorNamespace, "version")
	require.ErrorIs(t, err, collect.ErrNoClusterVersion, "the kind does not exist")
	assertNoVersion(t, e.Kubeconfig)

	c.crds("config/v1/zz_generated.crd-manifests/*_clusterversions-Default.crd.yaml", "config/v1/zz_generated.crd-manifests/*_clusteroperators.crd.yaml")
	_, err = collect.Assess(t.Context(), c.config, api.OperatorNamespace, "version")
	require.ErrorIs(t, err, collect.ErrNoClusterVersion)
	assertNoVersion(t, e.Kubeconfig)

	c.putDump("cv", "co")
	assertNoNodeStage(t, e.Kubeconfig)
	a, text, missing := c.assess(c.config)
	for _, m := range a.Missing {
		assert.True(t, m.Absent, "%s: a cluster without pools and Prometheus is not an error", m.Section)
	}
	_, errs, code := upgradeWith(t, e.Kubeconfig, "status")
	assert.Zero(t, code)
	assert.Empty(t, errs)
	assert.Contains(t, text, "Completion:      50% (1 operators updated, 1 updating, 0 waiting)\n")
	assert.NotContains(t, text, "unknown")
	assert.NotContains(t, text, "Missing data")
	assert.Equal(t, "this cluster has no MachineConfigPools", missing[insight.SectionWorkers])
	assert.Contains(t, missing[insight.SectionHealth], "this cluster has no Route openshift-monitoring/thanos-querier")

	machines := "machineconfiguration/v1/zz_generated.crd-manifests/"
	c.crds(machines+"*_machineconfigpools-Default.crd.yaml", machines+"*_machineconfigs.crd.yaml")
	c.putDump("mcp", "mc", "node")
	a, text, missing = c.assess(c.config)
	assert.Contains(t, text, "\nAll control plane nodes successfully updated to 1.2.0\n")
	assert.Contains(t, text, "\nworker-draining    Progressing   Draining    1.1.0     +10m   \n")
	assert.Contains(t, text, "worker        Degraded     6% (1/16)    13 Available, 2 Progressing, 1 Draining, 2 Degraded\n")
	require.NotNil(t, a.ControlPlanePool)
	assert.Contains(t, missing[insight.SectionWorkers], "MachineConfig unheard-of")

	t.Run("it reports missing permissions", func(t *testing.T) {
		c.putText([]byte(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: onlooker},
rules: [{apiGroups: [config.openshift.io, machineconfiguration.openshift.io], resources: ["*"], verbs: [get, list]}]}`))
		c.putText([]byte(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: onlooker},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: onlooker}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: vera}]}`))
		vera, err := e.User("vera")
		require.NoError(t, err)
		_, text, missing := c.assess(vera)
		assert.Contains(t, missing[insight.SectionControlNodes], "reading nodes: ")
		assert.Contains(t, missing[insight.SectionControlNodes], "ClusterRole cluster-version-operator-viewer")
		assert.Contains(t, text, "Completion:      50%")
	})

	t.Run("it needs only the ClusterVersion", func(t *testing.T) {
		c.putText([]byte(`{kind: List, items: [
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: glance}, rules: [{apiGroups: [config.openshift.io], resources: [clusterversions], verbs: [get]}]},
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: glance}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: glance},
 subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: otto}]}]}`))
		otto, err := e.User("otto")
		require.NoError(t, err)
		kubeconfig := kubeconfigOf(t, otto)
		out, errs, code := upgradeWith(t, kubeconfig, "status")
		assert.Equal(t, command.ExitPartial, code)
		assert.Contains(t, out, "Target Version:  1.2.0 (from 1.1.0)\n")
		assert.Contains(t, out, "\nOperators:       unknown: reading ClusterOperators: ")
		for _, section := range []insight.Section{insight.SectionOperators, insight.SectionControlNodes, insight.SectionWorkers} {
			assert.Contains(t, errs, "warning: "+string(section)+": ")
		}
		out, _, code = upgradeWith(t, kubeconfig, "history")
		assert.Zero(t, code)
		assert.Contains(t, out, "\n1.1.0     Completed   ")
		out, errs, code = upgradeWith(t, kubeconfig, "recommend")
		assert.Zero(t, code, "a cluster without Prometheus has no alerts")
		assert.NotContains(t, out, "Failed to check")
		assert.NotContains(t, out, "no cause for concern")
		assert.Contains(t, errs, "warning: Alerts are not considered: this cluster has no Route openshift-monitoring/thanos-querier to its Prometheus\n")
		_, errs, code = upgradeWith(t, kubeconfig, "recommend", "--version", "9.0.0")
		assert.Equal(t, command.ExitFailed, code)
		assert.Contains(t, errs, "error: no updates available, so cannot display context for the requested release 9.0.0\n")
	})

	t.Run("it shows the operator's own estimate", func(t *testing.T) {
		_, err := envtest.InstallCRDs(c.config, envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{
			"../../manifests/0000_00_cluster-version-operator_02_releaserollouts.crd.yaml",
		}})
		require.NoError(t, err)
		c.putText([]byte(`{apiVersion: cvo.cluster-version.github.io/v1alpha1, kind: ReleaseRollout, metadata: {name: version}, status: {
current: {to: 1.2.0, image: "registry.example/release@sha256:12", mode: Updating, startedAt: "2026-01-02T10:00:00Z"},
estimate: {remainingLow: 11m0s, remainingHigh: 25m0s, basis: History, rollouts: 3}}}`))
		a, _, _ := c.assess(c.config)
		require.NotNil(t, a.Estimate)
		assert.Equal(t, 25*time.Minute, a.Estimate.RemainingHigh.Duration)
		assert.Contains(t, a.Summary(), ", 11m to 25m left;")
	})

	t.Run("it reports a dead operator", func(t *testing.T) {
		c.deadOperator()
		_, text, _ := c.assess(c.config)
		assert.Contains(t, text, "Error     Update Stalled     "+deadOperator+"\n")
		_, errs, code := upgradeWith(t, e.Kubeconfig, "channel", "other", "--dry-run=client")
		assert.Zero(t, code)
		assert.NotContains(t, errs, "No version operator", "nothing was stored")
		out, errs, code := upgradeWith(t, e.Kubeconfig, "channel", "other", "-o", "json")
		assert.Zero(t, code)
		assert.Contains(t, out, "other")
		assert.Equal(t, 1, strings.Count(errs, "warning: "+deadOperator+": "), errs)
		assert.Contains(t, errs, "'kubectl -n openshift-cluster-version describe deployment cluster-version-operator'")
		assert.Contains(t, errs, "troubleshoot.md#the-operator-does-not-run\n")
		_, errs, code = upgradeWith(t, e.Kubeconfig)
		assert.Zero(t, code)
		assert.Equal(t, 1, strings.Count(errs, "warning: "+deadOperator+": "), errs)
		vera, err := e.User("vera")
		require.NoError(t, err)
		_, text, _ = c.assess(vera)
		assert.NotContains(t, text, "No version operator", "without permission for the Lease")
	})

	t.Run("it uses the server's clock", func(t *testing.T) {
		ahead := rest.CopyConfig(c.config)
		now := time.Date(2026, 1, 2, 11, 0, 0, 0, time.UTC)
		ahead.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripFunc(func(r *http.Request) (*http.Response, error) {
				response, err := next.RoundTrip(r)
				if err == nil {
					response.Header.Set("Date", now.Format(http.TimeFormat))
				}
				return response, err
			})
		})
		a, text, _ := c.assess(ahead)
		assert.Equal(t, now, a.At)
		assert.Contains(t, text, "\n1h      Error     Update Stalled     "+deadOperator+"\n")
	})

	t.Run("it prints changes", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		reader, writer := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: writer, Err: io.Discard})
			cmd.SetArgs([]string{"upgrade", "status", "--watch", "--kubeconfig", e.Kubeconfig})
			ended <- cmd.ExecuteContext(ctx)
			_ = writer.Close()
		}()
		lines := bufio.NewScanner(reader)
		require.True(t, lines.Scan())
		assert.Contains(t, lines.Text(), "Z 1.2.0 (from 1.1.0): Stalled, 1 of 2 operators updated")
		cancel()
		assert.False(t, lines.Scan())
		assert.NoError(t, <-ended)
	})

	t.Run("it queries Prometheus with the user's token", func(t *testing.T) {
		alerts := fixture.StartQueryAPI(t)
		alerts.OnlyFor("veras")
		alerts.Alert(promv1.Alert{
			State: promv1.AlertStateFiring, ActiveAt: time.Date(2026, 1, 2, 10, 15, 0, 0, time.UTC),
			Labels:      model.LabelSet{"alertname": "Hot", "severity": "critical", "namespace": "kitchen"},
			Annotations: model.LabelSet{"summary": "it burns"},
		})
		prometheus := httptest.NewTLSServer(alerts)
		defer prometheus.Close()
		withToken := rest.CopyConfig(c.config)
		withToken.BearerToken = "veras"

		crd := filepath.Join(t.TempDir(), "routes.yaml")
		require.NoError(t, os.WriteFile(crd, []byte(fixture.RouteDefinition), 0o600))
		_, err := envtest.InstallCRDs(c.config, envtest.CRDInstallOptions{Paths: []string{crd}, ErrorIfPathMissing: true})
		require.NoError(t, err)
		c.putText([]byte(fixture.PrometheusNamespace))
		c.putText([]byte("{apiVersion: v1, kind: Namespace, metadata: {name: openshift-config-managed}}"))
		_, _, missing := c.assess(withToken)
		assert.Contains(t, missing[insight.SectionHealth], "no Route openshift-monitoring/thanos-querier")

		c.putText([]byte(fixture.PrometheusRoute(prometheus.Listener.Addr().String())))
		_, _, missing = c.assess(withToken)
		assert.Contains(t, missing[insight.SectionHealth], "certificate", "the token is not sent to a server with an unknown certificate")

		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: prometheus.Certificate().Raw})
		bundle, err := yaml.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"name": "default-ingress-cert", "namespace": "openshift-config-managed"},
			"data": map[string]string{"ca-bundle.crt": string(authority)},
		})
		require.NoError(t, err)
		c.putText(bundle)
		_, text, missing := c.assess(withToken)
		assert.Empty(t, missing[insight.SectionHealth])
		assert.Contains(t, text, "Critical   Unknown            Alert is firing: it burns\n")

		withToken.BearerToken = "somebody-elses"
		_, _, missing = c.assess(withToken)
		assert.Contains(t, missing[insight.SectionHealth], "403 Forbidden: ask an administrator for ClusterRole cluster-monitoring-view")
	})
}
