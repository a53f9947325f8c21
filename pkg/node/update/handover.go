package update

import (
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/kube/watch"
)

// decisive are the kinds that decide which config a node gets, how many nodes get it, and which rendered MachineConfigs are deleted.
var decisive = []struct {
	schema.GroupVersionKind
	list func() client.ObjectList
}{
	{corev1.SchemeGroupVersion.WithKind("NodeList"), func() client.ObjectList { return &corev1.NodeList{} }},
	{mcfgv1.GroupVersion.WithKind("MachineConfigPoolList"), func() client.ObjectList { return &mcfgv1.MachineConfigPoolList{} }},
	{mcfgv1.GroupVersion.WithKind("MachineConfigList"), func() client.ObjectList { return &mcfgv1.MachineConfigList{} }},
	{mcfgv1.GroupVersion.WithKind("KubeletConfigList"), func() client.ObjectList { return &mcfgv1.KubeletConfigList{} }},
}

// isLate reports whether the cache of a new leader may lack a write of the leader before, or another change before that. It compares the cache
// with the API server until both are the same once. With a late cache, the new leader would return nodes to an old config, start too many, and
// delete configs in use.
func (r *pools) isLate(ctx context.Context) (bool, error) {
	if r.reader == nil {
		return false, nil
	}
	for _, kind := range decisive {
		current := &metav1.PartialObjectMetadataList{}
		current.SetGroupVersionKind(kind.GroupVersionKind)
		if err := r.reader.List(ctx, current); err != nil {
			return false, fmt.Errorf("reading the %s from the API server: %w", kind.Kind, err)
		}
		list := kind.list()
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("listing the cached %s: %w", kind.Kind, err)
		}
		cached, err := meta.ExtractList(list)
		if err != nil {
			return false, err
		}
		byName := make(map[string]metav1.Object, len(cached))
		for _, o := range cached {
			object, err := meta.Accessor(o)
			if err != nil {
				return false, err
			}
			byName[object.GetName()] = object
		}
		for i := range current.Items {
			c := byName[current.Items[i].Name]
			if c == nil || watch.Newest[metav1.Object](&current.Items[i], c) != c {
				return true, nil
			}
		}
		if len(cached) != len(current.Items) {
			return true, nil // an object was deleted, or created since
		}
	}
	r.reader = nil
	return false, nil
}
