// Package reported reads facts about updates from a ClusterVersion: the requested update, whether the cluster runs or has completed it, and
// which known updates are not recommended. It has no side effects.
package reported

import (
	"cmp"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// Because formats a condition's reason and message for output. It omits an empty reason.
func Because(reason, message string) string {
	text := "  Message: " + strings.ReplaceAll(message, "\n", "\n  ")
	if reason != "" {
		text = "  Reason: " + terminal.OneLine(reason) + "\n" + text
	}
	return text
}

// Name returns a release's name for a message.
func Name(version, image string) string { return cmp.Or(version, image, "<unknown>") }

// LastCompleted returns the index of the newest completed release of a history; -1 if none has completed.
func LastCompleted(history []configv1.UpdateHistory) int {
	return slices.IndexFunc(history, func(e configv1.UpdateHistory) bool { return e.State == configv1.CompletedUpdate })
}

// HasCompleted reports whether the history has a completed release, so that the first install is over.
func HasCompleted(history []configv1.UpdateHistory) bool { return LastCompleted(history) >= 0 }

// NotRecommended returns the conditional updates that are not recommended, or whose risks are unknown, newest first. The recommended ones
// are among the available updates.
func NotRecommended(cv *configv1.ClusterVersion) []configv1.ConditionalUpdate {
	updates := slices.Clone(cv.Status.ConditionalUpdates)
	updates = slices.DeleteFunc(updates, func(u configv1.ConditionalUpdate) bool {
		c := meta.FindStatusCondition(u.Conditions, api.UpdateRecommended)
		return c == nil || c.Status == metav1.ConditionTrue
	})
	sorted.By(updates, release.ConditionalNewestFirst)
	return updates
}

// AppliesTo returns the reported status of a risk, for the update or for all updates with it; empty if there is none.
func AppliesTo(cv *configv1.ClusterVersion, risk configv1.ConditionalUpdateRisk) metav1.ConditionStatus {
	places := [][]metav1.Condition{risk.Conditions}
	for _, known := range cv.Status.ConditionalUpdateRisks {
		if known.Name == risk.Name {
			places = append(places, known.Conditions)
		}
	}
	for _, conditions := range places {
		for _, c := range conditions {
			if c.Type == api.RiskApplies {
				return c.Status
			}
		}
	}
	return ""
}
