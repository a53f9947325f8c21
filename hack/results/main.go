// Command results reads what `go test -json` has written, one file for each run, and says what happened:
//
//	results ran [-skipped] FILE...   fails if a package failed, if it passed although a test failed or did not run, if no test ran, or if all
//	                                 tests in a file were skipped
//	results failed FILE...           lists the tests and packages that failed or did not end
//	results slowest FILE...          lists the slowest packages and tests
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

const (
	module = "github.com/cluster-version/cvo/"
	// most is the number of slow packages and tests that are listed, and least their duration in seconds.
	most, least = 5, 1.0
)

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: results ran [-skipped] FILE... | results failed FILE... | results slowest FILE...")
	}
	flag.Parse()
	switch err := report(os.Stdout, flag.Args()); {
	case errors.Is(err, flag.ErrHelp):
		flag.Usage()
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// report does what the arguments request. It returns flag.ErrHelp for invalid ones.
func report(out io.Writer, args []string) error {
	if len(args) == 0 {
		return flag.ErrHelp
	}
	files, skipped := args[1:], false
	if len(files) > 0 && args[0] == "ran" && files[0] == "-skipped" {
		files, skipped = files[1:], true
	}
	if slices.ContainsFunc(files, func(name string) bool { return strings.HasPrefix(name, "-") }) {
		return flag.ErrHelp // an unknown flag is no file
	}
	runs, err := read(files)
	if err != nil {
		return err
	}
	switch args[0] {
	case "ran":
		return ran(files, runs, skipped)
	case "failed":
		failed(out, runs)
	case "slowest":
		slowest(out, runs)
	default:
		return flag.ErrHelp
	}
	return nil
}

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

func (e event) ended() bool { return e.Action == "pass" || e.Action == "fail" || e.Action == "skip" }

// pack is what a run reports of one package: the last action of the package, "" if it has not ended, and that of each test.
type pack struct {
	action  string
	elapsed float64
	tests   map[string]event
	// isCached reports whether the results come from Go's cache, with the durations of an earlier run.
	isCached bool
	// isEmpty reports whether the package says why it has no results: -run selects none of its tests, or it has none and -cover is set.
	isEmpty bool
}

// run has the packages of one run by their import paths.
type run map[string]*pack

// covered matches the line of a package without tests under -cover.
var covered = regexp.MustCompile(`^\t.*coverage: `)

func read(files []string) (runs []run, err error) {
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		next, err := parse(file)
		if err = errors.Join(err, file.Close()); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		runs = append(runs, next)
	}
	return runs, nil
}

// parse omits lines that are no events: a killed run ends with a part of one.
func parse(in io.Reader) (run, error) {
	packages := run{}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && e.Package != "" {
			packages.add(e)
		}
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (r run) add(e event) {
	p := r[e.Package]
	if p == nil {
		p = &pack{tests: map[string]event{}}
		r[e.Package] = p
	}
	p.isEmpty = p.isEmpty || strings.Contains(e.Output, "no tests to run") || covered.MatchString(e.Output)
	p.isCached = p.isCached || e.Test == "" && strings.HasSuffix(e.Output, "\t(cached)\n")
	switch {
	case e.Test == "" && e.ended():
		p.action, p.elapsed = e.Action, e.Elapsed
	case strings.HasPrefix(e.Test, "Benchmark") && e.Action != "fail": // it has no event for its end
	case e.Test != "" && (e.ended() || p.tests[e.Test].Action == "") && p.tests[e.Test].Action != "fail": // with -count, a test ends again
		p.tests[e.Test] = e
	}
}

// failures returns the names of the tests that failed or did not end, sorted.
func (p *pack) failures() (names []string) {
	for name, last := range p.tests {
		if last.Action != "pass" && last.Action != "skip" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// ranNone reports whether the package passed without running any of its tests.
func (p *pack) ranNone() bool { return p.action == "pass" && len(p.tests) == 0 && !p.isEmpty }

// ran takes the names of the files and what is in each. It returns an error if a package failed, if no test passed or failed, or if all tests
// in a file were skipped. With skipped, a skipped test suffices. It also returns an error for a package with failed or missing tests whose
// process exited with 0.
func ran(files []string, runs []run, skipped bool) error {
	total := 0
	for i, packages := range runs {
		if len(packages) == 0 {
			return fmt.Errorf("no test ran: %s is empty, perhaps because the runner was killed", files[i])
		}
		tests, skips := 0, 0
		for _, name := range slices.Sorted(maps.Keys(packages)) {
			p := packages[name]
			switch {
			case p.action == "fail":
				return fmt.Errorf("%s failed", name)
			case p.action == "pass" && len(p.failures()) > 0:
				return fmt.Errorf("a test of %s failed, and the package exits with 0: its TestMain must exit with the result of m.Run", name)
			case p.action == "":
				return fmt.Errorf("the tests of %s did not end: one of them has ended the process", name)
			case p.ranNone():
				return fmt.Errorf("the tests of %s did not run: its TestMain does not call m.Run, or TESTFLAGS selects none", name)
			}
			for _, test := range p.tests {
				if test.Action == "skip" && !skipped {
					skips++
				} else {
					tests++
				}
			}
		}
		if skips > 0 && tests == 0 {
			return fmt.Errorf("no test ran: all tests in %s were skipped", files[i])
		}
		total += tests
	}
	if total == 0 {
		return errors.New("no test ran: PKG or TESTFLAGS selects none (PKG=./pkg/apply/... also selects the folders below)")
	}
	return nil
}

// failed lists the tests that failed or did not end. Of a package that failed without one, for example because it did not compile, and of one
// that ran none of its tests, it lists the package alone.
func failed(out io.Writer, runs []run) {
	var lines []string
	for _, packages := range runs {
		for name, p := range packages {
			if p.action != "" && p.action != "fail" && len(p.failures()) == 0 && !p.ranNone() {
				continue
			}
			for _, test := range p.failures() {
				lines = append(lines, name+" "+test)
			}
			if len(p.failures()) == 0 {
				lines = append(lines, name+" ")
			}
		}
	}
	slices.Sort(lines)
	for _, line := range slices.Compact(lines) {
		fmt.Fprintln(out, line)
	}
}

// slowest lists the packages and the tests, without subtests, that took the longest in these runs.
func slowest(out io.Writer, runs []run) {
	var packages, tests []event
	for _, r := range runs {
		for name, p := range r {
			if p.isCached {
				continue
			}
			packages = append(packages, event{Package: name, Elapsed: p.elapsed})
			for test, last := range p.tests {
				if !strings.Contains(test, "/") {
					tests = append(tests, event{Package: name, Test: test, Elapsed: last.Elapsed})
				}
			}
		}
	}
	list(out, "the slowest packages:", packages)
	list(out, "the slowest tests:", tests)
}

func list(out io.Writer, heading string, events []event) {
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	for i, e := range events[:min(most, len(events))] {
		if e.Elapsed <= least {
			return
		}
		if i == 0 {
			fmt.Fprintln(out, heading)
		}
		fmt.Fprintf(out, "  %.0f s  %s\n", e.Elapsed, strings.TrimSpace(strings.TrimPrefix(e.Package, module)+" "+e.Test))
	}
}
