package clusterversion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// writeStatus works out the status, writes it if it differs, and tells what has begun and ended with it. There is at most
// one write per StatusInterval: what comes in between is told by the next, which is then due.
func (c *Reconciler) writeStatus(ctx context.Context, r *round) error {
	now := c.clock.Now()
	key := ""
	if r.accepted != nil {
		var err error
		if key, err = planKey(r, modeOf(r.original, r.accepted.Image())); err != nil {
			return err
		}
	}
	before := r.original.Status
	c.mu.Lock()
	if r.accepted != nil && c.memory.planKey == key {
		r.progress = c.memory.progress
	}
	if c.memory.resumed && r.progress != nil {
		r.progress, c.memory.resumed = notLess(r.progress, before)
	}
	sinceWrite, refusal := now.Sub(c.memory.writtenAt), c.memory.refusal
	c.mu.Unlock()
	status, recheck := nextStatus(r.cv, observed{
		invalid: r.invalid, target: r.target, latest: r.latest, accepted: r.accepted, progress: r.progress,
		updates: r.updates, obstacles: r.obstacles, control: r.control, now: now,
	})
	r.requeue = recheck
	if left := refusal.until.Sub(now); left > 0 {
		less := reduced(before, status, refusal.fields)
		if !equality.Semantic.DeepEqual(less, status) {
			r.within(left)
		}
		status = less
	}
	if equality.Semantic.DeepEqual(before, status) {
		return nil
	}
	if wait := c.options.StatusInterval - sinceWrite; wait > 0 {
		r.requeue = wait
		return nil
	}
	next, err := c.patchStatus(ctx, r, status)
	if apierrors.IsInvalid(err) {
		next, status, err = c.writeReduced(ctx, r, status, err)
		r.within(refusalInterval) // what is left out may be all that is new, and then there is no event
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.memory.written, c.memory.writtenAt, c.memory.conflicts = next.ResourceVersion, now, 0
	c.mu.Unlock()
	c.emit(next, slices.Concat(historyEvents(before, status), failingEvents(before, status)))
	logHistory(logr.FromContextOrDiscard(ctx), before, status)
	return nil
}

func (c *Reconciler) patchStatus(ctx context.Context, r *round, status configv1.ClusterVersionStatus) (*configv1.ClusterVersion, error) {
	next := r.original.DeepCopy()
	patch, err := statusPatch(r, status)
	if err != nil {
		return nil, err
	}
	return next, c.client.Status().Patch(ctx, next, patch)
}

// statusPatch replaces the whole status, if the object is still as it was read. An update would send the spec along,
// with fields that the installed variant of the CRD may not have; a merge patch would leave out required fields that
// are empty.
func statusPatch(r *round, status configv1.ClusterVersionStatus) (client.Patch, error) {
	operations := []map[string]any{{"op": "add", "path": "/status", "value": status}}
	if !r.contended {
		operations = append(operations, map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": r.original.ResourceVersion})
	}
	data, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encoding status: %w", err)
	}
	return client.RawPatch(types.JSONPatchType, data), nil
}

// maxConflicts is how many writes in a row may fail because somebody else was faster. Status is ours, so from then on the
// object is read from the API server itself, not from the cache, and what it says is overwritten whatever happens in
// between.
const maxConflicts = 3

// read returns the ClusterVersion, and whether others write to it so often that it was read past the cache.
func (c *Reconciler) read(ctx context.Context, name string) (cv *configv1.ClusterVersion, contended bool, err error) {
	c.mu.Lock()
	contended = c.memory.conflicts >= maxConflicts
	c.mu.Unlock()
	cv = &configv1.ClusterVersion{}
	key := types.NamespacedName{Name: name}
	if !contended {
		return cv, false, c.client.Get(ctx, key, cv)
	}
	u := &unstructured.Unstructured{} // these are not read from the cache
	u.SetGroupVersionKind(configv1.GroupVersion.WithKind("ClusterVersion"))
	if err := c.client.Get(ctx, key, u); err != nil {
		return nil, true, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, cv); err != nil {
		return nil, true, fmt.Errorf("reading ClusterVersion %s: %w", name, err)
	}
	return cv, true, nil
}

// conflicted counts a write that somebody else was faster than.
func (c *Reconciler) conflicted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory.conflicts++
}

// refusal is what the API server has refused of a status.
type refusal struct {
	message string
	// fields of status, with the type of a condition where it is one alone.
	fields []string
	// until is when it is tried again.
	until time.Time
}

// refusalInterval is how long fields are left out that the API server refuses.
const refusalInterval = time.Minute

// writeReduced writes what of a status the API server takes: without the fields that it names, else without all that is
// neither a condition nor the generation. It tells what is missing, once for each answer.
func (c *Reconciler) writeReduced(
	ctx context.Context, r *round, status configv1.ClusterVersionStatus, refused error,
) (*configv1.ClusterVersion, configv1.ClusterVersionStatus, error) {
	now := c.clock.Now()
	c.mu.Lock()
	told := c.memory.refusal.message == refused.Error()
	c.mu.Unlock()
	if !told {
		logr.FromContextOrDiscard(ctx).Error(refused, "status refused")
		c.emit(r.original, []event{statusRefused(refused)})
	}
	err := refused
	for _, fields := range [][]string{refusedFields(refused), allButConditions()} {
		less := reduced(r.original.Status, status, fields)
		var next *configv1.ClusterVersion
		if next, err = c.patchStatus(ctx, r, less); apierrors.IsInvalid(err) {
			continue
		}
		if err == nil {
			c.mu.Lock()
			c.memory.refusal = refusal{refused.Error(), lasting(fields, status), now.Add(refusalInterval)}
			c.mu.Unlock()
		}
		return next, less, err
	}
	return nil, status, err
}

// refusedFields are the fields of status that an answer of the API server names.
func refusedFields(err error) []string {
	var fields []string
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok && answer.ErrStatus.Details != nil {
		for _, cause := range answer.ErrStatus.Details.Causes {
			path, ok := strings.CutPrefix(cause.Field, "status.")
			if !ok {
				continue
			}
			name := path
			if end := strings.IndexAny(path, ".["); end >= 0 {
				name = path[:end]
			}
			if name == "conditions" {
				if end := strings.IndexByte(path, ']'); end >= 0 {
					name = path[:end+1]
				}
			}
			fields = append(fields, name)
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// conditionField begins the name of a field that is one condition.
const conditionField = "condition "

// lasting names conditions by their types in place of where they stand in a status: another one may have more or fewer.
func lasting(fields []string, status configv1.ClusterVersionStatus) []string {
	out := slices.Clone(fields)
	for i, field := range out {
		if kind, ok := conditionOfField(field, status); ok {
			out[i] = conditionField + string(kind)
		}
	}
	return out
}

func conditionOfField(field string, status configv1.ClusterVersionStatus) (configv1.ClusterStatusConditionType, bool) {
	if kind, ok := strings.CutPrefix(field, conditionField); ok {
		return configv1.ClusterStatusConditionType(kind), true
	}
	var at int
	if _, err := fmt.Sscanf(field, "conditions[%d]", &at); err != nil || at < 0 || at >= len(status.Conditions) {
		return "", false
	}
	return status.Conditions[at].Type, true
}

func allButConditions() []string {
	return []string{"availableUpdates", "capabilities", "conditionalUpdateRisks", "conditionalUpdates", "desired", "history", "versionHash"}
}

// reduced is a status whose given fields are as they were before.
func reduced(before, status configv1.ClusterVersionStatus, fields []string) configv1.ClusterVersionStatus {
	out := *status.DeepCopy()
	for _, field := range fields {
		switch field {
		case "availableUpdates":
			out.AvailableUpdates = before.AvailableUpdates
		case "capabilities":
			out.Capabilities = before.Capabilities
		case "conditionalUpdateRisks":
			out.ConditionalUpdateRisks = before.ConditionalUpdateRisks
		case "conditionalUpdates":
			out.ConditionalUpdates = before.ConditionalUpdates
		case "conditions":
			out.Conditions = before.Conditions
		case "desired":
			out.Desired = before.Desired
		case "history":
			out.History = before.History
		case "versionHash":
			out.VersionHash = before.VersionHash
		default:
			kind, ok := conditionOfField(field, status)
			if !ok {
				continue
			}
			// It keeps its place, so that the order of conditions is no news.
			if old, next := api.FindCondition(before.Conditions, kind), api.FindCondition(out.Conditions, kind); old != nil && next != nil {
				*next = *old
			} else {
				out.Conditions = slices.DeleteFunc(out.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool { return c.Type == kind })
			}
		}
	}
	return out
}

// notLess returns the progress of a process that has taken over in the middle of a rollout. What its predecessor counted
// last may not have reached the inventory, so until it is counted again the predecessor's number stands, and progress
// never runs backwards. It reports whether that is still so.
func notLess(progress *rollout.Progress, before configv1.ClusterVersionStatus) (*rollout.Progress, bool) {
	condition := api.FindCondition(before.Conditions, configv1.OperatorProgressing)
	if condition == nil || progress.Complete {
		return progress, false
	}
	var done, total int
	prefix := "Working towards " + progress.Release.Version + ": "
	counted, ok := strings.CutPrefix(condition.Message, prefix)
	if _, err := fmt.Sscanf(counted, "%d of %d done", &done, &total); !ok || err != nil || total != progress.Total || done <= progress.Done || done > total {
		return progress, false
	}
	told := *progress
	told.Done = done
	return &told, true
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
