package inspect

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cluster-version/cvo/pkg/difference"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Part is a part of a comparison's text.
type Part string

const (
	// PartImages: which images are others.
	PartImages Part = "images"
	// PartAPIs: what becomes of APIs, of what roles allow, and of feature gates.
	PartAPIs Part = "apis"
	// PartManifests: every object, field by field.
	PartManifests Part = "manifests"
)

// Parts lists the parts in the order of the text.
func Parts() []Part { return []Part{PartImages, PartAPIs, PartManifests} }

// Only keeps of a comparison the parts that are named; none stands for all.
func (c *Comparison) Only(parts ...Part) *Comparison {
	if len(parts) == 0 {
		return c
	}
	kept := *c
	if !slices.Contains(parts, PartImages) {
		kept.Images = []ImageChange{}
	}
	if !slices.Contains(parts, PartAPIs) {
		kept.Definitions, kept.Roles, kept.FeatureGates = []DefinitionChange{}, []RoleChange{}, []GateChange{}
	}
	if !slices.Contains(parts, PartManifests) {
		kept.Objects, kept.Files = []ObjectChange{}, nil
	}
	return &kept
}

// WriteText writes a comparison for people. Long values are shortened unless full.
func (c *Comparison) WriteText(out io.Writer, full bool) error {
	t := &compareText{full: full}
	if c.Identical() {
		t.line("Releases are identical")
	} else {
		t.head(c)
		t.images(c.Images)
		t.definitions(c.Definitions)
		t.roles(c.Roles)
		t.gates(c.FeatureGates)
		t.objects(c.Objects)
		t.files(c.Files)
		t.line("%s", c.Totals)
	}
	_, err := io.WriteString(out, t.String())
	return err
}

type compareText struct {
	strings.Builder
	full bool
}

func (t *compareText) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

// table aligns the columns of lines that have tabs in them.
func (t *compareText) table(lines []string) {
	w := tabwriter.NewWriter(t, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	_ = w.Flush() // writes to memory
}

func (t *compareText) head(c *Comparison) {
	upgrade := "No"
	if c.Upgrade {
		upgrade = "Yes"
	}
	when := func(at time.Time) string {
		if at.IsZero() {
			return "<unknown>"
		}
		return at.Format(time.RFC3339)
	}
	t.table([]string{
		"\tFROM\tTO",
		fmt.Sprintf("Name:\t%s\t%s", difference.Printable(c.From.Image), difference.Printable(c.To.Image)),
		fmt.Sprintf("Version:\t%s\t%s", difference.Printable(c.From.Version), difference.Printable(c.To.Version)),
		fmt.Sprintf("Created:\t%s\t%s", when(c.From.Created), when(c.To.Created)),
		"Upgrade From:\t" + upgrade + "\t",
	})
	t.line("")
}

// images has the lists of the original, in its words.
func (t *compareText) images(all []ImageChange) {
	for _, list := range []struct {
		change Change
		title  string
	}{{Changed, "Images Changed"}, {Rebuilt, "Images Rebuilt"}, {Added, "Images Added"}, {Removed, "Images Removed"}} {
		var lines []string
		for _, i := range all {
			if i.Change == list.change {
				lines = append(lines, "  "+strings.Join(i.columns(), "\t"))
			}
		}
		if len(lines) > 0 {
			t.line("%s (%d):", list.title, len(lines))
			t.table(lines)
			t.line("")
		}
	}
}

// columns are the name and what tells two builds apart: commits, or digests where these say nothing.
func (i ImageChange) columns() []string {
	name := difference.Printable(i.Name)
	switch {
	case i.Change == Changed && i.Source != "":
		return []string{name, fmt.Sprintf("%s %s → %s", difference.Printable(i.Source), short(i.FromCommit), short(i.ToCommit))}
	case i.Change == Added:
		return []string{name, short(digestPart(i.To))}
	case i.Change == Removed:
		return []string{name, short(digestPart(i.From))}
	}
	return []string{name, short(digestPart(i.From)) + " → " + short(digestPart(i.To))}
}

// short is as much of a commit or a digest as people compare.
func short(s string) string {
	s = difference.Printable(s)
	if digest, ok := strings.CutPrefix(s, "sha256:"); ok {
		return "sha256:" + digest[:min(12, len(digest))]
	}
	if strings.ContainsAny(s, "/:") {
		return s
	}
	return s[:min(12, len(s))]
}

func (t *compareText) definitions(all []DefinitionChange) {
	if len(all) == 0 {
		return
	}
	t.line("APIs (%d; ! breaks something):", len(all))
	for _, d := range all {
		t.line("%s", strings.TrimRight(fmt.Sprintf("  %s  %s", difference.Printable(d.Name), d.words()), " "))
		for _, variant := range d.Variants {
			t.line("      for %s", difference.Printable(variant))
		}
		for _, s := range d.Schema {
			mark := " "
			if s.Breaking {
				mark = "!"
			}
			t.line("  %s   %s %s %s: %s", mark, difference.Printable(s.Version), difference.Printable(s.Path), s.What, t.shortened(s.Detail))
		}
	}
	t.line("")
}

func (d DefinitionChange) words() string {
	var words []string
	if d.Change != Changed {
		words = append(words, string(d.Change))
	}
	for _, list := range []struct {
		what     string
		versions []string
	}{{"now served: ", d.VersionsAdded}, {"! no longer served: ", d.VersionsRemoved}, {"now deprecated: ", d.VersionsDeprecated}} {
		if len(list.versions) > 0 && d.Change == Changed {
			words = append(words, list.what+difference.Printable(strings.Join(list.versions, ", ")))
		}
	}
	if d.Storage != nil {
		words = append(words, "stored as "+difference.Printable(strings.Join(d.Storage, " → ")))
	}
	if d.Scope != nil {
		words = append(words, "! scope "+difference.Printable(strings.Join(d.Scope, " → ")))
	}
	return strings.Join(words, "; ")
}

func variantText(variant string) string {
	if variant == "" {
		return ""
	}
	return " [" + difference.Printable(variant) + "]"
}

// shortened keeps lines of people's length.
func (t *compareText) shortened(s string) string {
	s = difference.Printable(s)
	if runes := []rune(s); !t.full && len(runes) > 120 {
		return fmt.Sprintf("%s… (%d characters, --full shows all)", string(runes[:100]), len(runes))
	}
	return s
}

func (t *compareText) roles(all []RoleChange) {
	if len(all) == 0 {
		return
	}
	t.line("Permissions (+ more, - less):")
	for _, r := range all {
		t.line("  %s", difference.Printable(r.Object.String()))
		for _, s := range r.Widened {
			t.line("    + %s", t.shortened(s))
		}
		for _, s := range r.Narrowed {
			t.line("    - %s", t.shortened(s))
		}
	}
	t.line("")
}

func (t *compareText) gates(all []GateChange) {
	if len(all) == 0 {
		return
	}
	t.line("Feature gates:")
	for _, g := range all {
		t.line("  %s%s", difference.Printable(g.Name), map[Change]string{Added: " (new)", Removed: " (gone)"}[g.Change])
		for _, states := range g.byChange() {
			t.line("    %s", difference.Printable(states))
		}
	}
	t.line("")
}

// byChange reads like `disabled → enabled: self-managed-high-availability/Default, …`, a line for each change.
func (g GateChange) byChange() []string {
	clusters := map[string][]string{}
	for _, cluster := range slices.Sorted(maps.Keys(g.Clusters)) {
		states := g.Clusters[cluster]
		key := states[0] + " → " + states[1]
		switch g.Change {
		case Added:
			key = states[1]
		case Removed:
			key = "was " + states[0]
		case Changed, Rebuilt, Deleted, Orphaned:
		}
		clusters[key] = append(clusters[key], cluster)
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(clusters)) {
		out = append(out, key+": "+clusterText(clusters[key]))
	}
	return out
}

func (t *compareText) objects(all []ObjectChange) {
	component := ""
	for i, o := range all {
		if i == 0 || o.Component != component {
			component = o.Component
			t.line("Component %s:", difference.Printable(component))
		}
		t.object(o)
	}
	if len(all) > 0 {
		t.line("")
	}
}

func (t *compareText) object(o ObjectChange) {
	mark := map[Change]string{Added: "+", Changed: "~", Removed: "-", Deleted: "x", Orphaned: "?"}[o.Change]
	place := o.place()
	file := difference.Printable(place.File)
	if place.Document > 1 {
		file = fmt.Sprintf("%s[%d]", file, place.Document)
	}
	words := string(o.Change)
	switch o.Change {
	case Orphaned:
		words = "orphaned: gone from the release, and nothing deletes it"
	case Deleted:
		words = "deleted by the release"
	case Added, Changed, Removed, Rebuilt:
	}
	t.line("  %s %s%s  %s  (%s)", mark, difference.Printable(o.Object.String()), variantText(o.Variant), words, file)
	if o.From != nil && o.To != nil && o.From.File != o.To.File {
		t.line("      was in %s", difference.Printable(o.From.File))
	}
	for _, pair := range []struct {
		what   string
		values []string
	}{{"apiVersion", o.APIVersions}, {"runlevel", o.Runlevels}} {
		if pair.values != nil {
			t.line("      ~ %s: %s", pair.what, difference.Printable(strings.Join(pair.values, " → ")))
		}
	}
	if len(o.Clusters) > 0 {
		t.line("      in %s", difference.Printable(clusterText(o.Clusters)))
	}
	for _, f := range slices.Concat(o.Inclusion, o.Fields) {
		t.line("      %s", f.Line(t.full))
	}
	if o.Change == Changed && len(o.Inclusion)+len(o.Fields)+len(o.APIVersions)+len(o.Runlevels) == 0 {
		t.line("      its schema is another one, see APIs")
	}
}

// clusterText reads like `hypershift; ibm-cloud-managed, self-managed-high-availability (Default, OKD)`: profiles that
// have the same feature sets stand together, and all feature sets go without saying.
func clusterText(clusters []string) string {
	sets := map[string][]string{}
	for _, c := range clusters {
		profile, set, _ := strings.Cut(c, "/")
		sets[profile] = append(sets[profile], set)
	}
	profiles := map[string][]string{} // by their feature sets
	for _, profile := range slices.Sorted(maps.Keys(sets)) {
		key := ""
		if list := sets[profile]; len(list) < len(manifest.KnownFeatureSets()) {
			key = " (" + strings.Join(list, ", ") + ")"
		}
		profiles[key] = append(profiles[key], profile)
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(profiles)) {
		out = append(out, strings.Join(profiles[key], ", ")+key)
	}
	return strings.Join(out, "; ")
}

func (t *compareText) files(all []FileChange) {
	if len(all) == 0 {
		return
	}
	t.line("Other files:")
	for _, f := range all {
		t.line("  %s  %s", difference.Printable(f.Name), f.Change)
	}
	t.line("")
}

// String reads like `Images: 3 changed, …`, a line for images and one for objects.
func (t CompareTotals) String() string {
	return fmt.Sprintf("Images: %d changed, %d rebuilt, %d added, %d removed, %d the same\n"+
		"Objects: %d added, %d changed, %d removed, %d deleted, %d orphaned, %d the same; %d APIs break something, %d roles allow more",
		t.ImagesChanged, t.ImagesRebuilt, t.ImagesAdded, t.ImagesRemoved, t.ImagesSame,
		t.ObjectsAdded, t.ObjectsChanged, t.ObjectsRemoved, t.ObjectsDeleted, t.ObjectsOrphaned, t.ObjectsSame,
		t.BreakingAPIs, t.WidenedRoles)
}
