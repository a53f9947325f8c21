package assemble

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// ReferenceMode says by which of its two addresses an image of a stream goes into a release.
type ReferenceMode string

const (
	// ReferencePublic is the public address of the stream's registry.
	ReferencePublic ReferenceMode = "public"
	// ReferenceSource is where the image was imported from. An image of the cluster's own registry has no such place.
	ReferenceSource ReferenceMode = "source"
)

// internalRegistries begin the pullspecs by which OpenShift's registry is reached from inside its cluster.
var internalRegistries = []string{"image-registry.openshift-image-registry.svc", "docker-registry.default.svc"}

// ParseImageStream reads an ImageStream, YAML or JSON.
func ParseImageStream(data []byte) (*imagev1.ImageStream, error) {
	return decodeStream("the image stream", data)
}

// StreamImages lists the images of an image stream, by digest: a tag of its spec that names a digest, and of any other
// tag the newest image that its status knows. Without a mode, images are public if the stream has a public address, and
// from their source otherwise. Tags in exclude are left out. Errors of all tags are reported together; warnings are
// about images that only the stream's own cluster can pull.
func StreamImages(stream *imagev1.ImageStream, mode ReferenceMode, exclude []string) (images []imagev1.TagReference, warnings []string, err error) {
	public := stream.Status.PublicDockerImageRepository
	switch mode {
	case "":
		mode = ReferenceSource
		if public != "" {
			mode = ReferencePublic
		}
	case ReferencePublic:
		if public == "" {
			return nil, nil, fmt.Errorf("image stream %s has no status.publicDockerImageRepository, which reference mode %q needs: use reference mode %q, or expose the registry",
				stream.Name, ReferencePublic, ReferenceSource)
		}
	case ReferenceSource:
	default:
		return nil, nil, fmt.Errorf("reference mode %q is not known: use %q or %q", mode, ReferencePublic, ReferenceSource)
	}
	var errs []error
	add := func(tag imagev1.TagReference, source, digest string) {
		pullspec := source
		if inside := internal(stream, source); mode == ReferencePublic || source == "" || inside && public != "" {
			repository := cmp.Or(public, stream.Status.DockerImageRepository)
			if repository == "" {
				errs = append(errs, fmt.Errorf("the tag %q in the source input stream: nothing says where its image lies: give it as %s=PULLSPEC", tag.Name, tag.Name))
				return
			}
			pullspec = repository + "@" + digest
		} else if inside {
			warnings = append(warnings, fmt.Sprintf("image %q: %s is in the registry of one cluster, which others cannot pull from", tag.Name, source))
		}
		tag.From = ImageTag(tag.Name, pullspec).From
		if _, named, ok := byDigest(tag); !ok || named != digest {
			errs = append(errs, fmt.Errorf("the tag %q in the source input stream: %q is not the image %s: give it as %s=PULLSPEC", tag.Name, pullspec, digest, tag.Name))
			return
		}
		// How a stream keeps a tag up to date is no part of a release.
		tag.ImportPolicy, tag.ReferencePolicy, tag.Generation, tag.Reference = imagev1.TagImportPolicy{}, imagev1.TagReferencePolicy{}, nil, false
		images = append(images, tag)
	}
	specs := map[string]imagev1.TagReference{}
	covered := map[string]bool{}
	for _, tag := range stream.Spec.Tags {
		specs[tag.Name] = tag
		if covered[tag.Name] || slices.Contains(exclude, tag.Name) {
			continue
		}
		if source, digest, ok := byDigest(tag); ok {
			covered[tag.Name] = true
			add(tag, source, digest)
		}
	}
	for _, tag := range stream.Status.Tags {
		if covered[tag.Tag] || slices.Contains(exclude, tag.Tag) {
			continue
		}
		covered[tag.Tag] = true
		if len(tag.Items) == 0 {
			errs = append(errs, notImported(tag.Tag))
			continue
		}
		newest := tag.Items[0]
		if _, err := release.ParseDigest(newest.Image); err != nil {
			errs = append(errs, fmt.Errorf("the tag %q in the source input stream: its newest image: %w", tag.Tag, err))
			continue
		}
		spec := specs[tag.Tag]
		spec.Name = tag.Tag
		add(spec, newest.DockerImageReference, newest.Image)
	}
	for name := range specs {
		if !covered[name] && !slices.Contains(exclude, name) {
			errs = append(errs, notImported(name))
		}
	}
	slices.Sort(warnings)
	return images, warnings, manifest.JoinSorted(errs)
}

// byDigest takes apart the pullspec of a tag that names an image by digest.
func byDigest(tag imagev1.TagReference) (pullspec, digest string, ok bool) {
	if tag.From == nil || tag.From.Kind != "DockerImage" {
		return "", "", false
	}
	_, digest, _ = strings.Cut(tag.From.Name, "@")
	_, err := release.ParseDigest(digest)
	return tag.From.Name, digest, err == nil
}

// internal reports whether a pullspec is that of the stream's own registry, as pods of its cluster know it.
func internal(stream *imagev1.ImageStream, pullspec string) bool {
	host, _, _ := strings.Cut(pullspec, "/")
	own, _, _ := strings.Cut(stream.Status.DockerImageRepository, "/")
	return own != "" && host == own ||
		slices.ContainsFunc(internalRegistries, func(r string) bool { return host == r || strings.HasPrefix(host, r+":") })
}

func notImported(tag string) error {
	return fmt.Errorf("the tag %q in the source input stream has not been imported yet: import it, give the image as %s=PULLSPEC, or leave it out", tag, tag)
}
