// Package preview tells what an update of a cluster to a release would do, without touching the cluster: which objects
// would be created, changed (field by field), deleted and recreated, and what the API server would refuse. It takes a
// loaded payload and a way to the API server, sends every manifest as a dry run, as package apply would send it, and
// returns a Report. Where the payload comes from, whether it is trusted, and in which order it would be applied is left
// to others.
package preview

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/ownership"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// Options are the settings of a preview.
type Options struct {
	// Owner is the ClusterVersion that marks the objects, as in the update itself.
	Owner apply.Owner
	// Mode is that of the rollout; default release.Updating.
	Mode release.Mode
	// Injection is what the cluster puts into manifests that ask for it.
	Injection apply.Injection
	// Inventory is what releases have brought to the cluster; the zero value if that is not known.
	Inventory inventory.Inventory
	// Prune: the administrator asks for the deletion of what no manifest names any more. The release may, too.
	Prune bool
	// Width is how many requests are under way at a time; default 16, as many as a rollout has.
	Width int
	// Progress is told how many manifests are done, from the goroutines that do them, one at a time; nil for nobody.
	Progress func(done, total int)
}

// minList is the number of manifests of one kind from which on their objects are read by one LIST, not by GETs.
const minList = 3

// Run sends the payload to the API server, as far as that can be done without storing anything. It fails only if ctx
// ends or no connection can be made; what the server says of single objects is in the Report.
func Run(ctx context.Context, cfg *rest.Config, p *payload.Payload, options Options) (*Report, error) {
	if options.Width == 0 {
		options.Width = 16
	}
	if options.Mode == "" {
		options.Mode = release.Updating
	}
	applier, err := connect(cfg, options)
	if err != nil {
		return nil, err
	}
	r := &run{
		applier: applier, options: options, payload: p, brought: broughtBy(p.Manifests),
		live: map[manifest.ID]json.RawMessage{}, results: make([]result, len(p.Manifests)),
	}
	if err := r.all(ctx); err != nil {
		return nil, err
	}
	return r.report(), nil
}

// connect returns an Applier that can do nothing but dry runs. It maps kinds by what the server serves now, and by one
// look at that: the kinds that CRDs of the release add are not there yet.
func connect(cfg *rest.Config, options Options) (*apply.Applier, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // priority and fairness on the server decides
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return guard{next} })
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	connection, err := apply.Connect(cfg, httpClient)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	mapper := apply.NewDiscoveryMapper(moment(time.Now()), d, nil)
	return apply.New(connection, mapper, options.Owner).WithInjection(options.Injection), nil
}

// moment is a clock that stands still: a preview is of one moment, and a mapper that went on looking for kinds that no
// update has brought yet would ask again and again.
type moment time.Time

// Now implements clock.PassiveClock.
func (m moment) Now() time.Time { return time.Time(m) }

// Since implements clock.PassiveClock.
func (m moment) Since(t time.Time) time.Duration { return time.Time(m).Sub(t) }

// run is one preview at work.
type run struct {
	applier *apply.Applier
	options Options
	payload *payload.Payload
	brought brought
	// live are the objects that were read by lists, as JSON: decoded they take ten times as much.
	live map[manifest.ID]json.RawMessage
	// results has a slot for each manifest.
	results []result

	mu   sync.Mutex
	done int
}

// result is what became of one manifest.
type result struct {
	Object
	// resource is that of an object which the user may not look at, else empty.
	resource string
}

// all goes through the manifests, CRDs first: what is said of other objects depends on what becomes of their CRD.
func (r *run) all(ctx context.Context) error {
	var crds, others []int
	for i, m := range r.payload.Manifests {
		if isCRD(m) {
			crds = append(crds, i)
		} else {
			others = append(others, i)
		}
	}
	for _, wave := range [][]int{crds, others} {
		if err := r.list(ctx, wave); err != nil {
			return err
		}
		err := r.each(ctx, wave, func(ctx context.Context, i int) {
			r.results[i] = r.look(ctx, r.payload.Manifests[i])
		})
		if err != nil {
			return err
		}
		for _, i := range wave {
			r.brought.settle(r.payload.Manifests[i], r.results[i].Object)
		}
		clear(r.live)
	}
	return nil
}

func (r *run) each(ctx context.Context, wave []int, do func(context.Context, int)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.options.Width)
	for _, i := range wave {
		g.Go(func() error {
			if ctx.Err() == nil {
				do(ctx, i)
				r.progress()
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}

func (r *run) progress() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	if r.options.Progress != nil {
		r.options.Progress(r.done, len(r.payload.Manifests))
	}
}

// list reads the live objects of those kinds that many manifests are of: only ours, by label, because there may be
// thousands of others. What a list does not have is read by name if it is there. A list that fails is no loss but of
// time.
func (r *run) list(ctx context.Context, wave []int) error {
	if r.options.Owner.Name == "" {
		return nil
	}
	count := map[schema.GroupVersionKind]int{}
	wanted := map[manifest.ID]bool{}
	for _, i := range wave {
		if m := r.payload.Manifests[i]; !m.Tombstone() && !m.CreateOnly() {
			count[m.GVK()]++
			wanted[m.ID()] = true
		}
	}
	g, groupCtx := errgroup.WithContext(ctx)
	g.SetLimit(r.options.Width)
	for gvk, n := range count {
		if n < minList {
			continue
		}
		g.Go(func() error {
			_ = r.applier.ListOwned(groupCtx, gvk, func(data json.RawMessage) error {
				var partial metav1.PartialObjectMetadata
				if err := json.Unmarshal(data, &partial); err != nil {
					return err
				}
				id := manifest.ID{Group: gvk.Group, Kind: gvk.Kind, Namespace: partial.Namespace, Name: partial.Name}
				r.mu.Lock()
				defer r.mu.Unlock()
				if wanted[id] {
					r.live[id] = data
				}
				return nil
			})
			return nil
		})
	}
	_ = g.Wait() // no function of it fails
	return ctx.Err()
}

// look asks the server about one manifest.
func (r *run) look(ctx context.Context, m *manifest.Manifest) result {
	out := result{Object: Object{
		ID: m.ID(), File: m.File, Document: m.Document, Runlevel: m.Runlevel, Component: m.Component, Verdict: Nothing,
	}}
	f, err := r.applier.Foretell(ctx, m, r.options.Mode)
	if err != nil {
		r.failed(&out, m, err)
		return out
	}
	out.Dropped = f.Dropped
	if len(out.Dropped) > 0 && r.brought.changesSchema(m) {
		out.Dropped, out.Later = nil, out.Dropped
	}
	switch f.Action {
	case apply.Created:
		out.Verdict = Create
	case apply.Recreated:
		out.Verdict, out.Message = Recreate, f.Message
	case apply.Deleting:
		out.Verdict, out.Message = Delete, deletion(f.Object)
	case apply.Applied:
		out.Message = f.Message
		r.compare(ctx, &out, m, f.Object)
	case apply.Kept, apply.Deleted, apply.Skipped:
	}
	return out
}

// compare fills in what would change of an object that is there.
func (r *run) compare(ctx context.Context, out *result, m *manifest.Manifest, after *unstructured.Unstructured) {
	before, err := r.before(ctx, m, after)
	if err != nil {
		r.failed(out, m, err)
		return
	}
	if before == nil { // somebody deleted it in between
		out.Verdict = Create
		return
	}
	out.TakenOver = formerManagers(m.GVK(), after)
	if out.Fields = Compare(before, after); len(out.Fields) > 0 {
		out.Verdict = Modify
	}
}

// before returns the object as it is: from a list, if it has not changed since, else read by name.
func (r *run) before(ctx context.Context, m *manifest.Manifest, after *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if data, ok := r.live[r.liveID(m, after)]; ok {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(m.GVK())
		var fields map[string]any
		if err := unmarshal(data, &fields); err == nil {
			fields["apiVersion"], fields["kind"] = after.GetAPIVersion(), after.GetKind()
			object.Object = fields
			if object.GetResourceVersion() == after.GetResourceVersion() {
				return object, nil
			}
		}
	}
	return r.applier.Live(ctx, m)
}

// liveID is the identity of an object as the cluster knows it: a manifest of a kind that has no namespaces may name one.
func (r *run) liveID(m *manifest.Manifest, object *unstructured.Unstructured) manifest.ID {
	id := m.ID()
	id.Namespace = object.GetNamespace()
	return id
}

// deletion says what goes with an object, and what it would wait for.
func deletion(object *unstructured.Unstructured) string {
	var text string
	switch kind := object.GetKind(); {
	case object.GetDeletionTimestamp() != nil:
		text = "as somebody has asked for already"
	case kind == "Namespace":
		text = "with everything in it"
	case kind == "CustomResourceDefinition":
		text = "with all objects of its kind"
	default:
		text = "with whatever it owns"
	}
	if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
		text += "; waits for its finalizers " + strings.Join(finalizers, ", ")
	}
	return text
}

// formerManagers returns who has written fields before server-side apply did that become ours, and that the manifest
// does not all have.
func formerManagers(gvk schema.GroupVersionKind, object *unstructured.Unstructured) []string {
	entries := managedFields(object)
	if _, adopts := ownership.Adopt(gvk, entries); !adopts {
		return nil
	}
	var names []string
	for i := range entries {
		if ownership.Former(&entries[i]) {
			names = append(names, entries[i].Manager)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (r *run) report() *Report {
	out := &Report{Version: r.payload.Release.Version, Image: r.payload.Release.Image, Objects: []Object{}}
	forbidden := map[string]*NotAllowed{}
	for _, result := range r.results {
		out.Totals.count(result.Object)
		if result.resource != "" {
			n := forbidden[result.resource]
			if n == nil {
				n = &NotAllowed{Resource: result.resource, Message: result.Message}
				forbidden[result.resource] = n
			}
			n.Objects++
			continue
		}
		if result.worthTelling() {
			out.Objects = append(out.Objects, result.Object)
		}
	}
	slices.SortStableFunc(out.Objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Runlevel, b.Runlevel), cmp.Compare(a.Component, b.Component), cmp.Compare(a.File, b.File),
			cmp.Compare(a.Document, b.Document), cmp.Compare(a.ID.String(), b.ID.String()))
	})
	for _, n := range forbidden {
		out.NotAllowed = append(out.NotAllowed, *n)
	}
	slices.SortFunc(out.NotAllowed, func(a, b NotAllowed) int { return cmp.Compare(a.Resource, b.Resource) })
	out.Orphans = r.orphans()
	out.Totals.Excluded, out.Totals.Orphans = len(r.payload.Excluded), len(out.Orphans)
	return out
}

func (o Object) worthTelling() bool {
	return o.Verdict != Nothing || len(o.Dropped)+len(o.Later)+len(o.TakenOver) > 0
}

// orphans are the recorded objects that no manifest of the target speaks of, included or not.
func (r *run) orphans() []Orphan {
	named := map[manifest.ID]bool{}
	for _, m := range r.payload.Manifests {
		named[m.ID()] = true
	}
	for _, e := range r.payload.Excluded {
		named[e.Manifest.ID()] = true
	}
	var out []Orphan
	for _, record := range inventory.Plan(r.options.Inventory, named, r.payload.Release.Version).Orphans() {
		orphan := Orphan{ID: record.ID, Release: record.Release}
		if r.options.Prune || r.payload.Release.Prune {
			reason, protected := inventory.Protected(record.ID)
			if orphan.Stays = reason; record.ID.Kind == "CustomResourceDefinition" {
				orphan.Stays = "as long as there are objects of its kind" // which is looked for when it is deleted
			}
			orphan.Pruned = !protected
		}
		out = append(out, orphan)
	}
	return out
}
