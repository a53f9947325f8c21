// Command mirrorbench measures what mirroring a release costs: 190 component images of 8 layers, many of them shared as
// in real releases, go from one registry to another, each a process of its own with its content on the disk. Beside it
// stands a plain copy of the same blobs and manifests, by a program of a page that reads and writes as many at a time and
// checks nothing; other tools can be added by --compare. In each run everybody takes a turn on a fresh target, in an
// order that changes from run to run. Figures are medians; times only mean something beside those of the plain copy.
//
// Afterwards the mirror is run again on the target that it has filled, which tells what a finished mirror costs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/cluster-version/cvo/pkg/cli"
)

type options struct {
	runs     int
	images   int
	shrink   int
	parallel int
	latency  time.Duration
	compare  []string
	output   string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bare(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// bare is main without the process around it. The program is also each of the processes that it starts.
func bare(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "registry":
			return serveRegistry(ctx, args[1:])
		case "fill":
			return fill(ctx, args[1:])
		case "plain":
			return plainCopy(ctx, args[1:])
		case "cvo":
			cmd := cli.New(cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
			cmd.SetArgs(args[1:])
			return cmd.ExecuteContext(ctx)
		}
	}
	o, err := parseFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	report, err := measure(ctx, o)
	if err != nil {
		return err
	}
	if o.output == "json" {
		return json.NewEncoder(os.Stdout).Encode(report)
	}
	return report.print(os.Stdout)
}

func parseFlags(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("mirrorbench", flag.ContinueOnError)
	f.IntVar(&o.runs, "runs", 3, "timed runs")
	f.IntVar(&o.images, "images", 190, "component images of the release")
	f.IntVar(&o.shrink, "shrink", 1, "divide the size of every layer by this")
	f.IntVar(&o.parallel, "parallel", 32, "how many requests the plain copy has under way, and the mirror at most")
	f.DurationVar(&o.latency, "latency", 0, "how long each answer of a registry is held back, as a network would")
	f.Func("compare", "another `command` to measure: its words with {release}, {components} and {to} replaced (repeat for more)", func(s string) error {
		o.compare = append(o.compare, s)
		return nil
	})
	f.StringVar(&o.output, "o", "text", "`format` on standard output: text or json")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %s", strings.Join(f.Args(), " "))
	case o.runs < 1 || o.images < 1 || o.shrink < 1 || o.parallel < 1:
		return o, errors.New("-runs, -images, -shrink and -parallel start at 1")
	case o.output != "text" && o.output != "json":
		return o, fmt.Errorf("-o %q is not known: use text or json", o.output)
	}
	return o, nil
}
