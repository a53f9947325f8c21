package sources

import (
	"context"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
)

// retrievalPace is the minimum time between two retries: some accounts may edit a ClusterImagePolicy, but no release.
const retrievalPace = time.Second

// imagePolicyDefinition is the name of the CustomResourceDefinition of ClusterImagePolicy.
const imagePolicyDefinition = "clusterimagepolicies.config.openshift.io"

// RetrievalInputs watches the objects that an administrator edits to have a rejected release retrieved again: the pull secret, the trust
// policy, the registries, the CA bundle and, while the cluster serves them, the ClusterImagePolicies. It calls changed on each change, at most once a
// second, but not for the initial state. Each retrieval reads the inputs anyway, so a forbidden watch only delays a retry.
func (s *Sources) RetrievalInputs(core corev1client.CoreV1Interface, changed func()) manager.Runnable {
	return retrievalInputs(s.clock, retrievalPace, core, s.dynamic, s.metadata, changed)
}

func retrievalInputs(
	clk clock.Clock, pace time.Duration, core corev1client.CoreV1Interface, definitions dynamic.Interface, policies metadata.Interface,
	changed func(),
) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		changes := watch.NewChanges()
		served := watch.NewServedKind(policies, configv1.GroupVersion.WithResource("clusterimagepolicies"), changes.Signal)
		go reportChanges(ctx, clk, pace, changes, changed)
		watch.Run(ctx, nil,
			watch.NewSingle(core.Secrets(api.ConfigNamespace), &corev1.Secret{}, api.PullSecret, watch.OnChange(changes.Signal)),
			watch.NewSingle(core.ConfigMaps(api.ConfigNamespace), &corev1.ConfigMap{}, api.TrustConfigMap, watch.OnChange(changes.Signal)),
			watch.NewSingle(core.ConfigMaps(api.ConfigNamespace), &corev1.ConfigMap{}, api.RegistriesConfigMap, watch.OnChange(changes.Signal)),
			watch.NewSingle(core.ConfigMaps(api.ConfigManagedNamespace), &corev1.ConfigMap{}, api.TrustedCABundle, watch.OnChange(changes.Signal)),
			watch.NewDefinition(definitions, imagePolicyDefinition, func(crd *unstructured.Unstructured) {
				served.SetServed(ctx, watch.Established(crd))
			}),
		)
		return nil
	})
}

// reportChanges calls changed at the first change, and then once for all changes within pace.
func reportChanges(ctx context.Context, clk clock.Clock, pace time.Duration, changes *watch.Changes, changed func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes.C():
		}
		changed()
		select {
		case <-ctx.Done():
			return
		case <-clk.After(pace):
		}
	}
}
