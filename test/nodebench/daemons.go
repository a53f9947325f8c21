//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/kube/telemetry"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/daemon"
	"github.com/cluster-version/cvo/pkg/node/host"
	nodemachine "github.com/cluster-version/cvo/pkg/node/machine"
	"github.com/cluster-version/cvo/test/machine"
)

// Prefixes of the user agents of the stage's processes.
const (
	stageAgent      = "cvo-node"
	controllerAgent = stageAgent + "-controller"
	daemonAgent     = stageAgent + "-daemon"
)

// runDaemons runs the daemons of all nodes until ctx ends.
func (c *testCluster) runDaemons(ctx context.Context) error {
	log, err := os.CreateTemp(c.logs, "daemons-*.log")
	if err != nil {
		return err
	}
	defer log.Close()
	ctx = logr.NewContext(ctx, telemetry.NewLogger(log, 0))
	config := c.env.Config(daemonAgent + "/" + agent)
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range c.nodes {
		root := filepath.Join(c.hosts, name)
		if err := os.MkdirAll(root, 0o755); err != nil {
			return err
		}
		group.Go(func() error {
			if err := runHost(ctx, config, name, root, c.options.reboot); err != nil {
				return fmt.Errorf("daemon of %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// fatal fails for a played machine.
type fatal struct{}

func (fatal) Helper()                           {}
func (fatal) FailNow()                          {}
func (fatal) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// runHost plays the host of a node, with one daemon after each boot, until ctx ends.
func runHost(ctx context.Context, config *rest.Config, node, root string, reboot time.Duration) error {
	m := machine.Play(fatal{}, root)
	for ctx.Err() == nil {
		boot, end := context.WithCancel(ctx)
		m.During = func(call string) error {
			if call == "reboot" {
				time.AfterFunc(reboot, end)
			}
			return nil
		}
		err := runDaemon(boot, config, node, m)
		end()
		if err != nil {
			return err
		}
		m.Boot()
	}
	return nil
}

// runDaemon runs the daemon like the command cvo-node does.
func runDaemon(ctx context.Context, config *rest.Config, node string, m *machine.Machine) error {
	c, err := cluster.NewDaemonClient(config)
	if err != nil {
		return err
	}
	h, err := host.Open(m.Root, host.Options{})
	if err != nil {
		return err
	}
	defer h.Close()
	options := nodemachine.Options{Init: m, Guard: func(context.Context) ([]string, error) { return []string{"/usr/bin/cvo-node", "guard"}, nil }}
	return daemon.New(c, h, nodemachine.New(h, options), clock.RealClock{}, node, release).Run(ctx)
}
