package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/mirror"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// mirrorResult is what the command reports.
type mirrorResult struct {
	// From is what was named; Source where a folder, if it is one, got the release from.
	From         string         `json:"from"`
	Source       string         `json:"source,omitempty"`
	Digest       release.Digest `json:"digest"`
	Version      string         `json:"version"`
	Architecture string         `json:"architecture"`
	// Image is what the release can be pulled as.
	Image  string          `json:"image,omitempty"`
	To     string          `json:"to"`
	Images []mirroredImage `json:"images"`
	Size   mirrorSize      `json:"size"`
	Copied *mirror.Result  `json:"copied,omitempty"`
	Moved  []mirror.Moved  `json:"mirrors,omitempty"`
	// Evidence says who has signed the release, Unverified why nobody is known to.
	Evidence   []release.Evidence `json:"evidence,omitempty"`
	Unverified string             `json:"unverified,omitempty"`
	// Signatures are the files and objects that were written.
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

// describe fills in what is known before anything is copied.
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

// releaseNote is what a folder remembers of a release, for whoever copies it on.
type releaseNote struct {
	// Source is the pullspec that the release was copied from.
	Source string `json:"source"`
}

func releaseNoteFile(dir string, r *mirror.Release) string {
	return filepath.Join(dir, mirrorConfig, fmt.Sprintf("release-%s-%s.json", r.Version, r.Architecture))
}

// readReleaseNote returns where a release in a folder comes from; nothing if nobody knows. It decides nothing but the text
// of mirror sets.
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

// say prints a line of the result, unless all of it is printed as one document.
func (m *mirroring) say(format string, args ...any) {
	if m.output == "" {
		fmt.Fprintf(m.streams.Out, format+"\n", args...)
	}
}

// print tells what was done and what to do next.
func (m *mirroring) print() error {
	switch {
	case m.output != "":
		return printStructured(m.streams, m.output, m.result)
	case m.toMirror:
		for _, img := range m.result.Images {
			m.say("%s %s", img.Source, img.Destination)
		}
		return nil
	case m.dryRun:
		for _, img := range m.result.Images {
			m.say("%s %s", img.Source, img.Destination)
		}
		m.say("\nDry run: %d images with %d blobs of %s in all; what the destination has already would not be copied.",
			len(m.result.Images), m.result.Size.Blobs, bytesText(m.result.Size.Bytes))
	default:
		m.say("\nSuccess")
		if m.result.Image != "" {
			m.say("Update image:  %s", m.result.Image)
		}
		m.say("Mirror prefix: %s", m.result.To)
	}
	if m.toDir != "" {
		m.say("\nTo copy it into a registry, where there is one:\n\n  cvo release mirror --from-dir %s --from %s --to REGISTRY/REPOSITORY",
			m.toDir, m.tag())
		return nil
	}
	return m.printInstructions()
}

// tag is what the release is called at the destination.
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
		fmt.Fprintln(m.streams.Err, "warning: nobody knows from which repository the release image came: add it to the mirror sets as a source, or install by the name of the mirror")
	}
	section, kind := "imageDigestSources", "ImageDigestMirrorSet"
	objects := []any{mirror.DigestMirrorSet(m.release.Version, m.result.Moved)}
	if m.instructions == instructionsICSP {
		section, kind = "imageContentSources", "ImageContentSourcePolicy"
		objects = []any{mirror.ContentSourcePolicy(m.release.Version, m.result.Moved)}
		fmt.Fprintln(m.streams.Err, "warning: ImageContentSourcePolicy is no longer served by newer clusters: use --print-mirror-instructions idms with them")
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
	m.say("\nFor a cluster to be installed from the mirror, in install-config.yaml:\n\n%s", sources)
	m.say("For a cluster that exists, to be given to kubectl apply (%s):\n", kind)
	for i, object := range objects {
		text, err := withoutStatus(object)
		if err != nil {
			return err
		}
		if i > 0 {
			m.say("---")
		}
		m.say("%s", strings.TrimRight(string(text), "\n"))
	}
	return nil
}

// withoutStatus writes an object as YAML, without the empty status that its type brings along.
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
