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
		return history
	}
	if len(history) > 0 && history[0].CompletionTime == nil {
		history[0].CompletionTime = now.DeepCopy()
	}
	entry := configv1.UpdateHistory{
		State: configv1.PartialUpdate, StartedTime: now, Version: version, Image: image,
		Verified: len(a.Verified.Evidence) > 0, AcceptedRisks: a.Risks,
	}
	return prune(slices.Insert(history, 0, entry))
}

// recordCompleted marks the newest entry as completed, once.
func recordCompleted(history []configv1.UpdateHistory, now metav1.Time) {
	if len(history) > 0 && history[0].State != configv1.CompletedUpdate {
		history[0].State = configv1.CompletedUpdate
		history[0].CompletionTime = now.DeepCopy()
	}
}

// sameEntry follows OpenShift's merge key: equal images, with equal versions or one unknown; or equal versions with
// one image unknown.
func sameEntry(entry configv1.UpdateHistory, version, image string) bool {
	if entry.Image == image {
		return entry.Version == version || entry.Version == "" || version == ""
	}
	return entry.Version == version && (entry.Image == "" || image == "")
}

// prune drops the entry that tells least once the history is longer than maxHistory. The rank is OpenShift's: the
// oldest, the newest five and the last completed stay; the first and last completed of a minor version count, partial
// ones between versions less, and age against all.
func prune(history []configv1.UpdateHistory) []configv1.UpdateHistory {
	if len(history) <= maxHistory {
		return history
	}
	lastCompleted := slices.IndexFunc(history, func(e configv1.UpdateHistory) bool { return e.State == configv1.CompletedUpdate })
	worst, worstRank := -1, 0.0
	for i := range history {
		rank := rankOf(history, i, lastCompleted)
		if worst < 0 || rank <= worstRank {
			worst, worstRank = i, rank
		}
	}
	return slices.Delete(history, worst, worst+1)
}

func rankOf(history []configv1.UpdateHistory, i, lastCompleted int) float64 {
	rank := -1.01 * float64(i)
	if i == len(history)-1 || i < 5 || i == lastCompleted {
		rank += 1000
	}
	newer, older := completedNear(history, i, -1), completedNear(history, i, 1)
	minor := minorOf(history[i].Version)
	switch {
	case history[i].State == configv1.CompletedUpdate:
		if newer < 0 || older < 0 || minorOf(history[newer].Version) != minor || minorOf(history[older].Version) != minor {
			rank += 30
		}
	case newer >= 0 && older >= 0 && minorOf(history[newer].Version) != minorOf(history[older].Version):
		rank += 20
	case newer >= 0 && older >= 0 && history[newer].Version != history[older].Version:
		rank -= 20
	}
	return rank
}

// completedNear returns the nearest completed entry in the direction step, -1 if there is none.
func completedNear(history []configv1.UpdateHistory, i, step int) int {
	for j := i + step; j >= 0 && j < len(history); j += step {
		if history[j].State == configv1.CompletedUpdate {
			return j
		}
	}
	return -1
}

// minorOf is "4.22" of "4.22.9": unlike OpenShift's operator it looks at the major version, too.
func minorOf(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1]
}
