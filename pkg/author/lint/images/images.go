// Package images contains the rules about the images of a release: manifests refer to images by digest, the release lists and uses the
// images, and no placeholders are left. It takes a release and adds findings to it. It fetches no images.
package images

import (
	"bytes"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/pkg/author/lint/source"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// placeholders returns repositories that OpenShift's operators use as placeholders for images until a release is assembled.
func placeholders() []string {
	return []string{
		"placeholder.url.oc.will.replace.this.org/",
		"example.com/image-reference-placeholder",
		"registry.svc.ci.openshift.org/openshift:",
		"registry.ci.openshift.org/openshift:",
		"quay.io/openshift/origin-",
	}
}

func isPlaceholder(pullspec string) bool {
	return slices.ContainsFunc(placeholders(), func(p string) bool { return strings.HasPrefix(pullspec, p) })
}

// CheckFile adds findings about images in a file's text. It ignores the structure of the text, because operators have the pullspecs of
// their operands in variables, arguments and ConfigMaps.
func CheckFile(r *source.Release, f *source.Parsed) {
	if !f.Readable {
		return
	}
	for offset, pullspec := range release.Pullspecs(string(f.Text)) {
		if pullspec == payload.AnyRelease || r.References.Pullspecs[string(pullspec)] || f.Comment(offset) {
			continue
		}
		f.FindAt("image-not-in-release", offset, "the image %q is not in the release", pullspec)
	}
	findPlaceholders(f)
}

// findPlaceholders finds placeholders that should have been replaced when the release was assembled.
func findPlaceholders(f *source.Parsed) {
	for _, mark := range append([]string{manifest.VersionPlaceholder}, placeholders()...) {
		rule := "image-placeholder"
		switch {
		case mark != manifest.VersionPlaceholder:
		case path.Dir(f.Name) == payload.OperatorDir:
			rule = "operator-placeholder"
		default:
			rule = "version-placeholder"
		}
		for at := 0; ; {
			i := bytes.Index(f.Text[at:], []byte(mark))
			if i < 0 {
				break
			}
			i += at
			at = i + len(mark)
			if i > 0 && (release.IsPullspecByte(f.Text[i-1]) && f.Text[i-1] != ':' && f.Text[i-1] != '/') || f.Comment(i) {
				continue
			}
			end := at
			for end < len(f.Text) && release.IsPullspecByte(f.Text[end]) {
				end++
			}
			f.FindAt(rule, i, "the placeholder %q was not replaced", f.Text[i:min(end, i+200)])
		}
	}
}

// CheckObject adds findings about the images of an object's containers.
func CheckObject(o *source.Object) {
	template := o.PodTemplate()
	if template == nil || o.Tombstone() {
		return
	}
	for _, list := range []string{"initContainers", "containers"} {
		at := append(slices.Clone(template), "spec", list)
		containers, _ := at.Value(o.Object.Object).([]any)
		for i, entry := range containers {
			container, _ := entry.(map[string]any)
			image, _ := container["image"].(string)
			where := append(slices.Clone(at), i, "image")
			if image == "" {
				o.Find("image-by-tag", where[:len(where)-1], "container %v has no image", container["name"])
			} else if !release.Pullspec(image).Pinned() && !isPlaceholder(image) {
				o.Find("image-by-tag", where, "%q has no digest", image)
			}
		}
	}
}

// CheckUnused adds findings about listed images that no manifest refers to.
func CheckUnused(r *source.Release) {
	used := map[string]bool{}
	for _, f := range r.Files {
		if !f.Readable {
			continue
		}
		for _, pullspec := range release.Pullspecs(string(f.Text)) {
			used[string(pullspec)] = true
		}
	}
	references := r.File(payload.ReferencesFile)
	for _, name := range slices.Sorted(maps.Keys(r.References.Images)) {
		if pullspec := r.References.Images[name]; !used[pullspec] && release.Pullspec(pullspec).Pinned() {
			r.Found.File("image-unused", payload.ReferencesFile, references.LineOf(name), "no manifest refers to the image %s", name)
		}
	}
}
