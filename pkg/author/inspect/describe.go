package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// Info describes a release. Its JSON has the same field names as `oc adm release info -o json`.
type Info struct {
	// Image is the requested pullspec.
	Image string `json:"image"`
	// Digest is the digest of the image manifest. For an index, it is the digest of the platform's manifest.
	Digest release.Digest `json:"digest"`
	// ContentDigest is the digest of the received content. It always equals Digest, because other content is rejected.
	ContentDigest release.Digest `json:"contentDigest"`
	// ListDigest is the digest of the index; empty if the release is not an index.
	ListDigest release.Digest `json:"listDigest"`
	// Config is the image's configuration.
	Config *ImageConfig `json:"config"`
	// Metadata is the file release-metadata. References is the file image-references.
	Metadata   *payload.Metadata    `json:"metadata"`
	References *imagev1.ImageStream `json:"references"`
	// Versions is always null. It exists because scripts use the name. DisplayVersions contains the data.
	Versions map[string]string `json:"versions"`
	// DisplayVersions are the versions of software in the images, by names such as "kubernetes".
	DisplayVersions map[string]DisplayVersion `json:"displayVersions"`
	// VersionsTags are the images that report a version, by names such as "kubernetes". If several images report it, the last one in the
	// image stream counts, as in the original client.
	VersionsTags map[string]string `json:"versionsTags"`
	// Images are the component images by name; empty until ReadImages reads them.
	Images map[string]*ComponentImage `json:"images"`
	// Warnings describe inconsistencies in the release.
	Warnings []string `json:"warnings"`

	// ByDigest is the pullspec with the digest; empty for a folder.
	ByDigest string `json:"-"`
	// Manifests is the number of manifest files. UnknownFiles are the names of files that are neither manifests nor metadata.
	Manifests    int      `json:"-"`
	UnknownFiles []string `json:"-"`
	// Sizes are the sizes of Images; empty until Measure computes them.
	Sizes map[string]Size `json:"-"`
	// Served are the repositories or layouts that ReadImages or VerifyImages has read component images from, sorted.
	Served []string `json:"-"`
}

// DisplayVersion is the version of software in a release's images.
type DisplayVersion struct {
	Version     string `json:"Version"`
	DisplayName string `json:"DisplayName"`
}

// Describe returns a description of a release. For a folder, the image fields are empty.
func Describe(ctx context.Context, r *Release) (*Info, error) {
	head, err := r.head(ctx)
	if err != nil {
		return nil, err
	}
	info := &Info{Image: r.Image.Pullspec}
	if info.Metadata, err = payload.ReadMetadata(head.files); err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.Image.Pullspec, err)
	}
	if info.References, err = payload.ReadReferences(head.files); err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.Image.Pullspec, err)
	}
	if info.References.Name != info.Metadata.Version {
		info.Warnings = append(info.Warnings, fmt.Sprintf("image-references is for %q, but release-metadata is for %q",
			info.References.Name, info.Metadata.Version))
	}
	info.countFiles(head.names)
	info.readVersions()
	if r.Image.Digest == "" {
		return info, nil
	}
	info.ByDigest = r.Image.ByDigest()
	return info, info.readImage(ctx, r)
}

// readImage adds the data from the image's manifest and configuration.
func (i *Info) readImage(ctx context.Context, r *Release) error {
	repository, err := r.images.Repository(r.Image)
	if err != nil {
		return err
	}
	read, err := readComponent(ctx, repository, r.Image)
	if err != nil {
		return fmt.Errorf("reading %s: %w", r.Image.Pullspec, err)
	}
	i.Digest, i.ContentDigest, i.ListDigest, i.Config = read.Digest, read.ContentDigest, read.ListDigest, read.Config
	if name := i.Config.Config.Labels[api.ReleaseLabel]; name != "" && name != i.Metadata.Version {
		i.Warnings = append(i.Warnings, fmt.Sprintf("the image is labeled as release %q, but its release-metadata is for %q", name, i.Metadata.Version))
	}
	return nil
}

func (i *Info) countFiles(names []string) {
	for _, name := range names {
		switch full := path.Join(payload.ReleaseDir, name); {
		case full == payload.MetadataFile, full == payload.ReferencesFile:
		case manifest.IsFile(name):
			i.Manifests++
		default:
			i.UnknownFiles = append(i.UnknownFiles, name)
		}
	}
}

// readVersions collects the versions that the images report. For kubectl, it uses only client images, because other images contain a
// kubectl for internal use. If images report different versions, it uses the version from the first image by name and adds a warning.
func (i *Info) readVersions() {
	i.DisplayVersions, i.VersionsTags = map[string]DisplayVersion{}, map[string]string{}
	for _, tag := range i.References.Spec.Tags {
		for key := range pairs(tag.Annotations[api.ComponentVersionsLabel]) {
			i.VersionsTags[key] = tag.Name
		}
	}
	display := map[string]string{}
	maps.Copy(display, pairs(i.References.Annotations[api.ComponentDisplayNamesLabel]))
	for key, version := range pairs(i.References.Annotations[api.ComponentVersionsLabel]) {
		i.DisplayVersions[key] = DisplayVersion{Version: version}
	}
	reported := map[string]map[string][]string{} // images by name and version
	for _, tag := range SortTags(i.References) {
		for key, name := range pairs(tag.Annotations[api.ComponentDisplayNamesLabel]) {
			if display[key] == "" {
				display[key] = name
			}
		}
		for key, version := range pairs(tag.Annotations[api.ComponentVersionsLabel]) {
			if key == "kubectl" && tag.Name != "cli" && tag.Name != "cli-artifacts" {
				continue
			}
			if reported[key] == nil {
				i.DisplayVersions[key] = DisplayVersion{Version: version}
				reported[key] = map[string][]string{}
			}
			reported[key][version] = append(reported[key][version], tag.Name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(i.DisplayVersions)) {
		v := i.DisplayVersions[key]
		v.DisplayName = display[key]
		i.DisplayVersions[key] = v
		if byVersion := reported[key]; len(byVersion) > 1 {
			var versions []string
			for _, version := range slices.Sorted(maps.Keys(byVersion)) {
				versions = append(versions, fmt.Sprintf("%s in %s", version, strings.Join(byVersion[version], ", ")))
			}
			i.Warnings = append(i.Warnings, fmt.Sprintf("the release has several versions of %q: %s", key, strings.Join(versions, "; ")))
		}
	}
}

// pairs parses "k=v,k2=v2". It skips malformed entries, which linting reports.
func pairs(text string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if key, value, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && key != "" && value != "" {
			out[key] = value
		}
	}
	return out
}

// SortTags returns the tags of a stream, sorted by name.
func SortTags(stream *imagev1.ImageStream) []imagev1.TagReference {
	return slices.SortedStableFunc(slices.Values(stream.Spec.Tags), func(a, b imagev1.TagReference) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// Tags returns the component images, sorted by name.
func (i *Info) Tags() []imagev1.TagReference { return SortTags(i.References) }

// ImageFor returns the pullspec of a component's image. If there is none, the error suggests similar names.
func (i *Info) ImageFor(component string) (string, error) {
	pullspec, ok := payload.ImageReferences(i.References)[component]
	if !ok {
		return "", fmt.Errorf("release %s has no image %q: %s", i.Metadata.Version, component, i.suggestion(component))
	}
	return pullspec, nil
}

// suggestion returns advice for an unknown name: images with similar names, or how to list all of them.
func (i *Info) suggestion(component string) string {
	var near []string
	for _, tag := range i.Tags() {
		if strings.Contains(tag.Name, component) || strings.Contains(component, tag.Name) {
			near = append(near, tag.Name)
		}
	}
	if len(near) == 0 {
		return "list its images with -o name"
	}
	return "similar names: " + strings.Join(near, ", ")
}

// Upgrades returns the versions that can update to this release, oldest first.
func (i *Info) Upgrades() []string {
	return slices.SortedFunc(slices.Values(i.Metadata.Previous), release.CompareVersions)
}

// rawValue returns a metadata value as text. It returns strings unchanged and other values as JSON.
func rawValue(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(data)
}
