package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/fixture"
)

// upgradeStatus runs the command.
func upgradeStatus(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := New(Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	cmd.SetArgs(append([]string{"upgrade", "status"}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), ExitCode(err)
}

func TestUpgradeStatusOfRealDumps(t *testing.T) {
	dumps, err := filepath.Glob(filepath.Join(fixture.Testdata(t), "cluster-dumps", "status", "*"+dumpSuffix))
	require.NoError(t, err)
	require.NotEmpty(t, dumps)
	for _, dump := range dumps {
		prefix := strings.TrimSuffix(dump, dumpSuffix)
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

const nodesDump = "testdata/upgrade-status/nodes" + dumpSuffix

func TestUpgradeStatusGolden(t *testing.T) {
	for _, details := range upgradeStatusDetails() {
		t.Run("prints details="+details, func(t *testing.T) {
			out, errs, code := upgradeStatus(t, "--mock-clusterversion", nodesDump, "--details="+details)
			assert.Empty(t, errs)
			assert.Zero(t, code)
			goldenFile(t, "testdata/upgrade-status/nodes-"+details+".golden", out)
		})
	}
}

func TestUpgradeStatusForScripts(t *testing.T) {
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

// copyDump copies a dump without the files that drop names, so that one thing is missing.
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
	return filepath.Join(dir, "nodes"+dumpSuffix)
}

func TestUpgradeStatusTellsWhatIsMissing(t *testing.T) {
	for _, tt := range []struct{ name, drop, inPlace, still string }{
		{"it does without operators", "-co.yaml", "Operators:       not known: ", "Worker Pool Nodes: worker"},
		{"it does without pools", "-mcp.yaml", "Control Plane Nodes: not known: ", "Completion:      50%"},
		{"it does without nodes", "-node.yaml", "Not all is known: ", "Completion:      50%"},
		{"it does without MachineConfigs", "-mc.yaml", "Not all is known: ", "VERSION"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, errs, code := upgradeStatus(t, "--mock-clusterversion", copyDump(t, tt.drop))
			assert.Equal(t, ExitPartial, code)
			assert.Contains(t, out, tt.inPlace)
			assert.Contains(t, out, tt.still)
			assert.Contains(t, errs, "warning: ")
			assert.Contains(t, errs, "nodes"+tt.drop)
		})
	}
	_, _, code := upgradeStatus(t, "--mock-clusterversion", copyDump(t, dumpSuffix))
	assert.Equal(t, ExitFailed, code)
}

func TestUpgradeStatusUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"unknown details":       {"--details", "some"},
		"unknown output":        {"-o", "xml"},
		"a dump without prefix": {"--mock-clusterversion", "version.yaml"},
		"two sources":           {"--mock-clusterversion", nodesDump, "--from-dir", "x"},
		"a cluster and a dump":  {"--from-dir", "x", "--context", "y"},
	} {
		_, _, code := upgradeStatus(t, args...)
		assert.Equal(t, ExitUsage, code, name)
	}
}

func TestUpgradeStatusOfMustGather(t *testing.T) {
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
	assert.Equal(t, ExitPartial, code)
	assert.Contains(t, errs, "warning: health: a must-gather does not tell which alerts fired\n")
	assert.Contains(t, errs, "warning: workers: the release of MachineConfig unheard-of is not known")
	assert.Contains(t, out, "Worker Pool Nodes: worker\n")
	assert.Contains(t, out, "Node worker-quiet is degraded", "a reason that is empty hides nothing here")

	_, _, code = upgradeStatus(t, "--from-dir", t.TempDir())
	assert.Equal(t, ExitFailed, code)
}

func FuzzParseObjects(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: config.openshift.io/v1\nkind: ClusterOperator\nmetadata: {name: a}\n",
		"kind: List\nitems:\n- kind: ClusterOperator\n  metadata: {name: a}\n- null\n",
		"kind: ClusterOperatorList\n", "items: {}", "[]", "", "a: &a [*a]", "kind: X\nitems: [&b {metadata: {name: c}}, *b]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		operators, err := parseObjects[configv1.ClusterOperator](data)
		if err != nil {
			assert.Empty(t, operators)
		}
		_, _ = parseAlerts(data)
	})
}
