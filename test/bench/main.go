// Command bench measures an install, an update, a restart, an idle period and the repair of drift. It runs the built operator as a process
// against its own control planes. For comparison, a plain loader applies the same objects with server-side apply. With --scale it also
// installs a synthetic release with many objects, and a release on a cluster with many foreign objects.
//
// The first run keeps an audit log and counts requests; the timed runs keep none. In each timed run, the plain loader and every binary run
// on a fresh control plane. Their order changes from run to run, so that a machine that becomes slower or faster favors none. Figures are
// medians. Compare times only with the loader's time in the same run; the table has that ratio.
//
// The releases are 4.22.9 and 4.23.0 in the folder $CVO_TESTDATA, or those of examples/platform if it is not set.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

type options struct {
	runs    int
	idle    time.Duration
	delay   time.Duration
	audit   bool
	binary  string
	compare string
	output  string
	history string
	plot    string
	keep    string
	profile time.Duration

	drift     int
	driftWait time.Duration
	seed      uint64
	scale     bool
	objects   int
	foreign   int
}

func main() {
	ctrl.SetLogger(logr.Discard()) // otherwise the control plane's client warns
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bare(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// bare is main without the process.
func bare(ctx context.Context) error {
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.plot != "" {
		return plot(o.history, o.plot)
	}
	return run(ctx, o, os.Stdout, os.Stderr)
}

func parseFlags(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&o.runs, "runs", 1, "timed runs; 0 only counts requests")
	f.DurationVar(&o.idle, "idle", time.Minute, "how long to watch the idle operator in every run; 0 skips this")
	f.DurationVar(&o.delay, "delay", 0, "how long each of the platform's operators takes to report a new version")
	f.BoolVar(&o.audit, "audit", true, "count requests in an additional first run")
	f.StringVar(&o.binary, "cvo", "", "cvo `binary` to measure; default: built from this module")
	f.StringVar(&o.compare, "compare", "", "another cvo `binary` to compare, measured alternately with the first")
	f.StringVar(&o.output, "o", "text", "`format` on standard output: text or json")
	f.StringVar(&o.history, "history", "bench-history.jsonl", "`file` to which a JSON line with all figures is appended; empty for none")
	f.StringVar(&o.plot, "plot", "", "draw --history into this SVG `file` without measuring")
	f.IntVar(&o.drift, "drift", 200, "number of hostile edits and deletions on the idle cluster in every run")
	f.DurationVar(&o.driftWait, "drift-wait", 10*time.Second, "how long to wait for each repair")
	f.Uint64Var(&o.seed, "seed", 1, "`seed` of the random edits")
	f.BoolVar(&o.scale, "scale", false, "the same as --objects 10000 --foreign 50000")
	f.IntVar(&o.objects, "objects", 0, "also install a synthetic release with this many objects; 0 skips this")
	f.IntVar(&o.foreign, "foreign", 0, "also install on a cluster with this many foreign ConfigMaps and Secrets; 0 skips this")
	f.StringVar(&o.keep, "logs", "", "`folder` for the logs of all processes")
	f.DurationVar(&o.profile, "profile", 0, "how long to profile kube-apiserver from the start of an install and an update, into --logs; 0 skips this")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.scale {
		o.objects, o.foreign = cmp.Or(o.objects, defaultObjects), cmp.Or(o.foreign, defaultForeign)
	}
	switch {
	case o.plot != "" && o.history == "":
		return o, errors.New("--plot needs a history: set --history")
	case o.profile > 0 && o.keep == "":
		return o, errors.New("--profile needs a folder: set --logs")
	case o.drift < 0 || o.objects < 0 || o.foreign < 0:
		return o, errors.New("the numbers of edits and objects must not be negative")
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: bench takes only flags", f.Arg(0))
	case o.output != "text" && o.output != "json":
		return o, fmt.Errorf("-o %q: use text or json", o.output)
	case o.runs < 0 || o.runs == 0 && !o.audit:
		return o, errors.New("nothing to do: set --runs or --audit")
	}
	return o, nil
}

func run(ctx context.Context, o options, out, progress io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "cvo-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{options: o, dir: dir, logs: dir, progress: progress}
	if o.keep != "" {
		if b.logs, err = filepath.Abs(o.keep); err != nil {
			return err
		}
		if err := os.MkdirAll(b.logs, 0o755); err != nil {
			return err
		}
	}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer b.registry.Close()
	report, err := b.measure(ctx)
	if err != nil {
		return err
	}
	if o.history != "" {
		if err := report.appendTo(o.history); err != nil {
			return err
		}
	}
	if o.output == "json" {
		return report.writeJSON(out)
	}
	return report.writeText(out)
}

// measure does the counting run and the timed runs.
func (b *bench) measure(ctx context.Context) (*Report, error) {
	report := &Report{
		Time: time.Now().UTC().Truncate(time.Second), From: b.from.summary(), To: b.to.summary(),
		Delay: b.options.delay.String(), CPUs: runtime.NumCPU(), Machine: machine(), Revision: revision(ctx),
	}
	for _, sc := range b.scenarios {
		if err := b.count(ctx, sc, report); err != nil {
			return nil, err
		}
		if err := b.time(ctx, sc, report); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// count does the counting run of the two releases.
func (b *bench) count(ctx context.Context, sc scenario, report *Report) error {
	if !b.options.audit || sc.name != "" {
		return nil // scenarios of scale measure only memory and time
	}
	for _, s := range b.binaries() {
		b.say("%scounting the requests of %s", sc.prefix(), s.name)
		m, err := b.operate(ctx, s, sc, true)
		if err != nil {
			return fmt.Errorf("%scounting the requests of %s: %w", sc.prefix(), s.name, err)
		}
		report.Counted = append(report.Counted, m)
	}
	return nil
}

// time does the timed runs of a scenario.
func (b *bench) time(ctx context.Context, sc scenario, report *Report) error {
	subjects := b.binaries()
	if sc.foreign == 0 { // the loader does not read foreign objects
		subjects = append([]subject{{name: loaderName}}, subjects...)
	}
	for n := range b.options.runs {
		for i := range subjects {
			s := subjects[(i+n)%len(subjects)]
			b.say("%srun %d of %d: %s", sc.prefix(), n+1, b.options.runs, s.name)
			m, err := b.one(ctx, s, sc)
			if err != nil {
				return fmt.Errorf("%srun %d of %s: %w", sc.prefix(), n+1, s.name, err)
			}
			m.Run = n + 1
			report.Timed = append(report.Timed, m)
		}
	}
	return nil
}

func (b *bench) one(ctx context.Context, s subject, sc scenario) (Measurement, error) {
	if s.name == loaderName {
		return b.load(ctx, sc)
	}
	return b.operate(ctx, s, sc, false)
}

// subject is the plain loader or a binary.
type subject struct{ name, path string }

func (b *bench) binaries() []subject {
	list := []subject{{name: "cvo", path: b.cvo}}
	if b.options.compare != "" {
		list = append(list, subject{name: strings.TrimSuffix(filepath.Base(b.options.compare), ".exe") + " (compared)", path: b.options.compare})
	}
	return list
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, format+"\n", args...)
}
