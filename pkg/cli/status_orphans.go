package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/ownership"
)

// orphanOptions say whose orphans are looked for, and how they are printed.
type orphanOptions struct {
	namespace string // of the operator; default api.OperatorNamespace
	owner     string // name of the ClusterVersion; default api.ClusterVersionName
	output    string // text (default), json or yaml
}

// printOrphans prints the objects of earlier releases that no manifest names any more. What it could not find out goes
// to streams.Err.
func printOrphans(ctx context.Context, streams Streams, config *rest.Config, o orphanOptions) error {
	write := writeOrphans
	switch cmp.Or(o.output, "text") {
	case "text":
	case "json":
		write = func(w io.Writer, list orphanList) error { return writeJSON(w, list) }
	case "yaml":
		write = func(w io.Writer, list orphanList) error { return writeYAML(w, list) }
	default:
		return &UsageError{fmt.Errorf("unknown output %q: use text, json or yaml", o.output)}
	}
	list, err := orphans(ctx, config, cmp.Or(o.namespace, api.OperatorNamespace), cmp.Or(o.owner, api.ClusterVersionName))
	if err != nil {
		return err
	}
	for _, w := range list.Warnings {
		fmt.Fprintf(streams.Err, "warning: %s\n", printable(w))
	}
	return write(streams.Out, list)
}

// orphanList is what is printed for scripts; fields are added, never renamed or removed.
type orphanList struct {
	// Owner is the name of the ClusterVersion, Release the version that the inventory describes.
	Owner   string   `json:"owner"`
	Release string   `json:"release"`
	Orphans []orphan `json:"orphans"`
	// Warnings are what could not be found out, sorted.
	Warnings []string `json:"warnings,omitempty"`
}

type orphan struct {
	manifest.ID `json:",inline"`
	// LastRelease applied or confirmed it last, DroppedBy is the first that names it no more; both are empty for an
	// object that nothing is recorded of.
	LastRelease string `json:"lastRelease,omitempty"`
	DroppedBy   string `json:"droppedBy,omitempty"`
	// Exists is null if that could not be told.
	Exists *bool `json:"exists"`
	// Protected says why it is never deleted without a manifest that asks for it; empty if that may happen.
	Protected string `json:"protected,omitempty"`
	Note      string `json:"note,omitempty"`
}

// orphans reads what no manifest of the release names any more, with the rights of config: what the inventory says
// was dropped, and objects that carry our label and fields that we applied but are recorded nowhere. It sends one LIST
// of metadata for each kind that the release or a record names, and one GET for each dropped object that these do not
// show. What config may not see is told as such; it fails only if the inventory cannot be read.
func orphans(ctx context.Context, config *rest.Config, namespace, owner string) (orphanList, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1                           // priority and fairness on the server decides
	config.WarningHandler = rest.NoWarnings{} // kinds that are deprecated are looked at like others
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return orphanList{}, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return orphanList{}, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return orphanList{}, err
	}
	f := &orphanFinder{store: inventory.NewStore(clients.CoreV1(), namespace, owner), objects: objects, owner: owner, warnings: map[string]bool{}}
	served, err := f.discover(ctx, kinds)
	if err != nil {
		return orphanList{}, fmt.Errorf("reading which kinds there are: %w", err)
	}
	inv, complete, err := f.load(ctx)
	if err != nil {
		return orphanList{}, err
	}
	if inv.Release == "" && len(inv.Records) == 0 && complete {
		f.warnings[fmt.Sprintf("there is no inventory of %q in namespace %s", owner, namespace)] = true
	}
	labelled := f.list(ctx, served, kindsOf(inv, served, complete))
	list := orphanList{Owner: owner, Release: inv.Release, Orphans: []orphan{}}
	for _, r := range inv.Orphans() {
		list.Orphans = append(list.Orphans, f.dropped(ctx, served, labelled, r))
	}
	unrecorded, err := f.unrecorded(ctx, labelled, inv)
	if err != nil {
		return orphanList{}, err
	}
	list.Orphans = append(list.Orphans, unrecorded...)
	slices.SortFunc(list.Orphans, func(a, b orphan) int { return inventory.Compare(a.ID, b.ID) })
	list.Warnings = slices.Sorted(maps.Keys(f.warnings))
	return list, nil
}

// orphanFinder holds the clients of one search, and what it could not find out.
type orphanFinder struct {
	store    *inventory.Store
	objects  metadata.Interface
	owner    string
	warnings map[string]bool
}

// servedKinds are the resources by which kinds are listed. Of a group in unknown the server cannot tell the kinds.
type servedKinds struct {
	resources map[schema.GroupKind]schema.GroupVersionResource
	unknown   map[string]error
}

// discover reads which kinds the server has. An extension API server that is down leaves out its own kinds only.
func (f *orphanFinder) discover(ctx context.Context, client *discovery.DiscoveryClient) (servedKinds, error) {
	served := servedKinds{resources: map[schema.GroupKind]schema.GroupVersionResource{}, unknown: map[string]error{}}
	lists, err := client.ServerPreferredResourcesWithContext(ctx)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return served, err
	}
	for gv, err := range failed {
		served.unknown[gv.Group] = err
		f.warnings[fmt.Sprintf("the kinds of %s are not known: %v", gv, err)] = true
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
			served.resources[kind] = gv.WithResource(r.Name)
		}
	}
	return served, nil
}

// load reads the inventory; complete says that no part of it is lost.
func (f *orphanFinder) load(ctx context.Context) (inv inventory.Inventory, complete bool, err error) {
	inv, err = f.store.Load(ctx)
	if damaged, ok := errors.AsType[*inventory.DamagedError](err); ok {
		f.warnings[damaged.Error()] = true
		return inv, false, nil
	}
	return inv, err == nil, err
}

// kindsOf returns the kinds that may have objects of the owner, sorted: those that the inventory names, or, if parts of
// it are lost, all.
func kindsOf(inv inventory.Inventory, served servedKinds, complete bool) []schema.GroupKind {
	kinds := map[schema.GroupKind]bool{}
	for _, kind := range inv.Kinds {
		kinds[kind] = true
	}
	for id := range inv.Records {
		kinds[groupKind(id)] = true
	}
	if !complete {
		for kind := range served.resources {
			kinds[kind] = true
		}
	}
	maps.DeleteFunc(kinds, func(kind schema.GroupKind, _ bool) bool { _, ok := served.resources[kind]; return !ok })
	return slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) })
}

func groupKind(id manifest.ID) schema.GroupKind {
	return schema.GroupKind{Group: id.Group, Kind: id.Kind}
}

// seen is what is known of an object in the cluster.
type seen struct {
	ours     bool // has fields that we applied
	deleting bool
}

func look(meta *metav1.PartialObjectMetadata) seen {
	return seen{ours: ownership.Ours(meta.ManagedFields) != ownership.Hash{}, deleting: meta.DeletionTimestamp != nil}
}

// list reads the objects of these kinds that carry the owner's label. A kind that may not be listed is warned of.
func (f *orphanFinder) list(ctx context.Context, served servedKinds, kinds []schema.GroupKind) map[manifest.ID]seen {
	found := make([]map[manifest.ID]seen, len(kinds))
	failed := make([]error, len(kinds))
	var group errgroup.Group
	group.SetLimit(8)
	for i, kind := range kinds {
		group.Go(func() error {
			found[i], failed[i] = f.listKind(ctx, kind, served.resources[kind])
			return nil
		})
	}
	_ = group.Wait() // what failed is in failed
	all := map[manifest.ID]seen{}
	for i, kind := range kinds {
		if failed[i] != nil {
			f.warnings[fmt.Sprintf("objects of kind %s cannot be listed: %v", kind, failed[i])] = true
		}
		maps.Copy(all, found[i])
	}
	return all
}

func (f *orphanFinder) listKind(ctx context.Context, kind schema.GroupKind, resource schema.GroupVersionResource) (map[manifest.ID]seen, error) {
	found := map[manifest.ID]seen{}
	options := metav1.ListOptions{LabelSelector: api.OwnedByLabel + "=" + f.owner, Limit: 500}
	for {
		page, err := f.objects.Resource(resource).List(ctx, options)
		if err != nil {
			return found, err
		}
		for i := range page.Items {
			meta := &page.Items[i]
			id := manifest.ID{Group: kind.Group, Kind: kind.Kind, Namespace: meta.Namespace, Name: meta.Name}
			found[id] = look(meta)
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return found, nil
		}
	}
}

// dropped tells of an object that a release dropped.
func (f *orphanFinder) dropped(ctx context.Context, served servedKinds, labelled map[manifest.ID]seen, r inventory.Record) orphan {
	o := orphan{ID: r.ID, LastRelease: r.Release, DroppedBy: r.Dropped}
	o.Protected, _ = inventory.Protected(r.ID)
	now, ok := labelled[r.ID]
	if !ok {
		meta, err := f.get(ctx, served, r)
		switch {
		case apierrors.IsNotFound(err):
			o.Exists, o.Note = new(false), "gone"
			return o
		case err != nil:
			o.Note = fmt.Sprintf("cannot be seen: %v", err)
			return o
		}
		now = look(meta)
		o.Note = "lacks our label"
	}
	o.Exists = new(true)
	switch {
	case now.deleting:
		o.Note = "being deleted"
	case o.Note != "":
	case o.Protected != "":
		o.Note = "protected: " + o.Protected
	}
	return o
}

// get reads one object that no list has shown.
func (f *orphanFinder) get(ctx context.Context, served servedKinds, r inventory.Record) (*metav1.PartialObjectMetadata, error) {
	resource, ok := served.resources[groupKind(r.ID)]
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

// unrecorded returns the objects that we applied and of which nothing is recorded. The operator records what it applies
// a moment later, so the inventory is read once more when there are any.
func (f *orphanFinder) unrecorded(ctx context.Context, labelled map[manifest.ID]seen, inv inventory.Inventory) ([]orphan, error) {
	ids := map[manifest.ID]bool{}
	for id, now := range labelled {
		if _, recorded := inv.Records[id]; now.ours && !recorded {
			ids[id] = true
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	later, _, err := f.load(ctx)
	if err != nil {
		return nil, err
	}
	var list []orphan
	for id := range ids {
		if _, recorded := later.Records[id]; recorded {
			continue
		}
		o := orphan{ID: id, Exists: new(true), Note: "in no record"}
		var protected bool
		if o.Protected, protected = inventory.Protected(id); protected {
			o.Note += "; protected: " + o.Protected
		}
		if labelled[id].deleting {
			o.Note = "in no record; being deleted"
		}
		list = append(list, o)
	}
	return list, nil
}

func writeOrphans(w io.Writer, list orphanList) error {
	release := printable(cmp.Or(list.Release, "no release"))
	if len(list.Orphans) == 0 {
		_, err := fmt.Fprintf(w, "%s: no orphans\n", release)
		return err
	}
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tNAMESPACE\tNAME\tLAST-IN\tDROPPED-BY\tNOTE")
	for _, o := range list.Orphans {
		columns := []string{groupKind(o.ID).String(), o.Namespace, o.Name, o.LastRelease, o.DroppedBy}
		for i, c := range columns {
			columns[i] = printable(cmp.Or(c, "-"))
		}
		fmt.Fprintf(table, "%s\t%s\n", strings.Join(columns, "\t"), printable(o.Note))
	}
	_ = table.Flush() // writes to memory
	var text strings.Builder
	fmt.Fprintf(&text, "%s: no manifest names these (%d)\n\n", release, len(list.Orphans))
	for line := range strings.Lines(out.String()) {
		text.WriteString(strings.TrimRight(line, " \n") + "\n") // an empty note leaves spaces before it
	}
	_, err := io.WriteString(w, text.String())
	return err
}
