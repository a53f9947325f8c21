package sources

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
)

// Record returns the watch of the ReleaseStatus, which runs while the kind is served. It calls changed with each version of the object, and
// with nil after its deletion. A version that cannot be parsed counts as empty.
func (s *Sources) Record(changed func(*api.ReleaseStatus)) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		resource := api.ReleaseStatusVersion.WithResource(api.ReleaseStatusResource)
		object := watch.NewServed(s.dynamic, resource, s.name, func(u *unstructured.Unstructured) {
			if u == nil {
				changed(nil)
				return
			}
			status := &api.ReleaseStatus{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, status); err != nil {
				status = &api.ReleaseStatus{}
				status.Name, status.UID, status.ResourceVersion = u.GetName(), u.GetUID(), u.GetResourceVersion()
			}
			changed(status)
		})
		definition := watch.NewDefinition(s.dynamic, api.ReleaseStatusDefinition, func(crd *unstructured.Unstructured) {
			object.SetServed(ctx, watch.Established(crd))
		})
		definition.RunWithContext(ctx)
		return nil
	})
}
