// Package operator wires the version operator: clients, caches, leader election, the background runner, the endpoint for
// views and metrics, and the stages that the ClusterVersion reconciler strings together. It contains no rule of its own
// about releases or objects.
package operator

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Run works until ctx ends, and returns nil then. It needs the CRDs of ClusterVersion and ClusterOperator.
func Run(ctx context.Context, options Options) error {
	options.setDefaults()
	if err := options.check(); err != nil {
		return err
	}
	ctx = logr.NewContext(ctx, options.Log)
	ask, err := askServer(options.Config)
	if err != nil {
		return err
	}
	if err := awaitServer(ctx, clock.RealClock{}, ask); err != nil {
		return err
	}
	end, err := newEndpoint(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = end.close() }()
	p, err := findPost(ctx, options.Config, options)
	if err != nil {
		return err
	}
	mgr, err := newManager(ctx, options, end, p)
	if err != nil {
		return err
	}
	if err := checkServed(mgr); err != nil {
		return err
	}
	background, stop := context.WithCancel(ctx)
	defer stop()
	run := newRunner(background)
	defer run.Wait()
	defer stop()
	set := &setup{manager: mgr, runner: run, options: options, endpoint: end, post: p}
	if err := set.run(ctx); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the operator: %w", err)
	}
	return nil
}

// SetLogger sends what controller-runtime logs outside of any context to the same place.
func SetLogger(log logr.Logger) { ctrl.SetLogger(log) }
