package operator

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/api"
)

// watchWay watches what an administrator edits to have a release retrieved that was refused: the pull secret, whom to
// trust, and the certificates. Each change is told of, but not what is there at the start. They are read anew whenever a
// release is looked at, so that a watch that is not allowed costs no more than time.
func watchWay(mgr manager.Manager, core corev1client.CoreV1Interface, changed func()) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		watchAll(ctx, nil,
			newSingle(core.Secrets(api.ConfigNamespace), &corev1.Secret{}, api.PullSecret, later(changed)),
			newSingle(core.ConfigMaps(api.ConfigNamespace), &corev1.ConfigMap{}, api.TrustConfigMap, later(changed)),
			newSingle(core.ConfigMaps(api.ConfigManagedNamespace), &corev1.ConfigMap{}, api.TrustedCABundle, later(changed)),
		)
		return nil
	}))
}
