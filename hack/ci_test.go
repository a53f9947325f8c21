package hack

import (
	"bytes"
	"encoding/json"
	"go/version"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRunNamesWhatFailed runs .ci/run with scripts in place of the programs that it calls.
func TestRunNamesWhatFailed(t *testing.T) {
	script, err := os.ReadFile("../.ci/run")
	require.NoError(t, err)
	var unset []string
	for _, line := range regexp.MustCompile(`(?m)^unset ([A-Z_0-9 ]+)$`).FindAllStringSubmatch(string(script), -1) {
		unset = slices.AppendSeq(unset, strings.FieldsSeq(line[1]))
	}
	assert.Subset(t, unset, []string{"PKG", "TESTFLAGS", "MAKEFLAGS", "GNUMAKEFLAGS", "GOOS", "CVO_RING", "CVO_E2E_PARALLEL"})
	const outside = "a fault outside this repository: cannot download the modules of ./go.mod; no test ran"
	for _, tt := range []struct {
		name, program, script string // the program that does more than succeed
		flag                  string
		code                  int
		last                  string // part of the last line, or of the last two
		tries                 int    // of a download
		made                  string // the targets of make
	}{
		{"passed", "make", "", "", 0, "=== all done after ", 0, "verify test"},
		{"all rings", "make", "", "--all", 0, "=== all done after ", 0, "verify test-all TESTFLAGS=-count 1"},
		{"times of files that cannot be set", "go", `case "$*" in "run ./hack/mtimes") exit 1 ;; esac`, "", 0, "=== all done after ", 0, "verify test"},
		{"an older API server", "make", "", "--compat", 0, "=== all done after ", 0, "compat"},
		{"failed", "make", `[ "$1" != test ]`, "", 1, "=== make test: FAILED after ", 0, "verify test"},
		{"without the network", "go", `case "$*" in *download*) echo try >>tries; exit 1 ;; esac`, "", 1, outside, 6, ""},
		{"without the network of one module", "go", `case "$*" in *helm*tidy*) echo try >>tries; echo "dial tcp" >&2; exit 1 ;; esac`, "", 1, "reads in test/helm; no test ran", 6, ""},
		{"the network comes back", "go", `case "$*" in *download*) echo try >>tries; [ "$(wc -l <tries)" -gt 2 ] ;; esac`, "", 0, "=== all done after ", 5, "verify test"},
		{"without the network of the nodes", "prepare.sh", "echo try >>tries; exit 1", "--all", 1, "cannot download the image of kind's nodes; no test ran", 6, ""},
		{"a Go that is too old", "go", `case "$*" in "env GOTOOLCHAIN") echo local ;; *list*) echo too old >&2; exit 1 ;; esac`, "", 1, "too old\n=== prepare: FAILED after ", 0, ""},
		{"a go.sum that lacks checksums", "go", `case "$*" in *download*) echo h1:b >>sums ;; esac`, "", 1, "a go.sum lacks checksums: run go mod tidy beside it\n=== prepare: FAILED after ", 0, ""},
		{"checksums that do not match", "go", `case "$*" in *download*) echo try >>tries; echo "verifying m: checksum mismatch" >&2; exit 1 ;; esac`, "", 1, "verifying m: checksum mismatch\n=== prepare: FAILED after ", 1, ""},
		{"another user than root", "id", "echo 1000", "", 1, "it installs packages, and tests mount file systems\n=== prepare: FAILED after ", 0, ""},
		{"an error in go.mod", "go", `case "$*" in *edit*) echo errors parsing go.mod >&2; exit 4 ;; esac`, "", 4, "errors parsing go.mod\n=== prepare: FAILED after ", 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			programs := map[string]string{"git": `case "$*" in *go.sum) printf 'sums\0' ;; *) echo test/helm/go.mod ;; esac`, "id": "echo 0", tt.program: tt.script}
			for _, name := range []string{"go", "make", "jq", "flock", "prometheus", "promtool", "sleep", "docker", "dockerd", "debootstrap", "gcc", "prepare.sh"} {
				programs[name] += ""
			}
			programs["make"] = `echo "$*$` + strings.Join(unset, "$") + `${GOFLAGS#-trimpath}${GOWORK#off}" >>made; ` + programs["make"]
			run := withFakes(t, ".ci/run", programs, tt.flag)
			elsewhere, temporary := t.TempDir(), t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(elsewhere, ".ci"), 0o755))
			// It runs all tests of this clone, whatever the environment is.
			run.Env = append(run.Env, "GOFLAGS=-short", "GOWORK=/nowhere/go.work", "CDPATH="+elsewhere, "TMPDIR="+temporary)
			for _, name := range unset {
				run.Env = append(run.Env, name+"=/nowhere")
			}
			require.NoError(t, os.WriteFile(filepath.Join(run.Dir, "sums"), []byte("h1:a\n"), 0o644))
			require.NoError(t, os.MkdirAll(filepath.Join(run.Dir, "test/e2e/quirks"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(run.Dir, "test/e2e/quirks/dockerd.sh"), []byte("#!/bin/sh\nfalse\n"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(run.Dir, "test/e2e/prepare.sh"), []byte("#!/bin/sh\n[ \"$*\" = download ] && exec prepare.sh\n"), 0o755))
			output, _ := run.CombinedOutput() // its exit code is compared below
			assert.Equal(t, tt.code, run.ProcessState.ExitCode(), "%s", output)
			lines := strings.Split(strings.TrimSpace(string(output)), "\n")
			assert.Contains(t, strings.Join(lines[len(lines)-1-strings.Count(tt.last, "\n"):], "\n"), tt.last)
			tries, _ := os.ReadFile(filepath.Join(run.Dir, "tries")) // missing if there were none
			assert.Equal(t, tt.tries, bytes.Count(tries, []byte("try")))
			made, _ := os.ReadFile(filepath.Join(run.Dir, "made")) // missing if there were none
			assert.Equal(t, tt.made, strings.Join(strings.Fields(string(made)), " "))
			left, err := os.ReadDir(temporary)
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}

// TestWorkflowsRunTheGate checks what is run for each change, and each night.
func TestWorkflowsRunTheGate(t *testing.T) {
	for name, wants := range map[string][]string{
		"gate": {"  push:\n  pull_request:\n", " .ci/run\n"},
		"all":  {"  schedule:\n", "mode: [--all, --compat]\n", " .ci/run ${{ matrix.mode }}\n"},
	} {
		text, err := os.ReadFile("../.github/workflows/" + name + ".yaml")
		require.NoError(t, err)
		for _, want := range wants {
			assert.Contains(t, string(text), want, name)
		}
	}
}

// TestNoModuleNeedsANewerGo compares the modules: README promises that the version in go.mod suffices, and workflows install that one.
func TestNoModuleNeedsANewerGo(t *testing.T) {
	needs := func(folder string) string {
		text, err := exec.CommandContext(t.Context(), "go", "-C", folder, "mod", "edit", "-json").Output()
		require.NoError(t, err)
		var module struct{ Go string }
		require.NoError(t, json.Unmarshal(text, &module))
		return "go" + module.Go
	}
	main := needs("..")
	found := 0
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if entry.Name() == "go.mod" && !strings.Contains(path, "testdata") {
			found++
			assert.LessOrEqual(t, version.Compare(needs(filepath.Dir(path)), main), 0, path)
		}
		return skipOutput(entry, err)
	}))
	assert.Greater(t, found, 5)
}
