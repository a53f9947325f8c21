package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/upgrade/report"
	"github.com/cluster-version/cvo/pkg/view/collect"
	"github.com/cluster-version/cvo/test/golden"
)

const historyDump = "testdata/upgrade-history/updates" + collect.DumpSuffix

func TestUpgradeHistoryMatchesTheGoldenFiles(t *testing.T) {
	for _, output := range []string{printing.FormatText, "wide", printing.FormatJSON, printing.FormatYAML} {
		t.Run(output, func(t *testing.T) {
			out, errs, _, code := upgradeCommand(t, "history", "--mock-clusterversion", historyDump, "-o", output)
			assert.Zero(t, code)
			assert.Empty(t, errs)
			golden.Assert(t, "upgrade-history/"+output, out)
			assert.NotContains(t, out, "\x1b")
		})
	}
}

func TestUpgradeHistoryReadsAMustGather(t *testing.T) {
	data, err := os.ReadFile(historyDump)
	require.NoError(t, err)
	root := t.TempDir()
	dir := filepath.Join(root, "cluster-scoped-resources", "config.openshift.io", "clusterversions")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "version.yaml"), data, 0o600))
	out, _, _, code := upgradeCommand(t, "history", "--from-dir", root, "-o", "json")
	assert.Zero(t, code)
	var got report.History
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Len(t, got.History, 4)
	assert.True(t, got.History[0].Current)
	assert.Equal(t, "30m0s", got.History[1].Duration.Duration.String(), "an incomplete update ends when the next one begins")
}

func TestUpgradeHistoryOfANewClusterIsEmpty(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new"+collect.DumpSuffix)
	require.NoError(t, os.WriteFile(file, []byte("{apiVersion: config.openshift.io/v1, kind: ClusterVersion, metadata: {name: version}}"), 0o600))
	out, errs, _, code := upgradeCommand(t, "history", "--mock-clusterversion", file)
	assert.Zero(t, code)
	assert.Empty(t, out)
	assert.Contains(t, errs, "no version operator has reported on it yet")
	out, _, _, _ = upgradeCommand(t, "history", "--mock-clusterversion", file, "-o", "json")
	assert.JSONEq(t, `{"history": []}`, out)
	_, _, _, code = upgradeCommand(t, "history", "-o", strings.ToUpper("wide"))
	assert.Equal(t, command.ExitUsage, code)
}
