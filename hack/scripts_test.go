// Package hack tests the scripts that run the tests.
package hack

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDownloadsAreTriedAgain runs the script that make calls for modules, with a program in place of Go.
func TestDownloadsAreTriedAgain(t *testing.T) {
	const uncached = `[ "$GOPROXY" = off ] && exit 1; ` // the first call reads only the cache
	const try = uncached + `[ "$1 $2" = "mod download" ] || exit 0; echo try >>tries; `
	for _, tt := range []struct {
		name, script string // the script of go
		code, tries  int
		last         string
	}{
		{"from the cache", "", 0, 0, ""},
		{"without the network", try + "echo no network >&2; exit 1", 1, 6, "a fault outside this repository: cannot download the modules of "},
		{"the network comes back", try + `[ "$(wc -l <tries)" -gt 2 ]`, 0, 3, "trying again in 10 s"},
		{"checksums that do not match", try + "echo 'verifying m: checksum mismatch' >&2; exit 1", 1, 1, "verifying m: checksum mismatch"},
		{"a go.mod with an error", uncached + `[ "$1 $2" = "mod edit" ] && { echo 'go.mod:3: unknown directive' >&2; exit 1; }; echo try >>tries`, 1, 0, "go.mod:3: unknown directive"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			temporary := t.TempDir()
			run := withFakes(t, "hack/download.sh", map[string]string{"go": tt.script, "sleep": ""})
			run.Env = append(run.Env, "TMPDIR="+temporary)
			output, _ := run.CombinedOutput() // its exit code is compared below
			assert.Equal(t, tt.code, run.ProcessState.ExitCode(), "%s", output)
			lines := strings.Split(strings.TrimSpace(string(output)), "\n")
			assert.Contains(t, lines[len(lines)-1], tt.last)
			tries, _ := os.ReadFile(filepath.Join(run.Dir, "tries")) // missing if there were none
			assert.Equal(t, tt.tries, bytes.Count(tries, []byte("try")))
			left, err := os.ReadDir(temporary)
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}

// skipOutput returns the result for an entry of a walk through the repository. It leaves out folders that git ignores and that change during tests.
func skipOutput(entry fs.DirEntry, err error) error {
	if entry.IsDir() && (entry.Name() == ".cache" || entry.Name() == ".git" || entry.Name() == "bin") {
		return fs.SkipDir
	}
	return err
}

// TestScriptsParse checks the syntax of all scripts.
func TestScriptsParse(t *testing.T) {
	scripts := 0
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return skipOutput(entry, err)
		}
		if extension := filepath.Ext(path); extension != "" && extension != ".sh" {
			return nil
		}
		text, err := os.ReadFile(path)
		switch {
		case err != nil:
			return err
		case bytes.HasPrefix(text, []byte("#!")):
			scripts++
			parse := exec.CommandContext(t.Context(), "bash", "-n")
			parse.Stdin = bytes.NewReader(text)
			output, err := parse.CombinedOutput()
			assert.NoError(t, err, "%s: %s", path, output)
		}
		return nil
	}))
	assert.Greater(t, scripts, 10)
}

// withFakes returns a command that runs a script of this repository in a folder of its own, with shell scripts in place of programs.
func withFakes(t *testing.T, script string, programs map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	clone, bin := t.TempDir(), t.TempDir()
	text, err := os.ReadFile(filepath.Join("..", script))
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(clone, filepath.Dir(script)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(clone, script), text, 0o755))
	for name, body := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	}
	run := exec.CommandContext(t.Context(), script, args...)
	run.Dir = clone
	run.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "PKG=", "TESTFLAGS=") // make sets them for the tests, too
	return run
}

func TestGeneratedFilesAreCompared(t *testing.T) {
	for generator, want := range map[string]string{
		"true":          "",
		"echo b >>a":    "generated files were out of date and are updated now; commit them:\n  a\n",
		"echo >new":     "generated files were out of date and are updated now; commit them:\n  new\n",
		"rm a; exit 0":  "generated files were out of date and are updated now; commit them:\n  a\n",
		"exit 1 # fail": "",
	} {
		run := withFakes(t, "hack/verify-generated.sh", map[string]string{"go": generator})
		require.NoError(t, os.WriteFile(filepath.Join(run.Dir, "a"), []byte("a\n"), 0o644))
		initialize(t, run.Dir)
		output, err := run.CombinedOutput()
		assert.Equal(t, generator == "true", err == nil, generator)
		assert.Equal(t, want, string(output), generator)
	}
}

func TestGeneratedFilesAreNotComparedWithoutHashes(t *testing.T) {
	run := withFakes(t, "hack/verify-generated.sh", map[string]string{
		"git": "printf 'a\\0'", "sha256sum": "exit 127", "go": "echo go $*",
	})
	output, _ := run.CombinedOutput() // its exit code is compared below
	assert.Equal(t, 2, run.ProcessState.ExitCode())
	assert.Equal(t, "cannot compare the generated files: sha256sum or git is missing\n", string(output))
}

// TestWordsAreFoundInAnyClone has a setting of git that adds a column to each found line.
func TestWordsAreFoundInAnyClone(t *testing.T) {
	for _, tt := range []struct{ file, text, want string }{
		{"pkg/a.go", "package a\n\n// way" + " := 1\n", ""}, // names in comments are no declarations
		{"pkg/a.go", "package a\n\nfunc a() { way" + " := 1 }\n", "rename these: the names do not describe their value or action:\npkg/a.go:3:func a() { way" + " := 1 }\n"},
		{"hack/image", "\x7fELF\x02\x01\x01\x00", "remove these programs:\nhack/image\n"},
		{"pkg/a.go", "package a // /ro" + "ot/a\n", "absolute paths of one machine:\npkg/a.go:1:package a // /ro" + "ot/a\n"},
		{"a.yaml", "a: https://a.cor" + "p/\n", "hosts of a private network:\na.yaml:1:a: https://a.cor" + "p/\n"},
		{"a.sh", "GOPRO" + "XY=https://a.example.com\n", "a module proxy or checksum setting for one place:\na.sh:1:GOPRO" + "XY=https://a.example.com\n"},
		{"a.sh", "GOPRO" + "XY=off\n", ""},
		{"pkg/a.go", "package a\n\nvar a = \"CVO_TEST" + "DATA\"\n", "use fixture.Testdata to find real releases:\npkg/a.go:3:var a = \"CVO_TEST" + "DATA\"\n"},
		{"pkg/a.go", "package a // it tel" + "ls\n", "rewrite these: name who acts:\npkg/a.go:1:package a // it tel" + "ls\n"},
		{"docs/a.md", "ane" + "w\n", "rewrite these: name who acts:\ndocs/a.md:1:ane" + "w\n"},
	} {
		run := withFakes(t, "hack/verify-words.sh", nil)
		for name, text := range map[string]string{"Makefile": "all:\n", tt.file: tt.text} {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(run.Dir, name)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(run.Dir, name), []byte(text), 0o644))
		}
		initialize(t, run.Dir)
		output, err := run.CombinedOutput()
		assert.Equal(t, tt.want == "", err == nil, tt.file)
		assert.Equal(t, tt.want, string(output))
	}
}

// initialize makes a folder a repository of git, and adds all its files. git prints the columns of what it finds there.
func initialize(t *testing.T, folder string) {
	t.Helper()
	for _, args := range []string{"init -q", "config grep.column true", "add ."} {
		output, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", folder}, strings.Fields(args)...)...).CombinedOutput()
		require.NoError(t, err, "%s", output)
	}
}

// TestWordsAreNotFoundIfGitFails has a git that cannot search. The script must not take that for no match.
func TestWordsAreNotFoundIfGitFails(t *testing.T) {
	for _, pattern := range []string{"Users", "Getenv", "whoever", "*.md", "^func", "ELF", "none"} { // one of each search, and of none
		run := withFakes(t, "hack/verify-words.sh", map[string]string{"git": `case "$*" in *"` + pattern + `"*) exit 128 ;; grep*) exit 1 ;; esac`})
		output, err := run.CombinedOutput()
		assert.Equal(t, pattern != "none", err != nil, "%s: %s", pattern, output)
	}
}

// plainFolder returns a folder for results, as a path below the root. A folder of TMPDIR may have a name that make would split.
func plainFolder(t *testing.T) string {
	t.Helper()
	require.NoError(t, os.MkdirAll("../.cache", 0o755))
	folder, err := os.MkdirTemp("../.cache", "gate-") //nolint:usetesting // t.TempDir is below TMPDIR
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return filepath.Join(".cache", filepath.Base(folder))
}
