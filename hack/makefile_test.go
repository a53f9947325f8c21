package hack

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGateRunsTheMainPaths compares the Makefile's list with the tests: `go test -run` ignores a name without a test.
func TestGateRunsTheMainPaths(t *testing.T) {
	for folder, variable := range map[string]string{"test/integration": "MAIN_PATHS", "test/nodes": "NODE_PATHS"} {
		files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
		require.NoError(t, err)
		var source []byte
		for _, file := range files {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			source = append(source, data...)
		}
		names := regexp.MustCompile(`Test\w+`).FindAllString(makeVariable(t, variable), -1)
		require.NotEmpty(t, names)
		for _, name := range names {
			assert.True(t, bytes.Contains(source, []byte("\nfunc "+name+"(t *testing.T)")), "%s has no %s", folder, name)
		}
	}
}

func makefile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	return string(text)
}

// makeVariable returns the value of a variable in the Makefile.
func makeVariable(t *testing.T, name string) string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^` + name + ` := (.*)$`).FindStringSubmatch(makefile(t))
	require.NotNil(t, line, name)
	return line[1]
}

// TestBuildersAreNotCached looks for packages whose tests build programs, or run scripts or installed programs. Go's test cache tracks none of
// them.
func TestBuildersAreNotCached(t *testing.T) {
	builds := regexp.MustCompile(`"build", "-|exec\.Command.*"build"|exec\.Command.*\.sh"|program\.Build\(|platform\.New\(|fixture\.(Promtool|RunPrometheus)\(`)
	uncached := regexp.MustCompile(`^(test/(` + makeVariable(t, "WHOLE") + `)|` + makeVariable(t, "BUILDERS") + `)$`)
	found := 0
	for _, folder := range []string{"charts", "cmd", "docs", "examples", "hack", "internal", "manifests", "pkg", "test"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil || !builds.Match(source) {
				return err
			}
			found++
			folder, err := filepath.Rel("..", filepath.Dir(path))
			assert.Regexp(t, uncached, filepath.ToSlash(folder), "add the package to BUILDERS in the Makefile, because %s builds a program, or runs a script or an installed program", path)
			return err
		}))
	}
	assert.Greater(t, found, 5)
}

// TestVerifyComparesBeforeItGenerates checks that nothing repairs an outdated file before `make verify` looks for it.
func TestVerifyComparesBeforeItGenerates(t *testing.T) {
	output, err := runMake(t, t.TempDir(), "--dry-run", "verify").CombinedOutput()
	require.NoError(t, err, "%s", output)
	assert.Equal(t, "hack/verify-generated.sh", regexp.MustCompile(`\S*generate\S*`).FindString(string(output)))
}

// TestTargetsThatReadResultsNeedCommands looks for recipes that run tests. Without flock, they would report that other tests run. The shell
// would take an unquoted pattern in TESTFLAGS for a command.
func TestTargetsThatReadResultsNeedCommands(t *testing.T) {
	found := 0
	for _, rule := range regexp.MustCompile(`(?m)^([a-z0-9-]+):(.*)\n((\t.*\n)+)`).FindAllStringSubmatch(makefile(t), -1) {
		if !strings.Contains(rule[3], "$(call gotest,") && !strings.Contains(rule[3], "hack/results") {
			continue
		}
		found++
		prerequisites, _, _ := strings.Cut(rule[2], "##")
		assert.Contains(t, strings.Fields(prerequisites), "commands", "%s", rule[1])
	}
	assert.Greater(t, found, 5)
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

// runMake returns a command that runs the real Makefile. It keeps the results in folder results, and builds no tools.
func runMake(t *testing.T, results string, args ...string) *exec.Cmd {
	t.Helper()
	run := exec.CommandContext(t.Context(), "make", append([]string{"--no-print-directory", "-o", "crds", "-o", "kube-tools", "RESULTS=" + results}, args...)...)
	run.Dir = ".."
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); !slices.Contains([]string{"MAKEFLAGS", "MAKEOVERRIDES", "ALL_RINGS", "TESTFLAGS", "PKG", "N"}, name) {
			run.Env = append(run.Env, variable) // the others are those of the make that runs this test
		}
	}
	return run
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
		"-exec=true": true, "-count=0": true, "-n": true, "--n=true": true,
	} {
		run := runMake(t, t.TempDir(), "--dry-run", "test")
		run.Env = append(run.Env, "GOFLAGS="+flags)
		output, err := run.CombinedOutput()
		assert.Equal(t, refused, err != nil, "%s: %s", flags, output)
		assert.Equal(t, refused, regexp.MustCompile(`selects tests: use TESTFLAGS|runs nothing: use make -n`).Match(output), "%s: %s", flags, output)
	}
}

// TestMakeRefusesToHideFailures has settings of the caller with which a failed recipe would pass, or none would run.
func TestMakeRefusesToHideFailures(t *testing.T) {
	script := filepath.Join(t.TempDir(), "env")
	require.NoError(t, os.WriteFile(script, []byte("exit 0\n"), 0o644))
	for variable, message := range map[string]string{
		"MAKEFLAGS=i": "without -i", "GNUMAKEFLAGS=-i": "without -i", "MAKEFLAGS=t": "without -t",
		"SHELLOPTS=noexec": "PKG=./none", "BASH_ENV=" + script: "PKG=./none", "MAKEFLAGS=--no-print-directory": "PKG=./none",
	} {
		run := runMake(t, t.TempDir(), "PKG=./none", "packages")
		run.Env = append(run.Env, variable)
		output, err := run.CombinedOutput()
		require.Error(t, err, "%s: %s", variable, output)
		assert.Contains(t, string(output), message, variable)
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
	}, strings.Fields(string(output)))
}

// TestTargetsRunTheirParts finds an edit of the Makefile that takes a part out of a target.
func TestTargetsRunTheirParts(t *testing.T) {
	for target, wants := range map[string][]string{
		"verify":   {"hack/verify-generated.sh", "golangci-lint)\" fmt --diff  ||", "golangci-lint)\" run ./...", "go mod tidy -diff", "hack/verify-words.sh"},
		"check":    {"golangci-lint)\" fmt --diff", "go vet ./...", "-- -short -vet=off"},
		"test":     {"results/packages.json", "results/uncached.json", "results/paths.json", "results slowest"},
		"test-all": {"for ring in check test race outer property interop e2e macos;", "|| { result=failed failed=1; }", "the rings:"},
		"race":     {" -race ", "./pkg/engine/rollout "},
		"outer":    {" ./test/integration ./test/nodes ./test/image ./test/..."},
		"property": {"results/property.json", "./test/property -args -property.seeds 500"},
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

	results := filepath.Join(t.TempDir(), "results")
	output, err = runMake(t, results, "--dry-run", "ALL_RINGS=1", "check", "test").CombinedOutput()
	require.NoError(t, err, "%s", output)
	assert.Contains(t, string(output), "results="+results+";", "test-all lists what failed in check")
	assert.NotContains(t, string(output), "rm -rf "+results)
}
