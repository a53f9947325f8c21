// Package insecure reports the registries that the operator contacts without TLS, or without checking their certificates. At each start of
// a leader, and whenever the list changes, it records a Warning event. It also provides the list for the operator's endpoint. It changes no
// access to registries; package egress does.
package insecure

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/oci/egress"
)

// retryInterval is the time between a failed reading and the next one, unless something changes earlier.
const retryInterval = 30 * time.Second

// Reporter reports the insecure registries. It implements manager.Runnable.
type Reporter struct {
	clock   clock.Clock
	reader  client.Reader
	emitter event.Emitter
	// name is the name of the ClusterVersion, and given are the registries from the operator's flags.
	name    string
	given   []string
	changes chan struct{}

	mu    sync.Mutex
	known []string
}

// New returns a Reporter. Its reader must not be a cache: the operator watches none of the objects that it reads.
func New(clk clock.Clock, reader client.Reader, emitter event.Emitter, name string, given []string) *Reporter {
	return &Reporter{clock: clk, reader: reader, emitter: emitter, name: name, given: given, changes: make(chan struct{}, 1)}
}

// Registries returns the insecure registries as of the last reading.
func (r *Reporter) Registries() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

// Changed makes the Reporter read the list again. It does not wait.
func (r *Reporter) Changed() {
	select {
	case r.changes <- struct{}{}:
	default: // a pending signal also covers this change
	}
}

// Start implements manager.Runnable.
func (r *Reporter) Start(ctx context.Context) error {
	for {
		var again <-chan time.Time
		if err := r.report(ctx); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "cannot read the insecure registries")
			again = r.clock.After(retryInterval)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.changes:
		case <-again:
		}
	}
}

// report reads the list, and records an event if it has changed and is not empty.
func (r *Reporter) report(ctx context.Context) error {
	found, err := egress.Insecure(ctx, r.reader, r.given)
	if err != nil || slices.Equal(found, r.Registries()) {
		return err
	}
	if len(found) > 0 {
		cv := &configv1.ClusterVersion{}
		if err := r.reader.Get(ctx, client.ObjectKey{Name: r.name}, cv); err != nil {
			return err
		}
		r.emitter.Emit(cv, event.Warning(api.EventInsecureRegistries,
			"The operator contacts these registries without TLS, or without checking their certificates: %s. Releases must still be signed.", strings.Join(found, ", ")))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = found
	return nil
}
