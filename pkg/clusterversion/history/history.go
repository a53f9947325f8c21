// Package history maintains the history in the status of a ClusterVersion. It records when a release starts and completes, drops the least
// valuable entries, and derives the mode of a rollout. It is pure.
package history

import (
	"slices"
	"strings"
	"unicode/utf8"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// maxHistory is the maximum number of history entries, as in OpenShift's operator.
const maxHistory = 100

// Limits in bytes, so that all entries fit into a ClusterVersion: maxSize of the history in JSON, maxNames of an entry in JSON without its
// accepted risks, and, if the history exceeds maxSize, shortRisks of the accepted risks of the oldest entries and shortName of longer names.
const (
	maxSize    = 256 << 10
	maxNames   = 1 << 10
	shortRisks = 256
	shortName  = 64
)

// Release is an accepted release in the form that the history records.
type Release struct {
	Version, Image string
	Verified       bool
	// AcceptedRisks are the objections that force overrode or that are only warnings.
	AcceptedRisks string
}

// Record makes the accepted release the newest entry, which is Partial until the release completes. The previous entry ends now; if it did
// not complete, it stays Partial.
//
// Entries with a digest in forced are pruned last. The accepted risks may quote a release, so they are truncated, and characters that a
// terminal interprets are replaced.
func Record(history []configv1.UpdateHistory, next Release, forced sets.Set[string], now metav1.Time) []configv1.UpdateHistory {
	version, image, risks := next.Version, next.Image, printable.Lines(printable.Excerpt(next.AcceptedRisks, release.MaxText))
	if len(history) > 0 && Same(history[0], version, image) {
		entry := &history[0]
		entry.Version, entry.Image = version, image
		entry.Verified = entry.Verified || next.Verified
		if entry.AcceptedRisks == "" { // the first objections stay, because there may be fewer after a restart
			entry.AcceptedRisks = risks
		}
		return shorten(prune(history, forced))
	}
	if len(history) > 0 {
		now = NotBefore(history, now)
		if history[0].CompletionTime == nil {
			history[0].CompletionTime = now.DeepCopy()
		}
	}
	entry := configv1.UpdateHistory{
		State: configv1.PartialUpdate, StartedTime: now, Version: version, Image: image,
		Verified: next.Verified, AcceptedRisks: risks,
	}
	return shorten(prune(slices.Insert(history, 0, entry), forced))
}

// shorten truncates texts until the history is small enough: first those of other clients, then the accepted risks of the oldest entries.
func shorten(history []configv1.UpdateHistory) []configv1.UpdateHistory {
	total := 0
	for _, e := range history {
		total += size(e)
	}
	if total <= maxSize {
		return history
	}
	total = 0
	for i := range history {
		e := &history[i]
		e.AcceptedRisks = printable.Excerpt(e.AcceptedRisks, release.MaxText)
		if size(*e)-sizeOf(e.AcceptedRisks) > maxNames {
			if e.State != configv1.CompletedUpdate {
				e.State = configv1.PartialUpdate
			}
			if i > 0 { // the newest entry has our names
				e.Version, e.Image = printable.Excerpt(e.Version, shortName), printable.Excerpt(e.Image, shortName)
			}
		}
		total += size(*e)
	}
	for i := len(history) - 1; i >= 0 && total > maxSize; i-- {
		e := &history[i]
		total -= size(*e)
		e.AcceptedRisks = printable.Excerpt(e.AcceptedRisks, shortRisks)
		total += size(*e)
	}
	return history
}

// size returns the size in bytes of an entry in the status, or slightly more. It does not encode the entry, because it is called for each
// entry in each reconcile.
func size(e configv1.UpdateHistory) int {
	const frame = 180 // the names of the fields, the times and the punctuation
	return frame + sizeOf(string(e.State)) + sizeOf(e.Version) + sizeOf(e.Image) + sizeOf(e.AcceptedRisks)
}

// sizeOf returns the size in bytes of a text in JSON, or slightly more.
func sizeOf(text string) int {
	total := 0
	for _, r := range text {
		switch r {
		case '"', '\\', '\n', '\r', '\t':
			total += len(`\n`)
		case '<', '>', '&', utf8.RuneError, '\u2028', '\u2029':
			total += len(`\u0000`)
		default:
			if r < ' ' {
				total += len(`\u0000`)
			} else {
				total += utf8.RuneLen(r)
			}
		}
	}
	return total
}

// Complete marks the newest entry as completed if it is not.
func Complete(history []configv1.UpdateHistory, now metav1.Time) {
	if len(history) > 0 && (history[0].State != configv1.CompletedUpdate || history[0].CompletionTime == nil) {
		history[0].State = configv1.CompletedUpdate
		now = NotBefore(history, now)
		history[0].CompletionTime = now.DeepCopy()
	}
}

// NotBefore returns now, or a later time of the newest entry, which an earlier leader with a faster clock wrote: nothing ends before it begins.
func NotBefore(history []configv1.UpdateHistory, now metav1.Time) metav1.Time {
	if len(history) == 0 {
		return now
	}
	for _, written := range []*metav1.Time{&history[0].StartedTime, history[0].CompletionTime} {
		if now.Before(written) {
			now = *written
		}
	}
	return now
}

// Same implements OpenShift's merge key. Two releases match if their images are equal and their versions are equal or one is unknown, or if
// their versions are equal and one image is unknown.
func Same(entry configv1.UpdateHistory, version, image string) bool {
	if entry.Image == image {
		return entry.Version == version || entry.Version == "" || version == ""
	}
	return entry.Version == version && (entry.Image == "" || image == "")
}

// prune drops the least valuable entries until the history has at most maxHistory. Of two equally valuable entries it drops the older one.
// It drops more than one entry if an earlier writer of the status left too many. Entries with a forced digest go last.
func prune(history []configv1.UpdateHistory, forced sets.Set[string]) []configv1.UpdateHistory {
	if len(history) <= maxHistory {
		return history
	}
	minors := make([]string, len(history)) // computed once, because a status may have thousands of entries
	for i, e := range history {
		minors[i] = minorOf(e.Version)
	}
	for len(history) > maxHistory {
		ranks := ranksOf(history, minors, forced)
		worst := 0
		for i, rank := range ranks {
			if rank <= ranks[worst] {
				worst = i
			}
		}
		history, minors = slices.Delete(history, worst, worst+1), slices.Delete(minors, worst, worst+1)
	}
	return history
}

// ranksOf returns the value of each entry, using OpenShift's weights. The oldest, the newest five and the last completed entry stay. The
// first and last completed entries of a minor version count more, partial entries between versions count less, and age lowers every rank.
func ranksOf(history []configv1.UpdateHistory, minors []string, forced sets.Set[string]) []float64 {
	newer, older := completedAround(history)
	ranks := make([]float64, len(history))
	for i, e := range history {
		ranks[i] = -1.01 * float64(i)
		completed := e.State == configv1.CompletedUpdate
		if i == len(history)-1 || i < 5 || completed && newer[i] < 0 {
			ranks[i] += 1000
		}
		if forced.Has(string(release.Pullspec(e.Image).Digest())) {
			ranks[i] += 500
		}
		alone := newer[i] < 0 || older[i] < 0
		switch {
		case completed:
			if alone || minors[newer[i]] != minors[i] || minors[older[i]] != minors[i] {
				ranks[i] += 30
			}
		case alone:
		case minors[newer[i]] != minors[older[i]]:
			ranks[i] += 20
		case history[newer[i]].Version != history[older[i]].Version:
			ranks[i] -= 20
		}
	}
	return ranks
}

// completedAround returns for each entry the indexes of the nearest newer and older completed entries, -1 where there is none.
func completedAround(history []configv1.UpdateHistory) (newer, older []int) {
	newer, older = make([]int, len(history)), make([]int, len(history))
	last := -1
	for i, e := range history {
		newer[i] = last
		if e.State == configv1.CompletedUpdate {
			last = i
		}
	}
	last = -1
	for i, e := range slices.Backward(history) {
		older[i] = last
		if e.State == configv1.CompletedUpdate {
			last = i
		}
	}
	return newer, older
}

// minorOf returns "4.22" for "4.22.9". Unlike OpenShift's operator it includes the major version.
func minorOf(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1]
}

// Completes reports whether image completed last and no later release has started.
func Completes(cv *configv1.ClusterVersion, image string) bool {
	history := cv.Status.History
	return len(history) > 0 && history[0].State == configv1.CompletedUpdate && history[0].Image == image
}

// Mode returns the mode for a rollout of image: an install until a release has completed, a reconciliation for the release that completed
// last, and an update otherwise. Additions to a completed release, such as the objects of a newly enabled capability, are rolled out like
// an update while the status is progressing: in order, and with patience for operators that have just started.
func Mode(cv *configv1.ClusterVersion, image string) release.Mode {
	history := cv.Status.History
	progressing := api.FindCondition(cv.Status.Conditions, configv1.OperatorProgressing)
	switch {
	case !reported.HasCompleted(history):
		return release.Initializing
	case !Completes(cv, image),
		progressing != nil && progressing.Status == configv1.ConditionTrue:
		return release.Updating
	}
	return release.Reconciling
}
