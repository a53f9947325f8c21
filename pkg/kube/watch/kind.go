package watch

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// newKind returns the watch of the metadata of all objects of a kind that counts generations. It calls changed when an
// object is created or deleted, and when its generation changes: not when its status changes, and not for the initial
// state. It keeps only the name, the UID and the generation of an object.
func newKind(client Client[*metav1.PartialObjectMetadataList], changed func()) toolscache.Controller {
	_, controller := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				return client.Watch(ctx, o)
			},
		},
		ObjectType: &metav1.PartialObjectMetadata{}, Transform: generationOnly,
		Handler: toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(_ any, initial bool) {
				if !initial {
					changed()
				}
			},
			UpdateFunc: func(before, after any) {
				if generationChanged(before, after) {
					changed()
				}
			},
			DeleteFunc: func(any) { changed() },
		},
	})
	return controller
}

func generationOnly(object any) (any, error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("unexpected %T from a metadata watch", object)
	}
	return &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, Generation: m.Generation, ResourceVersion: m.ResourceVersion,
	}}, nil
}

// generationChanged reports whether an object was edited or replaced by another one of the same name.
func generationChanged(before, after any) bool {
	a, wasObject := before.(*metav1.PartialObjectMetadata)
	b, isObject := after.(*metav1.PartialObjectMetadata)
	return !wasObject || !isObject || a.UID != b.UID || a.Generation != b.Generation
}
