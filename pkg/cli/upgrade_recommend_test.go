package cli_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/view/collect"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/golden"
)

// upgradeCommand runs a subcommand of cvo upgrade as main does. both combines stdout and stderr, as on a terminal.
func upgradeCommand(t *testing.T, args ...string) (stdout, stderr, both string, code int) {
	t.Helper()
	var out, errs, all bytes.Buffer
	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: io.MultiWriter(&out, &all), Err: io.MultiWriter(&errs, &all)})
	cmd.SetArgs(append([]string{"upgrade"}, args...))
	err := cmd.ExecuteContext(t.Context())
	command.PrintError(io.MultiWriter(&errs, &all), err)
	return out.String(), errs.String(), all.String(), command.ExitCode(err)
}

func TestUpgradeRecommendMatchesOcForRealDumps(t *testing.T) {
	source := filepath.Join(fixture.Testdata(t), "cluster-dumps", "recommend")
	// The expected texts contain the folder in which oc ran.
	t.Chdir(t.TempDir())
	require.NoError(t, os.Symlink(source, "examples"))
	outputs, err := filepath.Glob("examples/*output")
	require.NoError(t, err)
	require.NotEmpty(t, outputs)
	for _, output := range outputs {
		t.Run(filepath.Base(output), func(t *testing.T) {
			want, err := os.ReadFile(output)
			require.NoError(t, err)
			dump, variant := "", ""
			// Versions and names contain dots, so the dump with the longest matching name counts.
			dumps, err := filepath.Glob("examples/*" + collect.DumpSuffix)
			require.NoError(t, err)
			for _, candidate := range dumps {
				prefix := strings.TrimSuffix(candidate, collect.DumpSuffix)
				if rest, ok := strings.CutPrefix(output, prefix+"."); ok && len(candidate) > len(dump) {
					dump, variant = candidate, rest
				}
			}
			args := []string{"recommend", "--mock-clusterversion", dump}
			wantCode := 0
			switch version, named := strings.CutPrefix(strings.TrimSuffix(variant, "-output"), "version-"); {
			case named:
				args = append(args, "--version", version)
				if bytes.Contains(want, []byte("\nerror: no update")) {
					wantCode = command.ExitFailed
				} else if bytes.Contains(want, []byte("\nerror: ")) {
					wantCode = command.ExitRefused
				}
			case variant == "show-outdated-releases-output":
				args = append(args, "--show-outdated-releases")
			}
			// The program that recorded the texts printed a blank line before an error. The client prints none.
			want = bytes.Replace(want, []byte("\n\nerror: "), []byte("\nerror: "), 1)
			_, _, both, code := upgradeCommand(t, args...)
			assert.Equal(t, string(want), both)
			assert.Equal(t, wantCode, code)
		})
	}
}

const recommendDump = "testdata/upgrade-recommend/risks" + collect.DumpSuffix

func TestUpgradeRecommendMatchesTheGoldenFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		code int
	}{
		"default":           {nil, 0},
		"all":               {[]string{"--show-outdated-releases"}, 0},
		"version-refused":   {[]string{"--version", "1.2.0"}, command.ExitRefused},
		"version-accepted":  {[]string{"--version", "1.2.0", "--accept", "KubeNodeNotReady,SlowDisk,UpgradeableFalse"}, 0},
		"version-blanket":   {[]string{"--version", "1.2.0", "--accept", "KubeNodeNotReady", "--accept", "ConditionalUpdateRisk"}, 0},
		"version-quiet":     {[]string{"--version", "1.2.0", "--quiet", "--accept", "SlowDisk"}, command.ExitRefused},
		"version-none":      {[]string{"--version", "1.2.9"}, command.ExitFailed},
		"json":              {[]string{"-o", "json"}, 0},
		"version-json":      {[]string{"--version", "1.2.0", "-o", "json"}, command.ExitRefused},
		"version-none-json": {[]string{"--version", "3.0.0", "-o", "json"}, command.ExitFailed},
		"yaml":              {[]string{"-o", "yaml"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, both, code := upgradeCommand(t, append([]string{"recommend", "--mock-clusterversion", recommendDump}, tt.args...)...)
			assert.Equal(t, tt.code, code)
			golden.Assert(t, "upgrade-recommend/"+name, both)
		})
	}
}

func TestUpgradeRecommendRejectsWrongArguments(t *testing.T) {
	for name, args := range map[string][]string{
		"it rejects --quiet without a version":   {"--quiet"},
		"it rejects a version with all releases": {"--version", "1.2.0", "--show-outdated-releases"},
		"it rejects an invalid version":          {"--version", "latest"},
		"it rejects an unknown output":           {"-o", "xml"},
		"it rejects a dump without its suffix":   {"--mock-clusterversion", "cv.yaml"},
		"it rejects an argument":                 {"1.2.0"},
	} {
		_, _, _, code := upgradeCommand(t, append([]string{"recommend"}, args...)...)
		assert.Equal(t, command.ExitUsage, code, name)
	}
}

func TestUpgradeRecommendReportsIncompleteDumps(t *testing.T) {
	cv, err := os.ReadFile(recommendDump)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "x"+collect.DumpSuffix)
	require.NoError(t, os.WriteFile(file, cv, 0o600))

	out, _, _, code := upgradeCommand(t, "recommend", "--mock-clusterversion", file)
	assert.Zero(t, code)
	assert.Contains(t, out, "did not have alert data available at "+strings.TrimSuffix(file, collect.DumpSuffix)+"-alerts.json\n")

	require.NoError(t, os.WriteFile(strings.TrimSuffix(file, collect.DumpSuffix)+"-alerts.json", []byte("<html>"), 0o600))
	out, _, _, code = upgradeCommand(t, "recommend", "--mock-clusterversion", file)
	assert.Equal(t, command.ExitPartial, code)
	assert.Contains(t, out, "Failed to check for at least some preconditions: parsing alerts: ")
	_, _, _, code = upgradeCommand(t, "recommend", "--mock-clusterversion", file, "--accept", "FailedToCompletePrecheck")
	assert.Zero(t, code)

	require.NoError(t, os.WriteFile(file, []byte("kind: List\nitems: []\n"), 0o600))
	_, errs, _, code := upgradeCommand(t, "recommend", "--mock-clusterversion", file)
	assert.Equal(t, command.ExitFailed, code)
	assert.Contains(t, errs, "contains 0 ClusterVersions instead of one")
}

//threat:control-characters-rewrite
func TestUpgradeRecommendPrintsJSON(t *testing.T) {
	out, _, _, _ := upgradeCommand(t, "recommend", "--mock-clusterversion", recommendDump, "--version", "1.2.0", "-o", "json")
	assert.NotContains(t, out, "\x1b")
	var got struct {
		Updates    []struct{ Version, Recommended, Message string }
		Unaccepted []string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Len(t, got.Updates, 1)
	assert.Contains(t, got.Updates[0].Message, "\x1b[31m", "escaped text is kept")
}
