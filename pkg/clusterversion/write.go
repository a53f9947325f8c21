package clusterversion

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writeStatus works out the status, writes it if it differs, and tells what has begun and ended with it. Writes that
// only count progress are held to one per StatusInterval.
func (c *Reconciler) writeStatus(ctx context.Context, r *round) error {
	now := c.clock.Now()
	key := ""
	if r.accepted != nil {
		var err error
		if key, err = planKey(r, modeOf(r.original, r.accepted.Image())); err != nil {
			return err
		}
	}
	c.mu.Lock()
	if r.accepted != nil && c.memory.planKey == key {
		r.progress = c.memory.progress
	}
	sinceWrite := now.Sub(c.memory.writtenAt)
	c.mu.Unlock()
	status, recheck := nextStatus(r.cv, observed{
		invalid: r.invalid, target: r.target, latest: r.latest, accepted: r.accepted, progress: r.progress,
		updates: r.updates, obstacles: r.obstacles, control: r.control, now: now,
	})
	r.requeue = recheck
	before := r.original.Status
	if equality.Semantic.DeepEqual(before, status) {
		return nil
	}
	if wait := c.options.StatusInterval - sinceWrite; wait > 0 && onlyCounts(before, status) {
		r.requeue = wait
		return nil
	}
	next := r.original.DeepCopy()
	patch, err := statusPatch(r.original.ResourceVersion, status)
	if err != nil {
		return err
	}
	if err := c.client.Status().Patch(ctx, next, patch); err != nil {
		return err
	}
	c.mu.Lock()
	c.memory.written, c.memory.writtenAt = next.ResourceVersion, now
	c.mu.Unlock()
	c.emit(next, slices.Concat(historyEvents(before, status), failingEvents(before, status)))
	logHistory(logr.FromContextOrDiscard(ctx), before, status)
	return nil
}

// statusPatch replaces the whole status, if the object is still as it was read. An update would send the spec along,
// with fields that the installed variant of the CRD may not have; a merge patch would leave out required fields that
// are empty.
func statusPatch(resourceVersion string, status configv1.ClusterVersionStatus) (client.Patch, error) {
	data, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/resourceVersion", "value": resourceVersion},
		{"op": "add", "path": "/status", "value": status},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding status: %w", err)
	}
	return client.RawPatch(types.JSONPatchType, data), nil
}

// onlyCounts reports whether the two differ in nothing but the message of Progressing.
func onlyCounts(before, after configv1.ClusterVersionStatus) bool {
	a, b := before.DeepCopy(), after.DeepCopy()
	for _, status := range []*configv1.ClusterVersionStatus{a, b} {
		if p := find(status.Conditions, configv1.OperatorProgressing); p != nil {
			p.Message = ""
		}
	}
	return equality.Semantic.DeepEqual(a, b)
}

// historyEvents tells of releases that were begun or completed.
func historyEvents(before, after configv1.ClusterVersionStatus) []event {
	if len(after.History) == 0 {
		return nil
	}
	newest := after.History[0]
	var events []event
	begun := len(before.History) == 0 || !before.History[0].StartedTime.Equal(&newest.StartedTime) || before.History[0].Image != newest.Image
	if begun {
		from := ""
		if len(before.History) > 0 {
			from = before.History[0].Version
		}
		events = append(events, updateStarted(from, newest.Version))
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

func logHistory(log logr.Logger, before, after configv1.ClusterVersionStatus) {
	for _, e := range historyEvents(before, after) {
		log.Info("history changed", "event", e.reason, "message", e.message)
	}
}
