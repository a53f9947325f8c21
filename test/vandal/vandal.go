// Package vandal damages the objects of a release one by one, like a careless user with full permissions, and measures the time until each
// repair. It takes manifests and a cluster; anyone may do the repair.
package vandal

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// fieldManager is the field manager of the edits.
const fieldManager = "vandal"

// Kinds of edits.
const (
	editChange  = "change"  // another value in a field that the manifest sets
	editUnlabel = "unlabel" // our label is removed
	editDelete  = "delete"
)

// Edit is a planned damage.
type Edit struct {
	act      string
	manifest *manifest.Manifest
}

// Kind returns the kind of edit and of object, such as "delete Role".
func (e Edit) Kind() string { return e.act + " " + e.manifest.GVK().Kind }

// String returns the kind of edit and the object's name.
func (e Edit) String() string { return e.act + " " + e.manifest.ID().String() }

// driftKinds are the kinds to edit if the release has them. Others follow by their number of objects.
var driftKinds = []string{
	"Deployment", "DaemonSet", "StatefulSet", "ConfigMap", "Secret", "Service", "ServiceAccount", "Role", "RoleBinding",
	"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Namespace", "PrometheusRule", "ServiceMonitor",
	"PriorityClass", "ValidatingWebhookConfiguration", "APIService", "ClusterOperator", "NetworkPolicy", "CronJob",
}

// driftKindCount is the maximum number of kinds.
const driftKindCount = 20

// sparedKinds affect how the API server handles other requests, or the bench's own requests.
var sparedKinds = []string{
	"FlowSchema", "PriorityLevelConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	"MutatingWebhookConfiguration", "ClusterVersion", "APIServer", "FeatureGate",
}

// Plan draws n edits that cover every kind and every edit. The same seed draws the same edits. Plan returns the edits and the number of
// kinds.
func Plan(manifests []*manifest.Manifest, n int, r *rand.Rand) (edits []Edit, kinds int) {
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
			if isEditAllowed(m, act, manifests) {
				able = append(able, m)
			}
		}
		if len(able) == 0 {
			act, able = editChange, byKind[kind]
		}
		edits = append(edits, Edit{act, able[r.IntN(len(able))]})
	}
	return edits, len(names)
}

// editable returns the objects that may be edited, by kind. It omits the operator's own objects, because the operator does not run from
// them here and a bench without its ClusterVersion ends. It omits create-only objects, because they may change at will.
func editable(manifests []*manifest.Manifest) map[string][]*manifest.Manifest {
	byKind := map[string][]*manifest.Manifest{}
	for _, m := range manifests {
		kind := m.GVK().Kind
		if !m.Tombstone() && !m.CreateOnly() && m.Component != api.FieldManager && !slices.Contains(sparedKinds, kind) {
			byKind[kind] = append(byKind[kind], m)
		}
	}
	return byKind
}

// isEditAllowed reports whether an edit makes sense for an object.
func isEditAllowed(m *manifest.Manifest, act string, manifests []*manifest.Manifest) bool {
	if act != editDelete {
		return true
	}
	switch m.GVK().Kind {
	case "Job": // a finished Job with a time to live may end at any time
		return false
	case "Namespace": // never gone without a controller that empties it
		return false
	case "ClusterOperator": // another operator would have to restore its status
		return false
	case "CustomResourceDefinition": // its objects are deleted with it, which would count as that many edits
		group, _, _ := unstructured.NestedString(m.Object.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(m.Object.Object, "spec", "names", "kind")
		return group != "config.openshift.io" &&
			!slices.ContainsFunc(manifests, func(other *manifest.Manifest) bool { return other.Is(group, kind) })
	}
	return true
}

// Vandal edits objects.
type Vandal struct {
	client dynamic.Interface
	mapper apply.Mapper
	wait   time.Duration
	rand   *rand.Rand
}

// New returns a Vandal for the objects of a release. It waits at most wait for each repair. r chooses the field of an object to edit.
func New(config *rest.Config, manifests []*manifest.Manifest, wait time.Duration, r *rand.Rand) (*Vandal, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	mapper := kinds.NewMapper(clock.RealClock{}, d, manifests)
	return &Vandal{client: client, mapper: mapper, wait: wait, rand: r}, nil
}

// ErrNotRepaired reports that a damage was not repaired in time and that the vandal has undone it.
var ErrNotRepaired = errors.New("not repaired")

// Do makes an edit and returns the time between its response, or the end of the object if that came later, and the repair. If the edit is
// not repaired in time, Do undoes it, so that the next edit meets an intact cluster, and returns ErrNotRepaired.
func (v *Vandal) Do(ctx context.Context, e Edit) (time.Duration, error) {
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
	stuck := time.NewTicker(stuckAfter)
	defer stuck.Stop()
	for {
		select {
		case s, ok := <-seen:
			if !ok {
				return 0, ctx.Err()
			}
			switch {
			case s.gone:
				start = later(start, s.at) // deleting a CRD, for example, takes seconds
			case d.undone(s.object):
				return max(0, s.at.Sub(start)), nil
			}
		case <-stuck.C:
			if err := v.unstick(ctx, resource, e, live); err != nil {
				return 0, err
			}
		case <-timeout:
			return 0, errors.Join(ErrNotRepaired, d.putBack(ctx))
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

// sight is a state of an object with its time. gone reports that the object has ended.
type sight struct {
	object *unstructured.Unstructured
	gone   bool
	at     time.Time
}

// follow sends the states of an object after a known one until the context ends. An API server ends watches on custom resources whose
// definition changes. So after the end of a watch, follow reads the object and starts another watch.
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
				sendAll(ctx, w, seen)
			}
			w = resume(ctx, resource, options, seen)
		}
	}()
	return seen, nil
}

// sendAll passes on the events of a watch until it ends.
func sendAll(ctx context.Context, w watch.Interface, seen chan<- sight) {
	defer w.Stop()
	for event := range w.ResultChan() {
		if object, ok := event.Object.(*unstructured.Unstructured); ok {
			sendSight(ctx, sight{object, event.Type == watch.Deleted, time.Now()}, seen)
		}
	}
}

func sendSight(ctx context.Context, s sight, seen chan<- sight) {
	select {
	case seen <- s:
	case <-ctx.Done():
	}
}

// resume sends the current state and watches from there. It returns nil if that does not succeed yet.
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
		sendSight(ctx, sight{object: &list.Items[i], at: time.Now()}, seen)
	}
	options.ResourceVersion = list.GetResourceVersion()
	w, err := resource.Watch(ctx, options)
	if err != nil {
		return nil
	}
	return w
}

// damage is a completed edit, with functions that check whether it is undone and that undo it.
type damage struct {
	undone  func(*unstructured.Unstructured) bool
	putBack func(context.Context) error
}

func (v *Vandal) damage(ctx context.Context, resource dynamic.ResourceInterface, e Edit, live *unstructured.Unstructured) (damage, error) {
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
			continue // the server has restored the value, with a default or because it does not know the field
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
	return damage{}, errors.New("the API server rejected every attempted edit")
}

func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err)
}

func (v *Vandal) remove(ctx context.Context, resource dynamic.ResourceInterface, live *unstructured.Unstructured) (damage, error) {
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
			_, err := resource.Create(ctx, object, metav1.CreateOptions{FieldManager: api.FieldManager})
			if apierrors.IsAlreadyExists(err) {
				return nil // deleted by now
			}
			return err
		},
	}, nil
}

// stuckAfter is the time after which the deletion of a definition is stuck. It is much longer than a deletion without objects takes.
const stuckAfter = 2 * time.Second

// unstick makes the API server continue the deletion of a definition. The server writes the status of the definition several times, and
// after a conflict between its own writes, it continues only after another write, or after up to five minutes.
func (v *Vandal) unstick(ctx context.Context, resource dynamic.ResourceInterface, e Edit, live *unstructured.Unstructured) error {
	if e.act != editDelete || !e.manifest.Is("apiextensions.k8s.io", "CustomResourceDefinition") {
		return nil
	}
	now, err := resource.Get(ctx, live.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && now.GetDeletionTimestamp() == nil {
		return nil
	} else if err != nil {
		return err
	}
	// The version prevents a write to a definition that the operator has created since. After any other write, the server continues by itself.
	version := now.GetResourceVersion()
	touch := change{[]string{"metadata"}, map[string]any{"resourceVersion": version, "annotations": map[string]any{"vandal": version}}}
	if _, err = touch.make(ctx, resource, live.GetName()); apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// change is another value at a path of keys; nil removes the current value.
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
	return resource.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: fieldManager})
}

// of returns the object's value at the path.
func (c change) of(u *unstructured.Unstructured) any {
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, c.path...)
	return value
}

// changes returns edits of an object to be tried in order, because the server rejects some. They change fields that the manifest sets:
// first those outside of annotations, then annotations, and finally our label, which editUnlabel also removes.
func (v *Vandal) changes(e Edit, live *unstructured.Unstructured) []change {
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

// leavesOf lists the paths (keys and indexes) to the single values that a manifest sets, in a fixed order. It omits the object's identity
// and status.
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
				leaves = append(leaves, path) // other fields of a CRD affect other objects
			}
		}
	}
	walk(m.Object.Object, nil)
	return leaves
}

// entryKey reports whether a path leads to the key of a list entry. With another key it would be another entry, which belongs to its
// creator.
func entryKey(path []any) bool {
	if len(path) < 2 {
		return false
	}
	_, entry := path[len(path)-2].(int)
	return entry && slices.Contains([]any{"name", "port", "containerPort", "protocol", "key", "type", "mountPath"}, path[len(path)-1])
}

// other sets another value at a path in a copy of a live object, if the current value equals the manifest's.
func other(m *manifest.Manifest, wanted, live any, path []any, set func(any)) bool {
	if len(path) == 0 {
		if !equality.Semantic.DeepEqual(wanted, live) {
			return false
		}
		switch value := live.(type) {
		case string:
			if m.Is("", "Secret") {
				set("aG9zdGlsZQ==") // the value must be base64
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

// number returns a resource version as a number. With etcd, they are increasing numbers.
func number(resourceVersion string) int64 {
	n, _ := strconv.ParseInt(resourceVersion, 10, 64)
	return n
}

// Percentile returns the smallest value that at least this share of the values does not exceed, 0 without values.
func Percentile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return values[max(0, int(math.Ceil(share*float64(len(values))))-1)]
}
