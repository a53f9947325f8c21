package compare

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/inclusion"
)

// Part is a section of the text of a comparison.
type Part string

const (
	// PartImages is the list of differing images.
	PartImages Part = "images"
	// PartAPIs lists the changes of APIs, permissions and feature gates.
	PartAPIs Part = "apis"
	// PartManifests lists every differing object, field by field.
	PartManifests Part = "manifests"
)

// Parts returns all parts in the order of the text.
func Parts() []Part { return []Part{PartImages, PartAPIs, PartManifests} }

// Only returns a Result with only the given parts; without arguments, the whole Result.
func (c *Result) Only(parts ...Part) *Result {
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

// WriteText writes the result as readable text. It truncates long values unless full is set.
func (c *Result) WriteText(out io.Writer, full bool) error {
	t := &report{full: full}
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

type report struct {
	strings.Builder
	full bool
}

func (t *report) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

// table aligns columns separated by tabs.
func (t *report) table(lines []string) {
	w := tabwriter.NewWriter(t, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	_ = w.Flush() // writes to memory
}

func (t *report) head(c *Result) {
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
		fmt.Sprintf("Name:\t%s\t%s", printable.Text(c.From.Image), printable.Text(c.To.Image)),
		fmt.Sprintf("Version:\t%s\t%s", printable.Text(c.From.Version), printable.Text(c.To.Version)),
		fmt.Sprintf("Created:\t%s\t%s", when(c.From.Created), when(c.To.Created)),
		"Upgrade From:\t" + upgrade + "\t",
	})
	t.line("")
}

// images writes the lists with the titles of the original client.
func (t *report) images(all []ImageChange) {
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

// columns returns the name of the image and the difference between the builds: their commits, or their digests if the commits are the
// same.
func (i ImageChange) columns() []string {
	name := printable.Text(i.Name)
	switch {
	case i.Change == Changed && i.Source != "":
		return []string{name, fmt.Sprintf("%s %s → %s", printable.Text(i.Source), short(i.FromCommit), short(i.ToCommit))}
	case i.Change == Added:
		return []string{name, short(digestPart(i.To))}
	case i.Change == Removed:
		return []string{name, short(digestPart(i.From))}
	}
	return []string{name, short(digestPart(i.From)) + " → " + short(digestPart(i.To))}
}

// short returns the usual short form of a commit or digest.
func short(s string) string {
	s = printable.Text(s)
	if digest, ok := strings.CutPrefix(s, "sha256:"); ok {
		return "sha256:" + digest[:min(12, len(digest))]
	}
	if strings.ContainsAny(s, "/:") {
		return s
	}
	return s[:min(12, len(s))]
}

func (t *report) definitions(all []DefinitionChange) {
	if len(all) == 0 {
		return
	}
	t.line("APIs (%d; ! means breaking):", len(all))
	for _, d := range all {
		t.line("%s", strings.TrimRight(fmt.Sprintf("  %s  %s", printable.Text(d.Name), d.words()), " "))
		for _, variant := range d.Variants {
			t.line("      for %s", printable.Text(variant))
		}
		for _, s := range d.Schema {
			mark := " "
			if s.Breaking {
				mark = "!"
			}
			t.line("  %s   %s %s %s: %s", mark, printable.Text(s.Version), printable.Text(s.Path), s.What, t.shortened(s.Detail))
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
			words = append(words, list.what+printable.Text(strings.Join(list.versions, ", ")))
		}
	}
	if d.Storage != nil {
		words = append(words, "stored as "+printable.Text(strings.Join(d.Storage, " → ")))
	}
	if d.Scope != nil {
		words = append(words, "! scope "+printable.Text(strings.Join(d.Scope, " → ")))
	}
	return strings.Join(words, "; ")
}

func variantText(variant string) string {
	if variant == "" {
		return ""
	}
	return " [" + printable.Text(variant) + "]"
}

// shortened truncates long lines.
func (t *report) shortened(s string) string {
	s = printable.Text(s)
	if runes := []rune(s); !t.full && len(runes) > 120 {
		return fmt.Sprintf("%s… (%d characters, --full shows all)", string(runes[:100]), len(runes))
	}
	return s
}

func (t *report) roles(all []RoleChange) {
	if len(all) == 0 {
		return
	}
	t.line("Permissions (+ added, - removed):")
	for _, r := range all {
		t.line("  %s", printable.Text(r.Object.String()))
		for _, s := range r.Widened {
			t.line("    + %s", t.shortened(s))
		}
		for _, s := range r.Narrowed {
			t.line("    - %s", t.shortened(s))
		}
	}
	t.line("")
}

func (t *report) gates(all []GateChange) {
	if len(all) == 0 {
		return
	}
	t.line("Feature gates:")
	for _, g := range all {
		t.line("  %s%s", printable.Text(g.Name), map[Change]string{Added: " (new)", Removed: " (removed)"}[g.Change])
		for _, states := range g.byChange() {
			t.line("    %s", printable.Text(states))
		}
	}
	t.line("")
}

// byChange returns one line for each change, such as `disabled → enabled: self-managed-high-availability/Default, …`.
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

func (t *report) objects(all []ObjectChange) {
	component := ""
	for i, o := range all {
		if i == 0 || o.Component != component {
			component = o.Component
			t.line("Component %s:", printable.Text(component))
		}
		t.object(o)
	}
	if len(all) > 0 {
		t.line("")
	}
}

func (t *report) object(o ObjectChange) {
	mark := map[Change]string{Added: "+", Changed: "~", Removed: "-", Deleted: "x", Orphaned: "?"}[o.Change]
	place := o.place()
	file := printable.Text(place.File)
	if place.Document > 1 {
		file = fmt.Sprintf("%s[%d]", file, place.Document)
	}
	words := string(o.Change)
	switch o.Change {
	case Orphaned:
		words = "orphaned: the release neither contains nor deletes it"
	case Deleted:
		words = "deleted by the release"
	case Added, Changed, Removed, Rebuilt:
	}
	t.line("  %s %s%s  %s  (%s)", mark, printable.Text(o.Object.String()), variantText(o.Variant), words, file)
	if o.From != nil && o.To != nil && o.From.File != o.To.File {
		t.line("      was in %s", printable.Text(o.From.File))
	}
	for _, pair := range []struct {
		what   string
		values []string
	}{{"apiVersion", o.APIVersions}, {"runlevel", o.Runlevels}} {
		if pair.values != nil {
			t.line("      ~ %s: %s", pair.what, printable.Text(strings.Join(pair.values, " → ")))
		}
	}
	if len(o.Clusters) > 0 {
		t.line("      in %s", printable.Text(clusterText(o.Clusters)))
	}
	for _, f := range slices.Concat(o.Inclusion, o.Fields) {
		t.line("      %s", f.Line(t.full))
	}
	if o.Change == Changed && len(o.Inclusion)+len(o.Fields)+len(o.APIVersions)+len(o.Runlevels) == 0 {
		t.line("      schema changes: see APIs")
	}
}

// clusterText returns text such as `hypershift; ibm-cloud-managed, self-managed-high-availability (Default, OKD)`. It groups profiles with
// the same feature sets, and omits the feature sets of profiles that have all of them.
func clusterText(clusters []string) string {
	sets := map[string][]string{}
	for _, c := range clusters {
		profile, set, _ := strings.Cut(c, "/")
		sets[profile] = append(sets[profile], set)
	}
	profiles := map[string][]string{} // by feature sets
	for _, profile := range slices.Sorted(maps.Keys(sets)) {
		key := ""
		if list := sets[profile]; len(list) < len(inclusion.KnownFeatureSets()) {
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

func (t *report) files(all []FileChange) {
	if len(all) == 0 {
		return
	}
	t.line("Other files:")
	for _, f := range all {
		t.line("  %s  %s", printable.Text(f.Name), f.Change)
	}
	t.line("")
}

// String returns two lines, for images and objects, such as `Images: 3 changed, …`.
func (t Totals) String() string {
	return fmt.Sprintf("Images: %d changed, %d rebuilt, %d added, %d removed, %d unchanged\n"+
		"Objects: %d added, %d changed, %d removed, %d deleted, %d orphaned, %d unchanged; APIs with breaking changes: %d, roles with more permissions: %d",
		t.ImagesChanged, t.ImagesRebuilt, t.ImagesAdded, t.ImagesRemoved, t.ImagesSame,
		t.ObjectsAdded, t.ObjectsChanged, t.ObjectsRemoved, t.ObjectsDeleted, t.ObjectsOrphaned, t.ObjectsSame,
		t.BreakingAPIs, t.WidenedRoles)
}
