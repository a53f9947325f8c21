package inspect

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/annotate"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// View selects the columns in the list of images.
type View string

// Views of the list of images.
const (
	// ViewDigests shows the digest, or the pullspec if an image has no digest.
	ViewDigests View = "digests"
	// ViewPullspecs shows the pullspec.
	ViewPullspecs View = "pullspecs"
	// ViewCommits shows the source repository and commit.
	ViewCommits View = "commits"
	// ViewCommitURLs shows the URL of the commit.
	ViewCommitURLs View = "commit-urls"
	// ViewSizes shows age, layers, size, unshared size and base image. It requires Info.Sizes.
	ViewSizes View = "sizes"
)

// WriteText writes a description of a release in the format of `oc adm release info`. Ages are relative to now.
func (i *Info) WriteText(out io.Writer, view View, now time.Time) error {
	buffered := bufio.NewWriter(out)
	w := tables{buffered} // buffered keeps errors until Flush
	i.writeHead(w)
	i.writeMetadata(w)
	i.writeVersions(w)
	i.writeImages(w, view, now)
	if record := annotate.ParseRecord(i.References.Annotations); len(record.Manifests) > 0 {
		fmt.Fprintf(w, "\nManifests that got profile %s, because they named none:\n", printable.Text(record.Profile))
		for _, name := range record.Manifests {
			fmt.Fprintf(w, "  %s\n", printable.Text(name))
		}
	}
	if len(i.Warnings) > 0 {
		fmt.Fprintf(w, "\nWarnings:\n")
		for _, warning := range i.Warnings {
			fmt.Fprintf(w, "* %s\n", printable.Text(warning))
		}
	}
	return buffered.Flush()
}

// tables writes a series of tables, each with its own column widths.
type tables struct{ io.Writer }

// table writes a table with the column layout of OpenShift's client.
func (t tables) table(rows func(w io.Writer)) {
	w := tabwriter.NewWriter(t.Writer, 0, 4, 1, ' ', 0)
	rows(w)
	_ = w.Flush()
}

func (i *Info) writeHead(t tables) {
	t.table(func(w io.Writer) {
		fmt.Fprintf(w, "Name:\t%s\n", printable.Text(i.References.Name))
		if i.Digest != "" {
			fmt.Fprintf(w, "Digest:\t%s\n", cmp.Or(i.ListDigest, i.Digest))
		}
		created := i.References.CreationTimestamp.Time
		if created.IsZero() && i.Config != nil {
			created = i.Config.Created.Time
		}
		if !created.IsZero() {
			fmt.Fprintf(w, "Created:\t%s\n", created.UTC().Format(time.RFC3339))
		}
		if i.Config != nil && i.Config.OS != "" {
			fmt.Fprintf(w, "OS/Arch:\t%s\n", i.platform())
		}
		if i.ListDigest != "" {
			fmt.Fprintf(w, "Image digest:\t%s\n", i.Digest)
		}
		fmt.Fprintf(w, "Manifests:\t%d\n", i.Manifests)
		if len(i.UnknownFiles) > 0 {
			fmt.Fprintf(w, "Metadata files:\t%d\n", len(i.UnknownFiles))
		}
	})
	if i.ByDigest != "" {
		fmt.Fprintf(t, "\nPull From: %s\n", i.ByDigest)
	}
}

func (i *Info) platform() string {
	platform := printable.Text(i.Config.OS + "/" + i.Config.Architecture)
	if i.ListDigest != "" {
		return "multi (" + platform + ")"
	}
	return platform
}

func (i *Info) writeMetadata(t tables) {
	fmt.Fprintf(t, "\nRelease Metadata:\n")
	t.table(func(w io.Writer) {
		fmt.Fprintf(w, "  Version:\t%s\n", i.Metadata.Version)
		upgrades := "<none>"
		if list := i.Upgrades(); len(list) > 0 {
			upgrades = printable.Text(strings.Join(list, ", "))
		}
		fmt.Fprintf(w, "  Upgrades:\t%s\n", upgrades)
	})
	if len(i.Metadata.Metadata) == 0 {
		return
	}
	t.table(func(w io.Writer) {
		fmt.Fprintf(w, "  Metadata:\n")
		for _, key := range slices.Sorted(maps.Keys(i.Metadata.Metadata)) {
			fmt.Fprintf(w, "    %s:\t%s\n", printable.Text(key), printable.Text(rawValue(i.Metadata.Metadata[key])))
		}
	})
}

func (i *Info) writeVersions(t tables) {
	if len(i.DisplayVersions) == 0 {
		return
	}
	fmt.Fprintf(t, "\nComponent Versions:\n")
	t.table(func(w io.Writer) {
		for _, key := range slices.Sorted(maps.Keys(i.DisplayVersions)) {
			v := i.DisplayVersions[key]
			fmt.Fprintf(w, "  %s\t%s\n", printable.Text(key), printable.Text(strings.TrimSpace(v.Version+" "+v.DisplayName)))
		}
	})
}

// column is a column in the list of images.
type column struct {
	heading string
	value   func(tag imagev1.TagReference) string
}

func (i *Info) writeImages(t tables, view View, now time.Time) {
	columns := i.columns(view, now)
	fmt.Fprintf(t, "\nImages:\n")
	t.table(func(w io.Writer) {
		row := func(cell func(column) string) {
			cells := make([]string, len(columns))
			for n, c := range columns {
				cells[n] = printable.Text(cell(c))
			}
			fmt.Fprintf(w, "  %s\n", strings.Join(cells, "\t"))
		}
		row(func(c column) string { return c.heading })
		for _, tag := range i.Tags() {
			row(func(c column) string { return c.value(tag) })
		}
	})
}

func (i *Info) columns(view View, now time.Time) []column {
	columns := []column{{"NAME", func(tag imagev1.TagReference) string { return tag.Name }}}
	switch view {
	case ViewPullspecs:
		return append(columns, column{"PULL SPEC", Pullspec})
	case ViewCommits:
		return append(columns,
			column{"REPO", func(tag imagev1.TagReference) string { return tag.Annotations[api.SourceAnnotation] }},
			column{"COMMIT", func(tag imagev1.TagReference) string { return tag.Annotations[api.CommitAnnotation] }})
	case ViewCommitURLs:
		return append(columns, column{"URL", commitURL})
	case ViewSizes:
		return append(columns, i.sizeColumns(now)...)
	default:
		return append(columns, column{"DIGEST", func(tag imagev1.TagReference) string {
			_, digest, ok := strings.Cut(Pullspec(tag), "@")
			if !ok {
				return Pullspec(tag)
			}
			return digest
		}})
	}
}

func (i *Info) sizeColumns(now time.Time) []column {
	size := func(value func(Size, *ComponentImage) string) func(tag imagev1.TagReference) string {
		return func(tag imagev1.TagReference) string {
			img, ok := i.Images[tag.Name]
			if !ok {
				return ""
			}
			return value(i.Sizes[tag.Name], img)
		}
	}
	megabytes := func(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/1e6) }
	return []column{
		{"AGE", size(func(_ Size, img *ComponentImage) string { return age(img.Config.Created.Time, now) })},
		{"LAYERS", size(func(s Size, _ *ComponentImage) string { return fmt.Sprint(s.Layers) })},
		{"SIZE MB", size(func(s Size, _ *ComponentImage) string { return megabytes(s.Bytes) })},
		{"UNIQUE MB", size(func(s Size, _ *ComponentImage) string { return megabytes(s.Unique) })},
		{"BASE", size(func(s Size, _ *ComponentImage) string { return s.Base })},
	}
}

// age formats a duration in the largest unit with a value of at least two.
func age(then, now time.Time) string {
	if then.IsZero() || then.Year() < 1980 { // reproducible builds often use the epoch
		return ""
	}
	d := max(now.Sub(then), 0)
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"y", 365 * 24 * time.Hour}, {"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}} {
		if d >= 2*unit.size {
			return fmt.Sprintf("%d%s", d/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// Pullspec returns the pullspec of a tag; empty if the tag has none.
func Pullspec(tag imagev1.TagReference) string {
	if tag.From == nil {
		return ""
	}
	return tag.From.Name
}

// commitURL returns the URL of a commit in the format of common hosting services.
func commitURL(tag imagev1.TagReference) string {
	source, commit := strings.TrimSuffix(tag.Annotations[api.SourceAnnotation], ".git"), tag.Annotations[api.CommitAnnotation]
	switch {
	case source == "" || commit == "":
		return ""
	case strings.Contains(source, "://gitlab."):
		return source + "/-/commit/" + commit
	}
	return source + "/commit/" + commit
}

// WriteContents writes all files in release-manifests/, each after a line with its name. The two metadata files come first.
func (r *Release) WriteContents(ctx context.Context, out io.Writer) error {
	files, err := r.Files(ctx)
	if err != nil {
		return err
	}
	entries, err := fs.ReadDir(files, payload.ReleaseDir)
	if err != nil {
		return fmt.Errorf("reading %s: %w", r.Image.Pullspec, err)
	}
	first := []string{path.Base(payload.MetadataFile), path.Base(payload.ReferencesFile)}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int {
		return cmp.Compare(slices.Index(first, b.Name()), slices.Index(first, a.Name()))
	})
	w := bufio.NewWriterSize(out, 1<<16)
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := fs.ReadFile(files, path.Join(payload.ReleaseDir, e.Name()))
		if err != nil {
			return fmt.Errorf("reading %s: %w", r.Image.Pullspec, err)
		}
		fmt.Fprintf(w, "# %s\n", printable.Text(e.Name()))
		_, _ = w.WriteString(printable.Lines(string(data))) // w keeps errors until Flush
		if len(data) > 0 && data[len(data)-1] != '\n' {
			_ = w.WriteByte('\n')
		}
	}
	return w.Flush()
}

// WriteList writes one line for each component image: the name if what is "name", the digest if it is "digest", and otherwise the pullspec.
func (i *Info) WriteList(out io.Writer, what string) error {
	w := bufio.NewWriter(out)
	for _, tag := range i.Tags() {
		line := tag.Name
		if what != "name" {
			line = Pullspec(tag)
		}
		if what == "digest" {
			if line = string(release.Pullspec(line).Digest()); line == "" {
				return fmt.Errorf("image %s is %q, which has no digest", tag.Name, Pullspec(tag))
			}
		}
		fmt.Fprintln(w, printable.Text(line))
	}
	return w.Flush()
}
