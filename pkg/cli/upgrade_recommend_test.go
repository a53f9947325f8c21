package cli

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

	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/golden"
)

// upgradeCommand runs a command of cvo upgrade as main does; both is what a terminal shows of stdout and stderr.
func upgradeCommand(t *testing.T, args ...string) (stdout, stderr, both string, code int) {
	t.Helper()
	var out, errs, all bytes.Buffer
	cmd := New(Streams{In: strings.NewReader(""), Out: io.MultiWriter(&out, &all), Err: io.MultiWriter(&errs, &all)})
	cmd.SetArgs(append([]string{"upgrade"}, args...))
	err := cmd.ExecuteContext(t.Context())
	PrintError(io.MultiWriter(&errs, &all), err)
	return out.String(), errs.String(), all.String(), ExitCode(err)
}

func TestUpgradeRecommendOfRealDumps(t *testing.T) {
	source := filepath.Join(fixture.Testdata(t), "cluster-dumps", "recommend")
	// The expected texts name the folder by which the original was called.
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
			// Versions and names have dots, too: the longest name of a dump that fits counts.
			dumps, err := filepath.Glob("examples/*" + dumpSuffix)
			require.NoError(t, err)
			for _, candidate := range dumps {
				prefix := strings.TrimSuffix(candidate, dumpSuffix)
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
					wantCode = ExitFailed
				} else if bytes.Contains(want, []byte("\nerror: ")) {
					wantCode = ExitRefused
				}
			case variant == "show-outdated-releases-output":
				args = append(args, "--show-outdated-releases")
			}
			_, _, both, code := upgradeCommand(t, args...)
			assert.Equal(t, string(want), both)
			assert.Equal(t, wantCode, code)
		})
	}
}

const recommendDump = "testdata/upgrade-recommend/risks" + dumpSuffix

func TestUpgradeRecommendGolden(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		code int
	}{
		"default":           {nil, 0},
		"all":               {[]string{"--show-outdated-releases"}, 0},
		"version-refused":   {[]string{"--version", "1.2.0"}, ExitRefused},
		"version-accepted":  {[]string{"--version", "1.2.0", "--accept", "KubeNodeNotReady,SlowDisk,UpgradeableFalse"}, 0},
		"version-blanket":   {[]string{"--version", "1.2.0", "--accept", "KubeNodeNotReady", "--accept", "ConditionalUpdateRisk"}, 0},
		"version-quiet":     {[]string{"--version", "1.2.0", "--quiet", "--accept", "SlowDisk"}, ExitRefused},
		"version-none":      {[]string{"--version", "1.2.9"}, ExitFailed},
		"json":              {[]string{"-o", "json"}, 0},
		"version-json":      {[]string{"--version", "1.2.0", "-o", "json"}, ExitRefused},
		"version-none-json": {[]string{"--version", "3.0.0", "-o", "json"}, ExitFailed},
		"yaml":              {[]string{"-o", "yaml"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, both, code := upgradeCommand(t, append([]string{"recommend", "--mock-clusterversion", recommendDump}, tt.args...)...)
			assert.Equal(t, tt.code, code)
			golden.Assert(t, "upgrade-recommend/"+name, both)
		})
	}
}

func TestUpgradeRecommendUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"quiet without a version":   {"--quiet"},
		"a version and all":         {"--version", "1.2.0", "--show-outdated-releases"},
		"a version that is none":    {"--version", "latest"},
		"an unknown output":         {"-o", "xml"},
		"a dump without its suffix": {"--mock-clusterversion", "cv.yaml"},
		"an argument":               {"1.2.0"},
	} {
		_, _, _, code := upgradeCommand(t, append([]string{"recommend"}, args...)...)
		assert.Equal(t, ExitUsage, code, name)
	}
}

func TestUpgradeRecommendOfBrokenDumps(t *testing.T) {
	cv, err := os.ReadFile(recommendDump)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "x"+dumpSuffix)
	require.NoError(t, os.WriteFile(file, cv, 0o600))

	out, _, _, code := upgradeCommand(t, "recommend", "--mock-clusterversion", file)
	assert.Zero(t, code)
	assert.Contains(t, out, "did not have alert data available at "+strings.TrimSuffix(file, dumpSuffix)+"-alerts.json\n")

	require.NoError(t, os.WriteFile(strings.TrimSuffix(file, dumpSuffix)+"-alerts.json", []byte("<html>"), 0o600))
	out, _, _, code = upgradeCommand(t, "recommend", "--mock-clusterversion", file)
	assert.Equal(t, ExitPartial, code)
	assert.Contains(t, out, "Failed to check for at least some preconditions: parsing alerts: ")
	_, _, _, code = upgradeCommand(t, "recommend", "--mock-clusterversion", file, "--accept", "FailedToCompletePrecheck")
	assert.Zero(t, code)

	require.NoError(t, os.WriteFile(file, []byte("kind: List\nitems: []\n"), 0o600))
	_, errs, _, code := upgradeCommand(t, "recommend", "--mock-clusterversion", file)
	assert.Equal(t, ExitFailed, code)
	assert.Contains(t, errs, "want one ClusterVersion, not 0")
}

func TestUpgradeRecommendForScripts(t *testing.T) {
	out, _, _, _ := upgradeCommand(t, "recommend", "--mock-clusterversion", recommendDump, "--version", "1.2.0", "-o", "json")
	assert.NotContains(t, out, "\x1b")
	var got struct {
		Updates    []struct{ Version, Recommended, Message string }
		Unaccepted []string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Len(t, got.Updates, 1)
	assert.Contains(t, got.Updates[0].Message, "\x1b[31m", "what was escaped is still there")
}
