package input

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/internal/errorset"
	"github.com/cluster-version/cvo/pkg/release"
)

// ReferenceMode selects one of the two addresses of an image.
type ReferenceMode string

const (
	// ReferencePublic selects the public address in the stream's registry.
	ReferencePublic ReferenceMode = "public"
	// ReferenceSource selects the address that the image was imported from. Images built in the cluster's own registry have no such
	// address.
	ReferenceSource ReferenceMode = "source"
)

// internalRegistries are the in-cluster hosts of OpenShift's registry.
var internalRegistries = []string{"image-registry.openshift-image-registry.svc", "docker-registry.default.svc"}

// ParseImageStream parses an ImageStream in YAML or JSON.
func ParseImageStream(data []byte) (*imagev1.ImageStream, error) {
	return decodeStream("the image stream", data)
}

// StreamImages returns the images of an image stream by digest. For a tag with a digest in the spec, it uses that digest. For other tags,
// it uses the newest image in the status. Without a mode, it uses public addresses if the stream has any, and otherwise source addresses.
// It omits the tags in exclude. It reports the errors of all tags together. Warnings name images that only the stream's own cluster can
// pull.
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
		return nil, nil, fmt.Errorf("unknown reference mode %q: use %q or %q", mode, ReferencePublic, ReferenceSource)
	}
	var errs []error
	add := func(tag imagev1.TagReference, source, digest string) {
		pullspec := source
		if inside := internal(stream, source); mode == ReferencePublic || source == "" || inside && public != "" {
			repository := cmp.Or(public, stream.Status.DockerImageRepository)
			if repository == "" {
				errs = append(errs, fmt.Errorf("the tag %q in the source input stream: the image has no address: add %s=PULLSPEC", tag.Name, tag.Name))
				return
			}
			pullspec = repository + "@" + digest
		} else if inside {
			warnings = append(warnings, fmt.Sprintf("image %q: %s is in a cluster's internal registry: other clusters cannot pull it", tag.Name, source))
		}
		tag.From = ImageTag(tag.Name, pullspec).From
		if _, named, ok := ByDigest(tag); !ok || named != digest {
			errs = append(errs, fmt.Errorf("the tag %q in the source input stream: %q is not the image %s: add %s=PULLSPEC", tag.Name, pullspec, digest, tag.Name))
			return
		}
		// A release does not include the stream's import policies.
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
		if source, digest, ok := ByDigest(tag); ok {
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
			errs = append(errs, fmt.Errorf("the tag %q in the source input stream: the newest image: %w", tag.Tag, err))
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
	return images, warnings, errorset.Join(errs)
}

// ByDigest returns the pullspec and digest of a tag; ok is false if the tag has no digest.
func ByDigest(tag imagev1.TagReference) (pullspec, digest string, ok bool) {
	if tag.From == nil || tag.From.Kind != "DockerImage" {
		return "", "", false
	}
	digest = string(release.Pullspec(tag.From.Name).Digest())
	_, err := release.ParseDigest(digest)
	return tag.From.Name, digest, err == nil
}

// internal reports whether a pullspec uses an in-cluster address of the stream's own registry.
func internal(stream *imagev1.ImageStream, pullspec string) bool {
	host, _, _ := strings.Cut(pullspec, "/")
	own, _, _ := strings.Cut(stream.Status.DockerImageRepository, "/")
	return own != "" && host == own ||
		slices.ContainsFunc(internalRegistries, func(r string) bool { return host == r || strings.HasPrefix(host, r+":") })
}

func notImported(tag string) error {
	return fmt.Errorf("the tag %q in the source input stream has not been imported yet: import it, add %s=PULLSPEC, or exclude it", tag, tag)
}
