//go:build linux

// Command nodebench measures the node stage. It runs a control plane with etcd, kube-apiserver, kube-controller-manager and kube-scheduler. kwok
// plays the kubelets: it sends the heartbeats of nodes, starts pods and ends them. The controller of the stage is a process of its own. The
// daemons of all nodes run in this process, each with a folder as its host. Every pod belongs to a ReplicaSet with a PodDisruptionBudget.
//
// First the stage is idle. Then a MachineConfig reaches all nodes that requires neither a drain nor a reboot, then one that requires both. The
// audit log has the requests. A watch of nodes has the times of their states. A watch of pods finds violated budgets.
//
// All of this happens on a small cluster and on a large one, because the number of requests for a node must not depend on the number of nodes. The
// program fails if a figure misses its budget.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cluster-version/cvo/test/e2e/program"
)

type options struct {
	nodes, pods    int
	small          int
	replicas       int
	allowed        int
	maxUnavailable string

	idle        time.Duration
	startup     time.Duration
	termination time.Duration
	reboot      time.Duration

	binary string
	hosts  string
	output string
	keep   string
}

func main() {
	ctrl.SetLogger(logr.Discard()) // otherwise the control plane's client warns
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bare(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// bare is main without the exit code.
func bare(ctx context.Context, args []string) error {
	o, err := parseFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	report, err := run(ctx, o, os.Stderr)
	if report == nil || err != nil && len(report.Measurements) == 0 {
		return err
	}
	write := report.writeText
	if o.output == "json" {
		write = report.writeJSON
	}
	return errors.Join(write(os.Stdout), report.err(), err)
}

func parseFlags(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("nodebench", flag.ContinueOnError)
	f.IntVar(&o.nodes, "nodes", 500, "nodes of the large cluster")
	f.IntVar(&o.pods, "pods", 10_000, "pods of the large cluster; the small one has as many for each node")
	f.IntVar(&o.small, "small", 50, "nodes of the small cluster; 0 measures only the large one")
	f.IntVar(&o.replicas, "replicas", 20, "pods of each ReplicaSet")
	f.IntVar(&o.allowed, "allowed", 2, "pods of a ReplicaSet that its PodDisruptionBudget allows to be unavailable")
	f.StringVar(&o.maxUnavailable, "max-unavailable", "10%", "the pool's maxUnavailable: a `number` of nodes or a percentage")
	f.DurationVar(&o.idle, "idle", 30*time.Second, "how long to watch the idle stage")
	f.DurationVar(&o.startup, "startup", time.Second, "time from the schedule of a pod until it is ready")
	f.DurationVar(&o.termination, "termination", time.Second, "time from the eviction of a pod until it is gone")
	f.DurationVar(&o.reboot, "reboot", time.Second, "time from the request of a reboot until the node's daemon starts again")
	f.StringVar(&o.binary, "cvo-node", "", "cvo-node `binary` to measure; default: built from this module")
	f.StringVar(&o.hosts, "hosts", os.TempDir(), "`folder` for the hosts of nodes, such as /dev/shm: real hosts do not share a disk with each other and with etcd")
	f.StringVar(&o.output, "o", "text", "`format` on standard output: text or json")
	f.StringVar(&o.keep, "logs", "", "`folder` for the logs of all processes and the audit logs")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: nodebench takes only flags", f.Arg(0))
	case o.output != "text" && o.output != "json":
		return o, fmt.Errorf("-o %q: use text or json", o.output)
	case o.nodes < 1 || o.replicas < 1 || o.allowed < 1 || o.small < 0:
		return o, errors.New("--nodes, --replicas and --allowed must be at least 1, and --small not negative")
	case o.pods < o.replicas:
		return o, fmt.Errorf("--pods is %d: set at least the %d of one ReplicaSet", o.pods, o.replicas)
	}
	return o, nil
}

// bench is what the measurements of all clusters share.
type bench struct {
	options  options
	cvoNode  string
	logs     string
	progress io.Writer
}

// run measures all clusters. After an error, the report has those that are complete.
func run(ctx context.Context, o options, progress io.Writer) (report *Report, err error) {
	dir, err := os.MkdirTemp("", "cvo-nodebench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{options: o, cvoNode: o.binary, logs: dir, progress: progress}
	if o.keep != "" {
		if b.logs, err = filepath.Abs(o.keep); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(b.logs, 0o755); err != nil {
			return nil, err
		}
	}
	if b.cvoNode == "" {
		b.say("building cvo-node")
		if b.cvoNode, err = program.Build(ctx, dir, "cmd/cvo-node", "-ldflags=-s -w"); err != nil {
			return nil, err
		}
	}
	report = &Report{Time: time.Now().UTC().Truncate(time.Second)}
	sizes := []int{o.nodes}
	if o.small > 0 {
		sizes = []int{o.small, o.nodes}
	}
	hosts, err := os.MkdirTemp(o.hosts, "cvo-nodebench-hosts-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(hosts)) }()
	for _, nodes := range sizes {
		folder := strconv.Itoa(nodes)
		m, err := b.measure(ctx, nodes, filepath.Join(dir, folder), filepath.Join(hosts, folder))
		if err != nil {
			return report, fmt.Errorf("%d nodes: %w", nodes, err)
		}
		report.add(m)
	}
	return report, nil
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, format+"\n", args...)
}
