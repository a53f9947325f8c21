// Command operators plays the operators of a platform against an API server, as described in package actor: it reports workloads as done
// and moves ClusterOperators to the versions of their Deployments. It is a separate program, so that it shares nothing with the version
// operator that a test watches.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/cluster-version/cvo/test/operators/actor"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

func newCommand() *cobra.Command {
	var (
		o          actor.Options
		kubeconfig string
		flaps      []string
		slow       map[string]string
		verbose    bool
	)
	cmd := &cobra.Command{
		Use:           "operators",
		Short:         "Play the operators of a platform: report workloads as done and move ClusterOperators to new versions",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Flap, err = actor.ParseFlaps(flaps); err != nil {
				return err
			}
			if o.Slow, err = parseSlow(slow); err != nil {
				return err
			}
			rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
			if kubeconfig == "" {
				rules = clientcmd.NewDefaultClientConfigLoadingRules()
			}
			config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
			if err != nil {
				return fmt.Errorf("loading the kubeconfig: %w", err)
			}
			return actor.Run(logContext(cmd.Context(), verbose), config, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG)")
	f.DurationVar(&o.Delay, "delay", 0, "time between an operator's new Deployment and its report of the new version")
	f.StringToStringVar(&slow, "slow", nil, "COMPONENT=DURATION: separate delay for a ClusterOperator")
	f.Float64Var(&o.Jitter, "jitter", 0, "spread delays by this fraction, from 0 to 1")
	f.Int64Var(&o.Seed, "seed", 0, "seed of the jitter")
	f.DurationVar(&o.WorkloadDelay, "workload-delay", 0, "how long a workload takes to complete")
	f.StringSliceVar(&o.Fail, "fail", nil, "COMPONENT[@VERSION]: ClusterOperator that reports a failure instead of any (or this) new version")
	f.StringSliceVar(&flaps, "flap", nil, "COMPONENT[=N]: ClusterOperator that loses Available N times before it stays available")
	f.DurationVar(&o.FlapEvery, "flap-every", 200*time.Millisecond, "time between two changes of a flapping ClusterOperator")
	f.StringSliceVar(&o.Follow, "follow", nil, "COMPONENT: ClusterOperator without a workload, which reports the ClusterVersion's desired version")
	f.StringSliceVar(&o.Ignore, "ignore", nil, "COMPONENT, or NAMESPACE/NAME of a workload, to ignore")
	f.BoolVarP(&verbose, "verbose", "v", false, "log every report")
	return cmd
}

func parseSlow(args map[string]string) (map[string]time.Duration, error) {
	slow := map[string]time.Duration{}
	for name, text := range args {
		delay, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("slow %s: %w", name, err)
		}
		slow[name] = delay
	}
	return slow, nil
}

// logContext adds a logger to the context and sends client-go's messages to it too.
func logContext(ctx context.Context, verbose bool) context.Context {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	handler := slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})
	klog.SetSlogLogger(slog.New(handler))
	return logr.NewContext(ctx, logr.FromSlogHandler(handler))
}
