package assemble

import (
	"slices"
	"strings"

	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/pkg/author/assemble/input"
)

// Annotations of image-references that record the source of its list of images.
const (
	fromReleaseAnnotation     = "release.openshift.io/from-release"
	fromImageStreamAnnotation = "release.openshift.io/from-image-stream"
	overrideAnnotation        = "io.openshift.release.override"
)

// FromRelease records in the options that the list of images comes from another release.
func (o *Options) FromRelease(pullspec string) { o.annotate(fromReleaseAnnotation, pullspec) }

// Override replaces or adds an image in the list. It marks the image like existing clients do.
func (o *Options) Override(component, pullspec string) {
	o.Images = slices.DeleteFunc(slices.Clone(o.Images), func(tag imagev1.TagReference) bool { return tag.Name == component })
	tag := input.ImageTag(component, pullspec)
	tag.Annotations = map[string]string{overrideAnnotation: "true"}
	o.Images = append(o.Images, tag)
}

// FromImageStream records in the options that the list of images comes from an image stream.
func (o *Options) FromImageStream(stream *imagev1.ImageStream) {
	o.annotate(fromImageStreamAnnotation, strings.TrimPrefix(stream.Namespace+"/"+stream.Name, "/"))
}

func (o *Options) annotate(key, value string) {
	if value == "" {
		return
	}
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[key] = value
}
