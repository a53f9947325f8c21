package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	image "github.com/cluster-version/cvo/pkg/author/assemble/program"
	"github.com/cluster-version/cvo/test/env"
)

const (
	// asProgram is the environment variable that makes the test binary run as cvo.
	asProgram = "CVO_TEST_AS_PROGRAM"
	// printCollector makes it print the target of the garbage collector at the end.
	printCollector = "CVO_TEST_PRINT_COLLECTOR"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		code := run()
		if os.Getenv(printCollector) != "" {
			fmt.Println(debug.SetGCPercent(-1))
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// program returns a link with the given name to the test binary.
func program(t *testing.T, name string) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Symlink(self, link))
	return link
}

// call runs a program and returns its output and its exit code.
func call(t *testing.T, env []string, file string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs strings.Builder
	cmd := exec.CommandContext(t.Context(), file, args...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	require.NotNil(t, cmd.ProcessState, err)
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestProgramUsesTheNameItWasCalledBy(t *testing.T) {
	for name, called := range map[string]string{"cvo": "cvo", "kubectl-cvo": "kubectl cvo"} {
		t.Run(name, func(t *testing.T) {
			file := program(t, name)
			out, errs, code := call(t, nil, file, "upgrade", "diff", "--help")
			assert.Empty(t, errs)
			assert.Zero(t, code)
			assert.Contains(t, out, "\nUsage:\n  "+called+" upgrade diff REF|VERSION|DIR [flags]\n")
			assert.Contains(t, out, "\n  "+called+" upgrade diff ./release --full\n")

			out, _, _ = call(t, nil, file, "upgrade", "status", "--help")
			assert.Contains(t, out, "\n'"+called+" status' shows")
			assert.NotContains(t, strings.ReplaceAll(out, "kubectl cvo ", ""), "kubectl")

			out, _, code = call(t, nil, file, "completion", "bash")
			assert.Zero(t, code)
			assert.Contains(t, out, "bash completion V2 for "+name+" ")

			out, errs, code = call(t, nil, file, "upgrade", "everything")
			assert.Empty(t, out)
			assert.Equal(t, "error: unknown command \"everything\" for \""+called+" upgrade\"\n", errs)
			assert.Equal(t, 2, code)
		})
	}
}

// kubectl completes a plugin's arguments with a script next to the plugin.
func TestKubectlCompletionUsesTheScript(t *testing.T) {
	plugin := program(t, "kubectl-cvo")
	script, err := filepath.Abs("../../hack/kubectl_complete-cvo")
	require.NoError(t, err)
	out, errs, code := call(t, []string{"PATH=" + filepath.Dir(plugin) + ":" + os.Getenv("PATH")}, script, "upgrade", "sta")
	require.Zero(t, code, errs)
	assert.Contains(t, out, "status\t")
	assert.True(t, strings.HasSuffix(out, "\n:4\n"), out)
}

func TestKubectlFindsThePlugin(t *testing.T) {
	if testing.Short() {
		t.Skip("kubectl may not be built yet")
	}
	kubectl, err := env.Tool("kubectl")
	require.NoError(t, err)
	path := "PATH=" + filepath.Dir(program(t, "kubectl-cvo")) + ":" + os.Getenv("PATH")
	out, errs, code := call(t, []string{path}, kubectl, "cvo", "upgrade", "status", "--help")
	assert.Empty(t, errs)
	assert.Zero(t, code)
	assert.Contains(t, out, "\nUsage:\n  kubectl cvo upgrade status [flags]\n")
	_, errs, code = call(t, []string{path}, kubectl, "cvo", "upgrade", "--clear", "--to-latest")
	assert.Equal(t, "error: --clear may not be specified with any other flags\n", errs)
	assert.Equal(t, 2, code, "kubectl passes the exit code on")
}

func TestErrorsArePrintedLikeKubectl(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte("apiVersion: v1\nkind: Config\ncurrent-context: \"\x1b[31mred\"\n"), 0o600))
	out, errs, code := call(t, nil, program(t, "cvo"), "upgrade", "status", "--kubeconfig", kubeconfig+"\x1b[31m")
	assert.Empty(t, out)
	assert.Equal(t, 1, code)
	assert.Equal(t, 1, strings.Count(errs, "error: "))
	assert.True(t, strings.HasPrefix(errs, "error: "))
	assert.NotContains(t, errs, "\x1b", "control sequences are replaced")
}

// TestReleasesContainTheRunningProgram makes a release with the test binary, which Go links statically only without cgo.
func TestReleasesContainTheRunningProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	file := program(t, "cvo")
	binary, err := os.ReadFile(file)
	require.NoError(t, err)
	architecture, dynamic := image.Architecture(binary)
	out, errs, code := call(t, nil, file, "release", "new", "--from-dir", "../../examples/platform/1.0.0", "--name", "1.0.0", "--offline", "--dry-run")
	if dynamic != nil {
		assert.Empty(t, out)
		assert.Contains(t, errs, "error: this cvo cannot be the operator in the release: ")
		assert.Contains(t, errs, "build with CGO_ENABLED=0")
		assert.Equal(t, 2, code)
		return
	}
	assert.Zero(t, code)
	assert.Contains(t, errs, "info: The release contains this operator for nodes with linux/"+architecture+"\n")
}

func TestCommandsThatNeedLowMemoryCollectGarbageMoreOften(t *testing.T) {
	file, missing := program(t, "cvo"), filepath.Join(t.TempDir(), "release")
	for want, lines := range map[string][][]string{
		"33\n":  {{"start"}, {"release", "info", missing}, {"release", "extract", missing}},
		"100\n": {{"version", "--client"}, {"release", "lint", missing}},
	} {
		for _, args := range lines {
			out, _, _ := call(t, []string{"GOGC=", printCollector + "=1"}, file, args...)
			assert.True(t, strings.HasSuffix(out, want), "%v: %s", args, out)
		}
	}
	out, _, _ := call(t, []string{"GOGC=80", printCollector + "=1"}, file, "release", "info", missing)
	assert.Equal(t, "80\n", out, "the user's setting wins")
}
