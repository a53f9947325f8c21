package operator

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/api"
)

// watchWay watches what an administrator edits to have a release retrieved that was refused: the pull secret, whom to
// trust, and the certificates. Each change is told of, but not what is there at the start. They are read anew whenever a
// release is looked at, so that a watch that is not allowed costs no more than time.
func watchWay(mgr manager.Manager, core corev1client.CoreV1Interface, changed func()) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		for _, w := range []struct {
			resource string
			kind     runtime.Object
			key      client.ObjectKey
		}{
			{"secrets", &corev1.Secret{}, client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.PullSecret}},
			{"configmaps", &corev1.ConfigMap{}, client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap}},
			{"configmaps", &corev1.ConfigMap{}, client.ObjectKey{Namespace: api.ConfigManagedNamespace, Name: api.TrustedCABundle}},
		} {
			only := fields.OneTermEqualSelector("metadata.name", w.key.Name)
			informer := toolscache.NewSharedInformer(toolscache.NewListWatchFromClient(core.RESTClient(), w.resource, w.key.Namespace, only), w.kind, 0)
			_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
				AddFunc: func(_ any, initial bool) {
					if !initial {
						changed()
					}
				},
				UpdateFunc: func(any, any) { changed() },
			})
			if err != nil {
				return err
			}
			go informer.RunWithContext(ctx)
		}
		<-ctx.Done()
		return nil
	}))
}
