package actor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// progress is an operator on its way to a version.
type progress struct {
	uid     types.UID
	version string
	since   time.Time
	// flaps is the number of remaining changes: two for every loss of Available.
	flaps int
	// flipped is the time when Available last changed.
	flipped time.Time
	// wrote is the last replaced resource version. While the cache shows it, the cache is behind.
	wrote string
	// arrived means that the operator only has to keep its status.
	arrived bool
}

// picture is the report of an operator.
type picture struct {
	versions                                      []configv1.OperandVersion // nil for those reported before
	available, progressing, degraded, upgradeable configv1.ClusterOperatorStatusCondition
}

// reconcileOperator updates the status of a ClusterOperator to the progress of its operator.
func (a *actor) reconcileOperator(ctx context.Context, name string) (again time.Duration, err error) {
	operators := a.caches.clusterOperators()
	i := slices.IndexFunc(operators, func(o *configv1.ClusterOperator) bool { return o.Name == name })
	if i < 0 {
		a.forget(name)
		return 0, nil
	}
	operator := operators[i]
	linked := link(operator, a.caches.versioned(), operators)
	reported := versions(name, linked)
	if reported == nil && slices.Contains(a.options.Follow, name) {
		if v := a.caches.desiredVersion(); v != "" {
			reported = []configv1.OperandVersion{{Name: "operator", Version: v}}
		}
	}
	if reported == nil {
		return 0, nil // no workload, or workloads between two versions: no operator could report
	}

	now := time.Now()
	p := a.progress(operator, reported[0].Version, a.carriedSince(linked, now))
	if p.wrote == operator.ResourceVersion {
		return 0, nil
	}
	pic, again := a.options.picture(operator, reported, p, now)
	conditions := merge(operator.Status.Conditions, pic, now)
	wanted := pic.versions
	if wanted == nil {
		wanted = operator.Status.Versions
	}
	if !slices.Equal(conditions, operator.Status.Conditions) || !slices.Equal(wanted, operator.Status.Versions) {
		if err := a.writeOperator(ctx, operator, conditions, wanted); err != nil {
			return 0, err
		}
		p.wrote = operator.ResourceVersion
		logr.FromContextOrDiscard(ctx).V(1).Info("operator reports", "operator", name, "version", p.version,
			"available", pic.available.Status, "progressing", pic.progressing.Status, "degraded", pic.degraded.Status)
	}
	return again, nil
}

func (a *actor) forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.operators, name)
}

// carriedSince returns the time when the last of these workloads got its current spec.
func (a *actor) carriedSince(linked []workload, now time.Time) time.Time {
	if len(linked) == 0 {
		return now
	}
	var last time.Time
	for _, w := range linked {
		if t := a.seenSince(key{w.kind, w.namespace, w.name}, w.uid, w.generation, now); t.After(last) {
			last = t
		}
	}
	return last
}

// progress finds or starts an operator's progress to a version. An operator that an earlier actor already reported at this version has
// arrived, unless it is configured to fail.
func (a *actor) progress(operator *configv1.ClusterOperator, version string, since time.Time) *progress {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.operators[operator.Name]
	if p != nil && p.uid == operator.UID && p.version == version {
		return p
	}
	p = &progress{uid: operator.UID, version: version, since: since, flaps: 2 * a.options.Flap[operator.Name]}
	there := slices.ContainsFunc(operator.Status.Versions, func(v configv1.OperandVersion) bool {
		return v.Name == "operator" && v.Version == version
	})
	if there && !a.options.fails(operator.Name, version) {
		p.arrived, p.flaps = true, 0
	}
	a.operators[operator.Name] = p
	return p
}

// picture returns the current report of an operator and the time until its next change. It changes p, which is safe because the queue never
// gives one operator to two workers.
func (o Options) picture(operator *configv1.ClusterOperator, reported []configv1.OperandVersion, p *progress, now time.Time) (picture, time.Duration) {
	version := reported[0].Version
	if left := p.since.Add(o.delay(operator.Name, version)).Sub(now); !p.arrived && left > 0 {
		return rolling(operator, version), left
	}
	if o.fails(operator.Name, version) {
		return failing(operator.Name, version), 0
	}
	p.arrived = true
	settled := picture{
		versions:    reported,
		available:   condition(configv1.OperatorAvailable, true, "AsExpected", "%s is available at version %s", operator.Name, version),
		progressing: condition(configv1.OperatorProgressing, false, "AsExpected", "%s is at version %s", operator.Name, version),
		degraded:    condition(configv1.OperatorDegraded, false, "AsExpected", ""),
		upgradeable: condition(configv1.OperatorUpgradeable, true, "AsExpected", ""),
	}
	if p.flaps == 0 {
		return settled, 0
	}
	if p.flipped.IsZero() { // first it is Available, then it loses it
		p.flipped = now
		return settled, o.FlapEvery
	}
	if left := p.flipped.Add(o.FlapEvery).Sub(now); left > 0 {
		if p.flaps%2 == 1 {
			settled.available = flapping(operator.Name)
		}
		return settled, left
	}
	p.flaps, p.flipped = p.flaps-1, now
	if p.flaps%2 == 1 {
		settled.available = flapping(operator.Name)
	}
	if p.flaps == 0 {
		return settled, 0
	}
	return settled, o.FlapEvery
}

// rolling returns the report of an operator that keeps working while it moves to a version.
func rolling(operator *configv1.ClusterOperator, version string) picture {
	keep := func(kind configv1.ClusterStatusConditionType, initially bool) configv1.ClusterOperatorStatusCondition {
		for _, c := range operator.Status.Conditions {
			if c.Type == kind {
				return c
			}
		}
		return condition(kind, initially, "Starting", "%s is starting", operator.Name)
	}
	return picture{
		available:   keep(configv1.OperatorAvailable, false),
		progressing: condition(configv1.OperatorProgressing, true, "RollingOut", "%s is moving to version %s", operator.Name, version),
		degraded:    keep(configv1.OperatorDegraded, false),
		upgradeable: keep(configv1.OperatorUpgradeable, true),
	}
}

func failing(name, version string) picture {
	return picture{
		available:   condition(configv1.OperatorAvailable, false, "OperandUnavailable", "%s at version %s does not answer", name, version),
		progressing: condition(configv1.OperatorProgressing, true, "RollingOut", "%s is moving to version %s", name, version),
		degraded:    condition(configv1.OperatorDegraded, true, "OperandFailing", "%s cannot start version %s of its operand", name, version),
		upgradeable: condition(configv1.OperatorUpgradeable, true, "AsExpected", ""),
	}
}

func flapping(name string) configv1.ClusterOperatorStatusCondition {
	return condition(configv1.OperatorAvailable, false, "Flapping", "%s has lost its operand for a moment", name)
}

func condition(kind configv1.ClusterStatusConditionType, status bool, reason, message string, args ...any) configv1.ClusterOperatorStatusCondition {
	s := configv1.ConditionFalse
	if status {
		s = configv1.ConditionTrue
	}
	return configv1.ClusterOperatorStatusCondition{Type: kind, Status: s, Reason: reason, Message: fmt.Sprintf(message, args...)}
}

// merge updates the conditions to the picture. It keeps their order, conditions of other types, and the transition times of unchanged conditions.
func merge(before []configv1.ClusterOperatorStatusCondition, pic picture, now time.Time) []configv1.ClusterOperatorStatusCondition {
	after := slices.Clone(before)
	for _, c := range []configv1.ClusterOperatorStatusCondition{pic.available, pic.progressing, pic.degraded, pic.upgradeable} {
		i := slices.IndexFunc(after, func(old configv1.ClusterOperatorStatusCondition) bool { return old.Type == c.Type })
		if i >= 0 && after[i].Status == c.Status {
			c.LastTransitionTime = after[i].LastTransitionTime
		} else {
			c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		}
		if i < 0 {
			after = append(after, c)
		} else {
			after[i] = c
		}
	}
	return after
}

// writeOperator replaces only the conditions and versions, and only of the object that was read.
func (a *actor) writeOperator(ctx context.Context, operator *configv1.ClusterOperator, conditions []configv1.ClusterOperatorStatusCondition, versions []configv1.OperandVersion) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": operator.UID, "resourceVersion": operator.ResourceVersion},
		"status":   map[string]any{"conditions": conditions, "versions": versions},
	})
	if err != nil {
		return err
	}
	_, err = a.dynamic.Resource(configv1.GroupVersion.WithResource("clusteroperators")).
		Patch(ctx, operator.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: UserAgent}, "status")
	if apierrors.IsNotFound(err) {
		return nil // the watch will report the change
	}
	return err
}
