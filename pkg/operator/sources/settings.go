package sources

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/internal/clusterconfig"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/kube/watch"
)

// Settings watches FeatureGate cluster, the cluster's configuration that selects manifests. It is a controller source, and the controller
// waits for its first result, so that no payload is read with unknown gates. A release brings the kind, so Settings watches its definition
// first.
type Settings struct {
	log    logr.Logger
	client dynamic.Interface
	// name is the name of the ClusterVersion to reconcile.
	name string
	// own are the operator's own options.
	own accept.Settings

	// definition is done when it is known whether the kind is served. gates is set by Start.
	definition toolscache.DoneChecker
	gates      *watch.Served

	mu   sync.Mutex
	look accept.Settings
}

// featureGateDefinition is the name of the CustomResourceDefinition of FeatureGate.
const featureGateDefinition = "featuregates.config.openshift.io"

func newSettings(log logr.Logger, client dynamic.Interface, name string, own accept.Settings) *Settings {
	return &Settings{log: log, client: client, name: name, own: own, look: own.With(nil)}
}

// Current returns the settings as of the last watch event.
func (s *Settings) Current() accept.Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.look
}

// Start implements source.Source. It starts the watch. Each event requests a reconcile of the ClusterVersion.
func (s *Settings) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.gates = watch.NewServed(s.client, configv1.GroupVersion.WithResource("featuregates"), "cluster", func(gates *unstructured.Unstructured) {
		if s.store(gates) {
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: s.name}})
		}
	})
	definition := watch.NewDefinition(s.client, featureGateDefinition, func(crd *unstructured.Unstructured) {
		s.gates.SetServed(ctx, watch.Established(crd))
	})
	s.definition = definition.HasSyncedChecker()
	go definition.RunWithContext(ctx)
	return nil
}

// WaitForSync implements source.SyncingSource.
func (s *Settings) WaitForSync(ctx context.Context) error {
	if !toolscache.WaitFor(ctx, "", s.definition) || !s.gates.WaitForSync(ctx) {
		return fmt.Errorf("watching FeatureGate cluster: %w", ctx.Err())
	}
	return nil
}

// store records a FeatureGate, nil for none. It ignores an object that it cannot parse and returns false: the API server has validated the
// object, so its schema is unknown to this version.
func (s *Settings) store(u *unstructured.Unstructured) bool {
	var gates *configv1.FeatureGate
	if u != nil {
		gates = &configv1.FeatureGate{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, gates); err != nil {
			s.log.Error(err, "cannot parse FeatureGate cluster")
			return false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look = s.own.With(gates)
	return true
}

// ClusterFilter returns a function that takes the version of a release and returns the filter that an operator with the given options would use
// for its manifests, because each version has its own feature gates. ClusterFilter reads FeatureGate cluster.
func ClusterFilter(ctx context.Context, reader client.Reader, cv *configv1.ClusterVersion, own accept.Settings) (func(version string) inclusion.Filter, error) {
	gates, err := clusterconfig.Get(ctx, reader, &configv1.FeatureGate{})
	if err != nil {
		return nil, err
	}
	settings := own.With(gates)
	return func(version string) inclusion.Filter { return settings.Filter(cv, version) }, nil
}
