// Package hack tests the scripts that run the tests.
package hack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/version"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRunNamesWhatFailed runs .ci/run with scripts in place of the programs that it calls.
func TestRunNamesWhatFailed(t *testing.T) {
	const outside = "a fault outside this repository: cannot download the modules of ./go.mod; no test ran"
	for _, tt := range []struct {
		name, program, script string // the program that does more than to succeed
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
			programs["make"] = `echo "$*$PKG$TESTFLAGS$MAKEFLAGS$MAKEFILES$GOOS$GOARCH$CVO_KUBE_BIN$CVO_KUBE_FEATURE_GATES$CVO_KUBE_MODULE$CVO_PEERS_BIN$CVO_PEERS_MODULE$CVO_RING$CVO_E2E_ATTACH$CVO_E2E_KEEP${GOFLAGS#-trimpath}${GOWORK#off}" >>made; ` + programs["make"]
			run := withFakes(t, ".ci/run", programs, tt.flag)
			elsewhere := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(elsewhere, ".ci"), 0o755))
			// It runs all tests of this clone, whatever the environment is.
			run.Env = append(run.Env, "PKG=./hack", "TESTFLAGS=-run TestA", "MAKEFLAGS=i", "MAKEFILES=/nowhere.mk",
				"GOOS=windows", "GOARCH=s390x", "CVO_KUBE_BIN=/nowhere", "CVO_KUBE_FEATURE_GATES=A=true", "CVO_KUBE_MODULE=/nowhere",
				"CVO_PEERS_BIN=/nowhere", "CVO_PEERS_MODULE=/nowhere", "CVO_RING=outer", "CVO_E2E_ATTACH=1", "CVO_E2E_KEEP=1", "GOFLAGS=-short", "GOWORK=/nowhere/go.work", "CDPATH="+elsewhere)
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
		})
	}
}

func TestFlakesStopsIfNoTestRan(t *testing.T) {
	const results = "mkdir -p .cache/test && echo '%s' >.cache/test/packages.json; "
	program := filepath.Join(t.TempDir(), "results")
	output, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./results").CombinedOutput()
	require.NoError(t, err, "%s", output)
	for _, tt := range []struct {
		test, want string // test is the script of make test
		code       int
	}{
		{fmt.Sprintf(results, `{"Action":"skip","Package":"p"}`) + "echo no test ran; exit 2", "no test ran", 2},
		{"echo 'p: directory not found'; exit 2", "p: directory not found", 2},
		{fmt.Sprintf(results, `{"Action":"fail","Package":"p","Test":"TestA"}`) + "exit 2", "1 p TestA", 1},
		{fmt.Sprintf(results, `{"Action":"fail","Package":"p","Test":"TestA"}`+"\n"+`{"Action":"pass","Package":"p"}`) + "exit 2", "1 p TestA", 1}, // hidden
		{fmt.Sprintf(results, `{"Action":"pass","Package":"p","Test":"TestA"}`), "nothing failed; runs: 1", 0},
	} {
		run := withFakes(t, "hack/flakes.sh", map[string]string{
			"make": `case "$*" in *TESTFLAGS*) ` + tt.test + " ;; esac",
			"go":   `shift 2 && exec '` + program + `' "$@"`, // go run ./hack/results
		}, "1")
		output, _ := run.CombinedOutput() // its exit code is compared below
		assert.Equal(t, tt.code, run.ProcessState.ExitCode(), "%s", output)
		assert.Contains(t, string(output), tt.want)
	}
}

// TestFlakesRunsOnceAtATime has another run in the same clone, whose list of failures a second one would delete.
func TestFlakesRunsOnceAtATime(t *testing.T) {
	run := withFakes(t, "hack/flakes.sh", map[string]string{"make": `case "$*" in *test*) echo started ;; esac`}, "1")
	require.NoError(t, os.MkdirAll(filepath.Join(run.Dir, ".cache"), 0o755))
	lock, err := os.Create(filepath.Join(run.Dir, ".cache", "flakes.lock"))
	require.NoError(t, err)
	defer lock.Close()
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	output, err := run.CombinedOutput()
	require.ErrorAs(t, err, new(*exec.ExitError))
	assert.Equal(t, "another make flakes runs in this clone\n", string(output))
}

// TestFlakesPassesFlagsUnchanged runs a real make, which expands the value of a variable.
func TestFlakesPassesFlagsUnchanged(t *testing.T) {
	run := withFakes(t, "hack/flakes.sh", nil, "1")
	makefile := "packages commands crds kube-tools:\n\ntest:\n\t@echo $(TESTFLAGS) >flags\n"
	require.NoError(t, os.WriteFile(filepath.Join(run.Dir, "Makefile"), []byte(makefile), 0o644))
	run.Env = append(run.Env, "TESTFLAGS=-run 'TestA$|TestB$'")
	output, err := run.CombinedOutput()
	require.NoError(t, err, "%s", output)
	flags, err := os.ReadFile(filepath.Join(run.Dir, "flags"))
	require.NoError(t, err)
	assert.Equal(t, "-count 1 -run TestA$|TestB$\n", string(flags))
}

func TestPackagesNamesAPatternWithoutPackages(t *testing.T) {
	for pattern, want := range map[string]string{
		"./hack":                                "",
		"./pkg/oci/...":                         "",
		"github.com/cluster-version/cvo/hack":   "",
		"hack":                                  "PKG=hack is no pattern for packages: write ./hack\n",
		"cmd/...":                               "PKG=cmd/... is no pattern for packages: write ./cmd/...\n", // Go has such packages
		"./nowhere":                             "PKG=./nowhere selects no package: ",
		"./pkg/engine":                          "PKG=./pkg/engine selects no package: write ./pkg/engine/...\n",
		"./pkg/engine/":                         "PKG=./pkg/engine/ selects no package: write ./pkg/engine/...\n",
		"fmt":                                   "PKG=fmt selects packages of other modules: ",
		"github.com/spf13/cobra":                "PKG=github.com/spf13/cobra selects packages of other modules: ",
		"./charts/cluster-version-operator/...": "PKG=./charts/cluster-version-operator/... selects no package: ",
	} {
		output, err := exec.CommandContext(t.Context(), "./packages.sh", "./hack", pattern).CombinedOutput()
		assert.Equal(t, want == "", err == nil, pattern)
		assert.True(t, strings.HasPrefix(string(output), want), "%s", output)
	}
}

// skipOutput is the result of a walk through the repository. It leaves out folders that git ignores and that change during tests.
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

// TestFuzzPassesItsTime also checks the flag -short, without which each worker of a package with env.Main starts a control plane.
func TestFuzzPassesItsTime(t *testing.T) {
	for fuzztime, want := range map[string]string{
		"1x":    `(?m)^go test -short .*\^FuzzA\$ -fuzztime 1x .* \./pkg/a$`,
		"1m30s": `(?m)^go test -short .*\^FuzzA\$ -fuzztime 1m30s .* \./pkg/a$`,
		"0.5h":  `(?m)^go test -short .*\^FuzzA\$ -fuzztime 0.5h .* \./pkg/a$`,
		"30":    "^FUZZTIME is 30: set a time ",
		"0s":    "^FUZZTIME is 0s: set a time ", // go test would never end
		"1m 3s": "^FUZZTIME is 1m 3s: set a time ",
	} {
		run := withFakes(t, "hack/fuzz.sh", map[string]string{"go": `echo "go $*"`}, fuzztime)
		for _, folder := range []string{"cmd", "internal", "pkg/a", "test"} {
			require.NoError(t, os.MkdirAll(filepath.Join(run.Dir, folder), 0o755))
		}
		require.NoError(t, os.WriteFile(filepath.Join(run.Dir, "pkg/a/a_test.go"), []byte("package a\nfunc FuzzA(f *testing.F) {}\n"), 0o644))
		output, err := run.CombinedOutput()
		assert.Equal(t, strings.Contains(want, "go test"), err == nil, "%s", output)
		assert.Regexp(t, want, string(output))
	}
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

// runMake returns a command that runs the real Makefile. It keeps the results in folder results, and builds no tools.
func runMake(t *testing.T, results string, args ...string) *exec.Cmd {
	t.Helper()
	run := exec.CommandContext(t.Context(), "make", append([]string{"--no-print-directory", "-o", "crds", "-o", "kube-tools", "RESULTS=" + results}, args...)...)
	run.Dir = ".."
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); name != "MAKEFLAGS" && name != "MAKEOVERRIDES" && name != "TESTFLAGS" && name != "PKG" && name != "N" {
			run.Env = append(run.Env, variable) // the others are those of the make that runs this test
		}
	}
	return run
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

// TestMakeIgnoresWorkspacesAndOtherFolders has settings of the user with which a script would work in another folder, and Go with other modules.
func TestMakeIgnoresWorkspacesAndOtherFolders(t *testing.T) {
	elsewhere := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(elsewhere, "hack"), 0o755))
	run := runMake(t, t.TempDir(), "PKG=./hack", "packages")
	run.Env = append(run.Env, "GOWORK=/nowhere/go.work", "CDPATH="+elsewhere)
	output, err := run.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// TestMakeRefusesToSelectTestsUnnoticed has flags of the environment with which go test would run fewer tests.
func TestMakeRefusesToSelectTestsUnnoticed(t *testing.T) {
	for flags, refused := range map[string]bool{
		"-buildvcs=false -tags=a": false, "-short": true, "--short=true": true, "-run=TestA": true, "-test.run=TestA": true, "'-skip=Test A'": true,
		"-exec=true": true, "-count=0": true,
	} {
		run := runMake(t, t.TempDir(), "--dry-run", "test")
		run.Env = append(run.Env, "GOFLAGS="+flags)
		output, err := run.CombinedOutput()
		assert.Equal(t, refused, err != nil, "%s: %s", flags, output)
		assert.Equal(t, refused, strings.Contains(string(output), "selects tests: use TESTFLAGS"), "%s: %s", flags, output)
	}
}

// TestKilledToolsFail has tools that a signal kills.
func TestKilledToolsFail(t *testing.T) {
	installed, err := exec.LookPath("go")
	require.NoError(t, err)
	folder := t.TempDir()
	tool, fake := filepath.Join(folder, "tool"), filepath.Join(folder, "go")
	require.NoError(t, os.WriteFile(tool, []byte("#!/bin/sh\nkill -9 $$\n"), 0o755))
	require.NoError(t, os.WriteFile(fake, []byte("#!/bin/sh\n[ \"$1 $2\" = 'tool -n' ] && echo "+tool+" && exit\nexec "+installed+" \"$@\"\n"), 0o755))
	for target, done := range map[string]string{"verify-format": "golangci-lint", "lint": "golangci-lint", "check": "verify-format"} {
		run := runMake(t, t.TempDir(), "-o", done, "PKG=./internal/sorted", target)
		run.Env = append(run.Env, "PATH="+folder+":"+os.Getenv("PATH"))
		output, err := run.CombinedOutput()
		require.Error(t, err, "%s: %s", target, output)
		assert.Contains(t, string(output), "Killed", target)
	}
}

// TestMakeWantsPatternsQuoted has patterns that the shell would take for commands.
func TestMakeWantsPatternsQuoted(t *testing.T) {
	for flags, want := range map[string]string{
		"-run TestA|TestB":            "TESTFLAGS=-run TestA|TestB: quote patterns in it, such as TESTFLAGS='-run \"TestA|TestB\"'\n",
		"-run Test(A)":                "TESTFLAGS=-run Test(A): quote patterns",
		"-run 'TestA":                 "TESTFLAGS=-run 'TestA: quote patterns",
		`-run 'TestA|Test"B"' -short`: "",
		`-run "Test(A|B)$$"`:          "",
		"-count 1":                    "",
	} {
		output, _ := runMake(t, t.TempDir(), "TESTFLAGS="+flags, "commands").CombinedOutput() // its output is compared
		assert.True(t, strings.HasPrefix(string(output), want) && (want == "") == (len(output) == 0), "%s: %s", flags, output)
	}
}

// TestMakeHidesVariablesOfItsCaller has the variables that git sets for a hook. With them, git would work in another repository than that of
// the folder in which a test runs it. The others would change the commands and operators that tests run.
func TestMakeHidesVariablesOfItsCaller(t *testing.T) {
	var variables []string
	for _, line := range regexp.MustCompile(`(?m)^unexport (.*)$`).FindAllStringSubmatch(makefile(t), -1) {
		for name := range strings.FieldsSeq(line[1]) {
			variables = append(variables, name+"=/nowhere")
		}
	}
	assert.Subset(t, variables, []string{"GIT_DIR=/nowhere", "CVO_NAMESPACE=/nowhere", "CLUSTER_PROFILE=/nowhere", "POD_IP=/nowhere"})
	run := runMake(t, t.TempDir(), "--eval", "show: ; @env", "show")
	run.Env = append(run.Env, variables...)
	output, err := run.CombinedOutput()
	require.NoError(t, err, "%s", output)
	for _, variable := range variables {
		assert.NotContains(t, string(output), variable)
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

func TestMakeRunsOneRingAtATime(t *testing.T) {
	results := filepath.Join(plainFolder(t), "results")
	lock, err := os.Create(filepath.Join("..", results+".lock"))
	require.NoError(t, err)
	defer lock.Close()
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	for _, ring := range []string{"test", "race", "outer", "interop", "integration", "compat", "e2e", "property", "test-all"} {
		output, err := runMake(t, results, "LOCK_WAIT=0", "GOTESTSUM=echo started", "-o", "helm", "-o", "peers", "-o", "kube-compat", "-o", "node-tools", ring).CombinedOutput()
		require.ErrorAs(t, err, new(*exec.ExitError), "%s: %s", ring, output)
		assert.Contains(t, string(output), "waiting up to 0 s for the end of other tests in this clone\nother tests run in this clone", ring)
		assert.NotContains(t, string(output), "started", ring)
	}
}

// TestWholeRingsRefuseToSelectPackages names packages for rings that would run all of theirs.
func TestWholeRingsRefuseToSelectPackages(t *testing.T) {
	results := filepath.Join(plainFolder(t), "results")
	for _, ring := range []string{"outer", "interop", "integration", "compat", "e2e", "property", "test-all"} {
		output, err := runMake(t, results, "PKG=./hack", ring).CombinedOutput()
		require.ErrorAs(t, err, new(*exec.ExitError), "%s: %s", ring, output)
		assert.Contains(t, string(output), "this target runs all its packages", ring)
	}
}

// TestMakeListsHiddenFailures has a failed test in a package whose TestMain ends with 0, so that go test passes.
func TestMakeListsHiddenFailures(t *testing.T) {
	folder := plainFolder(t)
	tests := filepath.Join(folder, "gotestsum")
	results := `{"Action":"fail","Package":"p","Test":"TestHidden"}` + "\n" + `{"Action":"pass","Package":"p"}`
	script := "#!/bin/sh\nmkdir -p \"$(dirname \"$4\")\"\necho '" + results + "' >\"$4\"\n"
	require.NoError(t, os.WriteFile(filepath.Join("..", tests), []byte(script), 0o755))
	output, err := runMake(t, filepath.Join(folder, "results"), "GOTESTSUM="+tests, "PKG=./hack", "test").CombinedOutput()
	require.ErrorAs(t, err, new(*exec.ExitError), "%s", output)
	assert.Contains(t, string(output), "a test of p failed, and the package exits with 0")
	assert.Contains(t, string(output), "what failed:\n  p TestHidden\n")
}

// TestMakeFailsIfAPartFails has a part of make test whose tests fail, while all results in its file are good.
func TestMakeFailsIfAPartFails(t *testing.T) {
	folder := plainFolder(t)
	tests := filepath.Join(folder, "gotestsum")
	results := `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"p"}`
	script := "#!/bin/sh\nmkdir -p \"$(dirname \"$4\")\"\necho '" + results + "' >\"$4\"\n! [ \"$(basename \"$4\")\" = \"$FAILS.json\" ]\n"
	require.NoError(t, os.WriteFile(filepath.Join("..", tests), []byte(script), 0o755))
	for part, fails := range map[string]bool{"none": false, "packages": true, "uncached": true, "paths": true} {
		run := runMake(t, filepath.Join(folder, "results"), "GOTESTSUM="+tests, "test")
		run.Env = append(run.Env, "FAILS="+part)
		output, err := run.CombinedOutput()
		assert.Equal(t, fails, err != nil, "%s: %s", part, output)
		assert.Equal(t, fails, strings.Contains(string(output), "what failed:"), "%s: %s", part, output)
	}
}

// TestMakeNeverRunsTargetsInParallel has a target that would end after the next one.
func TestMakeNeverRunsTargetsInParallel(t *testing.T) {
	output, err := runMake(t, t.TempDir(), "-j2", "--eval", "slow: ; @sleep 0.2; echo slow", "--eval", "fast: ; @echo fast", "slow", "fast").CombinedOutput()
	require.NoError(t, err, "%s", output)
	assert.Equal(t, "slow\nfast\n", string(output))
}

// TestEachPackageIsTestedOnce has packages with names that end as those of packages with a part of their own.
func TestEachPackageIsTestedOnce(t *testing.T) {
	bin := t.TempDir()
	const names = "internal/hack pkg/cmd/cvo internal/test/docs hack cmd/cvo test/docs test/nodesim"
	list := "#!/bin/sh\nfor name in " + names + "; do echo github.com/cluster-version/cvo/$name; done\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte(list), 0o755))
	run := runMake(t, t.TempDir(), "GOFLAGS=", "--eval", "show: ; @echo $(CACHED)", "show")
	run.Env = append(run.Env, "PATH="+bin+":"+os.Getenv("PATH"))
	output, err := run.CombinedOutput()
	require.NoError(t, err, "%s", output)
	assert.Equal(t, "internal/hack pkg/cmd/cvo internal/test/docs test/nodesim\n", strings.ReplaceAll(string(output), "github.com/cluster-version/cvo/", ""))
}

// TestNoTestIsIgnored lists the files that are not compiled on Linux because of their name or a build constraint. Each stands for another
// system, or for the race detector.
func TestNoTestIsIgnored(t *testing.T) {
	list := exec.Command("go", "list", "-e", "-f", `{{range .IgnoredGoFiles}}{{$.ImportPath}}/{{.}}{{"\n"}}{{end}}`, "./...")
	list.Dir, list.Env = "..", append(os.Environ(), "GOOS=linux")
	output, err := list.Output()
	require.NoError(t, err)
	assert.Equal(t, []string{
		"github.com/cluster-version/cvo/pkg/cli/answer_test.go",
		"github.com/cluster-version/cvo/test/fixture/race.go",
		"github.com/cluster-version/cvo/test/integration/fault_disk_other_test.go",
	}, strings.Fields(string(output)))
}

// TestTargetsRunTheirParts finds an edit of the Makefile that takes a part out of a target.
func TestTargetsRunTheirParts(t *testing.T) {
	for target, wants := range map[string][]string{
		"verify":   {"hack/verify-generated.sh", "golangci-lint)\" fmt --diff  ||", "golangci-lint)\" run ./...", "go mod tidy -diff", "hack/verify-words.sh"},
		"check":    {"golangci-lint)\" fmt --diff", "go vet ./...", "-- -short -vet=off"},
		"test":     {"results/packages.json", "results/uncached.json", "results/paths.json", "results slowest"},
		"test-all": {"for ring in test race outer interop e2e macos;", "|| { result=failed failed=1; }", "the rings:"},
		"race":     {" -race ", "./pkg/engine/rollout "},
		"outer":    {" ./test/integration ./test/nodes ./test/image ./test/..."},
		"interop":  {" ./test/interop"},
		"macos":    {"GOOS=darwin go vet ./cmd/cvo "},
		"e2e":      {"CVO_E2E=1 ", " ./test/e2e"},
		"flakes":   {"PKG='' hack/flakes.sh '3'"},
	} {
		output, err := runMake(t, filepath.Join(t.TempDir(), "results"), "--dry-run", target).CombinedOutput()
		require.NoError(t, err, "%s", output)
		for _, want := range wants {
			assert.Contains(t, string(output), want, target)
		}
	}
	output, err := runMake(t, t.TempDir(), "PKG=./hack", "--dry-run", "flakes", "race").CombinedOutput()
	require.NoError(t, err, "%s", output)
	assert.Contains(t, string(output), "PKG='./hack' hack/flakes.sh")
	assert.Contains(t, string(output), "-timeout 20m ./hack")
	output, err = runMake(t, t.TempDir(), "PKG=./hack", "--dry-run", "check").CombinedOutput()
	require.NoError(t, err, "%s", output)
	assert.Contains(t, string(output), "golangci-lint)\" fmt --diff $(go list -f '.{{slice .Dir (len .Module.Dir)}}' ./hack) ")
}
