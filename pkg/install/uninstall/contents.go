package uninstall

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

// contentsOf describes the objects in a namespace that no release contains, as the number of each kind; empty for none. It omits objects
// that the cluster itself creates.
func (u *remover) contentsOf(ctx context.Context, namespace string) (string, error) {
	if u.contents == nil {
		if err := u.readContents(ctx); err != nil {
			return "", err
		}
	}
	counts := u.contents[namespace]
	if len(counts) == 0 {
		return "", nil
	}
	var texts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		texts = append(texts, fmt.Sprintf("%s %d", kind, counts[kind]))
	}
	return "objects in it that no release contains: " + strings.Join(texts, ", "), nil
}

// readContents counts the objects in each namespace, by kind. Without the platform, only the operator's namespace is deleted.
func (u *remover) readContents(ctx context.Context) error {
	kinds, err := u.kinds(ctx, func(r metav1.APIResource) bool { return r.Namespaced && !slices.Contains(incidental, r.Kind) })
	if err != nil {
		return err
	}
	u.contents = map[string]map[string]int{}
	seen := map[types.UID]bool{}
	for _, gvk := range kinds {
		if err := u.countKind(ctx, gvk, seen); err != nil {
			return err
		}
	}
	return nil
}

// countKind counts the objects of one kind that are not in seen, and adds them to it. One list of the whole cluster needs fewer requests
// than a list of each namespace.
func (u *remover) countKind(ctx context.Context, gvk schema.GroupVersionKind, seen map[types.UID]bool) error {
	namespace := ""
	if !u.removal.Platform {
		namespace = u.removal.Namespace
	}
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(listOf(gvk))
		return page, u.List(ctx, page, &client.ListOptions{Namespace: namespace, Limit: o.Limit, Continue: o.Continue})
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		item := object.(*metav1.PartialObjectMetadata)
		if seen[item.UID] || item.Labels[api.OwnedByLabel] == u.removal.Name || isOurs(item) || isIncidental(gvk.Kind, item) {
			return nil
		}
		seen[item.UID] = true
		if u.contents[item.Namespace] == nil {
			u.contents[item.Namespace] = map[string]int{}
		}
		u.contents[item.Namespace][gvk.Kind]++
		return nil
	})
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err) {
		return fmt.Errorf("listing %s: %w", gvk.GroupKind(), err)
	}
	return nil
}

// incidental are kinds that the cluster creates for other objects and for its own coordination.
var incidental = []string{"Event", "Endpoints", "EndpointSlice", "Lease"}

// isIncidental reports whether the cluster has created an object for another object or for its namespace.
func isIncidental(kind string, object *metav1.PartialObjectMetadata) bool {
	switch {
	case metav1.GetControllerOf(object) != nil:
		return true
	case kind == "Secret":
		return object.Annotations[corev1.ServiceAccountNameKey] != "" // a token
	case kind == "ServiceAccount":
		return object.Name == "default"
	case kind == "ConfigMap":
		return object.Name == "kube-root-ca.crt" || object.Name == "openshift-service-ca.crt"
	}
	return false
}
