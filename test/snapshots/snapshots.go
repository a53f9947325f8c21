// Package snapshots creates snapshots of rollouts for tests: one under way, a complete one, and one without objects.
package snapshots

import (
	"time"

	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Time is the current time of all snapshots.
var Time = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Before returns a time before Time.
func Before(d time.Duration) time.Time { return Time.Add(-d) }

// Object returns an object that settled an hour ago, with the changes in more.
func Object(runlevel int, component, kind, name string, more ...func(*report.Object)) report.Object {
	o := report.Object{
		ID: manifest.ID{Kind: kind, Namespace: component, Name: name}, Runlevel: runlevel, Component: component,
		File:   component + "_" + kind + "_" + name + ".yaml",
		Result: report.Unchanged, At: Before(time.Hour), State: report.StateSettled, Since: Before(time.Hour),
	}
	for _, f := range more {
		f(&o)
	}
	return o
}

// State sets the state of an object, which began some time before Time.
func State(s report.State, since time.Duration, reason, message string) func(*report.Object) {
	return func(o *report.Object) { o.State, o.Since, o.Reason, o.Message = s, Before(since), reason, message }
}

func result(r report.Result, ago time.Duration) func(*report.Object) {
	return func(o *report.Object) { o.Result, o.At = r, Before(ago) }
}

func pending(o *report.Object) {
	o.State, o.Result, o.At, o.Since = report.StatePending, "", time.Time{}, time.Time{}
}

// Skipped marks an object as excluded from the cluster.
func Skipped(reason, message string) func(*report.Object) {
	return func(o *report.Object) {
		pending(o)
		o.State, o.Reason, o.Message = report.StateSkipped, reason, message
	}
}

// Updating returns a snapshot during an update, with an example of everything that can be drawn.
func Updating() *report.Snapshot {
	return &report.Snapshot{
		At: Time,
		Progress: report.Progress{
			Release: release.Release{Version: "1.1.0", Image: "registry.example/release@sha256:00"}, Mode: release.Updating, Total: 12, Done: 7,
			Problems: []report.Problem{
				{ID: manifest.ID{Group: "config.openshift.io", Kind: "ClusterOperator", Name: "dns"}, Runlevel: 20, Component: "dns", State: gate.Waiting},
				{ID: manifest.ID{Kind: "Job", Namespace: "network", Name: "migrate"}, Runlevel: 20, Component: "network", State: gate.Failed},
			},
			Deletions: []report.Deletion{
				{ID: manifest.ID{Kind: "Deployment", Namespace: "ingress", Name: "old"}, Since: Before(3 * time.Minute), Message: "finalizer example.com/hold is not removed"},
				{ID: manifest.ID{Kind: "ConfigMap", Namespace: "ingress", Name: "orphan"}, Since: Before(time.Second)},
			},
		},
		Objects: []report.Object{
			Object(0, "config", "Namespace", "config"),
			Object(0, "config", "ConfigMap", "settings", func(o *report.Object) {
				o.Repairs, o.LastRepair = 3, report.Repair{At: Before(12 * time.Second), Reason: report.DriftChanged, Manager: "kubectl-edit"}
			}),
			Object(10, "storage", "Deployment", "storage", func(o *report.Object) { o.Loosened = []string{"mesh: spec.template.spec.hostPID"} }),
			Object(20, "dns", "Namespace", "dns"),
			Object(20, "dns", "Deployment", "dns", result(report.Configured, 90*time.Second)),
			Object(20, "dns", "ClusterOperator", "dns", result(report.Configured, 80*time.Second),
				State(report.StateWaiting, 70*time.Second, "ClusterOperatorUpdating", "Cluster operator dns is\nupdating versions")),
			Object(20, "network", "Job", "migrate", result(report.Refused, 5*time.Second),
				State(report.StateFailed, 4*time.Minute, "JobFailed", "BackoffLimitExceeded \x1b[2J")),
			Object(20, "network", "DaemonSet", "agent", pending),
			Object(20, "image", "Deployment", "image"),
			Object(30, "console", "Deployment", "console", pending),
			Object(30, "console", "Route", "console", pending, func(o *report.Object) { o.Dropped = []string{"spec.httpHeaders"} }),
			Object(30, "ingress", "Deployment", "old", result(report.Deleting, 3*time.Minute),
				State(report.StateWaiting, 3*time.Minute, "Deleting", "finalizer example.com/hold is not removed")),
			Object(50, "baremetal", "Deployment", "metal", Skipped("CapabilityDisabled", "capability baremetal is not enabled")),
			Object(50, "baremetal", "Service", "metal", Skipped("CapabilityDisabled", "capability baremetal is not enabled")),
			Object(50, "samples", "ConfigMap", "samples", Skipped("OtherProfile", "profile single-node")),
		},
	}
}

// Complete returns a snapshot of the same release after its rollout.
func Complete() *report.Snapshot {
	s := Updating()
	s.Progress.Mode, s.Progress.Done, s.Progress.Complete, s.Progress.Problems = release.Reconciling, 12, true, nil
	s.Objects = []report.Object{Object(0, "config", "Namespace", "config"), Object(20, "dns", "Deployment", "dns", result(report.Configured, time.Minute))}
	return s
}

// Outline returns a snapshot before the end of the first pass, which has only numbers and the blocking objects.
func Outline() *report.Snapshot {
	s := Updating()
	s.Objects = nil
	s.Progress.HandedOver = true
	s.UnmatchedOverrides = `These entries match no object: group "apps/v1", kind "Deployment" (did you mean group "apps"?)`
	s.Progress.Problems[1].Since, s.Progress.Problems[1].Reason, s.Progress.Problems[1].Message = Before(time.Minute), "JobFailed", "it failed"
	s.Progress.Controlled = []report.Controlled{{ID: manifest.ID{Kind: "ConfigMap", Name: "x"}, Controller: "Shop shop"}}
	s.Progress.Loosened = []report.Loosened{{ID: manifest.ID{Kind: "Deployment", Name: "x"}, Fields: []string{"mesh: spec.hostPID"}}}
	s.Progress.Dropped = []report.Dropped{{ID: manifest.ID{Kind: "Route", Name: "x"}, Fields: []string{"spec.a", "spec.b"}}}
	s.Progress.Runlevels = []report.Runlevel{
		{Runlevel: 0, Total: 2, Done: 2, Components: []report.Component{{Name: "config", Total: 2, Done: 2}}},
		{Runlevel: 20, Total: 6, Done: 3, Components: []report.Component{{Name: "dns", Total: 3, Done: 2}, {Name: "image", Total: 1, Done: 1}, {Name: "network", Total: 2}}},
		{Runlevel: 30, Total: 3, Components: []report.Component{{Name: "console", Total: 3}}},
	}
	return s
}
