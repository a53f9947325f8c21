package mirror

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/oci/mirror"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// Result is the result that the command prints.
type Result struct {
	// From is the pullspec of the source. Source is the original pullspec of a source folder.
	From         string         `json:"from"`
	Source       string         `json:"source,omitempty"`
	Digest       release.Digest `json:"digest"`
	Version      string         `json:"version"`
	Architecture string         `json:"architecture"`
	// Image is the pullspec of the mirrored release.
	Image  string          `json:"image,omitempty"`
	To     string          `json:"to"`
	Images []mirroredImage `json:"images"`
	Size   mirrorSize      `json:"size"`
	Copied *mirror.Result  `json:"copied,omitempty"`
	Moved  []mirror.Moved  `json:"mirrors,omitempty"`
	// Evidence lists the accepted signatures of the release. Unverified is the reason why no signature was accepted.
	Evidence   []release.Evidence `json:"evidence,omitempty"`
	Unverified string             `json:"unverified,omitempty"`
	// Signatures are the written files and objects.
	Signatures []string `json:"signatures,omitempty"`
}

type mirroredImage struct {
	Name        string         `json:"name"`
	Digest      release.Digest `json:"digest"`
	Source      string         `json:"source"`
	Destination string         `json:"destination"`
}

type mirrorSize struct {
	Blobs int   `json:"blobs"`
	Bytes int64 `json:"bytes"`
}

// describe fills in the fields that are known before the copy.
func (m *mirroring) describe() {
	r := &m.result
	r.From, r.Digest, r.Version, r.Architecture = m.image.Pullspec, m.release.Digest, m.release.Version, m.release.Architecture
	r.To, r.Evidence, r.Source = m.to.To.String(), m.trust.evidence, m.image.Pullspec
	if m.trust.skipped != nil {
		r.Unverified = m.trust.skipped.Error()
	}
	if dir := m.sourceDir(); dir != "" {
		r.Source = readReleaseNote(dir, m.release)
	}
	components := map[string]string{}
	for _, c := range m.release.Components {
		components[c.Name] = c.Pullspec
	}
	for _, img := range m.list {
		source := components[img.Name]
		if img.Name == mirror.ReleaseName && img.Last {
			source = m.release.ByDigest()
			if dir := m.sourceDir(); dir != "" {
				source = dir + "@" + string(m.release.Digest)
			}
			r.Image = fmt.Sprintf("%s:%s", img.To, img.Tag)
		}
		destination := fmt.Sprintf("%s:%s", img.To, img.Tag)
		if m.toDir != "" {
			destination = "file://" + destination
		}
		r.Images = append(r.Images, mirroredImage{Name: img.Name, Digest: img.Digest, Source: source, Destination: destination})
	}
	if m.toDir != "" {
		return
	}
	origin := *m.release
	origin.Pullspec = r.Source
	releaseTo := ""
	switch {
	case m.to.SkipRelease:
	case m.to.ReleaseTo != nil:
		releaseTo = m.to.ReleaseTo.String()
	default:
		releaseTo = m.to.To.String()
	}
	r.Moved = origin.MovedRepositories(m.to.To.String(), releaseTo)
}

// releaseNote is stored in a folder with a release, for a later copy to a registry.
type releaseNote struct {
	// Source is the pullspec that the release was copied from.
	Source string `json:"source"`
}

func releaseNoteFile(dir string, r *mirror.Release) string {
	return filepath.Join(dir, mirrorConfig, fmt.Sprintf("release-%s-%s.json", r.Version, r.Architecture))
}

// readReleaseNote returns the original pullspec of a release in a folder; empty if unknown. Only the text of mirror sets
// depends on it.
func readReleaseNote(dir string, r *mirror.Release) string {
	data, err := os.ReadFile(releaseNoteFile(dir, r))
	var note releaseNote
	if err != nil || json.Unmarshal(data, &note) != nil {
		return ""
	}
	if _, err := registry.New(registry.Options{}).Reference(note.Source); err != nil {
		return ""
	}
	return note.Source
}

func (m *mirroring) writeReleaseNote() error {
	if m.toDir == "" || m.result.Source == "" {
		return nil
	}
	data, err := json.MarshalIndent(releaseNote{Source: m.result.Source}, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole(releaseNoteFile(m.toDir, m.release), append(data, '\n'), 0o644)
}

// printLine prints a line of the result, unless --output prints the result as one document.
func (m *mirroring) printLine(format string, args ...any) {
	if m.output == "" {
		fmt.Fprintln(m.streams.Out, printable.Lines(fmt.Sprintf(format, args...)))
	}
}

// print prints the result and the next steps.
func (m *mirroring) print() error {
	switch {
	case m.output != "":
		return printing.Structured(m.streams, m.output, m.result)
	case m.toMirror:
		for _, img := range m.result.Images {
			m.printLine("%s %s", img.Source, img.Destination)
		}
		return nil
	case m.dryRun:
		for _, img := range m.result.Images {
			m.printLine("%s %s", img.Source, img.Destination)
		}
		m.printLine("\nDry run: %d images with %d blobs of %s in total; blobs that the destination already has would not be copied.",
			len(m.result.Images), m.result.Size.Blobs, terminal.Bytes(m.result.Size.Bytes))
	default:
		m.printLine("\nSuccess")
		if m.result.Image != "" {
			m.printLine("Update image:  %s", m.result.Image)
		}
		m.printLine("Mirror prefix: %s", m.result.To)
	}
	if m.toDir != "" {
		flags := ""
		if m.options.trust != "" {
			flags = " --trust " + command.Quote(m.options.trust)
		}
		if m.keepManifestList {
			flags += " --keep-manifest-list"
		}
		m.printLine("\nTo copy it to a registry:\n\n  cvo release mirror --from-dir %s --from %s --to REGISTRY/REPOSITORY%s",
			command.Quote(m.toDir), m.tag(), flags)
		return nil
	}
	return m.printInstructions()
}

// tag returns the tag of the release at the destination.
func (m *mirroring) tag() string {
	_, tag := m.to.Placed(m.release, mirror.ReleaseName)
	return tag
}

// printInstructions prints mirror sets.
func (m *mirroring) printInstructions() error {
	if m.instructions == instructionsNone || len(m.result.Moved) == 0 {
		return nil
	}
	if m.result.Source == "" && !m.skipReleaseImage {
		m.streams.Warnf("the original repository of the release image is unknown: add it to the mirror sets as a source, or install from the mirror")
	}
	section, kind, flag := "imageDigestSources", "ImageDigestMirrorSet", "--idms-file"
	objects := []any{mirror.DigestMirrorSet(m.release.Version, m.result.Moved)}
	if m.instructions == instructionsICSP {
		section, kind, flag = "imageContentSources", "ImageContentSourcePolicy", "--icsp-file"
		objects = []any{mirror.ContentSourcePolicy(m.release.Version, m.result.Moved)}
		m.streams.Warnf("newer clusters no longer serve ImageContentSourcePolicy: use --print-mirror-instructions idms for them")
	}
	if repository, ok := mirror.SameTag(m.result.Source, m.tag()); ok && m.instructions == instructionsIDMS {
		moved := slices.DeleteFunc(slices.Clone(m.result.Moved), func(r mirror.Moved) bool { return r.Source != repository })
		if len(moved) > 0 {
			objects, kind = append(objects, mirror.TagMirrorSet(m.release.Version, moved)), kind+" and ImageTagMirrorSet"
		}
	}
	sources, err := yaml.Marshal(map[string]any{section: m.result.Moved})
	if err != nil {
		return err
	}
	m.printLine("\nFor OpenShift's installer, add this to install-config.yaml:\n\n%s", sources)
	m.printLine("For 'cvo install %s', or for an existing cluster with 'kubectl apply -f' (%s):\n", flag, kind)
	for i, object := range objects {
		text, err := withoutStatus(object)
		if err != nil {
			return err
		}
		if i > 0 {
			m.printLine("---")
		}
		m.printLine("%s", strings.TrimRight(string(text), "\n"))
	}
	return nil
}

// withoutStatus returns an object as YAML, without the empty status that its Go type adds.
func withoutStatus(object any) ([]byte, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	return yaml.Marshal(fields)
}
