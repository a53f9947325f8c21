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

// The properties, named in what a failure prints.
const (
	// converges: the engine applies every manifest of a release in the end.
	converges = "converges"
	// ownedFields: every field that the release sets has the manifest's value.
	ownedFields = "owned fields equal the manifest"
	// droppedFields: what an earlier release set and this one does not is gone, unless somebody else owns it.
	droppedFields = "dropped fields are gone"
	// foreignFields: what others set and no release did is as they left it.
	foreignFields = "foreign fields are untouched"
	// presence: objects are there or not, as releases and deletions say.
	presence = "objects are there or gone"
	// silence: a further run changes nothing.
	silence = "a further run is silent"
	// testsOwn: the test expects what cannot be.
	testsOwn = "the model is right"
)

// violation is a property that does not hold.
type violation struct {
	property, object, text string
}

func (v violation) String() string { return v.property + ": " + v.object + ": " + v.text }

// run plays one scenario against the cluster.
type run struct {
	ctx    context.Context
	driver Driver
	// others writes what others write.
	others client.Client
	sc     scenario
	// step counts them, for people.
	step   int
	states map[string]*state
	byID   map[string]declared

	violations []violation
	// refused are edits that the API server did not take, which is the generator's business.
	refused, edits int
	// excused are objects that left the history, and why.
	excused []string
}

// missing reports whether a kind or an object is not there.
func missing(err error) bool {
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || err != nil && strings.Contains(err.Error(), "no match for kind")
}

// play runs a scenario under a name of its own and returns which properties did not hold. The error is that of the
// test itself.
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

// at puts a name into a scenario.
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

// clean removes the CRD of a run: hundreds of them would burden the API server.
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

// reference is an object that names the one declared.
func (r *run) reference(d declared) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: object{"apiVersion": d.kind.apiVersion, "kind": d.kind.name}}
	metadata := d.object["metadata"].(object)
	u.SetName(metadata["name"].(string))
	if ns, ok := metadata["namespace"].(string); ok {
		u.SetNamespace(ns)
	}
	return u
}

// get reads an object; nil if it is not there.
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

// do has somebody edit an object, in the cluster and, if the API server takes it, in the model.
func (r *run) do(e *edit) error {
	d, ok := r.byID[e.object]
	if !ok {
		return nil // dropped while making the history shorter
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
			return fmt.Errorf("%s should be there", e.object)
		}
		return r.write(d, s, e, u)
	})
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || err != nil && strings.Contains(err.Error(), "failed to create typed patch") {
		r.refused++
		return nil
	}
	return err
}

// retry does something again that the API server's own controllers got in the way of, as they do with CRDs.
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
		s.vanish()
		if e.how == "replace" {
			return r.create(d, s, e)
		}
		return nil
	}
	return fmt.Errorf("nobody can %q", e.how)
}

// update writes the whole object, or a merge patch of what changed.
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

// updateButStatus is update for what is not status.
func (s *state) updateButStatus(k kind, by string, next map[string]leaf) {
	for name, f := range s.fields {
		if f.at[0] == "status" {
			next[name] = f.leaf
		}
	}
	s.update(k, by, next)
}

// apply server-side applies, by force: what cannot have its way there says nothing about ours.
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

// create is a creation by somebody else, with what every object of the kind has.
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

// ensureNamespace makes the namespace of an object that is there before the release.
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

// engine has the engine run a release, compares, and has it run once more.
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

// collect plays the garbage collector, which this control plane lacks: it lets go of objects that are deleted in the
// foreground. Nothing here has children.
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

// again has the engine run once more, which must change nothing. The API server keeps the entries of managedFields in
// the order of their times, so an apply that changes nothing else moves its own entry behind one that somebody wrote
// later, or in the same second: that one write is the server's, and the run after it has to be silent.
func (r *run) again(rel Release, s step, live map[string]*unstructured.Unstructured) error {
	for range 2 {
		if r.refusals(s.release, r.driver.Run(r.ctx, rel, modeOf(s.mode))); len(r.violations) > 0 {
			return nil
		}
		moved := false
		for id, before := range live {
			if r.byID[id].kind.served || r.states[id].left { // the server writes to it itself
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
	r.fail(silence, "release "+s.release, "the entries of managedFields move again and again")
	return nil
}

// onlyMoved reports whether two objects differ in the order and the times of their managedFields alone.
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

// release writes the manifests of a release as files and reads them as a release's.
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

// compare looks at every object and returns what there is.
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
			r.fail(presence, id, "it is missing")
		case !s.exists && u != nil:
			r.fail(presence, id, "it should be gone")
		case s.terminating:
			if u.GetDeletionTimestamp() == nil {
				r.fail(presence, id, "it is not being deleted")
			}
		case s.exists:
			if err := r.compareFields(id, d, s, u); err != nil {
				return nil, err
			}
		}
	}
	return live, nil
}

// compareFields compares an object with the model, both with the server's defaults: those of the model are what the
// server answers to a dry run of creating it.
func (r *run) compareFields(id string, d declared, s *state, u *unstructured.Unstructured) error {
	expected, err := r.defaulted(d, s)
	if err != nil {
		r.fail(testsOwn, id, "the API server refuses what the model expects: %v\n      %s", err, text(s.object()))
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
			who = ", of " + f.who()
		}
		r.fail(propertyOf(s, name, at), id, "%s: want %s%s, is %s", name, was, who, is)
	}
	return nil
}

// emptyList reports whether a value is nothing, or a list of nothing, which the server does not always tell apart.
func emptyList(value any) bool {
	list, ok := value.([]any)
	return value == nil || ok && len(list) == 0
}

// propertyOf tells which property a wrong field violates.
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

// defaulted is the model's object as the server would store it if it were new.
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

// ignored are fields that only the server sets, or that differ for the object of the dry run.
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
