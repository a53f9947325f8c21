//go:build linux

package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/kube/telemetry"
	"github.com/cluster-version/cvo/pkg/node/guard"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/machine"
	"github.com/cluster-version/cvo/pkg/node/systemd"
)

// hostOptions are the flags of processes that change a host.
type hostOptions struct {
	root  string
	guard guard.Options
}

func (o *hostOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.root, "root", "/", "`folder` that is the root of the host's file system")
	f.StringVar(&o.guard.KubeletHealth, "kubelet-health", "http://127.0.0.1:10248/healthz", "`URL` of the kubelet's health port; empty for a host without one")
	f.DurationVar(&o.guard.BootDeadline, "boot-deadline", 10*time.Minute, "`time` after which a failing check undoes a change")
	f.DurationVar(&o.guard.ContactDeadline, "contact-deadline", 30*time.Minute, "`time` after which a change that the daemon has not confirmed is undone")
}

// machine returns the machine of the host that this process runs on. A root without /proc is only a folder.
func (o *hostOptions) machine(h *host.Host) (*machine.Machine, error) {
	boot, err := h.Boot()
	if err != nil || boot == "" {
		return machine.New(h, machine.Options{}), err
	}
	return machine.New(h, machine.Options{
		Init: o.systemd(),
		Root: filepath.Clean(o.root),
		Guard: func(ctx context.Context) ([]string, error) {
			program, err := install(h)
			return o.guardCommand(ctx, program), err
		},
	}), nil
}

// install copies this program to the host. That creates the stage's folder, so it must not happen before the first request.
func install(h *host.Host) (program string, err error) {
	if program, err = h.Install(); err != nil {
		return "", fmt.Errorf("copying this program to the host: %w", err)
	}
	return program, nil
}

// remote returns the machine of a host whose root is mounted into this container.
func (o *hostOptions) remote(h *host.Host) *machine.Remote {
	command := func() ([]string, error) {
		program, err := install(h)
		return o.command(program, "apply"), err
	}
	return machine.NewRemote(h, o.systemd(), command, rand.Text)
}

func (o *hostOptions) systemd() *systemd.Manager {
	return systemd.New(filepath.Join(o.root, systemd.Socket))
}

// command returns the command line of a process of the host with the same options.
func (o *hostOptions) command(program, name string) []string {
	return []string{
		program, name, "--kubelet-health=" + o.guard.KubeletHealth, "--boot-deadline=" + o.guard.BootDeadline.String(),
		"--contact-deadline=" + o.guard.ContactDeadline.String(),
	}
}

// guardCommand returns the command line of the guard. It does not check a kubelet that is broken before the change, which may repair it. A kubelet that
// restarts is not broken.
func (o *hostOptions) guardCommand(ctx context.Context, program string) []string {
	options := *o
	if health := o.guard.KubeletHealth; health != "" && guard.AwaitKubelet(ctx, health) != nil {
		options.guard.KubeletHealth = ""
	}
	return options.command(program, "guard")
}

func newApplyCmd(streams command.Streams) *cobra.Command {
	o := &hostOptions{}
	cmd := &cobra.Command{
		Use:   "apply REQUEST",
		Short: "Change the host for its daemon",
		Long: `Execute a request of the host's daemon. The daemon runs in a container that cannot write to the host, so it starts this command as a
service of the host. The service continues if the daemon ends. The result is a file in the folder of the node stage.`,
		Args: command.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := host.Open(o.root, host.Options{})
			if err != nil {
				return err
			}
			defer h.Close()
			m, err := o.machine(h)
			if err != nil {
				return err
			}
			return m.Serve(logr.NewContext(cmd.Context(), telemetry.NewLogger(streams.Err, 0)), args[0])
		},
	}
	o.add(cmd.Flags())
	return cmd
}

func newGuardCmd(streams command.Streams) *cobra.Command {
	o := &hostOptions{}
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "Undo a change of the host that fails",
		Long: `Guard the pending change of a host. The daemon enables this command as a service of the host before it changes the host, and disables
it when the change is confirmed. It needs neither the cluster nor the daemon. If a file of the config, a unit of the change or the
kubelet fails for --boot-deadline, if the daemon has not confirmed the change after --contact-deadline, or after three boots without a
confirmation, it restores the former config. Then it reboots, or restarts the same services as the change.`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := host.Open(o.root, host.Options{})
			if err != nil {
				return err
			}
			defer h.Close()
			options := machine.Options{Root: filepath.Clean(o.root)}
			if boot, err := h.Boot(); err != nil {
				return err
			} else if boot != "" {
				options.Init = o.systemd()
			}
			g := guard.New(h, machine.New(h, options), clock.RealClock{}, uptime, o.guard)
			return g.Run(logr.NewContext(cmd.Context(), telemetry.NewLogger(streams.Err, 0)))
		},
	}
	o.add(cmd.Flags())
	return cmd
}

// uptime returns the time of the boot's monotonic clock.
func uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // every Linux has this clock
	}
	return time.Duration(now.Nano())
}
