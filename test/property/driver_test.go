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
	"github.com/cluster-version/cvo/pkg/apply/body"
	applykinds "github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Release is a release as the driver's input.
type Release struct {
	Manifests []*manifest.Manifest
	Overrides []configv1.ComponentOverride
}

// Driver is the engine under test.
type Driver interface {
	// Run rolls out a release. It returns when all work is done, or with the errors of the failed parts.
	Run(ctx context.Context, rel Release, mode release.Mode) error
}

// applierDriver applies manifests sequentially.
type applierDriver struct {
	connection *request.Client
	discovery  applykinds.Discovery
	// attempts is the maximum number of attempts per manifest.
	attempts int
}

// newApplierDriver returns a driver whose requests go through wrap.
func newApplierDriver(config *rest.Config, wrap func(http.RoundTripper) http.RoundTripper, attempts int) (*applierDriver, error) {
	config = rest.CopyConfig(config)
	if wrap != nil {
		config.Wrap(wrap)
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	connection, err := request.Connect(config, httpClient)
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
	mapper := applykinds.NewMapper(clock.RealClock{}, d.discovery, rel.Manifests)
	applier := apply.New(d.connection, mapper, body.Owner{Name: ownerName, UID: ownerUID})
	filter := inclusion.Filter{Overrides: rel.Overrides}
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

// maxInvalid is how often an object may be reported as invalid, because the connection does not cause that.
const maxInvalid = 4

// apply retries a manifest until it succeeds, as rollout does, but with shorter waits. It waits longer for a kind whose CRD has just been
// applied.
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
