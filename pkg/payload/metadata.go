package payload

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	imagev1 "github.com/openshift/api/image/v1"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/internal/aliases"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

const (
	// MetadataKind is the kind of release-metadata. Clients of the update protocol check it first.
	MetadataKind = "cincinnati-metadata-v0"
	// maxMetadataBytes limits the size of release-metadata and of image-references. Real ones have 200 bytes and 90 kB.
	maxMetadataBytes = 4 << 20
)

// Keys of Metadata.Metadata, from OpenShift's Cincinnati graph metadata.
const (
	urlKey          = "url"
	architectureKey = "release.openshift.io/architecture"
	channelsKey     = "io.openshift.upgrades.graph.release.channels"
)

// Metadata is the content of the release-metadata file.
type Metadata struct {
	Kind     string         `json:"kind"`
	Version  string         `json:"version"`
	Previous []string       `json:"previous,omitempty"`
	Next     []string       `json:"next,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

// ReadMetadata reads release-metadata from the root of a release. It requires the kind cincinnati-metadata-v0 and a
// strict semantic version of at most 256 bytes.
func ReadMetadata(fsys fs.FS) (*Metadata, error) {
	data, err := readFile(fsys, MetadataFile, maxMetadataBytes)
	if err != nil {
		return nil, err
	}
	return ParseMetadata(data)
}

// ParseMetadata parses release-metadata, with the same requirements as ReadMetadata.
func ParseMetadata(data []byte) (*Metadata, error) {
	m := &Metadata{}
	if err := decode(data, m); err != nil {
		return nil, fmt.Errorf("%s: %w", MetadataFile, err)
	}
	if m.Kind != MetadataKind {
		return nil, fmt.Errorf("%s: kind is %q, not %q", MetadataFile, m.Kind, MetadataKind)
	}
	if m.Version == "" {
		return nil, fmt.Errorf("%s: version: missing", MetadataFile)
	}
	if len(m.Version) > release.MaxVersion {
		return nil, fmt.Errorf("%s: version: is longer than %d bytes", MetadataFile, release.MaxVersion)
	}
	if _, err := release.ParseVersion(m.Version); err != nil {
		return nil, fmt.Errorf("%s: version: %q is not a semantic version: %w", MetadataFile, m.Version, err)
	}
	return m, nil
}

// decode parses YAML. It rejects YAML that is large, or whose aliases expand to a large size.
func decode(data []byte, into any) error {
	if len(data) > maxMetadataBytes {
		return fmt.Errorf("too large: %d bytes, the limit is %d", len(data), maxMetadataBytes)
	}
	if err := aliases.Check(data); err != nil {
		return err
	}
	return yaml.Unmarshal(data, into)
}

// Release returns the release that the metadata describes. It leaves out invalid fields and returns a warning for each.
func (m *Metadata) Release(image string) (release.Release, []string) {
	r := release.Release{Version: m.Version, Image: image}
	var warnings []string
	warn := func(key, format string, args ...any) {
		warnings = append(warnings, fmt.Sprintf("%s: metadata.%s: %s", MetadataFile, key, fmt.Sprintf(format, args...)))
	}
	text := func(key string) string {
		value, present := m.Metadata[key]
		s, ok := value.(string)
		if present && !ok {
			warn(key, "must be a string")
		}
		if len(s) > release.MaxText {
			warn(key, "is longer than %d bytes", release.MaxText)
			return ""
		}
		return s
	}
	if s := text(urlKey); s != "" {
		if _, err := url.Parse(s); err != nil {
			warn(urlKey, "%q is not a URL", s)
		} else {
			r.URL = s
		}
	}
	switch s := text(api.PruneAnnotation); s {
	case "", "false":
	case "true":
		r.Prune = true
	default:
		warn(api.PruneAnnotation, "%q is neither \"true\" nor \"false\"", s)
	}
	if s := text(architectureKey); s == "multi" {
		r.Architecture = "Multi"
	} else if s != "" {
		warn(architectureKey, "%q is unknown: only \"multi\" is allowed", s)
	}
	if s := text(channelsKey); s != "" {
		for channel := range strings.SplitSeq(s, ",") {
			if channel == "" {
				warn(channelsKey, "contains an empty name")
				continue
			}
			r.Channels = append(r.Channels, channel)
		}
		slices.Sort(r.Channels)
	}
	// An invalid range is kept so that a precondition can reject it. Without a range, every server would be accepted.
	if value, present := m.Metadata[api.KubernetesVersionsKey]; present {
		r.Kubernetes = strings.ToValidUTF8(strings.TrimSpace(fmt.Sprint(value)), "?")
		r.Kubernetes = cmp.Or(r.Kubernetes[:min(len(r.Kubernetes), release.MaxKubernetesRange+1)], `""`)
	}
	return r, warnings
}

// ReadReferences reads image-references, an ImageStream in YAML or JSON, from the root of a release. It ignores the case of keys, because
// real files differ from the API in case (from.Name).
func ReadReferences(fsys fs.FS) (*imagev1.ImageStream, error) {
	data, err := readFile(fsys, ReferencesFile, maxMetadataBytes)
	if err != nil {
		return nil, err
	}
	return ParseReferences(data)
}

// ParseReferences parses image-references as ReadReferences does.
func ParseReferences(data []byte) (*imagev1.ImageStream, error) {
	stream := &imagev1.ImageStream{}
	if err := decode(data, stream); err != nil {
		return nil, fmt.Errorf("%s: %w", ReferencesFile, err)
	}
	if stream.Kind != "ImageStream" || stream.APIVersion != imagev1.GroupVersion.String() {
		return nil, fmt.Errorf("%s: kind is %q in %q, not ImageStream in %q", ReferencesFile, stream.Kind, stream.APIVersion, imagev1.GroupVersion)
	}
	return stream, nil
}

// ImageReferences returns the pullspecs of a stream's tags by tag name.
func ImageReferences(stream *imagev1.ImageStream) map[string]string {
	images := make(map[string]string, len(stream.Spec.Tags))
	for _, tag := range stream.Spec.Tags {
		if tag.From != nil && tag.From.Kind == "DockerImage" {
			images[tag.Name] = tag.From.Name
		}
	}
	return images
}

// readFile reads a regular file. It rejects a file that exceeds the limit before reading it.
func readFile(fsys fs.FS, name string, limit int) ([]byte, error) {
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such file: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, cause(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, cause(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", name)
	}
	if info.Size() > int64(limit) {
		return nil, fmt.Errorf("%s: too large: %d bytes, the limit is %d", name, info.Size(), limit)
	}
	var content bytes.Buffer
	content.Grow(int(info.Size()) + bytes.MinRead)
	if _, err := content.ReadFrom(io.LimitReader(f, int64(limit)+1)); err != nil {
		return nil, fmt.Errorf("%s: %w", name, cause(err))
	}
	data := content.Bytes()
	if len(data) > limit {
		return nil, fmt.Errorf("%s: too large: more than %d bytes", name, limit)
	}
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("%s: not UTF-8 text", name)
	}
	return data, nil
}

// cause returns a file system error without its path. The caller adds the path.
func cause(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}
