// Package status computes the status of the ClusterVersion. It takes the object and the known state of the requested release and its
// rollout, and returns the next status. It is pure and writes nothing.
package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/assess"
	"github.com/cluster-version/cvo/pkg/clusterversion/control"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/clusterversion/history"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/clusterversion/updates"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

// Observed is the input of the next status.
type Observed struct {
	// Invalid lists the errors of ignored spec fields.
	Invalid field.ErrorList
	// Target is the requested release. Latest is the state of its acceptance, which began at Asked.
	Target request.Target
	Latest accept.Acceptance
	Asked  time.Time
	// Pending says when the request that waits for the first install starts; empty if none waits.
	Pending string
	// Accepted is the release that is rolled out, nil before the first. Unapplied is the reason why there is none, or why its rollout can make
	// no pass; nil if there is no such reason or it is unknown. Progress is the progress of the rollout.
	Accepted  *accept.Acceptance
	Unapplied *report.Problem
	Progress  *report.Progress
	// Forced are the digests that were ever forced. Their history entries are kept longest.
	Forced sets.Set[string]
	// Unrecorded reports that the request could not be recorded yet. Then the spec does not count as observed, because a new process would
	// take an observed request without a record for one that the history answers.
	Unrecorded bool
	// Updates are the known updates of the cluster.
	Updates updates.Known
	// Obstacles block updates to another minor version.
	Obstacles []upgradeable.Obstacle
	// Schema lists the optional fields of ClusterVersion that the cluster has.
	Schema control.Schema
	Now    time.Time
}

// Next returns the next status of cv. It is pure: the same input results in the same status, and the transition time of a condition moves
// only with its status. The returned duration is the time until the status may change without an event; 0 for never.
func Next(cv *configv1.ClusterVersion, in Observed) (configv1.ClusterVersionStatus, time.Duration) {
	status := *cv.Status.DeepCopy()
	now := metav1.NewTime(in.Now.UTC().Truncate(time.Second))
	if !in.Unrecorded {
		status.ObservedGeneration = cv.Generation
	}
	begun := false
	if in.Accepted != nil {
		begun = !Recorded(status, *in.Accepted, in.Schema)
		status.Desired = desired(*in.Accepted, in.Updates.Describing(status))
		status.VersionHash = in.Accepted.Payload.Hash
		started := len(status.History) == 0 || !history.Same(status.History[0], in.Accepted.Payload.Release.Version, in.Accepted.Image())
		entry := in.Accepted.HistoryEntry()
		if started && !in.Accepted.Target.Own {
			in.Updates.RecordAccepted(&entry, status.ConditionalUpdates)
		}
		status.History = history.Record(status.History, entry, in.Forced, now)
		if in.Progress != nil && in.Progress.Complete {
			history.Complete(status.History, now)
		}
		status.Capabilities = capabilities(*in.Accepted, in.Schema)
	} else if status.Desired.Image == "" {
		status.Desired.Image = in.Target.Image
	}
	recheck := setConditions(cv, &status, in, begun, now)
	return status, recheck
}

// Recorded reports whether the status names this release and the content that this cluster gets from it. A rollout begins only after that,
// so a crash at any moment leaves a record of it. A status without a hash says nothing about the content.
func Recorded(status configv1.ClusterVersionStatus, a accept.Acceptance, schema control.Schema) bool {
	if len(status.History) == 0 || !history.Same(status.History[0], a.Payload.Release.Version, a.Image()) {
		return false
	}
	return status.VersionHash == "" || status.VersionHash == a.Payload.Hash &&
		slices.Equal(status.Capabilities.EnabledCapabilities, capabilities(a, schema).EnabledCapabilities)
}

// capabilities returns the capabilities for the status. It drops names that the cluster's definition of ClusterVersion lacks, because the
// API server would reject the whole status.
func capabilities(a accept.Acceptance, schema control.Schema) configv1.ClusterVersionCapabilitiesStatus {
	named := func(set sets.Set[configv1.ClusterVersionCapability]) []configv1.ClusterVersionCapability {
		return slices.DeleteFunc(sets.List(set), func(c configv1.ClusterVersionCapability) bool { return !schema.Names(c) })
	}
	return configv1.ClusterVersionCapabilitiesStatus{
		EnabledCapabilities: named(a.Filter.Capabilities.Enabled), KnownCapabilities: named(a.Filter.Capabilities.Known),
	}
}

func desired(a accept.Acceptance, known []configv1.Release) configv1.Release {
	r := a.Payload.Release
	d := configv1.Release{Version: r.Version, Image: a.Image(), URL: configv1.URL(r.URL), Channels: r.Channels, Architecture: configv1.ClusterVersionArchitecture(r.Architecture)}
	for _, update := range known {
		if update.Image != d.Image {
			continue
		}
		if d.URL == "" {
			d.URL = update.URL
		}
		if len(d.Channels) == 0 {
			d.Channels = update.Channels
		}
	}
	return d
}

// setConditions sets the conditions and returns the time until they may change without an event. The state of a rollout that was under way
// or complete is unknown until its first pass. Until then, for example after a restart, its conditions change only if no release can be
// accepted.
func setConditions(cv *configv1.ClusterVersion, status *configv1.ClusterVersionStatus, in Observed, begun bool, now metav1.Time) time.Duration {
	version := versionText(status, in)
	mode := release.Initializing
	switch {
	case in.Accepted != nil:
		mode = nextMode(*status, in, begun)
	case len(status.History) > 0:
		mode = history.Mode(cv, status.History[0].Image)
	}
	var problems []report.Problem
	if in.Progress != nil {
		problems = slices.Clone(in.Progress.Problems)
	}
	if in.Unapplied != nil {
		problems = append(problems, *in.Unapplied)
	}
	a := assess.Rollout(problems, mode, in.Now)
	known := in.Progress != nil || begun || len(status.History) == 0 || a.Failing == configv1.ConditionTrue
	set := func(kind configv1.ClusterStatusConditionType, value configv1.ConditionStatus, reason, message string) {
		setCondition(&status.Conditions, configv1.ClusterOperatorStatusCondition{
			Type: kind, Status: value, Reason: reason, Message: message, LastTransitionTime: now,
		})
	}
	if in.Accepted != nil && len(status.History) > 0 && status.History[0].State == configv1.CompletedUpdate {
		set(configv1.OperatorAvailable, configv1.ConditionTrue, "", "Done applying "+status.History[0].Version)
	} else if api.FindCondition(status.Conditions, configv1.OperatorAvailable) == nil {
		set(configv1.OperatorAvailable, configv1.ConditionFalse, "", "")
	}
	if known || api.FindCondition(status.Conditions, api.Failing) == nil {
		set(api.Failing, a.Failing, a.Reason, a.Message)
	}
	if known || api.FindCondition(status.Conditions, configv1.OperatorProgressing) == nil {
		setProgressing(set, version, mode, in, a)
	}
	recheck := a.Recheck
	switch left := in.Asked.Add(acceptPatience).Sub(in.Now); {
	case in.Accepted != nil, in.Latest.Answered(), left <= 0, len(status.History) == 0, api.FindCondition(status.Conditions, api.ReleaseAccepted) == nil:
		setAccepted(set, in)
	case recheck == 0 || left < recheck:
		recheck = left
	}
	setInvalid(status, set, in.Invalid)
	if in.Accepted != nil || api.FindCondition(status.Conditions, api.ImplicitlyEnabledCapabilities) == nil {
		setImplicit(set, implicitCapabilities(cv, in.Accepted))
	}
	if r := in.Updates.Report(status, in.Schema, in.Obstacles, in.Now); r.Status != "" {
		set(configv1.RetrievedUpdates, r.Status, r.Reason, r.Message)
	} else if api.FindCondition(status.Conditions, configv1.RetrievedUpdates) == nil {
		set(configv1.RetrievedUpdates, configv1.ConditionFalse, "", "")
	}
	setUpgradeable(status, set, in)
	return recheck
}

// acceptPatience is the time for which the ReleaseAccepted of an earlier process stays while this process accepts the release again. It
// prevents that every restart changes the condition twice. After that time, for example because the registry does not respond, the
// condition says that the release is being retrieved.
const acceptPatience = 10 * time.Second

// RolloutMode returns the mode for the rollout of an accepted release. A release that the cluster continues with after its ClusterVersion
// was recreated is not an install, although the new history has no completed release. Its objects exist, and missing or changed objects are
// applied in runlevel order.
func RolloutMode(status configv1.ClusterVersionStatus, a accept.Acceptance) release.Mode {
	mode := history.Mode(&configv1.ClusterVersion{Status: status}, a.Image())
	if mode == release.Initializing && a.Target.Continued {
		return release.Updating
	}
	return mode
}

// nextMode returns the mode for a status that already has its next history but not its next conditions.
func nextMode(status configv1.ClusterVersionStatus, in Observed, begun bool) release.Mode {
	mode := RolloutMode(status, *in.Accepted)
	completed := status.History[0].State == configv1.CompletedUpdate
	switch {
	case begun && mode == release.Reconciling:
		return release.Updating // the cluster gets other manifests of the same release
	case !begun && mode == release.Updating && completed && in.Progress != nil && in.Progress.Complete:
		return release.Reconciling
	}
	return mode
}

type setter func(kind configv1.ClusterStatusConditionType, value configv1.ConditionStatus, reason, message string)

// versionText returns the name of the current release for messages: its version, or its image if it has none.
func versionText(status *configv1.ClusterVersionStatus, in Observed) string {
	switch {
	case status.Desired.Version != "":
		return status.Desired.Version
	case in.Target.Version != "":
		return in.Target.Version
	}
	return in.Target.Image
}

func setProgressing(set setter, version string, mode release.Mode, in Observed, a assess.Assessment) {
	invalid := len(in.Invalid) > 0
	switch {
	case a.Failing == configv1.ConditionTrue && mode == release.Reconciling:
		set(configv1.OperatorProgressing, configv1.ConditionFalse, a.Reason, fmt.Sprintf("Error while reconciling %s: %s", version, a.Summary))
	case a.Failing == configv1.ConditionTrue:
		set(configv1.OperatorProgressing, configv1.ConditionTrue, a.Reason, withPending(fmt.Sprintf("Unable to apply %s: %s", version, a.Summary), in.Pending))
	case mode == release.Reconciling && invalid:
		set(configv1.OperatorProgressing, configv1.ConditionFalse, api.ReasonInvalidClusterVersion, fmt.Sprintf("Stopped at %s: the cluster version is invalid", version))
	case mode == release.Reconciling:
		set(configv1.OperatorProgressing, configv1.ConditionFalse, "", "Cluster version is "+version)
	case invalid:
		set(configv1.OperatorProgressing, configv1.ConditionTrue, api.ReasonInvalidClusterVersion, fmt.Sprintf("Reconciling %s: the cluster version is invalid", version))
	default:
		set(configv1.OperatorProgressing, configv1.ConditionTrue, a.WaitReason, workingText(version, in.Progress, withPending(pausedText(in.Progress, a.Waiting), in.Pending)))
	}
}

// withPending appends when the request that waits for the first install will start. That comes last, because clients parse the text before
// it.
func withPending(text, pending string) string {
	if text == "" || pending == "" {
		return text + pending
	}
	return text + ", " + pending
}

// workingText returns a text such as `Working towards 4.23.0: 139 of 859 done (16% complete), waiting on kube-scheduler`. Clients parse it.
func workingText(version string, progress *report.Progress, waiting string) string {
	text := "Working towards " + version
	if progress == nil || progress.Done == 0 || progress.Total == 0 {
		if waiting != "" {
			text += ": " + waiting
		}
		return text
	}
	text += fmt.Sprintf(": %d of %d done (%d%% complete)", progress.Done, progress.Total, progress.Done*100/progress.Total)
	if waiting != "" {
		text += ", " + waiting
	}
	return text
}

// pausedText adds the pause to the text about the pending gates.
func pausedText(progress *report.Progress, waiting string) string {
	if progress == nil || progress.Paused == nil {
		return waiting
	}
	text := fmt.Sprintf("paused before runlevel %02d", progress.Paused.Before)
	if !progress.Paused.Reached {
		text = fmt.Sprintf("pausing before runlevel %02d", progress.Paused.Before)
	}
	if waiting != "" {
		text = waiting + ", " + text
	}
	return text
}

// NotLess returns the progress of a process that has resumed a rollout. The inventory may lack the last changes that the predecessor
// counted. NotLess returns the predecessor's number until this process has counted as many, so that progress never decreases. It reports
// whether it did so.
func NotLess(progress *report.Progress, before configv1.ClusterVersionStatus) (*report.Progress, bool) {
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
	kept := *progress
	kept.Done = done
	return &kept, true
}

// implicitCapabilities returns the capabilities that are enabled although the spec does not request them.
func implicitCapabilities(cv *configv1.ClusterVersion, accepted *accept.Acceptance) []configv1.ClusterVersionCapability {
	if accepted == nil {
		return nil
	}
	_, implicit := inclusion.EnabledCapabilities(cv.Spec.Capabilities, accepted.Filter.Gates, accepted.Filter.Capabilities.Enabled)
	return implicit
}

func setImplicit(set setter, implicit []configv1.ClusterVersionCapability) {
	if len(implicit) == 0 {
		set(api.ImplicitlyEnabledCapabilities, configv1.ConditionFalse, api.ReasonAsExpected, "Capabilities match configured spec")
		return
	}
	set(api.ImplicitlyEnabledCapabilities, configv1.ConditionTrue, api.ReasonCapabilitiesImplicit,
		"The following capabilities could not be disabled: "+inclusion.CapabilityNames(implicit))
}

func setAccepted(set setter, in Observed) {
	switch l := in.Latest; {
	case l.Step == "":
		set(api.ReleaseAccepted, configv1.ConditionUnknown, api.ReasonRetrievePayload, "Retrieving and verifying payload "+accept.Acceptance{Target: in.Target}.Describe())
	case l.Err != nil:
		set(api.ReleaseAccepted, configv1.ConditionFalse, l.Step, l.Message)
	case l.Done:
		set(api.ReleaseAccepted, configv1.ConditionTrue, api.ReasonPayloadLoaded, l.Message)
	default:
		set(api.ReleaseAccepted, configv1.ConditionUnknown, l.Step, l.Message)
	}
}

func setInvalid(status *configv1.ClusterVersionStatus, set setter, invalid field.ErrorList) {
	if len(invalid) == 0 {
		status.Conditions = slices.DeleteFunc(status.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool { return c.Type == api.Invalid })
		return
	}
	message := "The cluster version is invalid: " + invalid[0].Error()
	if len(invalid) > 1 {
		lines := make([]string, len(invalid))
		for i, err := range invalid {
			lines[i] = "* " + err.Error()
		}
		message = "The cluster version is invalid:\n" + strings.Join(lines, "\n")
	}
	set(api.Invalid, configv1.ConditionTrue, api.ReasonInvalidClusterVersion, message)
}

// setCondition adds or replaces a condition. The message may quote a release, so it is truncated, and characters that a terminal interprets
// are replaced.
func setCondition(conditions *[]configv1.ClusterOperatorStatusCondition, next configv1.ClusterOperatorStatusCondition) {
	next.Message = printable.Lines(printable.Excerpt(next.Message, event.MaxMessage))
	api.SetCondition(conditions, next)
}
