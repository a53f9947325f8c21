package operator

import (
	"context"
	"fmt"
	"sync"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/clusterversion"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// settings watches what of the cluster's configuration decides which manifests it gets, FeatureGate cluster. It is a
// source of the controller, which waits for its first answer: the payload is not to be read with gates that are not
// known yet. The kind comes with a release, so its definition is watched first.
type settings struct {
	client  dynamic.Interface
	options Options

	// definition reports whether it is known that the kind is served, or that it is not; gates is set by Start.
	definition toolscache.InformerSynced
	gates      *whileServed

	mu   sync.Mutex
	look clusterversion.Settings
}

// featureGateDefinition is the name of the definition of FeatureGate.
const featureGateDefinition = "featuregates.config.openshift.io"

func newSettings(mgr manager.Manager, options Options) (*settings, error) {
	client, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating dynamic client: %w", err)
	}
	return &settings{client: client, options: options, look: options.settings(nil)}, nil
}

// settings adds to what the cluster says how the operator was started.
func (o Options) settings(gates *configv1.FeatureGate) clusterversion.Settings {
	s := clusterversion.SettingsOf(gates)
	s.Profile, s.ExcludeID, s.AlwaysEnable = o.Profile, o.ExcludeID, o.AlwaysEnable
	s.BringYourOwnNetwork = o.BringYourOwnNetwork
	return s
}

// current is what the watch has delivered last.
func (s *settings) current() clusterversion.Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.look
}

// Start implements source.Source: it starts the watch, and has the ClusterVersion reconciled when it tells anything.
func (s *settings) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.gates = &whileServed{
		client: s.client, resource: configv1.GroupVersion.WithResource("featuregates"), name: "cluster",
		seen: func(gates *unstructured.Unstructured) {
			if s.store(gates) {
				queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: s.options.Name}})
			}
		},
	}
	definition := newDefinition(s.client, featureGateDefinition, func(crd *unstructured.Unstructured) {
		s.gates.serve(ctx, established(crd))
	})
	s.definition = definition.HasSynced
	go definition.RunWithContext(ctx)
	return nil
}

// WaitForSync implements source.SyncingSource.
func (s *settings) WaitForSync(ctx context.Context) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), s.definition) || !toolscache.WaitForCacheSync(ctx.Done(), s.gates.told) {
		return fmt.Errorf("watching FeatureGate cluster: %w", ctx.Err())
	}
	return nil
}

// store takes over a FeatureGate, nil if there is none. It reports false for one that cannot be read, which is left
// aside: the API server has checked it, so its schema is not one that we know.
func (s *settings) store(u *unstructured.Unstructured) bool {
	var gates *configv1.FeatureGate
	if u != nil {
		gates = &configv1.FeatureGate{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, gates); err != nil {
			s.options.Log.Error(err, "FeatureGate cluster not understood")
			return false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look = s.options.settings(gates)
	return true
}

// ClusterFilter reads from a cluster which manifests it gets, as an operator with these options would. Of the options
// only those that change that are looked at.
func ClusterFilter(ctx context.Context, reader client.Reader, cv *configv1.ClusterVersion, options Options) (manifest.Filter, error) {
	gates, err := configuration(ctx, reader, &configv1.FeatureGate{})
	if err != nil {
		return manifest.Filter{}, err
	}
	return options.settings(gates).Filter(cv, cv.Status.Desired.Version), nil
}
