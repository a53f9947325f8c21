package property

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Properties, with their names in failure messages.
const (
	// converges means that the engine finally applies every manifest of a release.
	converges = "converges"
	// ownedFields means that every field that the release sets has the manifest's value.
	ownedFields = "owned fields equal the manifest"
	// droppedFields means that fields of an earlier release that this one lacks are removed, unless another writer owns them.
	droppedFields = "dropped fields are gone"
	// foreignFields means that fields set by other writers, and by no release, are unchanged.
	foreignFields = "foreign fields are untouched"
	// presence means that objects exist, or not, according to releases and deletions.
	presence = "objects exist or are deleted as expected"
	// silence means that another run changes nothing.
	silence = "another run changes nothing"
	// testsOwn reports that the model expects an impossible state.
	testsOwn = "the model is correct"
)

// violation is a violated property.
type violation struct {
	property, object, text string
}

func (v violation) String() string { return v.property + ": " + v.object + ": " + v.text }

// run plays one scenario against the cluster.
type run struct {
	ctx    context.Context
	driver Driver
	// others is the client of the other writers.
	others client.Client
	sc     scenario
	// step is the number of the current step, for people.
	step   int
	states map[string]*state
	byID   map[string]declared

	violations []violation
	// refused counts edits that the API server rejected, which are not failures. edits counts all edits.
	refused, edits int
	// excused are objects that left the history, with the reasons.
	excused []string
}

// missing reports whether an error means that a kind or an object does not exist.
func missing(err error) bool {
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || err != nil && strings.Contains(err.Error(), "no match for kind")
}

// play runs a scenario with a given name and returns the run with the violated properties. The error is one of the test itself.
func play(ctx context.Context, driver Driver, others client.Client, sc scenario, name string) (*run, error) {
	r := &run{ctx: ctx, driver: driver, others: others, sc: sc.at(name), states: map[string]*state{}}
	var ids []string
	ids, r.byID = r.sc.ids()
	for _, id := range ids {
		r.states[id] = newState()
	}
	for _, s := range r.sc.steps {
		r.step++
		if s.edit != nil {
			if err := r.do(s.edit); err != nil {
				return r, fmt.Errorf("step %d: %s: %w", r.step, s.edit, err)
			}
			continue
		}
		if err := r.engine(s); err != nil {
			return r, fmt.Errorf("step %d: the engine runs release %s: %w", r.step, s.release, err)
		}
		if len(r.violations) > 0 {
			break
		}
	}
	return r, r.clean()
}

// at inserts a name into a scenario.
func (sc scenario) at(name string) scenario {
	put := func(list []declared) []declared {
		out := make([]declared, len(list))
		for i, d := range list {
			d.object = in(d.object, name)
			d.kind.apiVersion = strings.ReplaceAll(d.kind.apiVersion, place, name)
			d.kind.base = in(d.kind.base, name)
			out[i] = d
		}
		return out
	}
	next := scenario{a: put(sc.a), b: put(sc.b), steps: slices.Clone(sc.steps)}
	for i, s := range next.steps {
		if s.edit == nil {
			continue
		}
		e := *s.edit
		e.object = strings.ReplaceAll(e.object, place, name)
		e.ops = slices.Clone(e.ops)
		for j := range e.ops {
			e.ops[j].value = in(e.ops[j].value, name)
		}
		next.steps[i].edit = &e
	}
	return next
}

// clean removes the CRD of a run, because hundreds of them would burden the API server.
func (r *run) clean() error {
	for _, d := range r.byID {
		if d.kind.name == "CustomResourceDefinition" {
			if err := client.IgnoreNotFound(r.others.Delete(r.ctx, r.reference(d))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) fail(property, object, format string, args ...any) {
	r.violations = append(r.violations, violation{property, object, fmt.Sprintf(format, args...)})
}

// reference returns an object with the identity of a declared one.
func (r *run) reference(d declared) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: object{"apiVersion": d.kind.apiVersion, "kind": d.kind.name}}
	metadata := d.object["metadata"].(object)
	u.SetName(metadata["name"].(string))
	if ns, ok := metadata["namespace"].(string); ok {
		u.SetNamespace(ns)
	}
	return u
}

// get returns an object, nil if it does not exist.
func (r *run) get(d declared) (*unstructured.Unstructured, error) {
	u := r.reference(d)
	if err := r.others.Get(r.ctx, client.ObjectKeyFromObject(u), u); err != nil {
		if missing(err) {
			return nil, nil
		}
		return nil, err
	}
	return u, nil
}

// do makes an edit in the cluster and, if the API server accepts it, in the model.
func (r *run) do(e *edit) error {
	d, ok := r.byID[e.object]
	if !ok {
		return nil // dropped while shortening the history
	}
	s := r.states[e.object]
	if e.how == "precreate" {
		return r.create(d, s, e)
	}
	if !s.exists || s.terminating || s.left {
		return nil
	}
	r.edits++
	err := r.retry(func() error {
		u, err := r.get(d)
		if err != nil {
			return err
		}
		if u == nil {
			return fmt.Errorf("%s should exist", e.object)
		}
		return r.write(d, s, e, u)
	})
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || err != nil && strings.Contains(err.Error(), "failed to create typed patch") {
		r.refused++
		return nil
	}
	return err
}

// retry repeats an action after conflicts with the API server's own controllers, which write to CRDs.
func (r *run) retry(do func() error) error {
	for range 20 {
		if err := do(); !apierrors.IsConflict(err) {
			return err
		}
	}
	return do()
}

func (r *run) write(d declared, s *state, e *edit, u *unstructured.Unstructured) error {
	switch e.how {
	case "put", "merge":
		return r.update(d, s, e, u)
	case "apply":
		return r.apply(d, s, e)
	case "scale":
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, e.replicas)
		err := r.others.SubResource("scale").Patch(r.ctx, u, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(e.by))
		if err == nil {
			next := s.leaves()
			at := parsePath("spec.replicas")
			next[at.String()] = leaf{at, e.replicas}
			s.updateButStatus(d.kind, e.by+" (scale)", next)
		}
		return err
	case "status":
		data, err := json.Marshal(object{"status": e.status})
		if err != nil {
			return err
		}
		if err = r.others.Status().Patch(r.ctx, u, client.RawPatch(types.MergePatchType, data), client.FieldOwner(e.by)); err == nil {
			s.setStatus(d.kind, e.by+" (status)", e.status)
		}
		return err
	case "delete", "replace":
		if err := r.others.Delete(r.ctx, u); err != nil {
			return err
		}
		s.deleteObject()
		if e.how == "replace" {
			return r.create(d, s, e)
		}
		return nil
	}
	return fmt.Errorf("unknown edit %q", e.how)
}

// update writes the whole object or a merge patch with the changes.
func (r *run) update(d declared, s *state, e *edit, u *unstructured.Unstructured) error {
	before := u.DeepCopy()
	model := s.object()
	for _, o := range e.ops {
		if _, ok := getAt(model, o.in); o.in != nil && !ok {
			continue
		}
		for _, obj := range []map[string]any{u.Object, model} {
			if o.remove {
				removeAt(obj, o.at)
			} else {
				setAt(obj, o.at, o.value)
			}
		}
	}
	var err error
	if e.how == "put" {
		err = r.others.Update(r.ctx, u, client.FieldOwner(e.by))
	} else {
		err = r.others.Patch(r.ctx, u, client.MergeFrom(before), client.FieldOwner(e.by))
	}
	if err == nil {
		s.updateButStatus(d.kind, e.by, flatten(d.kind.shape, model))
	}
	return err
}

// updateButStatus is update without status.
func (s *state) updateButStatus(k kind, by string, next map[string]leaf) {
	for name, f := range s.fields {
		if f.at[0] == "status" {
			next[name] = f.leaf
		}
	}
	s.update(k, by, next)
}

// apply uses server-side apply with force, because conflicts of this writer do not matter here.
func (r *run) apply(d declared, s *state, e *edit) error {
	u := r.reference(d)
	for _, o := range e.ops {
		setAt(u.Object, o.at, o.value)
	}
	data, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	if err = r.others.Patch(r.ctx, u, client.RawPatch(types.ApplyPatchType, data), client.FieldOwner(e.by), client.ForceOwnership); err != nil {
		return err
	}
	want := object{}
	for _, o := range e.ops {
		setAt(want, o.at, o.value)
	}
	s.apply(d.kind, e.by+" (apply)", flatten(d.kind.shape, want))
	return nil
}

// create creates the object as another writer, with the fields that every object of the kind has.
func (r *run) create(d declared, s *state, e *edit) error {
	obj := clone(d.kind.base)
	if obj == nil {
		obj = object{}
	}
	maps.Copy(obj, r.reference(d).Object)
	for _, o := range e.ops {
		if _, ok := getAt(obj, o.in); o.in != nil && !ok {
			continue
		}
		setAt(obj, o.at, o.value)
	}
	r.edits++
	if err := r.ensureNamespace(d); err != nil {
		return err
	}
	err := r.others.Create(r.ctx, &unstructured.Unstructured{Object: clone(obj)}, client.FieldOwner(e.by))
	if apierrors.IsInvalid(err) {
		r.refused++
		return nil
	}
	if err == nil {
		s.update(d.kind, e.by, flatten(d.kind.shape, obj))
	}
	return err
}

// ensureNamespace creates the namespace of an object that exists before the release.
func (r *run) ensureNamespace(d declared) error {
	ns, ok := d.object["metadata"].(object)["namespace"].(string)
	if !ok {
		return nil
	}
	u := &unstructured.Unstructured{Object: object{"apiVersion": "v1", "kind": "Namespace"}}
	u.SetName(ns)
	s := r.states["Namespace "+ns]
	if s.exists {
		return nil
	}
	created := u.DeepCopy()
	err := r.others.Create(r.ctx, created, client.FieldOwner("somebody"))
	if err == nil {
		s.update(kindNamed("Namespace"), "somebody", flatten(newShape(nil), u.Object))
	}
	return err
}

// engine makes the engine run a release, compares the objects, and makes the engine run again.
func (r *run) engine(s step) error {
	data := r.sc.release(s.release, s.mode == "Initializing")
	rel, err := r.release(data)
	if err != nil {
		return err
	}
	refused := r.driver.Run(r.ctx, rel, modeOf(s.mode))
	roll(r.states, data)
	r.refusals(s.release, refused)
	if err := r.collect(); err != nil {
		return err
	}
	live, err := r.compare()
	if err != nil {
		return err
	}
	r.judge()
	if len(r.violations) > 0 {
		return nil
	}
	return r.again(rel, s, live)
}

// collect plays the garbage collector, which this control plane lacks. It completes foreground deletions. No object here has dependents.
func (r *run) collect() error {
	for id, s := range r.states {
		if s.exists || s.left {
			continue
		}
		u, err := r.get(r.byID[id])
		if err != nil {
			return err
		}
		if u == nil || u.GetDeletionTimestamp() == nil || !slices.Contains(u.GetFinalizers(), metav1.FinalizerDeleteDependents) {
			continue
		}
		before := u.DeepCopy()
		u.SetFinalizers(slices.DeleteFunc(u.GetFinalizers(), func(f string) bool { return f == metav1.FinalizerDeleteDependents }))
		if err := client.IgnoreNotFound(r.others.Patch(r.ctx, u, client.MergeFrom(before))); err != nil {
			return err
		}
	}
	return nil
}

// again makes the engine run again, which must change nothing. There is one exception: the API server sorts managedFields entries by time.
// An apply without other changes therefore moves its own entry behind another writer's entry from the same second or later. The server
// causes that one write, and the next run must change nothing.
func (r *run) again(rel Release, s step, live map[string]*unstructured.Unstructured) error {
	for range 2 {
		if r.refusals(s.release, r.driver.Run(r.ctx, rel, modeOf(s.mode))); len(r.violations) > 0 {
			return nil
		}
		moved := false
		for id, before := range live {
			if r.byID[id].kind.served || r.states[id].left { // the server itself writes to the object
				continue
			}
			after, err := r.get(r.byID[id])
			if err != nil {
				return err
			}
			if version(before) == version(after) {
				continue
			}
			if onlyMoved(before, after) {
				moved, live[id] = true, after
				continue
			}
			r.fail(silence, id, "resource version %v became %v\n      before %s\n      after  %s", version(before), version(after), whole(before), whole(after))
		}
		if !moved {
			return nil
		}
	}
	r.fail(silence, "release "+s.release, "the entries of managedFields keep moving")
	return nil
}

// onlyMoved reports whether two objects differ only in the order and the times of their managedFields.
func onlyMoved(a, b *unstructured.Unstructured) bool {
	plain := func(u *unstructured.Unstructured) (string, bool) {
		if u == nil {
			return "", false
		}
		u = u.DeepCopy()
		var entries []string
		for _, e := range u.GetManagedFields() {
			e.Time = nil
			entries = append(entries, text(e))
		}
		u.SetManagedFields(nil)
		u.SetResourceVersion("")
		slices.Sort(entries)
		return whole(u) + strings.Join(entries, " "), true
	}
	one, ok := plain(a)
	other, alsoOK := plain(b)
	return ok && alsoOK && one == other
}

func whole(u *unstructured.Unstructured) string {
	if u == nil {
		return "nothing"
	}
	return text(u.Object)
}

func version(u *unstructured.Unstructured) string {
	if u == nil {
		return ""
	}
	return u.GetResourceVersion()
}

func modeOf(name string) release.Mode {
	switch name {
	case "Initializing":
		return release.Initializing
	case "Updating":
		return release.Updating
	}
	return release.Reconciling
}

// release writes the manifests of a release to files and reads them as files of a release.
func (r *run) release(data releaseData) (Release, error) {
	var rel Release
	for i, d := range data.manifests {
		raw, err := json.Marshal(d.object)
		if err != nil {
			return rel, err
		}
		list, err := manifest.Parse(fmt.Sprintf("0000_%02d_test_%02d.yaml", 10+i, i), raw, manifest.Limits{})
		if err != nil {
			return rel, err
		}
		rel.Manifests = append(rel.Manifests, list...)
		if d.overridden {
			id := list[0].ID()
			rel.Overrides = append(rel.Overrides, configv1.ComponentOverride{
				Group: id.Group, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name, Unmanaged: true,
			})
		}
	}
	return rel, nil
}

// compare checks every object and returns the live ones.
func (r *run) compare() (map[string]*unstructured.Unstructured, error) {
	live := map[string]*unstructured.Unstructured{}
	for _, id := range slices.Sorted(maps.Keys(r.states)) {
		s, d := r.states[id], r.byID[id]
		u, err := r.get(d)
		if err != nil {
			return nil, err
		}
		live[id] = u
		switch {
		case s.left:
		case s.exists && u == nil:
			r.fail(presence, id, "the object is missing")
		case !s.exists && u != nil:
			r.fail(presence, id, "the object should not exist")
		case s.terminating:
			if u.GetDeletionTimestamp() == nil {
				r.fail(presence, id, "the object is not being deleted")
			}
		case s.exists:
			if err := r.compareFields(id, d, s, u); err != nil {
				return nil, err
			}
		}
	}
	return live, nil
}

// compareFields compares an object with the model, both with the server's defaults. A dry run of a creation provides the model's defaults.
func (r *run) compareFields(id string, d declared, s *state, u *unstructured.Unstructured) error {
	expected, err := r.defaulted(d, s)
	if err != nil {
		r.fail(testsOwn, id, "the API server rejects the model's object: %v\n      %s", err, text(s.object()))
		return nil
	}
	want, got := flatten(d.kind.shape, expected.Object), flatten(d.kind.shape, u.Object)
	for name, f := range s.fields {
		if f.at[0] == "status" {
			want[name] = f.leaf
		}
	}
	names := maps.Clone(got)
	maps.Copy(names, want)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := names[name].at
		if ignored(d.kind, at, s) {
			continue
		}
		w, wanted := want[name]
		g, there := got[name]
		if wanted && there && same(w.value, g.value) || emptyList(w.value) && emptyList(g.value) {
			continue
		}
		was, is := "nothing", "nothing"
		if wanted {
			was = text(w.value)
		}
		if there {
			is = text(g.value)
		}
		who := ""
		if f, ok := s.fields[name]; ok && len(f.owners) > 0 {
			who = ", of " + f.ownerNames()
		}
		r.fail(propertyOf(s, name, at), id, "%s: want %s%s, is %s", name, was, who, is)
	}
	return nil
}

// emptyList reports whether a value is null or an empty list, which the server does not always distinguish.
func emptyList(value any) bool {
	list, ok := value.([]any)
	return value == nil || ok && len(list) == 0
}

// propertyOf returns the property that a wrong field violates.
func propertyOf(s *state, name string, at path) string {
	if _, ok := s.sent[name]; ok {
		return ownedFields
	}
	for _, l := range s.ever {
		if at.within(l.at) || l.at.within(at) {
			return droppedFields
		}
	}
	return foreignFields
}

// defaulted returns the model's object as the server would store it if it were new.
func (r *run) defaulted(d declared, s *state) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: clone(s.object())}
	u.SetName(u.GetName() + "-expected")
	if d.kind.name == "CustomResourceDefinition" {
		var other map[string]any
		data := strings.ReplaceAll(text(s.object()), "."+d.object["metadata"].(object)["name"].(string), ".expected")
		data = strings.ReplaceAll(data, ".example.com\"", ".expected.com\"")
		if err := decode([]byte(data), &other); err != nil {
			return nil, err
		}
		u.Object = other
	}
	err := r.others.Create(r.ctx, u, client.DryRunAll, client.FieldOwner("expected"))
	return u, err
}

// ignored reports whether only the server sets a field, or the field differs in a dry run.
func ignored(k kind, at path, s *state) bool {
	name := at.String()
	switch at[0] {
	case "metadata":
		if _, modelled := s.fields[name]; modelled && at[1] != "name" {
			return false
		}
		switch at[1] {
		case "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "name", "namespace", "deletionTimestamp", "deletionGracePeriodSeconds":
			return true
		case "annotations":
			return at[2] == "deprecated.daemonset.template.generation"
		case "labels":
			return at[2] == corev1.LabelMetadataName || strings.HasPrefix(at[2], "applyset.kubernetes.io/") || strings.HasPrefix(at[2], "cvo.cluster-version.github.io/")
		}
	case "status":
		_, modelled := s.fields[name]
		return !modelled
	case "spec":
		switch k.name {
		case "Service":
			return at[1] == "clusterIP" || at[1] == "clusterIPs" || at[len(at)-1] == "nodePort"
		case "CustomResourceDefinition":
			return at[1] == "group"
		}
	}
	return false
}
