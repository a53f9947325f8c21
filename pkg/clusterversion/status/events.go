package status

import (
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// HistoryEvents returns the events about releases that started or completed.
func HistoryEvents(before, after configv1.ClusterVersionStatus) []event.Event {
	if len(after.History) == 0 {
		return nil
	}
	newest := after.History[0]
	var events []event.Event
	begun := len(before.History) == 0 || !before.History[0].StartedTime.Equal(&newest.StartedTime) || before.History[0].Image != newest.Image
	if begun {
		from := ""
		if len(before.History) > 0 {
			from = before.History[0].Version
		}
		events = append(events, updateStarted(from, newest.Version, reported.HasCompleted(before.History)))
	}
	if newest.State == configv1.CompletedUpdate && (begun || before.History[0].State != configv1.CompletedUpdate) {
		took := time.Duration(0)
		if newest.CompletionTime != nil {
			took = newest.CompletionTime.Sub(newest.StartedTime.Time)
		}
		events = append(events, updateCompleted(newest.Version, took))
	}
	return events
}

// FailingEvents returns the event about a rollout that started to fail or recovered.
func FailingEvents(before, after configv1.ClusterVersionStatus) []event.Event {
	failing := func(status configv1.ClusterVersionStatus) *configv1.ClusterOperatorStatusCondition {
		if c := api.FindCondition(status.Conditions, api.Failing); c != nil && c.Status == configv1.ConditionTrue {
			return c
		}
		return nil
	}
	was, is := failing(before), failing(after)
	switch {
	case was == nil && is != nil:
		return []event.Event{event.Warning(api.EventRolloutFailing, "%s: %s", is.Reason, is.Message)}
	case was != nil && is == nil:
		return []event.Event{event.Normal(api.EventRolloutRecovered, "Recovered from %s, which began at %s", was.Reason, was.LastTransitionTime.UTC().Format(time.RFC3339))}
	}
	return nil
}

func updateStarted(from, to string, completed bool) event.Event {
	switch {
	case from == "":
		return event.Normal(api.EventUpdateStarted, "Started to install %s", to)
	case !completed:
		return event.Normal(api.EventUpdateStarted, "Started to install %s in place of %s", to, from)
	}
	return event.Normal(api.EventUpdateStarted, "Started to update from %s to %s", from, to)
}

func updateCompleted(version string, took time.Duration) event.Event {
	return event.Normal(api.EventUpdateCompleted, "Completed %s in %s", version, took.Round(time.Second))
}
