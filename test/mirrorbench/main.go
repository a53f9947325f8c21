// Command mirrorbench measures the mirroring of a release from one registry to another. The release has 190 component images with 8 layers;
// as in real releases, images share many of the layers. Each registry is a separate process with its content on disk. The baseline is a
// plain copy of the same blobs and manifests by a short program, with the same number of parallel transfers and no checks. Other tools can
// be added with --compare. In each run, every tool copies to a fresh target, in an order that changes from run to run. Figures are medians.
// Times are meaningful only relative to the plain copy.
//
// Afterwards, the mirror runs again on the target that it has filled, which measures the cost of an already complete mirror.
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
	"github.com/cluster-version/cvo/pkg/cli/command"
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

// bare is main without the exit code. The program also serves as each of the processes that it starts.
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
			cmd := cli.New(command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
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
	f.IntVar(&o.runs, "runs", 3, "number of timed runs")
	f.IntVar(&o.images, "images", 190, "number of component images in the release")
	f.IntVar(&o.shrink, "shrink", 1, "divide the size of every layer by this number")
	f.IntVar(&o.parallel, "parallel", 32, "number of parallel requests of the plain copy, and maximum of the mirror")
	f.DurationVar(&o.latency, "latency", 0, "delay of each registry response, to simulate a network")
	f.Func("compare", "another `command` to measure, in which {release}, {components} and {to} are replaced (may be repeated)", func(s string) error {
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
		return o, errors.New("-runs, -images, -shrink and -parallel must be at least 1")
	case o.output != "text" && o.output != "json":
		return o, fmt.Errorf("-o %q: use text or json", o.output)
	}
	return o, nil
}
