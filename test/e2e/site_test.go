package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/test/e2e/cluster"
	"github.com/cluster-version/cvo/test/e2e/docker"
	"github.com/cluster-version/cvo/test/e2e/platform"
	"github.com/cluster-version/cvo/test/e2e/registry"
)

// site is an environment for consecutive tests: a cluster, a registry beside it, and the tools to create releases.
type site struct {
	*cluster.Cluster
	*platform.Platform
	registry *registry.Registry
	// pullSecret is a file with the registry's password.
	pullSecret string
	// edits are applied to the manifests of all releases.
	edits []platform.Change
	// flags are the flags of `cvo install` that the cluster needs.
	flags []string
	// releases are the pullspecs by version.
	releases map[string]string
}

// siteOptions are the special properties of a site. The zero value is an ordinary site.
type siteOptions struct {
	// suffix distinguishes the cluster's name from those of other sites.
	suffix string
	// workers is the number of nodes besides the control plane; default 2.
	workers int
	// ownNetwork leaves the pod network to the release.
	ownNetwork bool
	// ownAddresses makes nodes keep their addresses when they reboot, see cluster.Options.Network.
	ownAddresses bool
	// components are the components of the releases; default are all of the example platform.
	components []string
}

// Suffixes of all sites.
const (
	platformSite = ""
	faultSite    = "-fault"
	networkSite  = "-network"
	nodesSite    = "-nodes"
)

// cluster returns the options of a site's cluster.
func (o siteOptions) cluster() cluster.Options {
	name := cluster.DefaultName() + o.suffix
	options := cluster.Options{Name: name, Dir: filepath.Join("../../bin/e2e", name), Workers: o.workers, NoNetwork: o.ownNetwork}
	if o.ownAddresses {
		options.Network = name
	}
	return options
}

// newSite creates everything that the tests need, or uses what CVO_E2E_KEEP has left, and removes it after the test.
func newSite(t *testing.T, o siteOptions) *site {
	t.Helper()
	began := time.Now()
	s := &site{releases: map[string]string{}}
	options := o.cluster()
	options.Progress = progress{t, began}
	if attached() {
		s.attach(t, options)
	} else {
		t.Cleanup(func() { require.NoError(t, remove(context.WithoutCancel(t.Context()), options)) })
		s.create(t, options)
	}
	if len(o.components) > 0 {
		s.edits = append(s.edits, platform.Only(o.components...))
	}
	if o.ownNetwork {
		manifest, err := s.Network(t.Context())
		require.NoError(t, err)
		s.edits = append(s.edits, platform.With("example-network", "0000_05_example-network_00_pods.yaml", included(manifest)))
		s.flags = []string{"--bring-your-own-network"}
	}
	t.Logf("created the cluster %s, a registry, and the images of the operator and the components in %s", options.Name, since(began))
	return s
}

// create creates the cluster and, in parallel, everything that runs in it.
func (s *site) create(t *testing.T, o cluster.Options) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	network := make(chan struct{})
	group.Go(func() (err error) {
		s.Cluster, err = cluster.Create(ctx, o)
		return err
	})
	group.Go(func() error {
		defer close(network)
		return docker.AwaitNetwork(ctx, cmp.Or(o.Network, registry.DefaultNetwork)) // kind creates this network
	})
	group.Go(func() (err error) {
		<-network
		if s.registry, err = registry.Start(ctx, registry.Options{Name: registryOf(o), Network: o.Network}); err != nil {
			return err
		}
		return s.prepare(ctx, o.Dir)
	})
	require.NoError(t, group.Wait())
	require.NoError(t, s.Cluster.Trust(t.Context(), s.registry.Host, s.registry.CA))
}

func (s *site) attach(t *testing.T, o cluster.Options) {
	t.Helper()
	var err error
	s.Cluster, err = cluster.Attach(t.Context(), o)
	require.NoError(t, err)
	s.registry, err = registry.Attach(t.Context(), registry.Options{Name: registryOf(o), Network: o.Network})
	require.NoError(t, err)
	require.NoError(t, s.prepare(t.Context(), o.Dir))
}

func registryOf(o cluster.Options) string { return o.Name + "-registry" }

// prepare builds and pushes the parts of releases. A reused cluster trusts the earlier key.
func (s *site) prepare(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	secret, err := s.registry.PullSecret()
	if err != nil {
		return err
	}
	s.Platform, err = platform.New(ctx, platform.Options{Dir: dir, Host: s.registry.Host, Credentials: secret, CA: s.registry.CA})
	if err != nil {
		return err
	}
	s.pullSecret = filepath.Join(dir, "pull-secret.json")
	return os.WriteFile(s.pullSecret, secret, 0o600)
}

// remove deletes a site unless it is kept for inspection.
func remove(ctx context.Context, o cluster.Options) error {
	if os.Getenv("CVO_E2E_KEEP") == "1" {
		fmt.Printf("kept cluster %s (KUBECONFIG=bin/e2e/%s/kubeconfig); `make e2e` replaces it\n", o.Name, o.Name)
		return nil
	}
	return errors.Join(cluster.Delete(ctx, o), (&registry.Registry{Name: registryOf(o)}).Stop(ctx))
}

// included adds the annotation without which no cluster includes a manifest.
func included(manifests string) string {
	return strings.ReplaceAll(manifests, "\nmetadata:\n", "\nmetadata:\n  annotations:\n    "+platform.Included+"\n")
}

// progress writes lines to a test's log with the time since its start.
type progress struct {
	t     *testing.T
	began time.Time
}

func (p progress) Write(data []byte) (int, error) {
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" {
			p.t.Logf("%5.1f s  %s", time.Since(p.began).Seconds(), line)
		}
	}
	return len(data), nil
}

// interrupted removes what interrupted tests have left: all clusters except those that existed before.
func interrupted(ctx context.Context) error {
	if attached() {
		return nil
	}
	var errs []error
	for _, suffix := range []string{platformSite, faultSite, networkSite, nodesSite} {
		errs = append(errs, remove(ctx, siteOptions{suffix: suffix}.cluster()))
	}
	return errors.Join(errs...)
}

// attached reports whether the tests run on existing clusters.
func attached() bool { return os.Getenv("CVO_E2E_ATTACH") == "1" }
