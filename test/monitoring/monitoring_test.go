// Package monitoring_test checks the alerts in manifests/monitoring with promtool, Prometheus's own tool. Each alert must fire in its cases
// and only there.
package monitoring_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/test/fixture"
)

// rule is an alert.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

// groups reads the alerts of all PrometheusRules, and those of the node stage, which are not shipped yet.
func groups(t *testing.T) []group {
	t.Helper()
	return append(groupsIn(t, manifests.Monitoring()), groupsIn(t, os.DirFS("../../manifests/monitoring/node"))...)
}

func groupsIn(t *testing.T, folder fs.FS) (all []group) {
	t.Helper()
	names, err := fs.Glob(folder, "*.yaml")
	require.NoError(t, err)
	for _, name := range names {
		data, err := fs.ReadFile(folder, name)
		require.NoError(t, err)
		for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
			var object struct {
				Kind string `json:"kind"`
				Spec struct {
					Groups []group `json:"groups"`
				} `json:"spec"`
			}
			require.NoError(t, yaml.Unmarshal(document, &object), name)
			if object.Kind == "PrometheusRule" {
				all = append(all, object.Spec.Groups...)
			}
		}
	}
	require.NotEmpty(t, all)
	return all
}

// write writes alerts to a file in promtool's format.
func write(t *testing.T, all []group) string {
	t.Helper()
	data, err := yaml.Marshal(map[string]any{"groups": all})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, data, 0o600))
	return file
}

// promtool runs promtool; see fixture.Promtool.
func promtool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), fixture.Promtool(t), args...).CombinedOutput()
	require.NoError(t, err, "promtool %s:\n%s", strings.Join(args, " "), out)
	return string(out)
}

func TestRulesAreWellFormed(t *testing.T) {
	assert.Contains(t, promtool(t, "check", "rules", write(t, groups(t))), "SUCCESS")
}

// caseFiles returns promtool's input files. Cases that cover days are separate, because they need a lower resolution.
func caseFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

// TestAlertsFireInTheirCases runs the cases in testdata. Of the annotations, the cases check only the summary.
func TestAlertsFireInTheirCases(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	all := groups(t)
	for i := range all {
		for j := range all[i].Rules {
			annotations := all[i].Rules[j].Annotations
			all[i].Rules[j].Annotations = map[string]string{"summary": annotations["summary"]}
		}
	}
	for _, file := range caseFiles(t) {
		cases, err := os.ReadFile(file)
		require.NoError(t, err)
		beside := filepath.Join(filepath.Dir(write(t, all)), "cases.yaml")
		require.NoError(t, os.WriteFile(beside, cases, 0o600))
		assert.Contains(t, promtool(t, "test", "rules", beside), "SUCCESS", file)
	}
}

// TestEveryAlertHasCases checks that each alert has a case in which it fires and one in which it does not.
func TestEveryAlertHasCases(t *testing.T) {
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, file := range caseFiles(t) {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var cases struct {
			Tests []struct {
				Rules []struct {
					Alert string `json:"alertname"`
					Want  []any  `json:"exp_alerts"`
				} `json:"alert_rule_test"`
			} `json:"tests"`
		}
		require.NoError(t, yaml.Unmarshal(data, &cases))
		for _, test := range cases.Tests {
			for _, r := range test.Rules {
				fires[r.Alert] = fires[r.Alert] || len(r.Want) > 0
				silent[r.Alert] = silent[r.Alert] || len(r.Want) == 0
			}
		}
	}
	for _, name := range names(t) {
		assert.True(t, fires[name], "no case in which %s fires", name)
		assert.True(t, silent[name], "no case in which %s is silent", name)
	}
}

func names(t *testing.T) (names []string) {
	t.Helper()
	for _, g := range groups(t) {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
		}
	}
	return names
}

// TestEveryAlertHasARunbook checks that each alert has a section with its cause and its remedy.
func TestEveryAlertHasARunbook(t *testing.T) {
	page, err := os.ReadFile("../../docs/user/metrics.md")
	require.NoError(t, err)
	for _, g := range groupsIn(t, manifests.Monitoring()) {
		for _, r := range g.Rules {
			assert.Contains(t, string(page), "\n### "+r.Alert+"\n", "docs/user/metrics.md")
			assert.True(t, strings.HasSuffix(r.Annotations["runbook_url"], "/docs/user/metrics.md#"+strings.ToLower(r.Alert)), r.Alert)
			assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
			assert.NotEmpty(t, r.Annotations["description"], r.Alert)
			assert.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], r.Alert)
		}
	}
}

// TestAlertsKeepOpenShiftNames checks for OpenShift's alert names, because administrators silence and route alerts by name.
func TestAlertsKeepOpenShiftNames(t *testing.T) {
	have := names(t)
	for _, name := range []string{
		"ClusterVersionOperatorDown", "CannotRetrieveUpdates", "UpdateAvailable", "ClusterReleaseNotAccepted", "ClusterNotUpgradeable",
		"ClusterOperatorDown", "ClusterOperatorDegraded", "ClusterOperatorFlapping", "CannotEvaluateConditionalUpdates", "OpenShiftUpdateRiskMightApply",
		"MCCDrainError",
	} {
		assert.True(t, slices.Contains(have, name), name)
	}
}
