package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/ownership"
)

// takeOver makes what is in the way of an apply ours alone, and applies again, which removes it: the manifest wins,
// whoever owns what does not go with it. Nothing but what inTheWay finds is taken; fields of former managers become ours by
// the way. What the server lets go of only now may show something else that is in the way, so this is tried a few
// times. If there is nothing to take, or if taking it changed nothing, the error is the last refusal.
//
// Killed in between, the next apply removes what was taken.
func (s *sending) takeOver(ctx context.Context, refused error) (answer, error) {
	var conflict error
	for range attempts {
		live, err := s.look(ctx)
		switch {
		case apierrors.IsNotFound(err):
			return answer{}, refused
		case err != nil:
			return answer{}, err
		}
		paths := lay(s.body, live).inTheWay(causes(refused))
		before := live.GetManagedFields()
		entries, adopted := ownership.Adopt(s.m.GVK(), before)
		entries, taken := ownership.Take(s.m.GVK(), entries, paths)
		if !adopted && !taken {
			return answer{}, refused
		}
		seen := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: live.GetResourceVersion()}}
		stored, err := s.applier.client.setManagers(ctx, s.target, seen, entries)
		if conflict = nil; apierrors.IsConflict(err) { // the refusal may have been about what was there before
			conflict = err
		} else if err != nil {
			return answer{}, fmt.Errorf("taking over what is in the way: %w", err)
		}
		got, err := s.send(ctx)
		switch {
		case err == nil && conflict == nil:
			s.tell(before, paths)
			return got, nil
		case !isRefusal(err):
			return got, err
		case conflict != nil:
			refused = err
			continue
		}
		if fields, _ := immutable(causes(err)); len(fields) > 0 { // nobody can remove it, and no later apply shall try to
			_, restoring := s.applier.client.setManagers(ctx, s.target, stored, before)
			if restoring != nil {
				err = fmt.Errorf("giving up what cannot be removed: %w", restoring)
			}
			return answer{}, err
		}
		if summary(err) == summary(refused) {
			return answer{}, refused
		}
		s.tell(before, paths)
		refused = err
	}
	if conflict != nil {
		return answer{}, fmt.Errorf("taking over what is in the way: %w", conflict)
	}
	return answer{}, refused
}

// tell notes what others lose.
func (s *sending) tell(entries []metav1.ManagedFieldsEntry, paths []fieldpath.Path) {
	for _, path := range paths {
		if field, held := held(entries, path); held {
			s.taken = append(s.taken, field)
		}
	}
}

// held names a field, and its owners if there are any but us.
func held(entries []metav1.ManagedFieldsEntry, path fieldpath.Path) (field string, held bool) {
	field = strings.TrimPrefix(path.String(), ".")
	managers := ownership.Holders(entries, path)
	if len(managers) == 0 {
		return field, false
	}
	return field + " of " + strings.Join(managers, ", "), true
}

// look reads the whole object. One whose managedFields were stripped is given those that the server would begin them anew
// with: without them nothing tells which lists have keys.
func (s *sending) look(ctx context.Context) (*unstructured.Unstructured, error) {
	live, err := s.applier.client.getObject(ctx, s.target)
	if err != nil || len(live.GetManagedFields()) > 0 {
		return live, err
	}
	nothing, err := json.Marshal(map[string]any{
		"apiVersion": s.body["apiVersion"], "kind": s.body["kind"], "metadata": map[string]any{"name": s.target.name},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	with, _, err := s.applier.client.dryApply(ctx, s.target, nothing, true)
	if err != nil {
		return nil, err
	}
	live.SetManagedFields(with.GetManagedFields())
	return live, nil
}

// inTheWay returns what has to go so that the server no longer says what the causes of a refusal say: places that the
// object has and the body does not, by what is known of refusals:
//
//   - a place in an item of a list: the item, innermost first. It cannot stand without what the manifest dropped.
//   - a value that is there twice: the item, or the field, that the body does not have.
//   - a place itself: a member of a union, a parameter that does not go with a type, an empty map that became null, or
//     what has lost a part that it cannot be without.
//   - a place of the body: what the server says, in words, does not go with it.
func (o *overlay) inTheWay(list []cause) []fieldpath.Path {
	var found []fieldpath.Path
	// What is not found may be refused for another reason that the causes tell, as the volume of a mount.
	missing := func(c cause) bool { return c.kind == metav1.CauseTypeFieldValueNotFound }
	for _, part := range [][]cause{
		slices.DeleteFunc(slices.Clone(list), missing),
		slices.DeleteFunc(slices.Clone(list), func(c cause) bool { return !missing(c) }),
	} {
		if len(found) > 0 {
			break
		}
		for _, c := range part {
			for _, path := range o.culprits(c) {
				if !slices.ContainsFunc(found, path.Equals) {
					found = append(found, path)
				}
			}
		}
	}
	// What lies within something else that goes needs no word of its own.
	return slices.DeleteFunc(found, func(path fieldpath.Path) bool {
		return slices.ContainsFunc(found, func(outer fieldpath.Path) bool {
			return len(outer) < len(path) && outer.Equals(path[:len(outer)])
		})
	})
}

// externalNames are fields that the server calls by another name than the API does.
var externalNames = map[string]string{
	"spec.conversion.webhookClientConfig":      "spec.conversion.webhook",
	"spec.conversion.conversionReviewVersions": "spec.conversion.webhook",
}

// null is what a server says of a custom resource's map or list whose last entry went, but which somebody else set:
// structured-merge-diff leaves null in its place.
var null = regexp.MustCompile(`must be of type \w+: "null"$`)

func (o *overlay) culprits(c cause) []fieldpath.Path {
	field := c.field
	if external, ok := externalNames[field]; ok {
		field = external
	}
	way, _ := o.walk(field)
	if len(way) < 2 || slices.Contains([]string{".apiVersion", ".kind", ".metadata", ".status"}, way[1].pattern) {
		return nil
	}
	for _, s := range slices.Backward(way) {
		if s.isItem() && s.foreign() {
			return []fieldpath.Path{s.path}
		}
	}
	last := way[len(way)-1]
	if match := overLimit.FindStringSubmatch(c.detail); match != nil {
		resources := way[len(way)-2]
		return foreign([]spot{resources.field("requests").field(match[1]), resources.field("limits").field(match[1])})
	}
	if match := nodePortTwice.FindStringSubmatch(c.detail); match != nil {
		var found []spot
		for _, port := range o.items(last) {
			taken := port.field("nodePort")
			switch {
			case !sameValue(taken.live, match[2]) || !sameValue(port.field("protocol").live, match[1]):
			case port.foreign():
				found = append(found, port)
			default:
				found = append(found, taken)
			}
		}
		return foreign(found)
	}
	switch {
	case last.foreign():
		if len(last.path) == 1 && !null.MatchString(c.detail) { // not the whole of a spec
			return nil
		}
		return []fieldpath.Path{last.path}
	case c.kind == metav1.CauseTypeFieldValueDuplicate:
		return o.duplicates(way)
	case c.kind == metav1.CauseTypeFieldValueRequired && nameless.MatchString(field):
		return foreign(o.items(way[2]))
	}
	return o.rivals(way, c.detail)
}

// nameless is a port of a Service that has no name, which it may not be without beside others.
var nameless = regexp.MustCompile(`^spec\.ports\[\d+\]\.name$`)

// foreign returns the paths of those places that the body lacks.
func foreign(spots []spot) (paths []fieldpath.Path) {
	for _, s := range spots {
		if s.foreign() {
			paths = append(paths, s.path)
		}
	}
	return paths
}

// containerLists are the lists of a pod that share their names.
var containerLists = regexp.MustCompile(`\.(c|initC|ephemeralC)ontainers$`)

// duplicates returns what has the same value as a field of an item, in the same list, or one like it.
func (o *overlay) duplicates(way []spot) []fieldpath.Path {
	last := way[len(way)-1]
	item := slices.IndexFunc(way, spot.isItem)
	for i, s := range way {
		if s.isItem() {
			item = i
		}
	}
	if item < 0 || item == len(way)-1 {
		return nil
	}
	within := last.path[len(way[item].path):]
	pattern := way[item-1].pattern
	same := func(other string) bool {
		return other == pattern || containerLists.ReplaceAllString(other, "") == containerLists.ReplaceAllString(pattern, "") &&
			containerLists.MatchString(other) && containerLists.MatchString(pattern)
	}
	var found []fieldpath.Path
	o.each(o.root(), func(list, other spot) {
		if !same(list.pattern) || other.path.Equals(way[item].path) {
			return
		}
		at := other
		for _, step := range within {
			if step.FieldName == nil {
				return
			}
			at = at.field(*step.FieldName)
		}
		switch {
		case !at.foreign() || !sameValue(at.live, last.body):
		case other.foreign():
			found = append(found, other.path)
		default:
			found = append(found, at.path)
		}
	})
	return found
}

var (
	quotedName = regexp.MustCompile("`([A-Za-z]+)`")
	word       = regexp.MustCompile(`[A-Za-z]+`)
	// oneOf is in what servers say of the members of unions when a place of the body is named, and other members are, too.
	oneOf = regexp.MustCompile(`(?i)more than (1|one)|exactly one|only one|at most one|\bboth\b|mutually exclusive` +
		`|(may|must|can) ?not be (true|set|specified|used)`)
	// tooMany is the same where no other member is named.
	tooMany = regexp.MustCompile(`(?i)more than (1|one)|exactly one|only one|at most one`)
	// overLimit is said of all requests of a container, for one resource.
	overLimit = regexp.MustCompile(`^must be less than or equal to (\S+) limit of `)
)

// rivals returns what does not go with a place that the body has, as the server tells it: fields that it quotes, wherever
// they are around that place; members of a union that it names next to it or below it; or, if it names none, all those
// that have members of their own, as the sources of volumes and the handlers of probes do.
func (o *overlay) rivals(way []spot, says string) []fieldpath.Path {
	var quoted []string
	for _, match := range quotedName.FindAllStringSubmatch(says, -1) {
		quoted = append(quoted, match[1])
	}
	for _, around := range slices.Backward(way) {
		if found := around.foreignFields(func(_ spot, name string) bool { return slices.Contains(quoted, name) }); found != nil {
			return found
		}
	}
	last := way[len(way)-1]
	if !oneOf.MatchString(says) {
		return nil
	}
	words := word.FindAllString(says, -1)
	near := []spot{way[len(way)-2], last}
	for _, around := range near {
		if found := around.foreignFields(func(_ spot, name string) bool { return slices.Contains(words, name) }); found != nil {
			return found
		}
	}
	if !tooMany.MatchString(says) {
		return nil
	}
	for _, around := range near {
		if found := around.foreignFields(func(s spot, _ string) bool { return isObject(s.live) }); found != nil {
			return found
		}
	}
	return nil
}

// foreignFields returns the fields below a place that the body lacks, as far as they are looked for.
func (s spot) foreignFields(wanted func(s spot, name string) bool) (paths []fieldpath.Path) {
	if len(s.path) == 0 || isList(s.live) {
		return nil
	}
	for _, name := range s.names() {
		if next := s.field(name); next.foreign() && wanted(next, name) {
			paths = append(paths, next.path)
		}
	}
	return paths
}

func isList(v any) bool {
	_, ok := v.([]any)
	return ok
}

// removed returns a copy of an object without what is at a path, and what that leaves empty around it.
func removed(current any, path fieldpath.Path) any {
	switch v := current.(type) {
	case map[string]any:
		step := path[0].FieldName
		if step == nil || v[*step] == nil {
			return current
		}
		v = maps.Clone(v)
		if len(path) > 1 {
			v[*step] = removed(v[*step], path[1:])
		}
		if len(path) == 1 || isEmpty(v[*step]) {
			delete(v, *step)
		}
		return v
	case []any:
		if path[0].Key == nil {
			return current
		}
		keys := make([]string, 0, len(*path[0].Key))
		for _, field := range *path[0].Key {
			keys = append(keys, field.Name)
		}
		v = slices.Clone(v)
		for i := len(v) - 1; i >= 0; i-- {
			item, _ := entries(v[i:i+1], keys)
			if len(item) == 0 || !item[0].key.Equals(path[0]) {
				continue
			}
			if len(path) == 1 {
				v = slices.Delete(v, i, i+1)
			} else {
				v[i] = removed(v[i], path[1:])
			}
		}
		return v
	}
	return current
}

func fieldName(name string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &name} }
