// Package orphans finds objects in a cluster that an earlier release created and that the current release does not contain. These are the
// objects that the inventory records as dropped, and unrecorded objects with our label and fields. It uses the caller's permissions, and
// turns a missing permission into a warning. It deletes nothing.
package orphans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// List is the output for scripts. Fields may be added, but are never renamed or removed.
type List struct {
	// Owner is the name of the ClusterVersion, and Release the version in the inventory.
	Owner   string   `json:"owner"`
	Release string   `json:"release"`
	Orphans []Orphan `json:"orphans"`
	// Warnings contains sorted descriptions of missing information.
	Warnings []string `json:"warnings,omitempty"`
}

// Orphan is an object that the release no longer contains. Fields may be added, but are never renamed or removed.
type Orphan struct {
	manifest.ID `json:",inline"`
	// LastRelease is the last release that applied or confirmed the object. DroppedBy is the first release without it. Both are empty for
	// an object without a record.
	LastRelease string `json:"lastRelease,omitempty"`
	DroppedBy   string `json:"droppedBy,omitempty"`
	// Exists is nil if unknown.
	Exists *bool `json:"exists"`
	// Protected is the reason why the operator deletes the object only if a manifest requests it; empty if it is not protected.
	Protected string `json:"protected,omitempty"`
	Note      string `json:"note,omitempty"`
}

// Find returns the objects that the release no longer contains, as far as config's permissions allow. These are the dropped objects of the
// inventory, and unrecorded objects with our label and fields. The notes name those that the administrator keeps. It sends one LIST of
// metadata for each kind in the release or in a record, and one GET for each dropped object that no list contains. Missing permissions
// become warnings. It returns an error only if it cannot read the inventory or the served kinds.
func Find(ctx context.Context, config *rest.Config, namespace, owner string, pruning inventory.Pruning) (List, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{} // deprecated kinds are listed like all others
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return List{}, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return List{}, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return List{}, err
	}
	f := &finder{store: inventory.NewStore(clients.CoreV1(), namespace, owner), objects: objects, owner: owner, pruning: pruning, warnings: map[string]bool{}}
	served, err := f.discover(ctx, kinds)
	if err != nil {
		return List{}, fmt.Errorf("reading the served kinds: %w", err)
	}
	inv, complete, err := f.load(ctx, served)
	if err != nil {
		return List{}, err
	}
	if inv.Release == "" && len(inv.Records) == 0 && complete {
		f.warnings[fmt.Sprintf("no inventory of %q in namespace %s", owner, namespace)] = true
	}
	labeled := f.list(ctx, served, kindsOf(inv, served, complete))
	list := List{Owner: owner, Release: inv.Release, Orphans: []Orphan{}}
	for _, r := range inv.Orphans() {
		list.Orphans = append(list.Orphans, f.dropped(ctx, served, labeled, r))
	}
	unrecorded, err := f.unrecorded(ctx, served, labeled, inv)
	if err != nil {
		return List{}, err
	}
	list.Orphans = append(list.Orphans, unrecorded...)
	sorted.By(list.Orphans, func(a, b Orphan) int { return inventory.Compare(a.ID, b.ID) })
	list.Warnings = slices.Sorted(maps.Keys(f.warnings))
	return list, nil
}

// finder contains the clients and the warnings of one search.
type finder struct {
	store    *inventory.Store
	objects  metadata.Interface
	owner    string
	pruning  inventory.Pruning
	warnings map[string]bool
}

// servedKinds maps kinds to resources, and contains the cluster-scoped kinds. unknown contains the groups whose kinds are unknown because
// discovery failed.
type servedKinds struct {
	resources     map[schema.GroupKind]schema.GroupVersionResource
	clusterScoped map[schema.GroupKind]bool
	unknown       map[string]error
}

// discover reads the kinds that the server serves. If an extension API server is down, only its kinds are missing.
func (f *finder) discover(ctx context.Context, client *discovery.DiscoveryClient) (servedKinds, error) {
	served := servedKinds{
		resources: map[schema.GroupKind]schema.GroupVersionResource{}, clusterScoped: map[schema.GroupKind]bool{}, unknown: map[string]error{},
	}
	lists, err := client.ServerPreferredResourcesWithContext(ctx)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return served, err
	}
	for gv, err := range failed {
		served.unknown[gv.Group] = err
		f.warnings[fmt.Sprintf("cannot read the kinds of %s: %v", gv, err)] = true
	}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range l.APIResources {
			kind := schema.GroupKind{Group: gv.Group, Kind: r.Kind}
			if _, ok := served.resources[kind]; ok || strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") {
				continue
			}
			served.resources[kind], served.clusterScoped[kind] = gv.WithResource(r.Name), !r.Namespaced
		}
	}
	return served, nil
}

// load reads the inventory. complete is false if parts of it cannot be read.
func (f *finder) load(ctx context.Context, served servedKinds) (inv inventory.Inventory, complete bool, err error) {
	inv, err = f.store.Load(ctx)
	inv = inv.WithoutStrayNamespaces(func(id manifest.ID) bool { return served.clusterScoped[GroupKind(id)] })
	if damaged, ok := errors.AsType[*inventory.DamagedError](err); ok {
		f.warnings[damaged.Error()] = true
		return inv, false, nil
	}
	return inv, err == nil, err
}

// kindsOf returns the sorted kinds that may have objects of the owner: the kinds in the inventory, or all served kinds if the inventory is
// incomplete.
func kindsOf(inv inventory.Inventory, served servedKinds, complete bool) []schema.GroupKind {
	kinds := map[schema.GroupKind]bool{}
	for _, kind := range inv.Kinds {
		kinds[kind] = true
	}
	for id := range inv.Records {
		kinds[GroupKind(id)] = true
	}
	if !complete {
		for kind := range served.resources {
			kinds[kind] = true
		}
	}
	maps.DeleteFunc(kinds, func(kind schema.GroupKind, _ bool) bool { _, ok := served.resources[kind]; return !ok })
	return slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) })
}

// GroupKind returns the kind of an object.
func GroupKind(id manifest.ID) schema.GroupKind {
	return schema.GroupKind{Group: id.Group, Kind: id.Kind}
}

// list reads the objects of these kinds with the owner's label. If it cannot list a kind, it adds a warning.
func (f *finder) list(ctx context.Context, served servedKinds, kinds []schema.GroupKind) map[manifest.ID]*metav1.PartialObjectMetadata {
	found := make([]map[manifest.ID]*metav1.PartialObjectMetadata, len(kinds))
	failed := make([]error, len(kinds))
	var group errgroup.Group
	group.SetLimit(8)
	for i, kind := range kinds {
		group.Go(func() error {
			found[i], failed[i] = f.listKind(ctx, kind, served.resources[kind])
			return nil
		})
	}
	_ = group.Wait() // errors are in failed
	all := map[manifest.ID]*metav1.PartialObjectMetadata{}
	for i, kind := range kinds {
		if failed[i] != nil {
			f.warnings[fmt.Sprintf("cannot list objects of kind %s: %v", kind, failed[i])] = true
		}
		maps.Copy(all, found[i])
	}
	return all
}

func (f *finder) listKind(ctx context.Context, kind schema.GroupKind, resource schema.GroupVersionResource) (map[manifest.ID]*metav1.PartialObjectMetadata, error) {
	found := map[manifest.ID]*metav1.PartialObjectMetadata{}
	pages := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
		return f.objects.Resource(resource).List(ctx, o)
	}))
	err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: api.OwnedByLabel + "=" + f.owner}, func(object runtime.Object) error {
		meta := object.(*metav1.PartialObjectMetadata)
		found[manifest.ID{Group: kind.Group, Kind: kind.Kind, Namespace: meta.Namespace, Name: meta.Name}] = meta
		return nil
	})
	return found, err
}

// dropped describes an object that a release no longer contains.
func (f *finder) dropped(ctx context.Context, served servedKinds, labeled map[manifest.ID]*metav1.PartialObjectMetadata, r inventory.Record) Orphan {
	o := Orphan{ID: r.ID, LastRelease: r.Release, DroppedBy: r.Dropped}
	o.Protected, _ = inventory.Protected(r.ID)
	meta := labeled[r.ID]
	if meta == nil {
		var err error
		switch meta, err = f.get(ctx, served, r); {
		case apierrors.IsNotFound(err):
			o.Exists, o.Note = new(false), "gone"
			return o
		case err != nil:
			o.Note = fmt.Sprintf("cannot be read: %v", err)
			return o
		}
	}
	o.Exists = new(true)
	keeps, _ := ownership.KeepsOrphan(meta, f.owner, r.UID)
	switch stays := f.pruning.Stays(r); {
	case meta.DeletionTimestamp != nil:
		o.Note = "being deleted"
	case stays != "":
		o.Note = stays
	case keeps == "" && o.Protected != "":
		o.Note = "protected: " + o.Protected
	default:
		o.Note = keeps
	}
	return o
}

// get reads one object that no list contains.
func (f *finder) get(ctx context.Context, served servedKinds, r inventory.Record) (*metav1.PartialObjectMetadata, error) {
	resource, ok := served.resources[GroupKind(r.ID)]
	if !ok {
		if err := served.unknown[r.ID.Group]; err != nil {
			return nil, err
		}
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: r.ID.Group, Resource: r.ID.Kind}, r.ID.Name)
	}
	if r.ID.Namespace == "" {
		return f.objects.Resource(resource).Get(ctx, r.ID.Name, metav1.GetOptions{})
	}
	return f.objects.Resource(resource).Namespace(r.ID.Namespace).Get(ctx, r.ID.Name, metav1.GetOptions{})
}

// unrecorded returns the objects that we applied but that have no record. The operator records an object shortly after applying it. So if
// unrecorded finds any, it reads the inventory again.
func (f *finder) unrecorded(ctx context.Context, served servedKinds, labeled map[manifest.ID]*metav1.PartialObjectMetadata, inv inventory.Inventory) ([]Orphan, error) {
	ids := map[manifest.ID]bool{}
	for id, meta := range labeled {
		if _, recorded := inv.Records[id]; ownership.Applied(meta.ManagedFields) && !recorded {
			ids[id] = true
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	later, _, err := f.load(ctx, served)
	if err != nil {
		return nil, err
	}
	var list []Orphan
	for id := range ids {
		if _, recorded := later.Records[id]; recorded {
			continue
		}
		o := Orphan{ID: id, Exists: new(true), Note: "not recorded"}
		var protected bool
		if o.Protected, protected = inventory.Protected(id); protected {
			o.Note += "; protected: " + o.Protected
		}
		if labeled[id].DeletionTimestamp != nil {
			o.Note = "not recorded; being deleted"
		}
		list = append(list, o)
	}
	return list, nil
}
