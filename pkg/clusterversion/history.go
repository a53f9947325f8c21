package clusterversion

import (
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxHistory is how many entries the history keeps, as in OpenShift's operator.
const maxHistory = 100

// recordTarget makes the accepted release the newest entry of the history, Partial until it completes. An entry that
// it replaces ends now; one that did not complete stays Partial for ever.
func recordTarget(history []configv1.UpdateHistory, a Acceptance, now metav1.Time) []configv1.UpdateHistory {
	version, image := a.Payload.Release.Version, a.Image()
	if len(history) > 0 && sameEntry(history[0], version, image) {
		entry := &history[0]
		entry.Version, entry.Image = version, image
		entry.Verified = entry.Verified || len(a.Verified.Evidence) > 0
		if entry.AcceptedRisks == "" { // what was accepted at first stays told: after a restart, less speaks against it
			entry.AcceptedRisks = a.Risks
		}
		return prune(history)
	}
	if len(history) > 0 {
		now = notBefore(history[0].StartedTime, now)
		if history[0].CompletionTime == nil {
			history[0].CompletionTime = now.DeepCopy()
		}
		now = notBefore(*history[0].CompletionTime, now)
	}
	entry := configv1.UpdateHistory{
		State: configv1.PartialUpdate, StartedTime: now, Version: version, Image: image,
		Verified: len(a.Verified.Evidence) > 0, AcceptedRisks: a.Risks,
	}
	return prune(slices.Insert(history, 0, entry))
}

// recordCompleted marks the newest entry as completed, once.
func recordCompleted(history []configv1.UpdateHistory, now metav1.Time) {
	if len(history) > 0 && (history[0].State != configv1.CompletedUpdate || history[0].CompletionTime == nil) {
		history[0].State = configv1.CompletedUpdate
		now = notBefore(history[0].StartedTime, now)
		history[0].CompletionTime = now.DeepCopy()
	}
}

// notBefore is now, or the time that a leader before this one has written, if its clock was ahead of ours: nothing ends
// before it begins.
func notBefore(written, now metav1.Time) metav1.Time {
	if now.Before(&written) {
		return written
	}
	return now
}

// sameEntry follows OpenShift's merge key: equal images, with equal versions or one unknown; or equal versions with
// one image unknown.
func sameEntry(entry configv1.UpdateHistory, version, image string) bool {
	if entry.Image == image {
		return entry.Version == version || entry.Version == "" || version == ""
	}
	return entry.Version == version && (entry.Image == "" || image == "")
}

// prune drops entries until the history is no longer than maxHistory, each time the one that tells least, the older one
// of two. Whatever wrote the status before may have left more than one too many.
func prune(history []configv1.UpdateHistory) []configv1.UpdateHistory {
	if len(history) <= maxHistory {
		return history
	}
	minors := make([]string, len(history)) // worked out once: a status may hold thousands of entries
	for i, e := range history {
		minors[i] = minorOf(e.Version)
	}
	for len(history) > maxHistory {
		ranks := ranksOf(history, minors)
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

// ranksOf tells how much each entry is worth keeping, by OpenShift's weights: the oldest, the newest five and the last
// completed stay; the first and last completed of a minor version count, partial ones between versions less, and age
// against all.
func ranksOf(history []configv1.UpdateHistory, minors []string) []float64 {
	newer, older := completedAround(history)
	ranks := make([]float64, len(history))
	for i, e := range history {
		ranks[i] = -1.01 * float64(i)
		completed := e.State == configv1.CompletedUpdate
		if i == len(history)-1 || i < 5 || completed && newer[i] < 0 {
			ranks[i] += 1000
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

// completedAround returns, for each entry, the nearest completed ones that are newer and older, -1 where there is none.
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

// minorOf is "4.22" of "4.22.9": unlike OpenShift's operator it looks at the major version, too.
func minorOf(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1]
}
