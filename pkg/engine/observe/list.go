package observe

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// pageSize limits the number of objects in memory while a server without watch lists lists them. One object can reach the server's size
// limit of 1.5 MiB.
const pageSize = 25

// List returns the latest objects on all pages of list with these options, without those for which drop returns true. It fails after
// staleAfter.
func List(
	ctx context.Context, list func(context.Context, metav1.ListOptions) (runtime.Object, error), o metav1.ListOptions, drop func(namespace, name string) bool,
) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, staleAfter)
	defer cancel()
	// The server ignores a limit if any state is acceptable (version "0"), and would return all objects at once.
	o.ResourceVersion, o.ResourceVersionMatch, o.Limit = "", "", pageSize
	var kept []runtime.Object
	for {
		page, err := list(ctx, o)
		if err != nil {
			return nil, err
		}
		items, err := meta.ExtractListWithAlloc(page) // copies, so that the page is freed
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			if object, err := meta.Accessor(item); err != nil || !drop(object.GetNamespace(), object.GetName()) {
				kept = append(kept, item)
			}
		}
		access, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		if o.Continue = access.GetContinue(); o.Continue == "" {
			return page, meta.SetList(page, kept)
		}
	}
}
