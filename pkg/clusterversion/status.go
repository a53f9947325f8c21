package clusterversion

import (
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
	"github.com/cluster-version/cvo/pkg/upgradeable"
)

// observed is everything that status is made of.
type observed struct {
	// invalid are the fields of the spec that were left aside.
	invalid field.ErrorList
	// target is the release asked for, latest how far its acceptance came.
	target Target
	latest Acceptance
	// accepted is the release being rolled out, nil before the first; progress is that of its rollout in its mode.
	accepted *Acceptance
	progress *rollout.Progress
	// updates are the releases that the cluster can be updated to.
	updates knownUpdates
	// obstacles keep the cluster from another minor version.
	obstacles []upgradeable.Obstacle
	// control is what an administrator has asked for beyond the ClusterVersion.
	control control
	now     time.Time
}

// nextStatus works out the status of cv. It is pure: the same input gives the same status, and a condition whose
// status does not change keeps its transition time. The returned duration says when time alone may change the answer.
func nextStatus(cv *configv1.ClusterVersion, in observed) (configv1.ClusterVersionStatus, time.Duration) {
	status := *cv.Status.DeepCopy()
	now := metav1.NewTime(in.now.UTC().Truncate(time.Second))
	status.ObservedGeneration = cv.Generation
	begun := false
	if in.accepted != nil {
		begun = !recorded(status, *in.accepted, in.control.schema)
		status.Desired = desired(*in.accepted, in.updates.describing(status))
		status.VersionHash = in.accepted.Payload.Hash
		started := len(status.History) == 0 || !sameEntry(status.History[0], in.accepted.Payload.Release.Version, in.accepted.Image())
		status.History = recordTarget(status.History, *in.accepted, now)
		if started && !in.accepted.Target.Own {
			recordAcceptedRisks(&status.History[0], status.ConditionalUpdates, in.updates.accepted)
		}
		if in.progress != nil && in.progress.Complete {
			recordCompleted(status.History, now)
		}
		status.Capabilities = capabilities(*in.accepted, in.control.schema)
	} else if status.Desired.Image == "" {
		status.Desired.Image = in.target.Image
	}
	recheck := setConditions(cv, &status, in, begun, now)
	return status, recheck
}

// recorded reports whether status says already that this release is rolled out, with what this cluster gets of it. A
// rollout begins only after that, so that a crash at any moment finds what is under way. A status without a hash is one
// that says nothing about what the cluster gets.
func recorded(status configv1.ClusterVersionStatus, a Acceptance, schema Schema) bool {
	if len(status.History) == 0 || !sameEntry(status.History[0], a.Payload.Release.Version, a.Image()) {
		return false
	}
	return status.VersionHash == "" || status.VersionHash == a.Payload.Hash &&
		slices.Equal(status.Capabilities.EnabledCapabilities, capabilities(a, schema).EnabledCapabilities)
}

// capabilities are those that status tells of. A name that the cluster's definition of ClusterVersion does not have would
// have the API server refuse the whole status.
func capabilities(a Acceptance, schema Schema) configv1.ClusterVersionCapabilitiesStatus {
	named := func(set sets.Set[configv1.ClusterVersionCapability]) []configv1.ClusterVersionCapability {
		return slices.DeleteFunc(sets.List(set), func(c configv1.ClusterVersionCapability) bool { return !schema.Names(c) })
	}
	return configv1.ClusterVersionCapabilitiesStatus{
		EnabledCapabilities: named(a.filter.Capabilities.Enabled), KnownCapabilities: named(a.filter.Capabilities.Known),
	}
}

func desired(a Acceptance, known []configv1.Release) configv1.Release {
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

// setConditions sets the conditions. Nothing of a rollout that was under way or complete is known until its first pass
// has told: until then, as after a restart, the conditions stay as they are.
func setConditions(cv *configv1.ClusterVersion, status *configv1.ClusterVersionStatus, in observed, begun bool, now metav1.Time) time.Duration {
	version := versionText(status, in)
	mode := release.Initializing
	if in.accepted != nil {
		mode = nextMode(*status, in, begun)
	}
	known := in.progress != nil || begun || len(status.History) == 0
	var problems []rollout.Problem
	if in.progress != nil {
		problems = in.progress.Problems
	}
	a := assess(problems, mode, in.now)
	set := func(kind configv1.ClusterStatusConditionType, value configv1.ConditionStatus, reason, message string) {
		setCondition(&status.Conditions, configv1.ClusterOperatorStatusCondition{
			Type: kind, Status: value, Reason: reason, Message: message, LastTransitionTime: now,
		})
	}
	if in.accepted != nil && len(status.History) > 0 && status.History[0].State == configv1.CompletedUpdate {
		set(configv1.OperatorAvailable, configv1.ConditionTrue, "", "Done applying "+status.History[0].Version)
	} else if api.FindCondition(status.Conditions, configv1.OperatorAvailable) == nil {
		set(configv1.OperatorAvailable, configv1.ConditionFalse, "", "")
	}
	if known || api.FindCondition(status.Conditions, api.Failing) == nil {
		set(api.Failing, a.failing, a.reason, a.message)
	}
	if known || api.FindCondition(status.Conditions, configv1.OperatorProgressing) == nil {
		setProgressing(set, version, mode, in, a)
	}
	if in.accepted != nil || in.latest.answered() || len(status.History) == 0 || api.FindCondition(status.Conditions, api.ReleaseAccepted) == nil {
		setAccepted(set, in)
	}
	setInvalid(status, set, in.invalid)
	if in.accepted != nil || api.FindCondition(status.Conditions, api.ImplicitlyEnabledCapabilities) == nil {
		setImplicit(set, implicitCapabilities(cv, in.accepted))
	}
	setUpdates(status, set, in)
	setUpgradeable(status, set, in)
	return a.recheck
}

// nextMode is the mode that a rollout is in by a status that has its history already, but not its conditions.
func nextMode(status configv1.ClusterVersionStatus, in observed, begun bool) release.Mode {
	mode := modeOf(&configv1.ClusterVersion{Status: status}, in.accepted.Image())
	completed := status.History[0].State == configv1.CompletedUpdate
	switch {
	case begun && mode == release.Reconciling:
		return release.Updating // the cluster gets something else of the same release
	case !begun && mode == release.Updating && completed && in.progress != nil && in.progress.Complete:
		return release.Reconciling
	}
	return mode
}

type setter func(kind configv1.ClusterStatusConditionType, value configv1.ConditionStatus, reason, message string)

// versionText is how messages call the release that is worked on: its version, else its image.
func versionText(status *configv1.ClusterVersionStatus, in observed) string {
	switch {
	case status.Desired.Version != "":
		return status.Desired.Version
	case in.target.Version != "":
		return in.target.Version
	}
	return in.target.Image
}

func setProgressing(set setter, version string, mode release.Mode, in observed, a assessment) {
	invalid := len(in.invalid) > 0
	switch {
	case a.failing == configv1.ConditionTrue && mode == release.Reconciling:
		set(configv1.OperatorProgressing, configv1.ConditionFalse, a.reason, fmt.Sprintf("Error while reconciling %s: %s", version, a.summary))
	case a.failing == configv1.ConditionTrue:
		set(configv1.OperatorProgressing, configv1.ConditionTrue, a.reason, fmt.Sprintf("Unable to apply %s: %s", version, a.summary))
	case mode == release.Reconciling && invalid:
		set(configv1.OperatorProgressing, configv1.ConditionFalse, api.ReasonInvalidClusterVersion, fmt.Sprintf("Stopped at %s: the cluster version is invalid", version))
	case mode == release.Reconciling:
		set(configv1.OperatorProgressing, configv1.ConditionFalse, "", "Cluster version is "+version)
	case invalid:
		set(configv1.OperatorProgressing, configv1.ConditionTrue, api.ReasonInvalidClusterVersion, fmt.Sprintf("Reconciling %s: the cluster version is invalid", version))
	default:
		set(configv1.OperatorProgressing, configv1.ConditionTrue, a.waitReason, workingText(version, in.progress, pausedText(in.progress, a.waiting)))
	}
}

// workingText reads like `Working towards 4.23.0: 139 of 859 done (16% complete), waiting on kube-scheduler`; clients
// parse it.
func workingText(version string, progress *rollout.Progress, waiting string) string {
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

// implicitCapabilities are those that are on although the spec does not ask for them.
func implicitCapabilities(cv *configv1.ClusterVersion, accepted *Acceptance) []configv1.ClusterVersionCapability {
	if accepted == nil {
		return nil
	}
	_, implicit := manifest.EnabledCapabilities(cv.Spec.Capabilities, accepted.filter.Gates, accepted.filter.Capabilities.Enabled)
	return implicit
}

func setImplicit(set setter, implicit []configv1.ClusterVersionCapability) {
	if len(implicit) == 0 {
		set(api.ImplicitlyEnabledCapabilities, configv1.ConditionFalse, "AsExpected", "Capabilities match configured spec")
		return
	}
	names := make([]string, len(implicit))
	for i, c := range implicit {
		names[i] = string(c)
	}
	set(api.ImplicitlyEnabledCapabilities, configv1.ConditionTrue, "CapabilitiesImplicitlyEnabled",
		"The following capabilities could not be disabled: "+strings.Join(names, ", "))
}

func setAccepted(set setter, in observed) {
	switch l := in.latest; {
	case l.Step == "":
		set(api.ReleaseAccepted, configv1.ConditionUnknown, api.ReasonRetrievePayload, "Retrieving and verifying payload "+Acceptance{Target: in.target}.describe())
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

// setCondition adds or replaces a condition; its transition time moves only with its status.
func setCondition(conditions *[]configv1.ClusterOperatorStatusCondition, next configv1.ClusterOperatorStatusCondition) {
	current := api.FindCondition(*conditions, next.Type)
	if current == nil {
		*conditions = append(*conditions, next)
		return
	}
	if current.Status == next.Status {
		next.LastTransitionTime = current.LastTransitionTime
	}
	*current = next
}
