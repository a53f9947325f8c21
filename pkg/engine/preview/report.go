package preview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/internal/difference"
	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Verdict is the effect of an update on one object.
type Verdict string

const (
	// Create means that the object does not exist.
	Create Verdict = "created"
	// Modify means that the object exists and would change; see Fields.
	Modify Verdict = "changed"
	// Delete means that the object exists and the release requests its deletion.
	Delete Verdict = "deleted"
	// Recreate means that the object cannot be changed, and its manifest allows recreating it.
	Recreate Verdict = "recreated"
	// Refuse means that the server would reject the object. The update would wait until an administrator has resolved that.
	Refuse Verdict = "refused"
	// Nothing means that the object already matches the release, that we do not own it, or that there is nothing to delete.
	Nothing Verdict = "unchanged"
	// Unknown means that the server cannot decide before the update.
	Unknown Verdict = "unknown"
	// NotAsked means that the server did not respond, or that this user lacks a permission.
	NotAsked Verdict = "not asked"
)

// label returns the verdict's text in a report.
func (v Verdict) label() string {
	switch v {
	case Unknown:
		return "unknown"
	case NotAsked:
		return "not checked"
	case Create, Modify, Delete, Recreate, Refuse, Nothing:
	}
	return string(v)
}

// Object is the expected result for the object of one manifest.
type Object struct {
	ID manifest.ID `json:"object"`
	// File and Document identify the manifest. Runlevel and Component come from the file name.
	File      string  `json:"file"`
	Document  int     `json:"document"`
	Runlevel  int     `json:"runlevel"`
	Component string  `json:"component"`
	Verdict   Verdict `json:"verdict"`
	// Message explains the verdict. It is the server's message or the condition of the verdict, and may be empty.
	Message string `json:"message,omitempty"`
	// Paths contains the fields that cause a rejection or a recreation, as far as the server reports them.
	Paths []string `json:"paths,omitempty"`
	// Remedy explains how an administrator resolves a rejection.
	Remedy string `json:"remedy,omitempty"`
	// Fields contains the fields that would change.
	Fields []difference.Field `json:"fields,omitempty"`
	// Dropped contains fields of the manifest that the server does not know and would omit.
	Dropped []string `json:"dropped,omitempty"`
	// Later contains fields that the server does not know yet, because the release changes the object's CRD first.
	Later []string `json:"later,omitempty"`
	// TakenOver contains the writers from before server-side apply whose fields would become ours. Fields that only they set, and that the
	// manifest lacks, are removed. Fields cannot show this.
	TakenOver []string `json:"takenOver,omitempty"`
}

// Orphan is an object of an earlier release that the target does not contain.
type Orphan struct {
	ID manifest.ID `json:"object"`
	// Release is the version of the last release that contained it.
	Release string `json:"release,omitempty"`
	// Pruned is true if the object would be deleted after the update, because the release or the administrator requests it.
	Pruned bool `json:"pruned,omitempty"`
	// Stays is the reason why the object would be kept despite such a request.
	Stays string `json:"stays,omitempty"`
}

// Image is an image that the update would newly pull.
type Image struct {
	// Image is its pullspec; empty if Message concerns all images.
	Image string `json:"image,omitempty"`
	// Components are the components that use it, sorted.
	Components []string `json:"components,omitempty"`
	// Message is the reason why nothing is known about the image.
	Message string `json:"message,omitempty"`
}

// String returns a text such as `dns, router: registry.example/dns@sha256:…`.
func (i Image) String() string {
	parts := []string{printable.List(i.Components, printable.Few), i.Image, i.Message}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}

// Exclusion is a manifest that this cluster does not include.
type Exclusion struct {
	ID     manifest.ID `json:"object"`
	Reason string      `json:"reason"`
}

// NotAllowed describes a resource whose objects the user may not read.
type NotAllowed struct {
	// Resource has a form such as deployments.apps.
	Resource string `json:"resource"`
	// Objects is the number of objects that were not checked.
	Objects int `json:"objects"`
	// Message is the server's first message about them.
	Message string `json:"message"`
}

// Totals contains the number of objects by verdict.
type Totals struct {
	Created   int `json:"created"`
	Changed   int `json:"changed"`
	Fields    int `json:"fields"`
	Deleted   int `json:"deleted"`
	Recreated int `json:"recreated"`
	Refused   int `json:"refused"`
	Unchanged int `json:"unchanged"`
	Excluded  int `json:"excluded"`
	Unknown   int `json:"unknown"`
	NotAsked  int `json:"notAsked"`
	// Orphans counts the objects that the release no longer contains, Pruned those of them that are deleted once the update is complete.
	Orphans int `json:"orphans"`
	Pruned  int `json:"pruned"`
}

func (t *Totals) count(o Object) {
	switch o.Verdict {
	case Create:
		t.Created++
	case Modify:
		t.Changed++
		t.Fields += len(o.Fields)
	case Delete:
		t.Deleted++
	case Recreate:
		t.Recreated++
	case Refuse:
		t.Refused++
	case Nothing:
		t.Unchanged++
	case Unknown:
		t.Unknown++
	case NotAsked:
		t.NotAsked++
	}
}

// String returns a text such as `12 created, 140 changed (412 fields), 3 deleted, 1 recreated, 0 refused, 847 unchanged, 120 excluded`,
// followed by further counts that are not zero.
func (t Totals) String() string {
	parts := []string{
		fmt.Sprintf("%d created", t.Created), fmt.Sprintf("%d changed (%d fields)", t.Changed, t.Fields),
		fmt.Sprintf("%d deleted", t.Deleted), fmt.Sprintf("%d recreated", t.Recreated),
		fmt.Sprintf("%d refused", t.Refused), fmt.Sprintf("%d unchanged", t.Unchanged),
		fmt.Sprintf("%d excluded", t.Excluded),
	}
	for _, more := range []struct {
		n    int
		what string
	}{
		{t.Unknown, "unknown"}, {t.NotAsked, "not checked"}, {t.Orphans, "no longer part of the release"}, {t.Pruned, "of these deleted after the update"},
	} {
		if more.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", more.n, more.what))
		}
	}
	return strings.Join(parts, ", ")
}

// Report describes the effects of an update to a release on a cluster. Its JSON is for scripts: fields may be added, but are never renamed
// or removed.
type Report struct {
	// Version and Image identify the target release.
	Version string `json:"version"`
	Image   string `json:"image"`
	// Objects contains all objects with something to report, sorted by runlevel, component, file and document.
	Objects []Object `json:"objects"`
	// Orphans is separate because the update itself does not delete them.
	Orphans    []Orphan     `json:"orphans,omitempty"`
	NotAllowed []NotAllowed `json:"notAllowed,omitempty"`
	Excluded   []Exclusion  `json:"excluded,omitempty"`
	// MissingImages contains the images that nodes cannot pull from any location, UnknownImages those that could not be looked up.
	MissingImages []Image `json:"missingImages,omitempty"`
	UnknownImages []Image `json:"unknownImages,omitempty"`
	// Notes contains remarks about the whole report.
	Notes  []string `json:"notes,omitempty"`
	Totals Totals   `json:"totals"`
}
