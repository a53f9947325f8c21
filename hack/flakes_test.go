package hack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
