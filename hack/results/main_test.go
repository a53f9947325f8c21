package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFailedListsWhatDidNotPass runs the real go test on packages that pass, fail, hang and do not compile.
func TestFailedListsWhatDidNotPass(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles and runs tests")
	}
	module := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                 "module example.com/m\n",
		"pass/a_test.go":         "package a\nimport \"testing\"\nfunc TestPasses(t *testing.T) {}\nfunc TestSkips(t *testing.T) { t.Skip() }\n",
		"fail/a_test.go":         "package a\nimport \"testing\"\nfunc TestFails(t *testing.T) { t.Run(\"case\", func(t *testing.T) { t.Fail() }) }\nfunc TestPasses(t *testing.T) {}\n",
		"hang/a_test.go":         "package a\nimport \"testing\"\nfunc TestHangs(t *testing.T) { select {} }\n",
		"hang/b_test.go":         "package a\nimport \"time\"\nvar _ = time.AfterFunc(time.Hour, func() {})\n", // else Go reports a deadlock
		"uncompiled/a_test.go":   "package a\nfunc Test() { undefined() }\n",
		"outside/a_test.go":      "package a\nimport (\"os\"; \"testing\")\nfunc TestMain(m *testing.M) { m.Run(); os.Exit(1) }\nfunc TestPasses(t *testing.T) {}\n",
		"without/tests/tests.go": "package tests\n",
	} {
		path := filepath.Join(module, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	results := t.TempDir()
	for name, args := range map[string][]string{
		"hang":   {"-timeout", "1s", "./hang"},
		"others": {"./pass", "./fail", "./uncompiled", "./outside", "./without/..."},
	} {
		run := exec.CommandContext(t.Context(), "go", append([]string{"test", "-json"}, args...)...)
		run.Dir = module
		output, err := run.Output()
		require.ErrorAs(t, err, new(*exec.ExitError), "some tests fail")
		require.NoError(t, os.WriteFile(filepath.Join(results, name), output, 0o644))
	}
	killed := filepath.Join(results, "killed")
	require.NoError(t, os.WriteFile(killed, []byte(`{"Action":"run","Package":"example.com/m/pass","Test":"TestPasses"}`+"\n"+`{"Action":"ou`), 0o644))

	runs, err := read([]string{filepath.Join(results, "hang"), filepath.Join(results, "others"), killed})
	require.NoError(t, err)
	var list bytes.Buffer
	failed(&list, runs)
	assert.Equal(t, `example.com/m/fail TestFails
example.com/m/fail TestFails/case
example.com/m/hang TestHangs
example.com/m/outside `+`
example.com/m/pass TestPasses
example.com/m/uncompiled `+`
`, list.String())
}

func TestRanRequiresATest(t *testing.T) {
	const skippedTest = `{"Action":"skip","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"p"}`
	const passed = `{"Action":"pass","Package":"q","Test":"TestB"}` + "\n" + `{"Action":"pass","Package":"q"}`
	for _, tt := range []struct {
		name, results, want string
		fails, skipped      bool // errors without and with -skipped
	}{
		{"a test that passed", passed, "", false, false},
		{"two tests that passed", `{"Action":"pass","Package":"q","Test":"TestC"}` + "\n" + passed, "", false, false},
		{"a test that failed", `{"Action":"fail","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"fail","Package":"p"}`, "p failed", true, true},
		{"a failed package beside one that passed", `{"Action":"fail","Package":"p"}` + "\n" + passed, "p failed", true, true},
		{
			"a failed test in a package that passes", `{"Action":"fail","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"p"}` + "\n" +
				passed, "a test of p failed, and the package exits with 0", true, true,
		},
		{
			"a test that failed and then passed", `{"Action":"fail","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" +
				`{"Action":"pass","Package":"p"}`, "a test of p failed", true, true,
		},
		{"a benchmark", `{"Action":"run","Package":"q","Test":"BenchmarkA"}` + "\n" + passed, "", false, false},
		{"no test", `{"Action":"output","Package":"p","Output":"ok p 1s [no tests to run]"}` + "\n" + `{"Action":"pass","Package":"p"}`, "no test ran", true, true},
		{"a package without test files", `{"Action":"skip","Package":"p"}` + "\n" + passed, "", false, false},
		{"with -cover", `{"Action":"output","Package":"p","Output":"\tp\t\tcoverage: 0.0% of statements\n"}` + "\n" + `{"Action":"pass","Package":"p"}` + "\n" + passed, "", false, false},
		{"no test of a package that prints a text", `{"Action":"output","Package":"p","Output":"texttesting: warning: no tests to run\n"}` + "\n" + `{"Action":"pass","Package":"p"}` + "\n" + passed, "", false, false},
		{"a TestMain that runs no test", `{"Action":"pass","Package":"p"}` + "\n" + passed, "the tests of p did not run", true, true},
		{"a TestMain that prints a tab and runs no test", `{"Action":"output","Package":"p","Output":"\\tpanic\\n"}` + "\n" + `{"Action":"pass","Package":"p"}` + "\n" + passed, "the tests of p did not run", true, true},
		{"a test that ends the process", `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" + passed, "the tests of p did not end", true, true},
		{"a skipped test", skippedTest, "no test ran: all tests in results were skipped", true, false},
		{"a skipped test beside one that passed", skippedTest + "\n" + passed, "", false, false},
		{"a package that does not compile", `{"Action":"fail","Package":"p"}`, "p failed", true, true},
		{"a killed run", `{"Action":"run","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pa`, "the tests of p did not end", true, true},
		{"no results", "", "no test ran", true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parsed, err := parse(strings.NewReader(tt.results))
			require.NoError(t, err)
			for skipped, fails := range map[bool]bool{false: tt.fails, true: tt.skipped} {
				err = ran([]string{"results"}, []run{parsed}, skipped)
				assert.Equal(t, fails, err != nil, "%v", err)
				if err != nil {
					require.ErrorContains(t, err, tt.want)
				}
			}
		})
	}
}

// TestVanishedTestsAreListed has a package that ran none of its tests.
func TestVanishedTestsAreListed(t *testing.T) {
	parsed, err := parse(strings.NewReader(`{"Action":"pass","Package":"p"}` + "\n" + `{"Action":"pass","Package":"q","Test":"TestB"}` + "\n" + `{"Action":"pass","Package":"q"}`))
	require.NoError(t, err)
	var out strings.Builder
	failed(&out, []run{parsed})
	assert.Equal(t, "p \n", out.String())
}

func TestArgumentsSelectTheReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results")
	require.NoError(t, os.WriteFile(file, []byte(`{"Action":"skip","Package":"p","Test":"TestA"}`+"\n"+`{"Action":"pass","Package":"p"}`+"\n"+
		`{"Action":"fail","Package":"q","Test":"TestB","Elapsed":9}`+"\n"+`{"Action":"fail","Package":"q","Elapsed":9}`), 0o644))
	none, missing, passed := filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "missing"), filepath.Join(t.TempDir(), "passed")
	require.NoError(t, os.WriteFile(none, []byte(`{"Action":"output","Package":"r","Output":"ok r 1s [no tests to run]"}`+"\n"+`{"Action":"pass","Package":"r"}`), 0o644))
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o644))
	require.NoError(t, os.WriteFile(passed, []byte(`{"Action":"pass","Package":"p","Test":"TestA"}`+"\n"+`{"Action":"pass","Package":"p"}`), 0o644))
	onlySkipped := filepath.Join(t.TempDir(), "skipped")
	require.NoError(t, os.WriteFile(onlySkipped, []byte(`{"Action":"skip","Package":"p","Test":"TestA"}`+"\n"+`{"Action":"pass","Package":"p"}`), 0o644))
	const usage = "flag: help requested"
	for _, tt := range []struct{ args, output, err string }{
		{"", "", usage},
		{"run " + file, "", usage},
		{"ran " + file, "", "q failed"},
		{"ran " + onlySkipped, "", "no test ran: all tests in " + onlySkipped + " were skipped"},
		{"ran " + passed + " " + passed, "", ""},
		{"ran " + passed + " " + onlySkipped, "", "no test ran: all tests in " + onlySkipped + " were skipped"},
		{"ran " + passed + " " + none, "", ""}, // -run may select no test of a part
		{"ran " + none, "", "no test ran: PKG or TESTFLAGS selects none (PKG=./pkg/apply/... also selects the folders below)"},
		{"ran " + passed + " " + empty, "", "no test ran: " + empty + " is empty, perhaps because the runner was killed"},
		{"ran -skipped " + onlySkipped, "", ""},
		{"ran -skiped " + file, "", usage},
		{"failed " + onlySkipped + " " + file, "q TestB\n", ""},
		{"failed " + file + " " + missing, "", "open " + missing + ": no such file or directory"},
		{"failed -skipped " + file, "", usage},
		{"slowest " + file, "the slowest packages:\n  9 s  q\nthe slowest tests:\n  9 s  q TestB\n", ""},
	} {
		var out bytes.Buffer
		err := report(&out, strings.Fields(tt.args))
		assert.Equal(t, tt.err, errorText(err), tt.args)
		assert.Equal(t, tt.output, out.String(), tt.args)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestSlowestOmitsCachedResults has a package whose durations are those of an earlier run.
func TestSlowestOmitsCachedResults(t *testing.T) {
	parsed, err := parse(strings.NewReader(`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":9}
{"Action":"output","Package":"p","Output":"ok  \tp\t(cached)\n"}
{"Action":"pass","Package":"p","Elapsed":0.1}
{"Action":"pass","Package":"q","Test":"TestB","Elapsed":2}
{"Action":"output","Package":"q","Output":"ok  \tq\t2.1s\n"}
{"Action":"pass","Package":"q","Elapsed":2.1}
`))
	require.NoError(t, err)
	var out bytes.Buffer
	slowest(&out, []run{parsed})
	assert.Equal(t, "the slowest packages:\n  2 s  q\nthe slowest tests:\n  2 s  q TestB\n", out.String())
}

func TestSlowestListsFiveOfEach(t *testing.T) {
	var lines strings.Builder
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		seconds := strings.Index("bfaecd", name)
		for _, test := range []string{"", "TestA", "TestA/case"} {
			fmt.Fprintf(&lines, `{"Action":"pass","Package":"%s%s","Test":"%s","Elapsed":%d.6}`+"\n", module, name, test, seconds)
		}
	}
	parsed, err := parse(strings.NewReader(lines.String()))
	require.NoError(t, err)
	var out bytes.Buffer
	slowest(&out, []run{parsed})
	assert.Equal(t, `the slowest packages:
  6 s  d
  5 s  c
  4 s  e
  3 s  a
  2 s  f
the slowest tests:
  6 s  d TestA
  5 s  c TestA
  4 s  e TestA
  3 s  a TestA
  2 s  f TestA
`, out.String())
}
