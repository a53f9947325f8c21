package drift

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/report"
)

// Applied is the result of our last attempt to apply an object. Its zero value means that the object was never applied. Only the functions
// and methods below create new values.
type Applied struct {
	// Stands is true if the last attempt has applied Content. The fields up to Dropped then come from the server's response.
	Stands  bool
	Content inventory.Content
	// AnsweredContent is the content of the last apply that succeeded; zero if it is unknown.
	AnsweredContent inventory.Content
	UID             types.UID
	Generation      int64
	ResourceVersion string
	Fields          ownership.Hash
	// Time is the time of our managedFields entry; see ownership.Time.
	Time int64
	// Dropped contains the fields that the server did not know when Content was applied.
	Dropped []string
	// Sent is true if this process applied the object, so Generation is the result of its own apply.
	Sent bool
	// ByName is true if the object does not have our label and therefore has its own watch.
	ByName bool
	// WroteAt is the time of the last response with a Result other than report.Unchanged; zero if this process has received none. Our last
	// write to the object is not later.
	WroteAt time.Time

	// Result is the result of the last attempt, At its time and Message its details.
	Result  report.Result
	At      time.Time
	Message string
	// DeletedByOther is true while an object exists that another client is deleting.
	DeletedByOther bool
	// Repairing is the need of a repair that was attempted and has not succeeded yet; nil if there is none.
	Repairing *Need
}

// Recorded returns the state of an object from its inventory record.
func Recorded(r inventory.Record) Applied {
	return Applied{
		Stands: true, Content: r.Content, AnsweredContent: r.Content, Fields: r.Fields,
		UID: r.UID, Time: r.Time, Generation: r.Generation, ResourceVersion: r.ResourceVersion,
	}
}

// Record returns the part of an inventory record that Recorded reads, and whether the object is a finished Job with a TTL. It omits the
// content if the server did not know some fields of the object. Then another process applies the object again. The content of a finished
// Job stays, because it identifies the Job that must not run again.
func (a Applied) Record(finished bool) inventory.Record {
	r := inventory.Record{Content: a.Content, Fields: a.Fields, UID: a.UID, Time: a.Time, Generation: a.Generation, Finished: finished}
	if a.Generation == 0 {
		r.ResourceVersion = a.ResourceVersion
	}
	if len(a.Dropped) > 0 && !finished {
		r.Content = inventory.Content{}
	}
	return r
}

// Has reports whether the given content was applied last.
func (a Applied) Has(content inventory.Content) bool { return a.Stands && a.Content == content }

// Differs reports whether the given content differs from that of the last apply that succeeded.
func (a Applied) Differs(content inventory.Content) bool {
	return a.AnsweredContent != inventory.Content{} && a.AnsweredContent != content
}

// Attempted returns the state before an attempt to apply the object. If the attempt fails, the next one repairs the same drift.
func (a Applied) Attempted(need Need) Applied {
	if need.Drift != "" {
		a.Repairing = &need
	}
	return a
}

// Answered returns the state after applying the object's content with the given change as the response. look and need triggered the apply.
func (a Applied) Answered(o Object, change apply.Change, look observe.Look, need Need, now time.Time) Applied {
	next := Applied{
		Stands: true, Sent: true, Content: o.Content, AnsweredContent: o.Content, UID: change.UID, Generation: change.Generation,
		ResourceVersion: change.ResourceVersion, Fields: change.Fields, Time: change.Time, Dropped: change.Dropped,
		ByName: change.Action == apply.Kept, WroteAt: now,
		Result: a.resultOf(change, look, need), At: now, Message: change.Message,
	}
	if next.Result == report.Unchanged {
		next.WroteAt = a.WroteAt
	}
	if o.Manifest.Tombstone() {
		return next
	}
	if change.Deleting {
		next.Result = report.Deleting // the applied fields are deleted with the object
		next.DeletedByOther = change.Action != apply.Deleting
	}
	next.Stands = next.Result != report.Deleting
	return next
}

// resultOf returns the result of an apply. An apply without changes keeps the known resource version, unless another client has written in
// between. It also keeps the time of our managedFields entry.
func (a Applied) resultOf(change apply.Change, look observe.Look, need Need) report.Result {
	if change.Action != apply.Applied {
		return report.Result(change.Action)
	}
	state := look.State
	switch {
	case a.UID == change.UID && a.ResourceVersion == change.ResourceVersion,
		state != nil && state.ResourceVersion == change.ResourceVersion,
		need.Probe && state != nil && state.UID == change.UID && state.Fields == change.Fields && state.Time == change.Time && change.Time != 0:
		return report.Unchanged
	}
	return report.Configured
}

// Failed returns the state after a failed attempt to apply the content.
func (a Applied) Failed(content inventory.Content, err error, now time.Time) Applied {
	a.Stands, a.Content = false, content
	a.Result, a.At, a.Message = report.Refused, now, err.Error()
	return a
}

// Canceled returns the state after a canceled attempt. The applied content is unknown, because the request may have reached the server.
func (a Applied) Canceled() Applied {
	a.Stands = false
	return a
}

// RetryAt returns the time of the next apply of an object whose definition was changed at definedAt; zero if there is none. definedAt is zero
// if it was not changed. An API server serves a changed CustomResourceDefinition a moment after it has accepted it. Before that moment, it
// drops new fields, and stores objects without new defaults. So the retries of an object with dropped fields begin after a second and end
// after a minute, with delays that double. Reads add only the defaults of the stored version. So if the definition has several versions, an
// object that was applied within the first second is applied once more.
func (a Applied) RetryAt(definedAt time.Time, severalVersions bool) time.Time {
	tried := a.At.Sub(definedAt)
	lacksDefaults := severalVersions && tried >= 0 && tried < firstRetry
	if definedAt.IsZero() || tried > lateSchema || len(a.Dropped) == 0 && !lacksDefaults {
		return time.Time{}
	}
	return a.At.Add(max(tried, firstRetry))
}

// ChangedAt returns the time of the last apply if it changed an existing object, otherwise zero.
func (a Applied) ChangedAt() time.Time {
	if a.Result != report.Configured {
		return time.Time{}
	}
	return a.At
}

// Adopted returns the state of an existing create-only object with the given UID.
func (a Applied) Adopted(uid types.UID) Applied {
	a.UID = uid
	return a
}

// Absent returns the state of a tombstone without an object.
func Absent(content inventory.Content, now time.Time) Applied {
	return Applied{Stands: true, Content: content, Result: report.Deleted, At: now}
}

// DeletingByOther returns the state while another client deletes the object.
func (a Applied) DeletingByOther(content inventory.Content, now time.Time) Applied {
	a.Stands, a.Content, a.Result, a.At, a.Message, a.DeletedByOther = false, content, report.Deleting, now, "", true
	a.Repairing = nil
	return a
}

// Watched updates a tombstone from its watched object. A nil state means that the object does not exist.
func (a Applied) Watched(state *observe.State, now time.Time) Applied {
	switch {
	case a.Result != report.Deleting:
	case state == nil:
		a.Result, a.At, a.Message = report.Deleted, now, ""
	case len(state.Finalizers) > 0:
		a.Message = "waiting for its finalizers " + api.FinalizersText(state.Finalizers)
	}
	return a
}

// Restarted returns the state at the start of a new rollout. Skipped objects are applied again. If retryDropped is set, so are objects with
// dropped fields, because another release may contain schemas with them.
func (a Applied) Restarted(retryDropped bool) Applied {
	a.Stands = a.Stands && a.Result != report.Skipped && (len(a.Dropped) == 0 || !retryDropped)
	return a
}
