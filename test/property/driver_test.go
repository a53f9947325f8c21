package property

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Release is what a driver gets of a release.
type Release struct {
	Manifests []*manifest.Manifest
	Overrides []configv1.ComponentOverride
}

// Driver is the engine under test.
type Driver interface {
	// Run brings the cluster to a release and returns when nothing is left to do, or the errors of what cannot be done.
	Run(ctx context.Context, rel Release, mode release.Mode) error
}

// applierDriver applies one manifest after the other.
type applierDriver struct {
	connection *apply.Connection
	discovery  apply.Discovery
	// attempts is how often a manifest is tried.
	attempts int
}

// newApplierDriver makes a driver whose requests go through wrap.
func newApplierDriver(config *rest.Config, wrap func(http.RoundTripper) http.RoundTripper, attempts int) (*applierDriver, error) {
	config = rest.CopyConfig(config)
	if wrap != nil {
		config.Wrap(wrap)
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	connection, err := apply.Connect(config, httpClient)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	return &applierDriver{connection, d, attempts}, nil
}

// Run implements Driver.
func (d *applierDriver) Run(ctx context.Context, rel Release, mode release.Mode) error {
	mapper := apply.NewDiscoveryMapper(clock.RealClock{}, d.discovery, rel.Manifests)
	applier := apply.New(d.connection, mapper, apply.Owner{Name: ownerName, UID: ownerUID})
	filter := manifest.Filter{Overrides: rel.Overrides}
	var errs []error
	for _, m := range rel.Manifests {
		if _, excluded := filter.Exclude(m); excluded {
			continue
		}
		if err := d.apply(ctx, applier, m, mode); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// maxInvalid is how often an object may be called invalid: that is no fault of the connection.
const maxInvalid = 4

// apply tries a manifest until it succeeds, as rollout does, but sooner again. A kind whose CRD has only just been
// applied is waited for longer.
func (d *applierDriver) apply(ctx context.Context, applier *apply.Applier, m *manifest.Manifest, mode release.Mode) error {
	var last error
	invalid, served := 0, time.Now().Add(30*time.Second)
	for attempt, wait := 0, 5*time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		if _, last = applier.Apply(ctx, m, mode); last == nil {
			return nil
		}
		if !missing(last) || time.Now().After(served) {
			attempt++
		}
		if apierrors.IsInvalid(last) {
			invalid++
		}
		if attempt >= d.attempts || invalid >= maxInvalid {
			return fmt.Errorf("after %d attempts: %w", attempt, last)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
