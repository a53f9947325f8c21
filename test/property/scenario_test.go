package property

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// declared is a manifest of a release.
type declared struct {
	kind   kind
	object map[string]any
	// overridden reports that the administrator has set the object to unmanaged.
	overridden bool
}

// id identifies an object.
func (d declared) id() string { return d.kind.name + " " + d.name() }

func (d declared) name() string {
	name, _ := getAt(d.object, parsePath("metadata.name"))
	return name.(string)
}

func (d declared) annotation(name string) string {
	value, _ := getAt(d.object, path{"metadata", "annotations", name})
	text, _ := value.(string)
	return text
}

func (d declared) tombstone() bool { return d.annotation("release.openshift.io/delete") == "true" }
func (d declared) createOnly() bool {
	return d.annotation("release.openshift.io/create-only") == "true"
}

// marked returns the object with the engine's additions.
func (d declared) marked() map[string]any {
	marked := clone(d.object)
	extra := marks(d.createOnly())
	for name, value := range extra["labels"].(object) {
		setAt(marked, path{"metadata", "labels", name}, value)
	}
	setAt(marked, path{"metadata", "ownerReferences"}, extra["ownerReferences"])
	return marked
}

// releaseData is a release in the model.
type releaseData struct {
	manifests []declared
	// installs reports that this is the first release and that it is being installed.
	installs bool
}

// step is a step of a history: the engine runs a release, or another writer edits an object.
type step struct {
	// release is "A" or "B", and mode its mode, if the engine runs. Otherwise edit is the edit of another writer.
	release, mode string
	edit          *edit
}

// edit is an edit of an object by another writer.
type edit struct {
	// object is the object's id.
	object string
	// how is put, merge, apply, scale, status, delete, replace or precreate.
	how string
	// by is the field manager.
	by  string
	ops []op
	// status is the written status. replicas is the written scale.
	status   map[string]any
	replicas int64
}

// op sets or removes a field.
type op struct {
	at     path
	in     path
	value  any
	remove bool
}

func (o op) String() string {
	if o.remove {
		return "remove " + o.at.String()
	}
	return fmt.Sprintf("set %s to %s", o.at, text(o.value))
}

// String describes the edit in words.
func (e *edit) String() string {
	var what string
	switch e.how {
	case "status":
		what = "writes status " + text(e.status)
	case "scale":
		what = fmt.Sprintf("scales to %d", e.replicas)
	case "delete":
		what = "deletes it"
	default:
		what = map[string]string{
			"put": "replaces the object, having", "merge": "sends a merge patch to", "apply": "server-side applies",
			"replace": "deletes it and creates it with", "precreate": "creates it with",
		}[e.how]
		for _, o := range e.ops {
			what += "\n      " + o.String()
		}
	}
	return fmt.Sprintf("%s: %s %s", e.object, e.by, what)
}

// scenario is a history with its two releases and the steps.
type scenario struct {
	a, b  []declared
	steps []step
}

// ids returns the objects of a scenario, in the order in which they are applied, and their manifests.
func (sc scenario) ids() ([]string, map[string]declared) {
	var ids []string
	byID := map[string]declared{}
	for _, d := range slices.Concat(sc.a, sc.b) {
		if _, ok := byID[d.id()]; !ok {
			ids = append(ids, d.id())
			byID[d.id()] = d
		}
	}
	return ids, byID
}

func (sc scenario) release(name string, installs bool) releaseData {
	if name == "A" {
		return releaseData{sc.a, installs}
	}
	return releaseData{sc.b, installs}
}

// generator creates scenarios. All randomness comes from one source, so a seed determines a scenario.
type generator struct{ *rand.Rand }

func (g generator) chance(p float64) bool { return g.Float64() < p }

func pick[T any](g generator, list []T) T { return list[g.IntN(len(list))] }

const includeAnnotation = "include.release.openshift.io/self-managed-high-availability"

// scenario creates two releases and a history.
func (g generator) scenario() scenario {
	var sc scenario
	for _, k := range g.chooseKinds() {
		id := object{"name": nameOf(k, 0)}
		if !k.clusterScoped {
			id["namespace"] = place
		}
		first := g.manifest(k, id, nil)
		second := g.manifest(k, id, first.object)
		inA, inB := g.chance(0.85), g.chance(0.9)
		if k.stays || k.name == "Thing" || !inA && !inB {
			inA, inB = true, true
		}
		switch {
		case k.clusterScoped && k.stays: // the first object to be applied and the last to be deleted
		case k.name != "Thing" && inA && inB && g.chance(0.07):
			second.annotate("release.openshift.io/delete", "true")
		case g.chance(0.08) && !leftOut("create-only"):
			first.annotate("release.openshift.io/create-only", "true")
			if g.chance(0.7) {
				second.annotate("release.openshift.io/create-only", "true")
			}
		}
		if inB && !k.stays && g.chance(0.06) {
			second.overridden = true
		}
		if inA {
			sc.a = append(sc.a, first)
		}
		if inB {
			sc.b = append(sc.b, second)
		}
	}
	g.history(&sc)
	return sc
}

func (d *declared) annotate(name, value string) {
	setAt(d.object, path{"metadata", "annotations", name}, value)
}

// chooseKinds chooses the kinds of a release. Every release has a Namespace. Few have a CRD and its resource, because each CRD is expensive
// for the API server.
func (g generator) chooseKinds() []kind {
	var chosen []kind
	for _, k := range kinds() {
		k.slots = slices.DeleteFunc(k.slots, func(s slot) bool { return leftOut(s.at.String()) })
		switch {
		case k.name == "Namespace":
			chosen = append(chosen, k)
		case k.name == "CustomResourceDefinition":
			if g.chance(0.04) {
				chosen = append(chosen, k, thingKind())
			}
		case g.chance(0.3):
			chosen = append(chosen, k)
		}
	}
	return chosen
}

// leftOut reports whether -property.without names a part of a path.
func leftOut(text string) bool {
	for part := range strings.SplitSeq(*without, ",") {
		if part != "" && strings.Contains(text, part) {
			return true
		}
	}
	return false
}

func nameOf(k kind, n int) string {
	switch {
	case k.name == "Namespace":
		return place
	case k.name == "CustomResourceDefinition":
		return "things." + place + ".example.com"
	case k.clusterScoped:
		return fmt.Sprintf("%s-%d", place, n)
	}
	return fmt.Sprintf("x-%d", n)
}

// manifest creates a manifest. If the earlier release has one, most of it stays the same.
func (g generator) manifest(k kind, id map[string]any, before map[string]any) declared {
	obj := clone(k.base)
	if obj == nil {
		obj = object{}
	}
	obj["apiVersion"], obj["kind"], obj["metadata"] = k.apiVersion, k.name, clone(id)
	setAt(obj, path{"metadata", "annotations", includeAnnotation}, "true")
	for _, s := range k.slots {
		if s.foreign {
			continue
		}
		if _, there := getAt(obj, s.in); s.in != nil && !there {
			continue
		}
		old, had := getAt(before, s.at)
		switch {
		case before == nil && (s.required || g.chance(0.55)),
			had && g.chance(0.22), had && s.required && g.chance(0.3),
			before != nil && !had && g.chance(0.25):
			setAt(obj, s.at, pick(g, s.values))
		case had && (s.required || g.chance(0.78)):
			setAt(obj, s.at, withoutSlotsInside(k, s, old))
		}
	}
	return declared{kind: k, object: obj}
}

// withoutSlotsInside returns an item as its own slot sets it. The slots inside it are decided separately.
func withoutSlotsInside(k kind, s slot, value any) any {
	value = clone(value)
	fields, ok := value.(map[string]any)
	if !ok {
		return value
	}
	for _, inner := range k.slots {
		if len(inner.at) > len(s.at) && inner.at.within(s.at) {
			removeAt(fields, inner.at[len(s.at):])
		}
	}
	return fields
}

// history creates the steps. Other writers may write first. Then A is installed, edited and perhaps repaired. Then B is rolled out, edited
// and repaired.
func (g generator) history(sc *scenario) {
	h := &historian{generator: g, sc: sc}
	ids, byID := sc.ids()
	for _, id := range ids {
		if d := byID[id]; !d.kind.stays && d.kind.name != "Thing" && g.chance(0.08) {
			h.add(step{edit: &edit{object: id, how: "precreate", by: h.randomWriter(), ops: h.whole(d.kind)}})
		}
	}
	h.add(step{release: "A", mode: pick(g, []string{"Initializing", "Initializing", "Updating"})})
	h.edits(byID, ids)
	if g.chance(0.35) {
		h.add(step{release: "A", mode: "Reconciling"})
		h.edits(byID, ids)
	}
	h.add(step{release: "B", mode: "Updating"})
	h.edits(byID, ids)
	h.add(step{release: "B", mode: "Reconciling"})
}

// historian creates steps.
type historian struct {
	generator
	sc *scenario
}

func (h *historian) add(s step) { h.sc.steps = append(h.sc.steps, s) }

func (h *historian) randomWriter() string {
	return pick(h.generator, []string{"kubectl-edit", "injector", "mesh", "horizontal-pod-autoscaler"})
}

func (h *historian) edits(byID map[string]declared, ids []string) {
	// Some objects get most of the edits, because an edit affects the result of the next one.
	favourite := pick(h.generator, ids)
	for range h.IntN(12) {
		id := favourite
		if h.chance(0.6) {
			id = pick(h.generator, ids)
		}
		d := byID[id]
		if d.kind.name == "Namespace" && h.chance(0.7) {
			continue
		}
		h.add(step{edit: h.edit(d)})
	}
}

func (h *historian) edit(d declared) *edit {
	e := &edit{object: d.id(), by: h.randomWriter()}
	roll := h.Float64()
	switch {
	case roll < 0.10 && !d.kind.stays:
		e.how = "delete"
	case roll < 0.15 && !d.kind.stays && d.kind.name != "Thing":
		e.how, e.ops = "replace", h.whole(d.kind)
	case roll < 0.22 && d.kind.scales:
		e.how, e.replicas = "scale", int64(h.IntN(4)+1)
	case roll < 0.29 && d.kind.status != nil:
		e.how, e.status = "status", clone(pick(h.generator, d.kind.status))
	case roll < 0.50:
		e.how, e.by = "apply", pick(h.generator, []string{"gitops", "mesh-apply"})
		for range h.IntN(4) {
			if o := h.op(d); !o.remove && !slices.ContainsFunc(e.ops, func(other op) bool { return other.at.within(o.at) || o.at.within(other.at) }) {
				e.ops = append(e.ops, o)
			}
		}
	case roll < 0.75:
		e.how = "put"
	default:
		e.how = "merge"
	}
	if e.how == "put" || e.how == "merge" {
		for range 1 + h.IntN(3) {
			e.ops = append(e.ops, h.op(d))
		}
	}
	return e
}

// op returns a change of any slot, whether releases set it or not.
func (h *historian) op(d declared) op {
	for {
		s := pick(h.generator, d.kind.slots)
		if !s.required && h.chance(0.35) {
			return op{at: s.at, in: s.in, remove: true}
		}
		if d.kind.served && s.required {
			continue
		}
		value := clone(pick(h.generator, s.values))
		if h.chance(0.3) { // exactly the value of a manifest
			if ours, ok := getAt(d.object, s.at); ok {
				value = withoutSlotsInside(d.kind, s, ours)
			}
		}
		return op{at: s.at, in: s.in, value: value}
	}
}

// whole returns the fields of an object that another writer creates.
func (h *historian) whole(k kind) []op {
	var ops []op
	for _, s := range k.slots {
		if s.required || h.chance(0.3) {
			ops = append(ops, op{at: s.at, in: s.in, value: clone(pick(h.generator, s.values))})
		}
	}
	return ops
}

// print returns the scenario for people: manifests, then steps.
func (sc scenario) print() string {
	var b strings.Builder
	for _, r := range []struct {
		name      string
		manifests []declared
	}{{"A", sc.a}, {"B", sc.b}} {
		fmt.Fprintf(&b, "release %s:\n", r.name)
		for _, d := range r.manifests {
			data, err := yaml.Marshal(d.object)
			if err != nil {
				panic(err)
			}
			note := ""
			if d.overridden {
				note = " # overridden"
			}
			fmt.Fprintf(&b, "  ---%s\n  %s\n", note, strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", "\n  "))
		}
	}
	b.WriteString("steps:\n")
	for i, s := range sc.steps {
		if s.edit != nil {
			fmt.Fprintf(&b, "  %d. %s\n", i+1, s.edit)
		} else {
			fmt.Fprintf(&b, "  %d. the engine runs release %s, %s\n", i+1, s.release, s.mode)
		}
	}
	return b.String()
}

// in returns a JSON value with the placeholder replaced by a name.
func in[T any](value T, name string) T {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var out T
	if err := decode([]byte(strings.ReplaceAll(string(data), place, name)), &out); err != nil {
		panic(err)
	}
	return out
}
