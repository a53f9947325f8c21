package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/cluster-version/cvo/test/e2e/cluster"
	"github.com/cluster-version/cvo/test/e2e/registry"
)

// shared is what all tests of this package use; each has a namespace and repositories of its own.
var shared struct {
	*cluster.Cluster
	registry *registry.Registry
}

func TestMain(m *testing.M) {
	if os.Getenv("CVO_E2E") != "1" {
		fmt.Println("tests on a real cluster are run by `make e2e`, which needs Docker")
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, m)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	if os.Getenv("CVO_E2E_ATTACH") == "1" {
		if shared.Cluster, err = cluster.Attach(ctx, ""); err != nil {
			return 1, err
		}
		if shared.registry, err = registry.Attach(ctx, registry.Options{Name: shared.Name + "-registry"}); err != nil {
			return 1, err
		}
		return m.Run(), nil
	}
	began := time.Now()
	if shared.Cluster, err = cluster.Create(ctx, cluster.Options{Progress: os.Stdout}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx))) }()
	if shared.registry, err = registry.Start(ctx, registry.Options{Name: shared.Name + "-registry"}); err != nil {
		return 1, err
	}
	if err := shared.Trust(ctx, shared.registry.Host, shared.registry.CA); err != nil {
		return 1, err
	}
	fmt.Printf("from nothing to a cluster and a registry in %s\n", time.Since(began).Round(time.Second))
	return m.Run(), nil
}

// remove deletes everything, unless somebody wants to look at it.
func remove(ctx context.Context) error {
	if os.Getenv("CVO_E2E_KEEP") == "1" {
		fmt.Printf("kept: KUBECONFIG=%s, %s; `make e2e` replaces them\n", shared.Kubeconfig, shared.Name)
		return nil
	}
	err := shared.Delete(ctx)
	if shared.registry != nil {
		err = errors.Join(err, shared.registry.Stop(ctx))
	}
	return err
}
