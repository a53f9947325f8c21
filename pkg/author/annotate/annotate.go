// Package annotate adds the annotation of a cluster profile to manifests that name no profile, so that clusters install them. It takes the
// text of a file and returns the changed text. It keeps comments, formatting and all other fields.
package annotate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Result is an annotated file.
type Result struct {
	Data []byte
	// Manifests are the valid objects in Data. Invalid is set if the file has errors.
	Manifests []*manifest.Manifest
	Invalid   bool
	// Objects are the annotated objects in the order of the file.
	Objects []manifest.ID
	// Lines are the numbers of the added lines in Data, from 1.
	Lines []int
}

// File adds the annotation include.release.openshift.io/<profile>: "true", unless profile is empty, to every object of a file that has no annotation with the prefix
// include.release.openshift.io/ or exclude.release.openshift.io/. It returns the unchanged text if no object needs the annotation, or if the
// file is not valid: assembling the release reports that.
//
// It returns an error for an object to which the annotation cannot be added without changing other text, such as an object whose
// annotations are an alias of another field, or an object that the annotation makes too large.
func File(name string, data []byte, profile string) (Result, error) {
	key := api.IncludePrefix + profile
	before := manifest.Examine(name, data)
	out := Result{Data: data, Manifests: before.Manifests, Invalid: len(before.Errors) > 0}
	if out.Invalid || profile == "" {
		return out, nil
	}
	documents := map[int]bool{}
	for _, m := range before.Manifests {
		if namesNoProfile(m.Object.GetAnnotations()) {
			out.Objects = append(out.Objects, m.ID())
			documents[m.Document] = true
		}
	}
	if len(documents) == 0 {
		return out, nil
	}
	text := newText(data, before.Lines)
	for _, number := range slices.Sorted(maps.Keys(documents)) {
		if err := text.annotate(number, key); err != nil {
			return Result{}, fmt.Errorf("%s[%d]: adding annotation %s: %w: add it to the file", name, number, key, err)
		}
	}
	out.Data, out.Lines = text.edited()
	after := manifest.Examine(name, out.Data)
	if len(after.Errors) > 0 { // such as an object that was just below the size limit
		return Result{}, fmt.Errorf("with annotation %s, which the file needs: %w", key, after.Errors[0])
	}
	if id, ok := onlyAnnotated(before.Manifests, after.Manifests, key); !ok {
		return Result{}, fmt.Errorf("%s: %s: annotation %s cannot be added without changing other fields: add it to the file", name, id, key)
	}
	out.Manifests = after.Manifests
	return out, nil
}

// namesNoProfile reports whether annotations select no clusters.
func namesNoProfile(annotations map[string]string) bool {
	for key := range annotations {
		if strings.HasPrefix(key, api.IncludePrefix) || strings.HasPrefix(key, api.ExcludePrefix) {
			return false
		}
	}
	return true
}

// onlyAnnotated reports whether a changed file contains the same objects, with the annotation where none named a profile. It returns the
// first object that differs.
func onlyAnnotated(before, after []*manifest.Manifest, key string) (manifest.ID, bool) {
	for i, m := range before {
		want := m.Object.DeepCopy()
		if annotations := want.GetAnnotations(); namesNoProfile(annotations) {
			annotations = maps.Clone(annotations)
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[key] = "true"
			want.SetAnnotations(annotations)
		}
		if i >= len(after) || !equality.Semantic.DeepEqual(want.Object, after[i].Object.Object) {
			return m.ID(), false
		}
	}
	return manifest.ID{}, len(after) == len(before)
}
