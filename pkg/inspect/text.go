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

	"github.com/cluster-version/cvo/pkg/difference"
	"github.com/cluster-version/cvo/pkg/payload"
)

// View is what the list of images shows.
type View string

// Views of the list of images.
const (
	// ViewDigests: the digest, or the pullspec of what has none.
	ViewDigests View = "digests"
	// ViewPullspecs: what to pull.
	ViewPullspecs View = "pullspecs"
	// ViewCommits: source repository and commit.
	ViewCommits View = "commits"
	// ViewCommitURLs: where to read that commit.
	ViewCommitURLs View = "commit-urls"
	// ViewSizes: age, layers, size, what of it is shared with nobody, and the image it is built on. It takes Sizes.
	ViewSizes View = "sizes"
)

// WriteText prints what a release says of itself, in the layout of `oc adm release info`. Ages count up to now.
func (i *Info) WriteText(out io.Writer, view View, now time.Time) error {
	buffered := bufio.NewWriter(out)
	w := tables{buffered} // errors stay in buffered until it is flushed
	i.writeHead(w)
	i.writeMetadata(w)
	i.writeVersions(w)
	i.writeImages(w, view, now)
	if len(i.Warnings) > 0 {
		fmt.Fprintf(w, "\nWarnings:\n")
		for _, warning := range i.Warnings {
			fmt.Fprintf(w, "* %s\n", difference.Printable(warning))
		}
	}
	return buffered.Flush()
}

// tables prints tables one below the other, each with columns of its own.
type tables struct{ io.Writer }

// table prints one, in the columns that OpenShift's client has.
func (t tables) table(rows func(w io.Writer)) {
	w := tabwriter.NewWriter(t.Writer, 0, 4, 1, ' ', 0)
	rows(w)
	_ = w.Flush()
}

func (i *Info) writeHead(t tables) {
	t.table(func(w io.Writer) {
		fmt.Fprintf(w, "Name:\t%s\n", difference.Printable(i.References.Name))
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
	platform := difference.Printable(i.Config.OS + "/" + i.Config.Architecture)
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
			upgrades = difference.Printable(strings.Join(list, ", "))
		}
		fmt.Fprintf(w, "  Upgrades:\t%s\n", upgrades)
	})
	if len(i.Metadata.Metadata) == 0 {
		return
	}
	t.table(func(w io.Writer) {
		fmt.Fprintf(w, "  Metadata:\n")
		for _, key := range slices.Sorted(maps.Keys(i.Metadata.Metadata)) {
			fmt.Fprintf(w, "    %s:\t%s\n", difference.Printable(key), difference.Printable(rawValue(i.Metadata.Metadata[key])))
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
			fmt.Fprintf(w, "  %s\t%s\n", difference.Printable(key), difference.Printable(strings.TrimSpace(v.Version+" "+v.DisplayName)))
		}
	})
}

// column is one of the list of images.
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
				cells[n] = difference.Printable(cell(c))
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
		return append(columns, column{"PULL SPEC", pullspecOf})
	case ViewCommits:
		return append(columns,
			column{"REPO", func(tag imagev1.TagReference) string { return tag.Annotations[sourceAnnotation] }},
			column{"COMMIT", func(tag imagev1.TagReference) string { return tag.Annotations[commitAnnotation] }})
	case ViewCommitURLs:
		return append(columns, column{"URL", commitURL})
	case ViewSizes:
		return append(columns, i.sizeColumns(now)...)
	default:
		return append(columns, column{"DIGEST", func(tag imagev1.TagReference) string {
			_, digest, ok := strings.Cut(pullspecOf(tag), "@")
			if !ok {
				return pullspecOf(tag)
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

// age is the time since then, in the largest unit of which there are at least two.
func age(then, now time.Time) string {
	if then.IsZero() || then.Year() < 1980 { // reproducible builds have the epoch
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

func pullspecOf(tag imagev1.TagReference) string {
	if tag.From == nil {
		return ""
	}
	return tag.From.Name
}

// commitURL is where the hosts that sources usually lie on show a commit.
func commitURL(tag imagev1.TagReference) string {
	source, commit := strings.TrimSuffix(tag.Annotations[sourceAnnotation], ".git"), tag.Annotations[commitAnnotation]
	switch {
	case source == "" || commit == "":
		return ""
	case strings.Contains(source, "://gitlab."):
		return source + "/-/commit/" + commit
	}
	return source + "/commit/" + commit
}

// WriteContents prints every file of release-manifests/, after a line with its name: the two metadata files first.
func (r *Release) WriteContents(ctx context.Context, out io.Writer) error {
	files, err := r.Files(ctx)
	if err != nil {
		return err
	}
	entries, err := fs.ReadDir(files, payload.ReleaseDir)
	if err != nil {
		return fmt.Errorf("looking into %s: %w", r.Image.Pullspec, err)
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
			return fmt.Errorf("looking into %s: %w", r.Image.Pullspec, err)
		}
		fmt.Fprintf(w, "# %s\n", difference.Printable(e.Name()))
		_, _ = w.Write(data) // errors stay in w until it is flushed
		if len(data) > 0 && data[len(data)-1] != '\n' {
			_ = w.WriteByte('\n')
		}
	}
	return w.Flush()
}

// WriteList prints one thing of every component image, a line each: its name, pullspec or digest.
func (i *Info) WriteList(out io.Writer, what string) error {
	w := bufio.NewWriter(out)
	for _, tag := range i.Tags() {
		line := tag.Name
		if what != "name" {
			line = pullspecOf(tag)
		}
		if what == "digest" {
			if _, line, _ = strings.Cut(line, "@"); line == "" {
				return fmt.Errorf("image %s is %q, which is not by digest", tag.Name, pullspecOf(tag))
			}
		}
		fmt.Fprintln(w, difference.Printable(line))
	}
	return w.Flush()
}
