package preview

import (
	"fmt"
	"strings"

	"github.com/cluster-version/cvo/pkg/difference"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Verdict says what an update would do to one object.
type Verdict string

const (
	// Create: it is not there.
	Create Verdict = "created"
	// Modify: it is there and would change, as Fields say.
	Modify Verdict = "changed"
	// Delete: the release asks for its deletion, and it is there.
	Delete Verdict = "deleted"
	// Recreate: it cannot be changed, and the release says that it shall be deleted and created anew.
	Recreate Verdict = "recreated"
	// Refuse: the server would not have it, and the update would wait for somebody to remedy that.
	Refuse Verdict = "refused"
	// Nothing: it is as the release has it already, it is not ours to change, or there is nothing to delete.
	Nothing Verdict = "unchanged"
	// Unknown: the server cannot tell before the update is made.
	Unknown Verdict = "unknown"
	// NotAsked: the server did not answer, or not to this user.
	NotAsked Verdict = "not asked"
)

// words begin what is said of an object.
func (v Verdict) words() string {
	switch v {
	case Unknown:
		return "cannot be told"
	case NotAsked:
		return "not looked at"
	case Create, Modify, Delete, Recreate, Refuse, Nothing:
	}
	return string(v)
}

// Object is what would become of the object of one manifest.
type Object struct {
	ID manifest.ID `json:"object"`
	// File and Document say which manifest it is; Runlevel and Component come from the file's name.
	File      string  `json:"file"`
	Document  int     `json:"document"`
	Runlevel  int     `json:"runlevel"`
	Component string  `json:"component"`
	Verdict   Verdict `json:"verdict"`
	// Message explains the verdict: the server's words, or on what it depends. It may be empty.
	Message string `json:"message,omitempty"`
	// Paths are the fields that a refusal or a recreation is about, as far as the server tells.
	Paths []string `json:"paths,omitempty"`
	// Remedy is what an administrator can do about a refusal.
	Remedy string `json:"remedy,omitempty"`
	// Fields are what would change.
	Fields []difference.Field `json:"fields,omitempty"`
	// Dropped are fields of the manifest that the server does not know; they would be left out.
	Dropped []string `json:"dropped,omitempty"`
	// Later are fields that the server does not know yet, in an object whose CRD the release changes before.
	Later []string `json:"later,omitempty"`
	// TakenOver names writers from before server-side apply whose fields would become ours: what only they had set and
	// the manifest does not is removed, which Fields cannot show.
	TakenOver []string `json:"takenOver,omitempty"`
}

// Orphan is an object of a release before that the target does not name any more.
type Orphan struct {
	ID manifest.ID `json:"object"`
	// Release is the version of the last release that named it.
	Release string `json:"release,omitempty"`
	// Pruned: it would be deleted once the update is complete, because the release or the administrator asks for that.
	Pruned bool `json:"pruned,omitempty"`
	// Stays is why it would not be, though that is asked for.
	Stays string `json:"stays,omitempty"`
}

// NotAllowed says that the user may not look at the objects of a resource.
type NotAllowed struct {
	// Resource reads like deployments.apps.
	Resource string `json:"resource"`
	// Objects is how many were not looked at.
	Objects int `json:"objects"`
	// Message is what the server said of the first of them.
	Message string `json:"message"`
}

// Totals count objects by verdict.
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
	Orphans   int `json:"orphans"`
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

// String reads like `12 created, 140 changed (412 fields), 3 deleted, 1 recreated, 0 refused, 847 unchanged, 120
// excluded`, followed by what there is besides.
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
		{t.Unknown, "cannot be told"}, {t.NotAsked, "not looked at"}, {t.Orphans, "no longer part of the release"},
	} {
		if more.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", more.n, more.what))
		}
	}
	return strings.Join(parts, ", ")
}

// Report is what an update to a release would do to a cluster. Its JSON is for scripts: fields are added, never renamed
// or removed.
type Report struct {
	// Version and Image are those of the target.
	Version string `json:"version"`
	Image   string `json:"image"`
	// Objects has everything of which there is something to tell, by runlevel, component, file and document.
	Objects []Object `json:"objects"`
	// Orphans are told apart, because the update itself leaves them alone.
	Orphans    []Orphan     `json:"orphans,omitempty"`
	NotAllowed []NotAllowed `json:"notAllowed,omitempty"`
	// Notes are what a reader should know about the whole.
	Notes  []string `json:"notes,omitempty"`
	Totals Totals   `json:"totals"`
}
