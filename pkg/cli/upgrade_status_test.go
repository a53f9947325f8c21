package cli_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/view/collect"
	"github.com/cluster-version/cvo/pkg/view/insight"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/golden"
)

// upgradeStatus runs the command.
func upgradeStatus(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	cmd.SetArgs(append([]string{"upgrade", "status"}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), command.ExitCode(err)
}

func TestUpgradeStatusMatchesOcForRealDumps(t *testing.T) {
	dumps, err := filepath.Glob(filepath.Join(fixture.Testdata(t), "cluster-dumps", "status", "*"+collect.DumpSuffix))
	require.NoError(t, err)
	require.NotEmpty(t, dumps)
	for _, dump := range dumps {
		prefix := strings.TrimSuffix(dump, collect.DumpSuffix)
		for flag, suffix := range map[string]string{"none": ".output", "all": ".detailed-output"} {
			t.Run(filepath.Base(prefix)+suffix, func(t *testing.T) {
				want, err := os.ReadFile(prefix + suffix)
				require.NoError(t, err)
				out, errs, code := upgradeStatus(t, "--mock-clusterversion", dump, "--details="+flag)
				assert.Equal(t, string(want), out)
				assert.Empty(t, errs)
				assert.Zero(t, code)
			})
		}
	}
}

const nodesDump = "testdata/upgrade-status/nodes" + collect.DumpSuffix

func TestUpgradeStatusMatchesTheGoldenFiles(t *testing.T) {
	for _, details := range []string{"none", "all", "nodes", "health", "operators"} {
		t.Run("prints details="+details, func(t *testing.T) {
			out, errs, code := upgradeStatus(t, "--mock-clusterversion", nodesDump, "--details="+details)
			assert.Empty(t, errs)
			assert.Zero(t, code)
			golden.Assert(t, "upgrade-status/nodes-"+details, out)
		})
	}
}

func TestUpgradeStatusPrintsJSONAndYAML(t *testing.T) {
	for _, output := range []string{"json", "yaml"} {
		out, _, code := upgradeStatus(t, "--mock-clusterversion", nodesDump, "-o", output)
		assert.Zero(t, code)
		if output == "json" {
			var got struct {
				Updating     bool
				ControlPlane struct {
					Assessment string
					Operators  struct{ Total, Updated int }
				}
				WorkerPools []struct {
					Name  string
					Nodes []struct{ Name, Phase string }
				}
				Insights []struct{ Level string }
			}
			require.NoError(t, json.Unmarshal([]byte(out), &got))
			assert.True(t, got.Updating)
			assert.Equal(t, "Progressing", got.ControlPlane.Assessment)
			assert.Equal(t, 2, got.ControlPlane.Operators.Total)
			require.NotEmpty(t, got.WorkerPools)
			assert.NotEmpty(t, got.Insights)
			continue
		}
		assert.Contains(t, out, "controlPlane:\n  assessment: Progressing\n")
	}
}

// copyDump copies a dump without the files that match drop, so that one input is missing.
func copyDump(t *testing.T, drop string) string {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob("testdata/upgrade-status/nodes-*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, drop) {
			continue
		}
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o600))
	}
	return filepath.Join(dir, "nodes"+collect.DumpSuffix)
}

func TestUpgradeStatusReportsMissingParts(t *testing.T) {
	for _, tt := range []struct{ name, drop, inPlace, still string }{
		{"it works without operators", "-co.yaml", "Operators:       unknown: ", "Worker Pool Nodes: worker"},
		{"it works without pools", "-mcp.yaml", "Control Plane Nodes: unknown: ", "Completion:      50%"},
		{"it works without nodes", "-node.yaml", "Missing data: ", "Completion:      50%"},
		{"it works without MachineConfigs", "-mc.yaml", "Missing data: ", "VERSION"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, errs, code := upgradeStatus(t, "--mock-clusterversion", copyDump(t, tt.drop))
			assert.Equal(t, command.ExitPartial, code)
			assert.Contains(t, out, tt.inPlace)
			assert.Contains(t, out, tt.still)
			assert.Contains(t, errs, "warning: ")
			assert.Contains(t, errs, "nodes"+tt.drop)
		})
	}
	_, _, code := upgradeStatus(t, "--mock-clusterversion", copyDump(t, collect.DumpSuffix))
	assert.Equal(t, command.ExitFailed, code)
}

func TestUpgradeStatusRejectsWrongArguments(t *testing.T) {
	for name, args := range map[string][]string{
		"it rejects unknown details":       {"--details", "some"},
		"it rejects an unknown output":     {"-o", "xml"},
		"it rejects a dump without prefix": {"--mock-clusterversion", "version.yaml"},
		"it rejects --watch for a dump":    {"--watch", "--from-dir", "x"},
		"it rejects two sources":           {"--mock-clusterversion", nodesDump, "--from-dir", "x"},
		"it rejects a cluster with a dump": {"--from-dir", "x", "--context", "y"},
	} {
		_, _, code := upgradeStatus(t, args...)
		assert.Equal(t, command.ExitUsage, code, name)
	}
}

func TestUpgradeStatusReadsAMustGather(t *testing.T) {
	root := filepath.Join(t.TempDir(), "must-gather", "registry-example-sha256-1")
	for suffix, folder := range map[string]string{
		"-cv":   "config.openshift.io/clusterversions",
		"-co":   "config.openshift.io/clusteroperators",
		"-mcp":  "machineconfiguration.openshift.io/machineconfigpools",
		"-mc":   "machineconfiguration.openshift.io/machineconfigs",
		"-node": "core/nodes",
	} {
		data, err := os.ReadFile("testdata/upgrade-status/nodes" + suffix + ".yaml")
		require.NoError(t, err)
		dir := filepath.Join(root, "cluster-scoped-resources", folder)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "all.yaml"), data, 0o600))
	}
	out, errs, code := upgradeStatus(t, "--from-dir", filepath.Dir(root))
	assert.Equal(t, command.ExitPartial, code)
	assert.Contains(t, errs, "warning: health: this must-gather has no alerts: ")
	assert.Contains(t, errs, "warning: workers: the release of MachineConfig unheard-of is unknown, and so is the version of its nodes")
	assert.Contains(t, out, "Worker Pool Nodes: worker\n")
	assert.Contains(t, out, "Node worker-quiet is degraded", "an empty reason does not hide the node")

	rules := filepath.Join(root, "monitoring", "prometheus")
	require.NoError(t, os.MkdirAll(rules, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(rules, "rules.json"), []byte(`{"data": {"groups": [{"rules": [{"type": "recording"},
{"alerts": [{"labels": {"alertname": "Hot", "severity": "critical"}, "annotations": {"summary": "it burns"}, "state": "firing", "activeAt": "2036-01-02T10:15:00Z"}]}]}]}}`), 0o600))
	out, errs, _ = upgradeStatus(t, "--from-dir", filepath.Dir(root))
	assert.Contains(t, out, "Alert is firing: it burns\n")
	assert.NotContains(t, errs, "warning: health")
	require.NoError(t, os.WriteFile(filepath.Join(rules, "rules.json"), []byte(`<html>`), 0o600))
	_, errs, code = upgradeStatus(t, "--from-dir", filepath.Dir(root))
	assert.Equal(t, command.ExitPartial, code)
	assert.Contains(t, errs, "rules.json: invalid character")

	_, _, code = upgradeStatus(t, "--from-dir", t.TempDir())
	assert.Equal(t, command.ExitFailed, code)
}

// TestUpgradeStatusWarnsOfARejectedRelease shows a problem of a cluster that is not updating. The output for it is that of oc.
func TestUpgradeStatusWarnsOfARejectedRelease(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster-scoped-resources", "config.openshift.io", "clusterversions")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "version.yaml"), []byte(`
apiVersion: config.openshift.io/v1
kind: ClusterVersion
metadata: {name: version}
spec: {desiredUpdate: {version: 1.2.0}}
status:
  desired: {version: 1.1.0}
  history: [{version: 1.1.0, state: Completed}]
  conditions:
  - {type: Progressing, status: "False"}
  - {type: Failing, status: "False"}
  - {type: ReleaseAccepted, status: "False", reason: RetrievePayload, message: "No one\nsigned it."}
`), 0o600))
	out, errs, _ := upgradeStatus(t, "--from-dir", filepath.Dir(filepath.Dir(filepath.Dir(dir))))
	assert.Equal(t, "The cluster is not updating.\n", out)
	assert.Contains(t, errs, "warning: Release 1.2.0 is not accepted (RetrievePayload): No one signed it.\n")
}

func TestUpgradeStatusToleratesPartsMissingFromRealDumps(t *testing.T) {
	dumps, err := filepath.Glob(filepath.Join(fixture.Testdata(t), "cluster-dumps", "status", "*"+collect.DumpSuffix))
	require.NoError(t, err)
	require.NotEmpty(t, dumps)
	for _, dump := range dumps {
		read, err := collect.Dump(dump)
		require.NoError(t, err)
		for _, tt := range []struct {
			name   string
			remove func(*insight.Input)
			// missing is empty if some dumps do not need the removed data.
			missing insight.Section
		}{
			{"all operators", func(in *insight.Input) { in.Operators = nil }, insight.SectionOperators},
			{"annotations of operators", func(in *insight.Input) {
				eachOf(in.Operators, func(o *configv1.ClusterOperator) { o.Annotations = nil })
			}, insight.SectionOperators},
			{"status of operators", func(in *insight.Input) {
				eachOf(in.Operators, func(o *configv1.ClusterOperator) { o.Status = configv1.ClusterOperatorStatus{} })
			}, ""},
			{"all pools", func(in *insight.Input) { in.Pools = nil }, insight.SectionControlNodes},
			{"the master pool", func(in *insight.Input) {
				in.Pools = slices.DeleteFunc(in.Pools, func(p mcfgv1.MachineConfigPool) bool { return p.Name == "master" })
			}, insight.SectionControlNodes},
			{"the worker pool", func(in *insight.Input) {
				in.Pools = slices.DeleteFunc(in.Pools, func(p mcfgv1.MachineConfigPool) bool { return p.Name == "worker" })
			}, ""},
			{"selectors of pools", func(in *insight.Input) {
				eachOf(in.Pools, func(p *mcfgv1.MachineConfigPool) { p.Spec.NodeSelector = nil })
			}, insight.SectionWorkers},
			{"spec and status of pools", func(in *insight.Input) {
				eachOf(in.Pools, func(p *mcfgv1.MachineConfigPool) {
					p.Spec, p.Status = mcfgv1.MachineConfigPoolSpec{}, mcfgv1.MachineConfigPoolStatus{}
				})
			}, insight.SectionWorkers},
			{"all nodes", func(in *insight.Input) { in.Nodes = nil }, ""},
			{"annotations of nodes", func(in *insight.Input) { eachOf(in.Nodes, func(n *corev1.Node) { n.Annotations = nil }) }, ""},
			{"labels of nodes", func(in *insight.Input) { eachOf(in.Nodes, func(n *corev1.Node) { n.Labels = nil }) }, insight.SectionWorkers},
			{"status of nodes", func(in *insight.Input) { eachOf(in.Nodes, func(n *corev1.Node) { n.Status = corev1.NodeStatus{} }) }, ""},
			{"all MachineConfigs", func(in *insight.Input) { in.Releases = nil }, insight.SectionWorkers},
			{"the MachineConfig of a node", func(in *insight.Input) { delete(in.Releases, in.Nodes[0].Annotations[api.CurrentConfigAnnotation]) }, insight.SectionWorkers},
			{"the image of the machine config operator", func(in *insight.Input) { in.ConfigOperatorImage = nil }, ""},
			{"conditions", func(in *insight.Input) { in.ClusterVersion.Status.Conditions = nil }, insight.SectionVersion},
			{"history", func(in *insight.Input) { in.ClusterVersion.Status.History = nil }, insight.SectionVersion},
			{"status", func(in *insight.Input) { in.ClusterVersion.Status = configv1.ClusterVersionStatus{} }, insight.SectionVersion},
			{"everything else", func(in *insight.Input) { *in = insight.Input{ClusterVersion: in.ClusterVersion} }, insight.SectionOperators},
		} {
			t.Run(strings.TrimSuffix(filepath.Base(dump), collect.DumpSuffix)+" without "+tt.name, func(t *testing.T) {
				in := copyInput(read)
				in.AsOriginal = false
				tt.remove(&in)
				a, err := insight.Assess(in)
				require.NoError(t, err)
				if tt.missing != "" {
					assert.True(t, slices.ContainsFunc(a.Missing, func(m insight.Missing) bool { return m.Section == tt.missing }), "%v", a.Missing)
				}
				var text bytes.Buffer
				require.NoError(t, a.Text(&text, insight.Details{Nodes: true, Health: true, Operators: true}))
				assert.NotEmpty(t, text.String())
				assert.NotContains(t, text.String(), "NaN")
				_, err = json.Marshal(a)
				assert.NoError(t, err)
			})
		}
	}
}

func eachOf[T any](objects []T, change func(*T)) {
	for i := range objects {
		change(&objects[i])
	}
}

// copyInput copies the input, so that a test does not change it for the next test.
func copyInput(in insight.Input) insight.Input {
	in.ClusterVersion = in.ClusterVersion.DeepCopy()
	in.Operators = (&configv1.ClusterOperatorList{Items: in.Operators}).DeepCopy().Items
	in.Pools = (&mcfgv1.MachineConfigPoolList{Items: in.Pools}).DeepCopy().Items
	in.Nodes = (&corev1.NodeList{Items: in.Nodes}).DeepCopy().Items
	in.Releases = maps.Clone(in.Releases)
	return in
}
