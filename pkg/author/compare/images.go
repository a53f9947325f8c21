package compare

import (
	"cmp"

	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/release"
)

// compareImages compares the images. Like the original client, it reports an image as rebuilt if its commit is unchanged or unknown.
func (c *Result) compareImages(before, after *side, component string) {
	old, now := tagsByName(before.references), tagsByName(after.references)
	for _, name := range unionKeys(old, now) {
		if component != "" && name != component {
			continue
		}
		a, was := old[name]
		b, is := now[name]
		change := ImageChange{Name: name, From: inspect.Pullspec(a), To: inspect.Pullspec(b)}
		change.Source = cmp.Or(b.Annotations[api.SourceAnnotation], a.Annotations[api.SourceAnnotation])
		change.FromCommit, change.ToCommit = a.Annotations[api.CommitAnnotation], b.Annotations[api.CommitAnnotation]
		switch {
		case !was:
			change.Change = Added
			c.Totals.ImagesAdded++
		case !is:
			change.Change = Removed
			c.Totals.ImagesRemoved++
		case digestPart(change.From) == digestPart(change.To):
			c.Totals.ImagesSame++
			continue
		case change.FromCommit == "" || change.ToCommit == "" || change.FromCommit == change.ToCommit:
			change.Change = Rebuilt
			c.Totals.ImagesRebuilt++
		default:
			change.Change = Changed
			c.Totals.ImagesChanged++
		}
		c.Images = append(c.Images, change)
	}
}

// digestPart returns the digest of a pullspec, so that images in mirrors are equal. Without a digest, it returns the pullspec.
func digestPart(pullspec string) string {
	return cmp.Or(string(release.Pullspec(pullspec).Digest()), pullspec)
}

func tagsByName(stream *imagev1.ImageStream) map[string]imagev1.TagReference {
	out := map[string]imagev1.TagReference{}
	for _, tag := range stream.Spec.Tags {
		out[tag.Name] = tag
	}
	return out
}
