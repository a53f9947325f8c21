package drain_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// describe returns the conditions of a node's update as text.
func describe(n *corev1.Node) string {
	var list []string
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			list = append(list, fmt.Sprintf("%s/%s", c.Type, c.Reason))
		}
	}
	return strings.Join(list, " ")
}

// TestConditionsFollowAnUpdate makes the writes of an update, one after the other.
func TestConditionsFollowAnUpdate(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	now := epoch
	for _, step := range []struct {
		write, blocker, want string
	}{
		{"", "", ""},
		{"currentConfig=a desiredConfig=a state=Done", "", ""},
		{"desiredConfig=b", "", "MaintenancePlanned/Targeted"},
		{"state=Working desiredDrain=drain-b", "", "DrainInProgress/Draining"},
		{"", "pod shop/web: the budget allows no disruption", "DrainInProgress/Blocked"},
		{"lastAppliedDrain=drain-b", "", "Drained/Drained MaintenanceInProgress/Working"},
		{"desiredDrain=uncordon-b", "", "Drained/Drained MaintenanceInProgress/Working"},
		{"desiredDrain=uncordon-a lastAppliedDrain=uncordon-a", "", "MaintenancePlanned/Targeted"},
		{"state=Degraded", "", "MaintenancePlanned/Degraded"},
		{"currentConfig=b state=Done", "", ""},
		{"state=Degraded", "", ""}, // the host differs
		{"state=Working desiredDrain=drain-b", "", "DrainInProgress/Draining"},
		{"state=Degraded desiredDrain=uncordon-b", "", "MaintenanceInProgress/Degraded"},
		{"lastAppliedDrain=uncordon-b", "", ""},
	} {
		for field := range strings.FieldsSeq(step.write) {
			key, value, _ := strings.Cut(field, "=")
			n.Annotations[api.MachineConfigGroup+"/"+key] = value
			if key == "desiredDrain" {
				n.Spec.Unschedulable = strings.HasPrefix(value, "drain-")
			}
		}
		now = now.Add(time.Second)
		before := describe(n)
		conditions, changed, _ := drain.Conditions(n, step.blocker, now)
		n.Status.Conditions = conditions
		assert.Equal(t, step.want, describe(n), step.write)
		assert.Equal(t, before != step.want, changed, step.write)
		_, changed, after := drain.Conditions(n, step.blocker, now)
		assert.False(t, changed, "a second look finds nothing to write")
		assert.Zero(t, after)
		assert.Equal(t, corev1.NodeReady, n.Status.Conditions[0].Type)
	}
}

func TestNodesThatKeepTheirPodsAreNotDrained(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		api.CurrentConfigAnnotation: "a", api.DesiredConfigAnnotation: "b", api.NodeStateAnnotation: api.NodeWorking,
	}}}
	for _, request := range []string{"drain-b", "uncordon-b"} {
		n.Annotations[api.DesiredDrainAnnotation], n.Annotations[api.AppliedDrainAnnotation] = request, request
		n.Status.Conditions, _, _ = drain.Conditions(n, "", epoch)
		assert.Equal(t, "MaintenanceInProgress/Working", describe(n))
	}
}

func TestBlockersAreWrittenOnceAMinute(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		api.CurrentConfigAnnotation: "a", api.DesiredConfigAnnotation: "b", api.DesiredDrainAnnotation: "drain-b",
	}}}
	var due time.Duration
	look := func(blocker string, after time.Duration) (message string, since time.Time) {
		n.Status.Conditions, _, due = drain.Conditions(n, blocker, epoch.Add(after))
		i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeDrainInProgress })
		return n.Status.Conditions[i].Message, n.Status.Conditions[i].LastTransitionTime.Time
	}
	look("", 0)
	message, _ := look("first", time.Second)
	assert.Equal(t, "first", message, "the first blocker is shown at once")
	message, _ = look("second", 30*time.Second)
	assert.Equal(t, "first", message)
	assert.Equal(t, 31*time.Second, due)
	message, since := look("second", 30*time.Second+due)
	assert.Equal(t, "second", message)
	assert.Zero(t, due)
	assert.Equal(t, epoch, since, "the drain began once")
}

// TestFlappingBlockersAreWrittenOnceAMinute has a budget that accepts and refuses evictions in turn.
func TestFlappingBlockersAreWrittenOnceAMinute(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		api.DesiredConfigAnnotation: "new", api.CurrentConfigAnnotation: "old", api.DesiredDrainAnnotation: drain.Before("new"),
	}}}
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var writes []string
	show := func(blocker string, at time.Duration) (after time.Duration) {
		conditions, changed, after := drain.Conditions(n, blocker, begun.Add(at))
		if changed {
			n.Status.Conditions = conditions
			writes = append(writes, at.String()+" "+conditions[0].Reason)
		}
		return after
	}
	show("", 0)
	show("budget a", time.Second)
	assert.Equal(t, 59*time.Second, show("", 2*time.Second))
	show("budget b", 3*time.Second)
	show("", 4*time.Second)
	show("", 61*time.Second)
	assert.Equal(t, []string{"0s Draining", "1s Blocked", "1m1s Draining"}, writes)
}
