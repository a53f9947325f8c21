package lint

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// references are the images of a release.
type references struct {
	// images lead from a name to a pullspec.
	images map[string]string
	// pullspecs are theirs.
	pullspecs map[string]bool
	// kubernetes is the version that the images say they hold.
	kubernetes string
}

func (c *check) file(name string) *file {
	for _, f := range c.files {
		if f.name == name {
			return f
		}
	}
	return nil
}

// readMetadata reads release-metadata and looks at what it says of versions.
func (c *check) readMetadata() {
	name := payload.MetadataFile
	f := c.file(name)
	if f == nil {
		c.found.file("metadata", name, 0, "the file is missing")
		return
	}
	m, err := payload.ParseMetadata(f.text)
	if err != nil {
		c.found.file("metadata", name, 0, "%s", strings.TrimPrefix(err.Error(), name+": "))
		return
	}
	c.metadata = m
	version := semver.MustParse(m.Version)
	c.versions(f, "previous", m.Previous, func(v semver.Version) string {
		switch {
		case v.EQ(version):
			return "is the release itself"
		case v.GT(version):
			return "is newer than the release, " + m.Version
		}
		return ""
	})
	c.versions(f, "next", m.Next, func(v semver.Version) string {
		if v.LE(version) {
			return "is not newer than the release, " + m.Version
		}
		return ""
	})
	said, warnings := m.Release("")
	for _, w := range warnings {
		c.found.file("metadata-values", name, 0, "%s", strings.TrimPrefix(w, name+": "))
	}
	if said.Kubernetes != "" {
		if _, err := release.ParseKubernetesRange(said.Kubernetes); err != nil {
			c.found.file("kubernetes-versions", name, f.lineOfText(api.KubernetesVersionsKey), "metadata.%s: %v", api.KubernetesVersionsKey, err)
		}
	}
	if s, ok := m.Metadata["url"].(string); ok && s != "" {
		u, err := url.Parse(s)
		if err == nil && (u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
			c.found.file("metadata-values", name, f.lineOfText(s), "metadata.url: %q is no web address", s)
		}
	}
}

// versions looks at a list of versions.
func (c *check) versions(f *file, field string, list []string, wrong func(semver.Version) string) {
	seen := map[string]bool{}
	for _, s := range list {
		v, err := semver.Parse(s)
		switch {
		case err != nil:
			c.found.file("metadata-versions", f.name, f.lineOfText(s), "%s: %q is not a semantic version", field, s)
		case seen[s]:
			c.found.file("metadata-versions", f.name, f.lineOfText(s), "%s: %s is listed twice", field, s)
		default:
			if text := wrong(v); text != "" {
				c.found.file("metadata-versions", f.name, f.lineOfText(s), "%s: %s %s", field, s, text)
			}
		}
		seen[s] = true
	}
}

// lineOfText is the line on which a quoted text stands first, 0 for none.
func (f *file) lineOfText(s string) int {
	i := bytes.Index(f.text, []byte(quoted(s)))
	if i < 0 {
		return 0
	}
	return f.lineAt(i)
}

// readReferences reads image-references and looks at its tags.
func (c *check) readReferences() {
	name := payload.ReferencesFile
	c.references = references{images: map[string]string{}, pullspecs: map[string]bool{}}
	f := c.file(name)
	if f == nil {
		c.found.file("image-references", name, 0, "the file is missing")
		return
	}
	stream, err := payload.ParseReferences(f.text)
	if err != nil {
		c.found.file("image-references", name, 0, "%s", strings.TrimPrefix(err.Error(), name+": "))
		return
	}
	if c.metadata != nil && stream.Name != c.metadata.Version {
		c.found.file("image-references", name, f.lineOfText(stream.Name), "metadata.name: is %q, but %s says version %q",
			stream.Name, payload.MetadataFile, c.metadata.Version)
	}
	seen := map[string]bool{}
	for i, tag := range stream.Spec.Tags {
		c.tag(f, i, &tag)
		if seen[tag.Name] {
			c.found.file("image-references", name, f.lineOfText(tag.Name), "spec.tags[%d]: the name %q is there twice", i, tag.Name)
		}
		seen[tag.Name] = true
	}
	c.references.images = payload.ImageReferences(stream)
	for _, pullspec := range c.references.images {
		c.references.pullspecs[pullspec] = true
	}
}

func (c *check) tag(f *file, i int, tag *imagev1.TagReference) {
	line := f.lineOfText(tag.Name)
	where := fmt.Sprintf("spec.tags[%d] %s: ", i, tag.Name)
	switch {
	case tag.Name == "":
		c.found.file("image-references", f.name, 0, "spec.tags[%d]: has no name", i)
	case tag.From == nil || tag.From.Name == "":
		c.found.file("image-references", f.name, line, "%sleads to no image", where)
	case tag.From.Kind != "DockerImage":
		c.found.file("image-references", f.name, line, "%sfrom.kind is %q, and only DockerImage is read", where, tag.From.Kind)
	default:
		if digest := digestOf(tag.From.Name); digest == "" {
			c.found.file("image-by-tag", f.name, line, "%s%q does not name its content by digest", where, tag.From.Name)
		}
	}
	for entry := range strings.SplitSeq(tag.Annotations["io.openshift.build.versions"], ",") {
		if v, ok := strings.CutPrefix(entry, "kubernetes="); ok && c.references.kubernetes == "" {
			c.references.kubernetes = v
		}
	}
}

// digestOf is the digest that a pullspec names, "" for none.
func digestOf(pullspec string) string {
	_, digest, _ := strings.Cut(pullspec, "@")
	if _, err := release.ParseDigest(digest); err != nil {
		return ""
	}
	return digest
}

// target decides for which version of Kubernetes APIs are looked at.
func (c *check) target() {
	c.kubernetes = newestKubernetes
	for _, s := range []string{c.opts.Kubernetes, c.references.kubernetes} {
		if v, ok := parseVersion(s); ok {
			c.kubernetes = v
			return
		}
	}
}

// major is that of the release; 0 if it is not known.
func (c *check) major() uint64 {
	if c.metadata == nil {
		return 0
	}
	return semver.MustParse(c.metadata.Version).Major
}

// releaseAnnotations are those that somebody reads.
func releaseAnnotations() []string {
	return []string{
		api.FeatureSetAnnotation, api.FeatureGateAnnotation, api.MajorVersionAnnotation, api.CreateOnlyAnnotation,
		api.DeleteAnnotation, api.OnImmutableAnnotation, api.VerificationAnnotation,
		"release.openshift.io/bootstrap-required",
	}
}

func isReleaseAnnotation(key string) bool { return slices.Contains(releaseAnnotations(), key) }
