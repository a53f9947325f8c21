package source

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/blang/semver/v4"
	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// References are the images in a release.
type References struct {
	// Images maps names to pullspecs.
	Images map[string]string
	// Pullspecs is the set of pullspecs in Images.
	Pullspecs map[string]bool
	// Kubernetes is the Kubernetes version that the images report; empty if unknown.
	Kubernetes string
}

// readMetadata reads release-metadata and checks the versions in it.
func (r *Release) readMetadata() {
	name := payload.MetadataFile
	f := r.File(name)
	if f == nil {
		r.Found.File("metadata", name, 0, "the file is missing")
		return
	}
	m, err := payload.ParseMetadata(f.Text)
	if err != nil {
		r.Found.File("metadata", name, 0, "%s", strings.TrimPrefix(err.Error(), name+": "))
		return
	}
	r.Metadata = m
	version := semver.MustParse(m.Version)
	r.versions(f, "previous", m.Previous, func(v semver.Version) string {
		switch {
		case v.EQ(version):
			return "is the release itself"
		case v.GT(version):
			return "is newer than the release, which is " + m.Version
		}
		return ""
	})
	r.versions(f, "next", m.Next, func(v semver.Version) string {
		if v.LE(version) {
			return "is not newer than the release, which is " + m.Version
		}
		return ""
	})
	said, warnings := m.Release("")
	for _, w := range warnings {
		r.Found.File("metadata-values", name, 0, "%s", strings.TrimPrefix(w, name+": "))
	}
	if said.Kubernetes != "" {
		if _, err := release.ParseKubernetesRange(said.Kubernetes); err != nil {
			r.Found.File("kubernetes-versions", name, f.LineOf(api.KubernetesVersionsKey), "metadata.%s: %v", api.KubernetesVersionsKey, err)
		}
	}
	if s, ok := m.Metadata["url"].(string); ok && s != "" {
		u, err := url.Parse(s)
		if err == nil && (u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
			r.Found.File("metadata-values", name, f.LineOf(s), "metadata.url: %q is not a web address", s)
		}
	}
}

// versions checks a list of versions. wrong returns the reason why a version is wrong, or an empty text.
func (r *Release) versions(f *Parsed, field string, list []string, wrong func(semver.Version) string) {
	seen := map[string]bool{}
	for _, s := range list {
		v, err := semver.Parse(s)
		switch {
		case err != nil:
			r.Found.File("metadata-versions", f.Name, f.LineOf(s), "%s: %q is not a semantic version", field, s)
		case seen[s]:
			r.Found.File("metadata-versions", f.Name, f.LineOf(s), "%s: duplicate version %s", field, s)
		default:
			if text := wrong(v); text != "" {
				r.Found.File("metadata-versions", f.Name, f.LineOf(s), "%s: %s %s", field, s, text)
			}
		}
		seen[s] = true
	}
}

// LineOf returns the first line that contains s in quotes; 0 if there is none.
func (f *Parsed) LineOf(s string) int {
	i := bytes.Index(f.Text, []byte(strconv.Quote(s)))
	if i < 0 {
		return 0
	}
	return f.lineAt(i)
}

// readReferences reads image-references and checks the tags in it.
func (r *Release) readReferences() {
	name := payload.ReferencesFile
	r.References = References{Images: map[string]string{}, Pullspecs: map[string]bool{}}
	f := r.File(name)
	if f == nil {
		r.Found.File("image-references", name, 0, "the file is missing")
		return
	}
	stream, err := payload.ParseReferences(f.Text)
	if err != nil {
		r.Found.File("image-references", name, 0, "%s", strings.TrimPrefix(err.Error(), name+": "))
		return
	}
	if r.Metadata != nil && stream.Name != r.Metadata.Version {
		r.Found.File("image-references", name, f.LineOf(stream.Name), "metadata.name is %q, but the version in %s is %q",
			stream.Name, payload.MetadataFile, r.Metadata.Version)
	}
	seen := map[string]bool{}
	for i, tag := range stream.Spec.Tags {
		r.tag(f, i, &tag)
		if seen[tag.Name] {
			r.Found.File("image-references", name, f.LineOf(tag.Name), "spec.tags[%d]: duplicate name %q", i, tag.Name)
		}
		seen[tag.Name] = true
	}
	r.References.Images = payload.ImageReferences(stream)
	for _, pullspec := range r.References.Images {
		r.References.Pullspecs[pullspec] = true
	}
}

func (r *Release) tag(f *Parsed, i int, tag *imagev1.TagReference) {
	line := f.LineOf(tag.Name)
	where := fmt.Sprintf("spec.tags[%d] %s: ", i, tag.Name)
	switch {
	case tag.Name == "":
		r.Found.File("image-references", f.Name, 0, "spec.tags[%d]: has no name", i)
	case tag.From == nil || tag.From.Name == "":
		r.Found.File("image-references", f.Name, line, "%shas no image", where)
	case tag.From.Kind != "DockerImage":
		r.Found.File("image-references", f.Name, line, "%sfrom.kind is %q, but only DockerImage is supported", where, tag.From.Kind)
	default:
		if !release.Pullspec(tag.From.Name).Pinned() {
			r.Found.File("image-by-tag", f.Name, line, "%s%q has no digest", where, tag.From.Name)
		}
	}
	for entry := range strings.SplitSeq(tag.Annotations["io.openshift.build.versions"], ",") {
		if v, ok := strings.CutPrefix(entry, "kubernetes="); ok && r.References.Kubernetes == "" {
			r.References.Kubernetes = v
		}
	}
}
