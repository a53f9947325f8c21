package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// Annotations of component images, besides api.ComponentVersionsLabel.
const (
	commitAnnotation       = "io.openshift.build.commit.id"
	sourceAnnotation       = "io.openshift.build.source-location"
	displayNamesAnnotation = "io.openshift.build.version-display-names"
)

// Info is what a release says of itself. Its JSON has the names of `oc adm release info -o json`.
type Info struct {
	// Image is the pullspec that was asked for.
	Image string `json:"image"`
	// Digest is that of the image manifest: of the one for the platform, if the release is an index.
	Digest release.Digest `json:"digest"`
	// ContentDigest is the digest of what was received; it is the same, because nothing else is accepted.
	ContentDigest release.Digest `json:"contentDigest"`
	// ListDigest is that of the index; empty if the release is none.
	ListDigest release.Digest `json:"listDigest"`
	// Config is the image's configuration.
	Config *v1.ConfigFile `json:"config"`
	// Metadata is the file release-metadata, References the file image-references.
	Metadata   *payload.Metadata    `json:"metadata"`
	References *imagev1.ImageStream `json:"references"`
	// Versions is null: scripts know the name, displayVersions says more.
	Versions map[string]string `json:"versions"`
	// DisplayVersions are those of what is inside the images, by name such as "kubernetes".
	DisplayVersions map[string]DisplayVersion `json:"displayVersions"`
	// VersionsTags are the images that say so, by name and then by version.
	VersionsTags map[string]map[string][]string `json:"versionsTags,omitempty"`
	// Images are the component images by name, if they were asked for.
	Images map[string]*ComponentImage `json:"images"`
	// Warnings are what a reader should know.
	Warnings []string `json:"warnings"`

	// ByDigest is what the release is pulled from; empty for a folder.
	ByDigest string `json:"-"`
	// Manifests counts the manifest files, UnknownFiles names those that are neither manifests nor metadata.
	Manifests    int      `json:"-"`
	UnknownFiles []string `json:"-"`
	// Sizes are those of Images, if they were asked for.
	Sizes map[string]Size `json:"-"`
}

// DisplayVersion is the version of something inside the images of a release.
type DisplayVersion struct {
	Version     string `json:"Version"`
	DisplayName string `json:"DisplayName"`
}

// Describe tells what a release says of itself. Of a folder there is no image to tell of.
func Describe(ctx context.Context, r *Release) (*Info, error) {
	head, err := r.head(ctx)
	if err != nil {
		return nil, err
	}
	info := &Info{Image: r.Image.Pullspec}
	if info.Metadata, err = payload.ReadMetadata(head.files); err != nil {
		return nil, fmt.Errorf("looking into %s: %w", r.Image.Pullspec, err)
	}
	if info.References, err = payload.ReadReferences(head.files); err != nil {
		return nil, fmt.Errorf("looking into %s: %w", r.Image.Pullspec, err)
	}
	if info.References.Name != info.Metadata.Version {
		info.Warnings = append(info.Warnings, fmt.Sprintf("image-references are of %q, release-metadata is of %q",
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

// readImage fills in what the image itself says.
func (i *Info) readImage(ctx context.Context, r *Release) error {
	repository, err := r.images.Repository(r.Image)
	if err != nil {
		return err
	}
	read, err := readComponent(ctx, repository, r.Image)
	if err != nil {
		return fmt.Errorf("looking into %s: %w", r.Image.Pullspec, err)
	}
	i.Digest, i.ContentDigest, i.ListDigest, i.Config = read.Digest, read.ContentDigest, read.ListDigest, read.Config
	if name := i.Config.Config.Labels[api.ReleaseLabel]; name != "" && name != i.Metadata.Version {
		i.Warnings = append(i.Warnings, fmt.Sprintf("the image is labelled as release %q, its release-metadata is of %q", name, i.Metadata.Version))
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

// readVersions gathers what the images say is inside them. kubectl counts in the images of clients only, where others
// bring one for their own use; of several versions the first image's is shown, in the order of names, and a warning
// tells of the others.
func (i *Info) readVersions() {
	i.DisplayVersions, i.VersionsTags = map[string]DisplayVersion{}, map[string]map[string][]string{}
	display := map[string]string{}
	maps.Copy(display, pairs(i.References.Annotations[displayNamesAnnotation]))
	for key, version := range pairs(i.References.Annotations[api.ComponentVersionsLabel]) {
		i.DisplayVersions[key] = DisplayVersion{Version: version}
	}
	seen := map[string]bool{}
	for _, tag := range sortedTags(i.References) {
		for key, name := range pairs(tag.Annotations[displayNamesAnnotation]) {
			if display[key] == "" {
				display[key] = name
			}
		}
		for key, version := range pairs(tag.Annotations[api.ComponentVersionsLabel]) {
			if key == "kubectl" && tag.Name != "cli" && tag.Name != "cli-artifacts" {
				continue
			}
			if !seen[key] {
				seen[key] = true
				i.DisplayVersions[key] = DisplayVersion{Version: version}
				i.VersionsTags[key] = map[string][]string{}
			}
			i.VersionsTags[key][version] = append(i.VersionsTags[key][version], tag.Name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(i.DisplayVersions)) {
		v := i.DisplayVersions[key]
		v.DisplayName = display[key]
		i.DisplayVersions[key] = v
		if byVersion := i.VersionsTags[key]; len(byVersion) > 1 {
			var versions []string
			for _, version := range slices.Sorted(maps.Keys(byVersion)) {
				versions = append(versions, fmt.Sprintf("%s in %s", version, strings.Join(byVersion[version], ", ")))
			}
			i.Warnings = append(i.Warnings, fmt.Sprintf("several versions of %q are in the release: %s", key, strings.Join(versions, "; ")))
		}
	}
}

// pairs reads "k=v,k2=v2" and leaves out what is not written so: this looks at releases, linting judges them.
func pairs(text string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if key, value, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && key != "" && value != "" {
			out[key] = value
		}
	}
	return out
}

// sortedTags are the tags of a stream by name.
func sortedTags(stream *imagev1.ImageStream) []imagev1.TagReference {
	return slices.SortedStableFunc(slices.Values(stream.Spec.Tags), func(a, b imagev1.TagReference) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// Tags are the component images, by name.
func (i *Info) Tags() []imagev1.TagReference { return sortedTags(i.References) }

// ImageFor is the pullspec of one component's image.
func (i *Info) ImageFor(component string) (string, error) {
	pullspec, ok := payload.ImageReferences(i.References)[component]
	if !ok {
		return "", fmt.Errorf("release %s has no image %q: %s", i.Metadata.Version, component, i.near(component))
	}
	return pullspec, nil
}

// near names images that may have been meant.
func (i *Info) near(component string) string {
	var near []string
	for _, tag := range i.Tags() {
		if strings.Contains(tag.Name, component) || strings.Contains(component, tag.Name) {
			near = append(near, tag.Name)
		}
	}
	if len(near) == 0 {
		return "-o name lists those it has"
	}
	return "it has " + strings.Join(near, ", ")
}

// Upgrades are the versions that may be updated from, oldest first.
func (i *Info) Upgrades() []string {
	return slices.SortedFunc(slices.Values(i.Metadata.Previous), release.CompareVersions)
}

// rawValue is a value of the metadata as text: strings as they are, anything else as JSON.
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
