package apply

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/cluster-version/cvo/pkg/ownership"
)

// takeUnowned makes fields ours that are in the way of an apply, and applies again, which removes them: what the server
// once set by default belongs to nobody, and stays when something is applied that it does not go with. Fields of
// former managers become ours by the way. A field that somebody else owns is not taken. If there is nothing to take,
// the error is refused itself.
//
// A Deployment without a strategy has one of type RollingUpdate with its parameters; to apply type Recreate is refused
// because of them. Members of unions that a manifest named need nothing of this: they are ours.
func (s *sending) takeUnowned(ctx context.Context, list []cause, refused error) (answer, error) {
	conflict := refused
	for range attempts {
		meta, err := s.applier.client.get(ctx, s.target)
		switch {
		case apierrors.IsNotFound(err):
			return answer{}, refused
		case err != nil:
			return answer{}, err
		}
		paths := inTheWay(s.body, list)
		if err := heldByOthers(meta.ManagedFields, paths, refused); err != nil {
			return answer{}, err
		}
		entries, adopted := ownership.Adopt(s.m.GVK(), meta.ManagedFields)
		entries, taken := ownership.Take(s.m.GVK(), entries, paths)
		if !adopted && !taken {
			return answer{}, refused
		}
		_, err = s.applier.client.setManagers(ctx, s.target, meta, entries)
		if apierrors.IsConflict(err) {
			conflict = err
			continue
		}
		if err != nil {
			return answer{}, fmt.Errorf("taking fields that nobody owns: %w", err)
		}
		got, err := s.send(ctx)
		if apierrors.IsInvalid(err) && summary(err) == summary(refused) {
			err = refused
		}
		return got, err
	}
	return answer{}, fmt.Errorf("taking fields that nobody owns: %w", conflict)
}

// heldByOthers fails if somebody else owns what is in the way.
func heldByOthers(entries []metav1.ManagedFieldsEntry, paths []fieldpath.Path, refused error) error {
	r := &refusal{cause: "a field of somebody else does not go with the manifest", err: refused}
	var texts []string
	for _, path := range paths {
		managers := ownership.Holders(entries, path)
		if len(managers) == 0 {
			continue
		}
		field := strings.TrimPrefix(path.String(), ".")
		r.fields = append(r.fields, field)
		texts = append(texts, fmt.Sprintf("%s belongs to field manager %s", field, strings.Join(managers, ", ")))
	}
	if len(texts) == 0 {
		return nil
	}
	r.text = strings.Join(texts, "; ") + "; " + summary(refused)
	r.remedy = "edit the object so that it agrees with the manifest, or remove the manager's entry from its metadata.managedFields"
	return r
}

// volumeUnion is what the server says when a volume has two sources. The one it names is ours; the other one can only be
// an emptyDir, the source by default.
var volumeUnion = regexp.MustCompile(`^(.*)\.volumes\[\d+\]\.\w+$`)

// inTheWay returns the fields that the causes of a refusal name and that body does not have.
func inTheWay(body map[string]any, list []cause) []fieldpath.Path {
	var paths []fieldpath.Path
	for _, c := range list {
		if c.kind != metav1.CauseTypeFieldValueInvalid && c.kind != metav1.CauseTypeForbidden {
			continue
		}
		if match := volumeUnion.FindStringSubmatch(c.field); match != nil && strings.Contains(c.detail, "more than 1") {
			paths = append(paths, defaultVolumes(body, strings.Split(match[1], "."))...)
			continue
		}
		field := c.field
		if external, ok := externalNames[field]; ok {
			field = external
		}
		names := strings.Split(field, ".")
		if field == "" || strings.ContainsAny(field, "[]") {
			continue
		}
		if _, found, _ := unstructured.NestedFieldNoCopy(body, names...); !found {
			paths = append(paths, pathOf(names))
		}
	}
	return paths
}

// externalNames are fields that the server calls by another name than the API does.
var externalNames = map[string]string{"spec.conversion.webhookClientConfig": "spec.conversion.webhook"}

// defaultVolumes returns where the volumes of a pod spec that have a source would have their default one.
func defaultVolumes(body map[string]any, podSpec []string) []fieldpath.Path {
	volumes, _, _ := unstructured.NestedFieldNoCopy(body, append(podSpec, "volumes")...)
	entries, _ := volumes.([]any)
	var paths []fieldpath.Path
	for _, entry := range entries {
		volume, _ := entry.(map[string]any)
		name, _ := volume["name"].(string)
		if _, empty := volume["emptyDir"]; empty || len(volume) < 2 {
			continue
		}
		key := value.FieldList{{Name: "name", Value: value.NewValueInterface(name)}}
		path := pathOf(append(podSpec, "volumes"))
		path = append(path, fieldpath.PathElement{Key: &key}, fieldName("emptyDir"))
		paths = append(paths, path)
	}
	return paths
}

func pathOf(names []string) fieldpath.Path {
	path := make(fieldpath.Path, len(names))
	for i, name := range names {
		path[i] = fieldName(name)
	}
	return path
}

func fieldName(name string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &name} }
