package cluster

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"

	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Applier applies manifests and injects parts of the cluster's configuration into them: the proxy, the TLS profile, the API server's
// internal address. It implements rollout.Applier. If any manifest of the payload requests an injection, Applier watches the configuration
// and reads it again after each change.
type Applier struct {
	*apply.Applier // without injections
	observer       *Observer
	reader         client.Reader
	// asked is true if any manifest of the payload requests an injection.
	asked bool

	current atomic.Pointer[apply.Applier]
	// contents caches the results of Content, because every pass requests all of them.
	contents sync.Map // of *manifest.Manifest to [sha256.Size]byte
	// seen contains the resource versions of the objects from which current was made.
	seen [3]string
}

// injected identifies an object from which Injection reads values.
type injected struct{ kind, resource string }

func (i injected) scope() observe.Scope {
	return observe.Scope{Resource: configv1.GroupVersion.WithResource(i.resource), Name: "cluster"}
}

func injections() [3]injected {
	return [3]injected{{"Proxy", "proxies"}, {"APIServer", "apiservers"}, {"Infrastructure", "infrastructures"}}
}

func newApplier(applier *apply.Applier, o *Observer, reader client.Reader, manifests []*manifest.Manifest) *Applier {
	c := &Applier{Applier: applier, observer: o, reader: reader}
	for _, m := range manifests {
		c.asked = c.asked || inject.Requested(m)
	}
	return c
}

// Prepare reads the configuration if it has changed since the last read. The first call always reads it. Prepare fails until discovery has
// been read, because no kind counts as served before: nothing would be injected, and no watch would start.
func (c *Applier) Prepare(ctx context.Context) error {
	if err := c.observer.mapper.Load(ctx); err != nil {
		return err
	}
	if !c.asked {
		return nil
	}
	var now [3]string
	anyExists := false
	for i, object := range injections() {
		// Kinds that are not served yet, as on a new cluster, are neither read nor watched.
		if !c.observer.mapper.Served(configv1.GroupVersion.WithKind(object.kind)) {
			continue
		}
		c.observer.use(object.scope())
		look := c.observer.watcher.Look(object.scope(), "", object.scope().Name)
		anyExists = anyExists || look.State != nil || !look.Synced
		if look.State != nil {
			now[i] = look.State.ResourceVersion
		}
	}
	if c.current.Load() != nil && now == c.seen {
		return nil
	}
	var injection inject.Values
	var err error
	if anyExists {
		injection, err = Injection(ctx, c.reader)
	} else {
		injection, err = inject.FromCluster(nil, nil, nil)
	}
	if err != nil {
		return fmt.Errorf("reading the cluster's configuration: %w", err)
	}
	c.current.Store(c.WithValues(injection))
	c.contents.Clear()
	c.seen = now
	return nil
}

// applier returns the applier for a manifest: current if the manifest requests an injection.
func (c *Applier) applier(m *manifest.Manifest) *apply.Applier {
	if current := c.current.Load(); current != nil && inject.Requested(m) {
		return current
	}
	return c.Applier
}

// Apply implements rollout.Applier.
func (c *Applier) Apply(ctx context.Context, m *manifest.Manifest, mode release.Mode, options apply.Options) (apply.Change, error) {
	return c.applier(m).With(options).Apply(ctx, m, mode)
}

// Content implements rollout.Applier.
func (c *Applier) Content(m *manifest.Manifest) ([sha256.Size]byte, error) {
	if known, ok := c.contents.Load(m); ok {
		return known.([sha256.Size]byte), nil
	}
	content, err := c.applier(m).Content(m)
	if err == nil {
		c.contents.Store(m, content)
	}
	return content, err
}
