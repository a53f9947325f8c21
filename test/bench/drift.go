package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// hostile is the field manager of the edits.
const hostile = "bench-drift"

// What an edit does to an object.
const (
	editChange  = "change"  // another value in a field that the manifest sets
	editUnlabel = "unlabel" // our label is removed
	editDelete  = "delete"
)

// driftMisses is after how many edits that nobody repaired the same edit is not tried on a kind any more, so that
// repair that does not work costs minutes and not hours.
const driftMisses = 2

// Drift is what became of a row of hostile edits.
type Drift struct {
	// Edits were made, one at a time, on objects of Kinds kinds. Of these Repaired were undone in time.
	Edits    int `json:"edits"`
	Kinds    int `json:"kinds"`
	Repaired int `json:"repaired"`
	// NotTried edits were left out because others of their kind were not repaired.
	NotTried int `json:"notTried,omitempty"`
	// NotRepaired counts edits that nobody undid, by edit and kind.
	NotRepaired map[string]int `json:"notRepaired,omitempty"`
	// P50, P99 and Max are seconds from the answer to an edit to the watch event that shows it undone, of those that
	// were.
	P50 float64 `json:"p50Seconds"`
	P99 float64 `json:"p99Seconds"`
	Max float64 `json:"maxSeconds"`
}

// edit is one hostile act that was thought of.
type edit struct {
	act      string
	manifest *manifest.Manifest
}

func (e edit) kind() string { return e.act + " " + e.manifest.GVK().Kind }

// drift edits objects of the release one after the other and waits for each to be put right.
func (o *operation) drift(ctx context.Context) error {
	if o.options.drift == 0 {
		return nil
	}
	v, err := o.newVandal()
	if err != nil {
		return err
	}
	o.cvo.resetPeak()
	before := o.cvo.usage()
	p := Phase{Name: phaseDrift, start: time.Now(), Drift: &Drift{NotRepaired: map[string]int{}}}
	edits, kinds := planEdits(o.last().payload.Manifests, o.options.drift, rand.New(rand.NewPCG(o.options.seed, 0)))
	p.Drift.Kinds = kinds
	var times []float64
	for _, e := range edits {
		if p.Drift.NotRepaired[e.kind()] >= driftMisses {
			p.Drift.NotTried++
			continue
		}
		took, err := v.edit(ctx, e)
		if err != nil && !errors.Is(err, errNotRepaired) {
			return fmt.Errorf("%s %s: %w", e.act, e.manifest.ID(), err)
		}
		p.Drift.Edits++
		if err != nil {
			p.Drift.NotRepaired[e.kind()]++
			o.say("%s: %s %s: nobody repaired it in %s", o.subject.name, e.act, e.manifest.ID(), o.options.driftWait)
			continue
		}
		p.Drift.Repaired++
		times = append(times, took.Seconds())
	}
	p.Drift.P50, p.Drift.P99, p.Drift.Max = percentile(times, 0.5), percentile(times, 0.99), percentile(times, 1)
	after := o.cvo.usage()
	p.end = time.Now()
	p.Seconds = p.end.Sub(p.start).Seconds()
	p.use(before, after)
	o.phases = append(o.phases, p)
	return nil
}

// percentile is the smallest of the values that at least this share of them does not exceed; 0 of none.
func percentile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return values[max(0, int(math.Ceil(share*float64(len(values))))-1)]
}

// driftKinds are the kinds that are edited, if the release has them; others follow by how many objects it has of them.
var driftKinds = []string{
	"Deployment", "DaemonSet", "StatefulSet", "ConfigMap", "Secret", "Service", "ServiceAccount", "Role", "RoleBinding",
	"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Namespace", "PrometheusRule", "ServiceMonitor",
	"PriorityClass", "ValidatingWebhookConfiguration", "APIService", "ClusterOperator", "NetworkPolicy", "CronJob",
}

// driftKindCount is how many kinds there are at most.
const driftKindCount = 20

// sparedKinds decide what the API server does with other requests, or with those of the bench itself.
var sparedKinds = []string{
	"FlowSchema", "PriorityLevelConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	"MutatingWebhookConfiguration", "ClusterVersion", "APIServer", "FeatureGate",
}

// planEdits draws edits so that every kind and every act has its turn; the same seed draws the same. It returns how
// many kinds they are of.
func planEdits(manifests []*manifest.Manifest, n int, r *rand.Rand) (edits []edit, kinds int) {
	byKind := editable(manifests)
	var names []string
	for kind := range byKind {
		names = append(names, kind)
	}
	rank := func(kind string) int {
		if i := slices.Index(driftKinds, kind); i >= 0 {
			return i - len(driftKinds)
		}
		return -len(byKind[kind]) + len(manifests)
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	names = names[:min(len(names), driftKindCount)]
	if len(names) == 0 {
		return nil, 0
	}
	for i := range n {
		kind := names[i%len(names)]
		acts := []string{editChange, editUnlabel, editDelete}
		act := acts[(i/len(names))%len(acts)]
		var able []*manifest.Manifest
		for _, m := range byKind[kind] {
			if may(m, act, manifests) {
				able = append(able, m)
			}
		}
		if len(able) == 0 {
			act, able = editChange, byKind[kind]
		}
		edits = append(edits, edit{act, able[r.IntN(len(able))]})
	}
	return edits, len(names)
}

// editable are the objects that may be edited, by kind. The operator's own are left alone: it does not run from them
// here, and a bench without its ClusterVersion ends. Create-only objects may change at will.
func editable(manifests []*manifest.Manifest) map[string][]*manifest.Manifest {
	byKind := map[string][]*manifest.Manifest{}
	for _, m := range manifests {
		kind := m.GVK().Kind
		if !m.Tombstone() && !m.CreateOnly() && m.Component != operatorAgent && !slices.Contains(sparedKinds, kind) {
			byKind[kind] = append(byKind[kind], m)
		}
	}
	return byKind
}

// may reports whether an edit makes sense on an object.
func may(m *manifest.Manifest, act string, manifests []*manifest.Manifest) bool {
	if act != editDelete {
		return true
	}
	switch m.GVK().Kind {
	case "Namespace": // never gone without a controller that empties it
		return false
	case "ClusterOperator": // its status would be another operator's to restore
		return false
	case "CustomResourceDefinition": // takes its objects with it, which are then as many edits
		group, _, _ := unstructured.NestedString(m.Object.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(m.Object.Object, "spec", "names", "kind")
		return group != "config.openshift.io" &&
			!slices.ContainsFunc(manifests, func(other *manifest.Manifest) bool { return other.Is(group, kind) })
	}
	return true
}

// vandal edits objects.
type vandal struct {
	client dynamic.Interface
	mapper apply.Mapper
	wait   time.Duration
	rand   *rand.Rand
}

func (o *operation) newVandal() (*vandal, error) {
	config := o.env.Config("bench")
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &vandal{
		client: client, mapper: apply.NewDiscoveryMapper(clock.RealClock{}, d, o.last().payload.Manifests),
		wait: o.options.driftWait, rand: rand.New(rand.NewPCG(o.options.seed, 1)),
	}, nil
}

var errNotRepaired = errors.New("not repaired")

// edit makes an edit and returns how long after its answer it was repaired, or after the object was gone if that took
// longer. What is not repaired in time is put back
// by the bench, so that the next edit meets a whole cluster, and the error is errNotRepaired.
func (v *vandal) edit(ctx context.Context, e edit) (time.Duration, error) {
	mapping, err := v.mapper.Mapping(ctx, e.manifest.GVK())
	if err != nil {
		return 0, err
	}
	var resource dynamic.ResourceInterface = v.client.Resource(mapping.Resource)
	if mapping.Namespaced {
		resource = v.client.Resource(mapping.Resource).Namespace(e.manifest.Object.GetNamespace())
	}
	live, err := resource.Get(ctx, e.manifest.Object.GetName(), metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	watchCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, err := follow(watchCtx, resource, live)
	if err != nil {
		return 0, err
	}
	d, err := v.damage(ctx, resource, e, live)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	timeout := time.After(v.wait)
	for {
		select {
		case s, ok := <-seen:
			if !ok {
				return 0, ctx.Err()
			}
			switch {
			case s.gone:
				start = later(start, s.at) // a CRD, for one, takes seconds to go
			case d.undone(s.object):
				return max(0, s.at.Sub(start)), nil
			}
		case <-timeout:
			return 0, errors.Join(errNotRepaired, d.putBack(ctx))
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sight is a state of an object and when it was seen; gone is its end.
type sight struct {
	object *unstructured.Unstructured
	gone   bool
	at     time.Time
}

// follow tells the states of one object after a known one, until the context ends. An API server ends the watches on
// custom resources whose definition changes, so a watch that ends is followed by a look and another watch.
func follow(ctx context.Context, resource dynamic.ResourceInterface, from *unstructured.Unstructured) (<-chan sight, error) {
	options := metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, from.GetName()).String(),
		ResourceVersion: from.GetResourceVersion(),
	}
	w, err := resource.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	seen := make(chan sight, 100)
	go func() {
		defer close(seen)
		for ctx.Err() == nil {
			if w != nil {
				tellAll(ctx, w, seen)
			}
			w = resume(ctx, resource, options, seen)
		}
	}()
	return seen, nil
}

// tellAll passes on what a watch delivers, until it ends.
func tellAll(ctx context.Context, w watch.Interface, seen chan<- sight) {
	defer w.Stop()
	for event := range w.ResultChan() {
		if object, ok := event.Object.(*unstructured.Unstructured); ok {
			tell(ctx, sight{object, event.Type == watch.Deleted, time.Now()}, seen)
		}
	}
}

func tell(ctx context.Context, s sight, seen chan<- sight) {
	select {
	case seen <- s:
	case <-ctx.Done():
	}
}

// resume tells the present state and watches from there on; nil if that does not work yet.
func resume(ctx context.Context, resource dynamic.ResourceInterface, options metav1.ListOptions, seen chan<- sight) watch.Interface {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(20 * time.Millisecond):
	}
	options.ResourceVersion = ""
	list, err := resource.List(ctx, options)
	if err != nil {
		return nil
	}
	for i := range list.Items {
		tell(ctx, sight{object: &list.Items[i], at: time.Now()}, seen)
	}
	options.ResourceVersion = list.GetResourceVersion()
	w, err := resource.Watch(ctx, options)
	if err != nil {
		return nil
	}
	return w
}

// damage is an edit that was made: how to see that it is undone, and how to undo it.
type damage struct {
	undone  func(*unstructured.Unstructured) bool
	putBack func(context.Context) error
}

func (v *vandal) damage(ctx context.Context, resource dynamic.ResourceInterface, e edit, live *unstructured.Unstructured) (damage, error) {
	if e.act == editDelete {
		return v.remove(ctx, resource, live)
	}
	for _, c := range v.changes(e, live) {
		after, err := c.make(ctx, resource, live.GetName())
		if refused(err) {
			continue
		}
		if err != nil {
			return damage{}, err
		}
		if equality.Semantic.DeepEqual(c.of(after), c.of(live)) {
			continue // the server has put it right itself, by a default or because it does not know the field
		}
		version := number(after.GetResourceVersion())
		return damage{
			undone: func(u *unstructured.Unstructured) bool {
				return number(u.GetResourceVersion()) > version && equality.Semantic.DeepEqual(c.of(u), c.of(live))
			},
			putBack: func(ctx context.Context) error {
				_, err := change{c.path, c.of(live)}.make(ctx, resource, live.GetName())
				return err
			},
		}, nil
	}
	return damage{}, errors.New("the API server refuses every edit that was tried")
}

func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err)
}

func (v *vandal) remove(ctx context.Context, resource dynamic.ResourceInterface, live *unstructured.Unstructured) (damage, error) {
	uid := live.GetUID()
	if err := resource.Delete(ctx, live.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		return damage{}, err
	}
	return damage{
		undone: func(u *unstructured.Unstructured) bool { return u.GetUID() != uid },
		putBack: func(ctx context.Context) error {
			object := live.DeepCopy()
			for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"} {
				unstructured.RemoveNestedField(object.Object, "metadata", field)
			}
			_, err := resource.Create(ctx, object, metav1.CreateOptions{FieldManager: operatorAgent})
			if apierrors.IsAlreadyExists(err) {
				return nil // just now
			}
			return err
		},
	}, nil
}

// change is another value at a path of keys; nil takes away what is there.
type change struct {
	path  []string
	value any
}

func (c change) make(ctx context.Context, resource dynamic.ResourceInterface, name string) (*unstructured.Unstructured, error) {
	patch := c.value
	for _, key := range slices.Backward(c.path) {
		patch = map[string]any{key: patch}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return resource.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: hostile})
}

// of returns what an object has at the path.
func (c change) of(u *unstructured.Unstructured) any {
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, c.path...)
	return value
}

// changes are edits of an object to be tried in turn, for the server refuses some: fields that the manifest sets, first
// of what the object is about and then its annotations, at last our label, which is also what editUnlabel takes.
func (v *vandal) changes(e edit, live *unstructured.Unstructured) []change {
	label := change{[]string{"metadata", "labels", api.OwnedByLabel}, nil}
	if e.act == editUnlabel {
		return []change{label}
	}
	const tries = 8
	leaves := leavesOf(e.manifest)
	v.rand.Shuffle(len(leaves), func(i, j int) { leaves[i], leaves[j] = leaves[j], leaves[i] })
	var list []change
	for _, path := range leaves {
		top := path[0].(string)
		copied := live.DeepCopy().Object[top]
		if len(list) < tries && other(e.manifest, e.manifest.Object.Object[top], copied, path[1:], func(value any) { copied = value }) {
			list = append(list, change{[]string{top}, copied})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(e.manifest.Object.GetAnnotations())) {
		if value := e.manifest.Object.GetAnnotations()[key]; live.GetAnnotations()[key] == value {
			list = append(list, change{[]string{"metadata", "annotations", key}, value + "x"})
			break
		}
	}
	return append(list, label)
}

// leavesOf lists the paths (keys and indexes) to the single values that a manifest sets, in a fixed order, without
// what identifies the object and what others report.
func leavesOf(m *manifest.Manifest) [][]any {
	var leaves [][]any
	var walk func(value any, path []any)
	walk = func(value any, path []any) {
		switch x := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(x)) {
				if len(path) == 0 && slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, key) {
					continue
				}
				walk(x[key], append(slices.Clip(path), key))
			}
		case []any:
			for i, item := range x {
				walk(item, append(slices.Clip(path), i))
			}
		case string, bool, int64:
			if !entryKey(path) && (m.GVK().Kind != "CustomResourceDefinition" || path[len(path)-1] == "description") {
				leaves = append(leaves, path) // what else a CRD says decides over other objects
			}
		}
	}
	walk(m.Object.Object, nil)
	return leaves
}

// entryKey reports whether a path leads to what tells the entries of a list apart: with another one it is another
// entry, which belongs to who made it.
func entryKey(path []any) bool {
	if len(path) < 2 {
		return false
	}
	_, entry := path[len(path)-2].(int)
	return entry && slices.Contains([]any{"name", "port", "containerPort", "protocol", "key", "type", "mountPath"}, path[len(path)-1])
}

// other puts another value at a path of a live object's copy, if it has there what the manifest says.
func other(m *manifest.Manifest, wanted, live any, path []any, set func(any)) bool {
	if len(path) == 0 {
		if !equality.Semantic.DeepEqual(wanted, live) {
			return false
		}
		switch value := live.(type) {
		case string:
			if m.Is("", "Secret") {
				set("aG9zdGlsZQ==") // it has to be base64
				return value != "aG9zdGlsZQ=="
			}
			set(value + "x")
		case bool:
			set(!value)
		case int64:
			set(value + 1)
		default:
			return false
		}
		return true
	}
	switch key := path[0].(type) {
	case string:
		w, _ := wanted.(map[string]any)
		l, ok := live.(map[string]any)
		return ok && other(m, w[key], l[key], path[1:], func(value any) { l[key] = value })
	case int:
		w, _ := wanted.([]any)
		l, ok := live.([]any)
		return ok && key < len(l) && key < len(w) && other(m, w[key], l[key], path[1:], func(value any) { l[key] = value })
	}
	return false
}

// number reads a resource version; those of one API server over etcd are numbers that grow.
func number(resourceVersion string) int64 {
	n, _ := strconv.ParseInt(resourceVersion, 10, 64)
	return n
}
