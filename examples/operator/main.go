// Command operator contains every program of the example platform: the operator of a component, the pods that it manages,
// and the Job that saves objects before an update. The programs behave unless switches make them misbehave; see package
// switches.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/examples/operator/backup"
	"github.com/cluster-version/cvo/examples/operator/component"
	"github.com/cluster-version/cvo/examples/operator/pod"
	"github.com/cluster-version/cvo/examples/operator/report"
	"github.com/cluster-version/cvo/examples/operator/switches"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	handler := slog.NewJSONHandler(os.Stderr, nil)
	klog.SetSlogLogger(slog.New(handler))
	log := logr.FromSlogHandler(handler)
	ctrllog.SetLogger(log)
	if err := newCommand().ExecuteContext(logr.NewContext(ctx, log)); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

// program is the state shared by all commands.
type program struct {
	pod.Options
	kubeconfig string
}

func (p *program) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.Namespace, "namespace", "", "namespace that the program runs in (required)")
	f.StringVar(&p.Version, "version", os.Getenv(report.VersionVariable), "version of the program; default $"+report.VersionVariable)
	f.StringToStringVar(&p.Switches, "switch", nil, "KEY=VALUE of a switch, unless ConfigMap "+switches.ConfigMap+" overrides it (repeat for more)")
	f.StringVar(&p.kubeconfig, "kubeconfig", "", "kubeconfig file; default $KUBECONFIG, then the pod's service account")
	_ = cmd.MarkFlagRequired("namespace")
	p.Clock = clock.RealClock{}
}

func (p *program) config() (*rest.Config, error) {
	if p.Version == "" {
		return nil, fmt.Errorf("the version is missing: set $%s or --version", report.VersionVariable)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = p.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w", err)
	}
	config.UserAgent = "example-operator/" + p.Version
	return config, nil
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "operator",
		Short:         "Programs of the example platform",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newOperatorCommand(), newServeCommand(), newAgentCommand(), newBackupCommand())
	return root
}

func newOperatorCommand() *cobra.Command {
	var p program
	var o component.Options
	var leaderElection bool
	cmd := &cobra.Command{
		Use:     "operator --component NAME --namespace NAMESPACE [--operand KIND/NAME ...]",
		Short:   "Watch the operands of a component and report its ClusterOperator",
		Example: "  operator operator --component example-dns --namespace example-dns --operand deployment/example-dns --listen :8081",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := p.config()
			if err != nil {
				return err
			}
			if leaderElection {
				p.LeaderElection = o.Component + "-operator"
			}
			o.Options = p.Options
			return component.Run(cmd.Context(), config, o)
		},
	}
	p.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&p.Listen, "listen", ":8081", "address of the probes /healthz and /readyz; empty for none")
	f.StringVar(&o.Component, "component", "", "name of the ClusterOperator (required)")
	f.StringSliceVar(&o.Operands, "operand", nil, "KIND/NAME of a deployment, daemonset or statefulset to watch (repeat for more)")
	f.StringToStringVar(&o.Others, "report-version", nil, "additional NAME=VERSION to report once the operands are rolled out")
	f.BoolVar(&leaderElection, "leader-election", false, "elect the reporting replica of this Deployment with a Lease")
	_ = cmd.MarkFlagRequired("component")
	return cmd
}

func newServeCommand() *cobra.Command {
	var p program
	var address, folder string
	cmd := &cobra.Command{
		Use:   "serve --workload NAME --namespace NAMESPACE",
		Short: "Serve the files of a folder, and a page with the name of the server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.stay(cmd.Context(), manager.RunnableFunc(func(ctx context.Context) error {
				server := &http.Server{Addr: address, Handler: pages(p.Options, folder), ReadHeaderTimeout: 10 * time.Second}
				context.AfterFunc(ctx, func() {
					ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
					defer cancel()
					_ = server.Shutdown(ending)
				})
				if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
					return err
				}
				return nil
			}))
		},
	}
	p.bindWorkload(cmd)
	cmd.Flags().StringVar(&address, "address", ":8080", "listen address")
	cmd.Flags().StringVar(&folder, "config", "", "folder to serve under /config/; default none")
	return cmd
}

func newAgentCommand() *cobra.Command {
	var p program
	var folder string
	cmd := &cobra.Command{
		Use:   "agent --workload NAME --namespace NAMESPACE",
		Short: "Run on a node until stopped",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if folder != "" {
				if _, err := os.ReadDir(folder); err != nil {
					return fmt.Errorf("reading the configuration: %w", err)
				}
			}
			return p.stay(cmd.Context(), manager.RunnableFunc(func(context.Context) error { return nil }))
		},
	}
	p.bindWorkload(cmd)
	cmd.Flags().StringVar(&folder, "config", "", "folder with the agent's configuration; default none")
	return cmd
}

func newBackupCommand() *cobra.Command {
	var p program
	var o backup.Options
	cmd := &cobra.Command{
		Use:   "backup --to CONFIGMAP --namespace NAMESPACE",
		Short: "Save the platform's custom objects to a ConfigMap",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := p.config()
			if err != nil {
				return err
			}
			o.Namespace, o.Workload, o.Version, o.Switches, o.Clock = p.Namespace, p.Workload, p.Version, p.Switches, clock.RealClock{}
			return backup.Run(cmd.Context(), config, o)
		},
	}
	p.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&p.Workload, "workload", "", "name that prefixes its switches (required)")
	f.StringVar(&o.To, "to", "", "name of the ConfigMap (required)")
	f.StringSliceVar(&o.Kinds, "kind", []string{"Platform", "Network", "VolumePool"}, "kinds to save")
	_ = cmd.MarkFlagRequired("to")
	_ = cmd.MarkFlagRequired("workload")
	return cmd
}

func (p *program) bindWorkload(cmd *cobra.Command) {
	p.bind(cmd)
	cmd.Flags().StringVar(&p.Workload, "workload", "", "name of the Deployment, DaemonSet or StatefulSet, which prefixes its switches (required)")
	cmd.Flags().StringVar(&p.Listen, "listen", ":8081", "address of the probes /healthz and /readyz; empty for none")
	_ = cmd.MarkFlagRequired("workload")
}

// stay does the work until the program is stopped.
func (p *program) stay(ctx context.Context, work manager.Runnable) error {
	config, err := p.config()
	if err != nil {
		return err
	}
	_, m, err := pod.New(ctx, config, p.Options, manager.Options{})
	if err != nil {
		return err
	}
	if err := m.Add(work); err != nil {
		return err
	}
	return m.Start(ctx)
}

// pages serves the program's identity and its configuration.
func pages(o pod.Options, folder string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s %s\n", o.Workload, o.Version)
	})
	if folder != "" {
		mux.Handle("GET /config/", http.StripPrefix("/config/", http.FileServerFS(os.DirFS(filepath.Clean(folder)))))
	}
	return mux
}
