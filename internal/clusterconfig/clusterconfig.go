// Package clusterconfig reads the objects of a cluster's configuration: the one object of a kind, with the name cluster, or
// all objects of a kind.
package clusterconfig

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Get reads the object named "cluster" of a kind into object, and returns it. It returns nil if the object or its kind
// does not exist.
func Get[T client.Object](ctx context.Context, reader client.Reader, object T) (T, error) {
	var none T
	switch err := reader.Get(ctx, client.ObjectKey{Name: "cluster"}, object); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("reading %T cluster: %w", object, err)
	}
	return object, nil
}

// page is the number of objects in one answer. Clusters have a handful.
const page = 500

// List reads all objects of a kind into list, page by page. It reads none if the kind does not exist. The limit also avoids
// a wait: while the API server initializes its cache of a kind, it rejects lists without a limit for at least a second
// (https://kep.k8s.io/4568). That is so at the first request for a kind after its definition was created or changed.
func List(ctx context.Context, reader client.Reader, list client.ObjectList) error {
	var all []runtime.Object
	for next := ""; ; {
		err := reader.List(ctx, list, client.Limit(page), client.Continue(next))
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return meta.SetList(list, nil)
		}
		if err != nil {
			return err
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return err
		}
		for _, item := range items {
			all = append(all, item.DeepCopyObject()) // the next page may use the same memory
		}
		if next = list.GetContinue(); next == "" {
			return meta.SetList(list, all)
		}
	}
}
