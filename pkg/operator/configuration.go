package operator

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"

	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/observe"
	"github.com/cluster-version/cvo/pkg/release"
)

// configured applies manifests with what the cluster's configuration puts into them: its proxy, its TLS profile, the
// internal address of its API server. It implements rollout.Applier. The configuration is watched, and read when it
// changes, if the payload asks for any of it.
type configured struct {
	*apply.Applier // injects nothing
	observer       *observer
	reader         client.Reader
	// asked: some manifest of the payload has something injected.
	asked bool

	current atomic.Pointer[apply.Applier]
	// contents remembers what current answers: a pass asks for all of them.
	contents sync.Map // of *manifest.Manifest to [sha256.Size]byte
	// seen are the resource versions of what current was made of.
	seen [3]string
}

// injected is an object that injections are made of; see ClusterInjection.
type injected struct{ kind, resource string }

func (i injected) scope() observe.Scope {
	return observe.Scope{Resource: configv1.GroupVersion.WithResource(i.resource), Name: "cluster"}
}

func injections() [3]injected {
	return [3]injected{{"Proxy", "proxies"}, {"APIServer", "apiservers"}, {"Infrastructure", "infrastructures"}}
}

func newConfigured(applier *apply.Applier, o *observer, reader client.Reader, manifests []*manifest.Manifest) *configured {
	c := &configured{Applier: applier, observer: o, reader: reader}
	for _, m := range manifests {
		c.asked = c.asked || apply.Injected(m)
	}
	return c
}

// prepare reads the configuration if it has changed since it was read last; the first time in any case.
func (c *configured) prepare(ctx context.Context) error {
	if !c.asked {
		return nil
	}
	var now [3]string
	anything := false
	for i, object := range injections() {
		// What is not served yet, as on a new cluster, is neither read nor watched in vain.
		if !c.observer.mapper.Served(ctx, configv1.GroupVersion.WithKind(object.kind)) {
			continue
		}
		c.observer.use(object.scope())
		look := c.observer.watcher.Look(object.scope(), "", object.scope().Name)
		anything = anything || look.State != nil || !look.Synced
		if look.State != nil {
			now[i] = look.State.ResourceVersion
		}
	}
	if c.current.Load() != nil && now == c.seen {
		return nil
	}
	var injection apply.Injection
	var err error
	if anything {
		injection, err = ClusterInjection(ctx, c.reader)
	} else {
		injection, err = apply.NewInjection(nil, nil, nil)
	}
	if err != nil {
		return fmt.Errorf("reading the cluster's configuration: %w", err)
	}
	c.current.Store(c.WithInjection(injection))
	c.contents.Clear()
	c.seen = now
	return nil
}

// applier is the one to apply a manifest with.
func (c *configured) applier(m *manifest.Manifest) *apply.Applier {
	if current := c.current.Load(); current != nil && apply.Injected(m) {
		return current
	}
	return c.Applier
}

// Apply implements rollout.Applier.
func (c *configured) Apply(ctx context.Context, m *manifest.Manifest, mode release.Mode) (apply.Change, error) {
	return c.applier(m).Apply(ctx, m, mode)
}

// Content implements rollout.Applier.
func (c *configured) Content(m *manifest.Manifest) ([sha256.Size]byte, error) {
	if known, ok := c.contents.Load(m); ok {
		return known.([sha256.Size]byte), nil
	}
	content, err := c.applier(m).Content(m)
	if err == nil {
		c.contents.Store(m, content)
	}
	return content, err
}
