// Package preview reports what an update to a release would do to a cluster, without changing the cluster. The report contains the objects
// that would be created, changed (field by field), deleted or recreated, and those that the API server would reject. From a loaded payload
// and a client configuration, it sends every manifest as a dry run, in the same way as package apply, and returns a Report. Callers load
// the payload, decide whether to trust it, and know its order.
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
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/internal/difference"
	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/engine/cluster"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/preview/content"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// Options are the settings of a preview.
type Options struct {
	// Values are written into manifests, as in the update itself.
	cluster.Values
	// Mode is the mode of the rollout; release.Updating by default.
	Mode release.Mode
	// Inventory contains the objects of earlier releases in the cluster; the zero value if unknown.
	Inventory inventory.Inventory
	// Running returns the manifests of the release that the cluster runs. They show which fields the update removes from objects whose
	// managedFields are empty. Running is called once, and only if there is such an object. It may be nil.
	Running func(context.Context) ([]*manifest.Manifest, error)
	// Pruning is the administrator's will about objects that the release no longer contains.
	Pruning inventory.Pruning
	// Width is the maximum number of parallel requests; zero means 16, as in a rollout.
	Width int
	// Progress receives the number of processed manifests from the worker goroutines, one call at a time. It may be nil.
	Progress func(done, total int)
}

// minList is the number of manifests of one kind from which a LIST replaces GETs.
const minList = 3

// Run sends the payload to the API server without storing anything. It returns an error only if ctx ends or the connection cannot be set
// up. The server's errors about single objects are in the Report.
func Run(ctx context.Context, cfg *rest.Config, p *payload.Payload, options Options) (*Report, error) {
	if options.Width == 0 {
		options.Width = 16
	}
	if options.Mode == "" {
		options.Mode = release.Updating
	}
	known := content.Of(p.Manifests)
	applier, err := connect(cfg, options, known)
	if err != nil {
		return nil, err
	}
	r := &run{
		applier: applier, options: options, payload: p, content: known, crds: map[schema.GroupKind]*Object{},
		live: map[manifest.ID]json.RawMessage{}, results: make([]result, len(p.Manifests)),
	}
	r.running = sync.OnceValues(func() (map[manifest.ID][]*manifest.Manifest, error) { return options.running(ctx) })
	if err := r.all(ctx); err != nil {
		return nil, err
	}
	out := r.report()
	out.Orphans = r.orphans(ctx)
	out.Totals.Orphans = len(out.Orphans)
	for _, o := range out.Orphans {
		if o.Pruned {
			out.Totals.Pruned++
		}
	}
	return out, ctx.Err()
}

// running returns the manifests of the running release, by object.
func (o *Options) running(ctx context.Context) (map[manifest.ID][]*manifest.Manifest, error) {
	if o.Running == nil {
		return nil, nil
	}
	list, err := o.Running(ctx)
	if err != nil {
		return nil, err
	}
	byID := map[manifest.ID][]*manifest.Manifest{}
	for _, m := range list {
		byID[m.ID()] = append(byID[m.ID()], m)
	}
	return byID, nil
}

// connect returns an Applier that can only make dry runs. It reads the served kinds once, because kinds from the release's own CRDs do not
// exist yet.
func connect(cfg *rest.Config, options Options, known *content.Release) (*apply.Applier, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return guard{next} })
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	connection, err := request.Connect(cfg, httpClient)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	mapper := servedKinds{kinds.NewMapper(fixedClock(time.Now()), d, nil), known}
	return apply.New(connection, mapper, options.Owner).WithValues(options.Injection), nil
}

// servedKinds maps the kinds that the server serves. Discovery does not contain the paths of scale subresources, so they come from the
// release's CRDs, as in the update itself.
type servedKinds struct {
	*kinds.Mapper
	content *content.Release
}

// Mapping implements apply.Mapper.
func (k servedKinds) Mapping(ctx context.Context, gvk schema.GroupVersionKind) (kinds.Mapping, error) {
	mapping, err := k.Mapper.Mapping(ctx, gvk)
	if path, served := k.content.Replicas(gvk); served {
		mapping.Replicas = path
	}
	return mapping, err
}

// fixedClock is a clock that always returns the same time. A preview shows one moment. Otherwise the mapper would send request after
// request for kinds that the update has not created yet.
type fixedClock time.Time

// Now implements clock.PassiveClock.
func (m fixedClock) Now() time.Time { return time.Time(m) }

// Since implements clock.PassiveClock.
func (m fixedClock) Since(t time.Time) time.Duration { return time.Time(m).Sub(t) }

// run is the state of one preview.
type run struct {
	applier *apply.Applier
	options Options
	payload *payload.Payload
	content *content.Release
	// crds contains the result for the release's CRD of each kind. It is complete once all CRDs have been previewed.
	crds map[schema.GroupKind]*Object
	// running returns the manifests of the running release, by object.
	running func() (map[manifest.ID][]*manifest.Manifest, error)
	// live contains the objects from lists, as JSON. Decoded, they would need ten times the memory.
	live map[manifest.ID]json.RawMessage
	// results has one slot per manifest.
	results []result

	mu   sync.Mutex
	done int
}

// result is the result for one manifest.
type result struct {
	Object
	// resource is the resource of an object that the user may not read; otherwise empty.
	resource string
}

// all processes the manifests. It starts with CRDs because the verdicts on other objects depend on their CRDs.
func (r *run) all(ctx context.Context) error {
	var crds, others []int
	for i, m := range r.payload.Manifests {
		if _, ok := m.Defines(); ok {
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
			r.results[i] = r.previewObject(ctx, r.payload.Manifests[i])
		})
		if err != nil {
			return err
		}
		for _, i := range wave {
			r.settle(r.payload.Manifests[i], &r.results[i].Object)
		}
		clear(r.live)
	}
	return nil
}

// settle records the result for a CRD of the release.
func (r *run) settle(m *manifest.Manifest, o *Object) {
	kind, ok := m.Defines()
	if !ok || m.Tombstone() {
		return
	}
	r.crds[kind] = o
	r.content.Settle(kind, content.Effect{
		Created: o.Verdict == Create || o.Verdict == Recreate,
		Changed: slices.ContainsFunc(o.Fields, func(f difference.Field) bool { return strings.HasPrefix(f.Path, "spec.") }),
	})
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

// list reads the live objects of kinds with many manifests. It lists only our objects, by label, because there may be thousands of others.
// Objects that are missing from a list are read by name later, so a failed list only costs time.
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
	_ = g.Wait() // its functions never fail
	return ctx.Err()
}

// former implements apply.Former.
func (r *run) former(_ context.Context, id manifest.ID) ([]*manifest.Manifest, error) {
	running, err := r.running()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", apply.ErrNoFormer, err)
	}
	return running[id], nil
}

// previewObject sends one manifest to the server.
func (r *run) previewObject(ctx context.Context, m *manifest.Manifest) result {
	out := result{Object: Object{
		ID: m.ID(), File: m.File, Document: m.Document, Runlevel: m.Runlevel, Component: m.Component, Verdict: Nothing,
	}}
	if r.content.StopsServing(m) {
		unserved(&out.Object, m)
		return out
	}
	record := r.options.Inventory.Records[m.ID()]
	sum, _ := r.applier.Content(m) // Predict reports the error
	changed := record.UID != "" && record.Content != inventory.ContentOf(sum)
	applier := r.applier.With(apply.Options{UID: record.UID, Changed: changed, Former: r.former})
	f, err := applier.Predict(ctx, m, r.options.Mode)
	sent := m
	for _, earlier := range r.inServedVersions(m, err) {
		if !kinds.IsNoMatch(err) {
			break
		}
		sent = earlier
		f, err = applier.Predict(ctx, sent, r.options.Mode)
	}
	if fields, texts := r.content.Violations(m, f.Object); len(fields) > 0 && f.Action != apply.Kept {
		breaksSchema(&out.Object, fields, texts)
		return out
	}
	if err != nil {
		r.failed(&out, m, err)
		return out
	}
	out.Dropped = f.Dropped
	if len(out.Dropped) > 0 && r.content.ChangesSchema(m) {
		out.Dropped, out.Later = nil, out.Dropped
	}
	switch f.Action {
	case apply.Created:
		out.Verdict = Create
		if sent != m {
			out.Message = fmt.Sprintf("once its CRD serves %s", m.GVK().GroupVersion())
		}
	case apply.Recreated:
		out.Verdict, out.Message = Recreate, f.Message
	case apply.Deleting:
		out.Verdict, out.Message = Delete, deletion(f.Object)
	case apply.Applied:
		out.Message = f.Message
		r.compare(ctx, &out, m, sent, f.Object)
	case apply.Kept, apply.Deleted, apply.Skipped:
	}
	return out
}

// inServedVersions returns the manifest in other versions of its kind if the server does not know its own, given the error of a request. The
// running release's version comes first, because the object may have fields that an earlier version lacks.
func (r *run) inServedVersions(m *manifest.Manifest, err error) []*manifest.Manifest {
	if !kinds.IsNoMatch(err) {
		return nil
	}
	versions := r.content.InServedVersions(m)
	running, _ := r.running() // without it, the order does not matter
	for _, before := range running[m.ID()] {
		if i := slices.IndexFunc(versions, func(v *manifest.Manifest) bool { return v.GVK() == before.GVK() }); i > 0 {
			versions[0], versions[i] = versions[i], versions[0]
		}
	}
	return versions
}

// compare adds the changes of an existing object to the result. sent is the manifest in the version of the dry run.
func (r *run) compare(ctx context.Context, out *result, m, sent *manifest.Manifest, after *unstructured.Unstructured) {
	before, err := r.currentObject(ctx, sent, after)
	if err != nil {
		r.failed(out, m, err)
		return
	}
	if before == nil { // another client deleted it in the meantime
		out.Verdict = Create
		return
	}
	out.TakenOver = formerManagers(sent.GVK(), after)
	out.Fields = compare(before, after)
	if sent != m || len(out.Fields)+len(out.Later) > 0 { // the update writes the object
		out.Fields = compare(before, r.content.Complete(m, after))
	}
	if sent == m && (len(out.Fields)+len(out.Later) > 0 || !ownership.AppliedIn(before.GetManagedFields(), m.GVK().GroupVersion())) {
		pruned, err := r.pruned(ctx, m, before)
		if err != nil {
			r.failed(out, m, err)
			return
		}
		out.Fields = append(out.Fields, pruned...)
	}
	if len(out.Fields) > 0 {
		out.Verdict = Modify
	}
	if sent != m {
		moved := fmt.Sprintf("moves from %s to %s, which the cluster does not serve until the update has changed the CRD", sent.GVK().GroupVersion(), m.GVK().GroupVersion())
		out.Message = strings.Join(slices.DeleteFunc([]string{moved, out.Message}, func(text string) bool { return text == "" }), "; ")
	}
}

// pruned returns the changes of the fields that only other versions of a custom resource have. The server prunes them when the object is
// applied in the manifest's version, and gives those with a default that value again.
func (r *run) pruned(ctx context.Context, m *manifest.Manifest, before *unstructured.Unstructured) ([]difference.Field, error) {
	var lost []difference.Field
	for _, other := range r.content.InVersionsOf(m, before.GetManagedFields()) {
		live, err := r.applier.Live(ctx, other)
		switch {
		case kinds.IsNoMatch(err), err == nil && live == nil: // no client can read the fields of a version that the cluster does not serve
			continue
		case err != nil:
			return nil, err
		}
		for _, f := range compare(r.content.WithDefaults(before, other.GVK().Version), live) {
			if slices.ContainsFunc(lost, func(known difference.Field) bool { return known.Path == f.Path }) { // by a third version
				continue
			}
			switch f.Op {
			case difference.Added:
				lost = append(lost, difference.Field{Op: difference.Removed, Path: f.Path, Old: f.New})
			case difference.Modified, difference.Reordered: // another client's value differs from the default
				lost = append(lost, difference.Field{Op: f.Op, Path: f.Path, Old: f.New, New: f.Old})
			case difference.Removed:
			}
		}
	}
	return lost, nil
}

// currentObject returns the live object. It uses an object from a list if that has not changed since; otherwise it reads it by name.
func (r *run) currentObject(ctx context.Context, m *manifest.Manifest, after *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if data, ok := r.live[r.liveID(m, after)]; ok {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(m.GVK())
		var fields map[string]any
		if err := utiljson.Unmarshal(data, &fields); err == nil { // whole numbers become int64, as in objects
			fields["apiVersion"], fields["kind"] = after.GetAPIVersion(), after.GetKind()
			object.Object = fields
			if object.GetResourceVersion() == after.GetResourceVersion() {
				return object, nil
			}
		}
	}
	return r.applier.Live(ctx, m)
}

// liveID returns the identity of the live object, because a manifest of a cluster-scoped kind may contain a namespace.
func (r *run) liveID(m *manifest.Manifest, object *unstructured.Unstructured) manifest.ID {
	id := m.ID()
	id.Namespace = object.GetNamespace()
	return id
}

// deletion describes which other objects are deleted with an object, and which finalizers delay the deletion.
func deletion(object *unstructured.Unstructured) string {
	var text string
	switch kind := object.GetKind(); {
	case object.GetDeletionTimestamp() != nil:
		text = "as already requested by another client"
	case kind == "Namespace":
		text = "with everything in it"
	case kind == "CustomResourceDefinition":
		text = "with all objects of its kind"
	default:
		text = "with all objects that it owns"
	}
	if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
		text += "; waits for its finalizers " + strings.Join(finalizers, ", ")
	}
	return text
}

// formerManagers returns the managers from before server-side apply whose fields become ours, if the manifest lacks some of these fields.
func formerManagers(gvk schema.GroupVersionKind, object *unstructured.Unstructured) []string {
	entries := managedFields(object)
	if _, adopts := ownership.Adopt(gvk, entries); !adopts {
		return nil
	}
	var names []string
	for i := range entries {
		if ownership.IsFormerManager(&entries[i]) {
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
		if result.isNotable() {
			out.Objects = append(out.Objects, result.Object)
		}
	}
	sorted.By(out.Objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Runlevel, b.Runlevel), cmp.Compare(a.Component, b.Component), cmp.Compare(a.File, b.File),
			cmp.Compare(a.Document, b.Document), cmp.Compare(a.ID.String(), b.ID.String()))
	})
	for _, n := range forbidden {
		out.NotAllowed = append(out.NotAllowed, *n)
	}
	sorted.By(out.NotAllowed, func(a, b NotAllowed) int { return cmp.Compare(a.Resource, b.Resource) })
	for _, e := range r.payload.Excluded {
		out.Excluded = append(out.Excluded, Exclusion{e.Manifest.ID(), e.Reason})
	}
	out.Totals.Excluded = len(r.payload.Excluded)
	return out
}

func (o Object) isNotable() bool {
	return o.Verdict != Nothing || o.Message != "" || len(o.Dropped)+len(o.Later)+len(o.TakenOver) > 0
}

// orphans returns the recorded objects without any manifest in the release, included or excluded. If they would be pruned, it reads them: that
// decides which stay, and another client may have deleted some.
func (r *run) orphans(ctx context.Context) []Orphan {
	named, skipped := r.payload.Named()
	dropped := inventory.Plan(r.options.Inventory, named, skipped, r.payload.Release.Version).Orphans()
	found := make([]*Orphan, len(dropped))
	var workers errgroup.Group
	workers.SetLimit(r.options.Width)
	for i, record := range dropped {
		workers.Go(func() error {
			found[i] = r.orphan(ctx, record)
			return nil
		})
	}
	_ = workers.Wait() // the functions return no error
	var out []Orphan
	for _, orphan := range found {
		if orphan != nil {
			out = append(out, *orphan)
		}
	}
	return out
}

// orphan returns nil if the object no longer exists. It reads the object only if its deletion is requested.
func (r *run) orphan(ctx context.Context, record inventory.Record) *Orphan {
	orphan := &Orphan{ID: record.ID, Release: record.Release}
	if !r.options.Pruning.Requested && !r.payload.Release.Prune {
		return orphan
	}
	gvk := schema.GroupVersionKind{Group: record.ID.Group, Version: record.Version, Kind: record.ID.Kind}
	change, err := r.applier.PredictPrune(ctx, gvk, record.ID.Namespace, record.ID.Name, record.UID)
	if err == nil && change.Action == apply.Deleted {
		return nil
	}
	if orphan.Stays = r.options.Pruning.Stays(record); orphan.Stays == "" {
		orphan.Pruned, orphan.Stays = err != nil || change.Action == apply.Deleting, change.Message
	}
	return orphan
}
