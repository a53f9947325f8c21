package risk

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/nearest"
)

// Input is the input of Judge.
type Input struct {
	// Current is the version of the cluster. If not all updates fit into a ClusterVersion, it decides which ones are kept.
	Current string
	// Available contains the updates that the update service recommends to every cluster, and Conditional the updates with risks.
	Available   []configv1.Release
	Conditional []configv1.ConditionalUpdate
	// Applies contains the Applies conditions of risks in Conditional, by name; see Answers.
	Applies map[string]metav1.Condition
	// Accepted contains the names of the risks that the administrator accepts.
	Accepted []string
	// Extra contains risks that were found in the cluster itself.
	Extra []Extra
	// Previous is the previous judgement from the status. Unchanged conditions keep their transition time.
	Previous Judged
	// Plain omits the fields that a ClusterVersion lacks in clusters without accepted risks: names of risks, their conditions, and the list
	// of all risks. An API server would drop them, and every comparison would find a difference.
	Plain bool
	// Now is the transition time of changed conditions.
	Now time.Time
}

// Extra is a risk that was found in the cluster itself. Its own Applies condition reports whether it applies.
type Extra struct {
	configv1.ConditionalUpdateRisk
	// Concerns reports whether an update to a version has the risk. If it is nil, every update has it.
	Concerns func(version string) bool
}

// Judged contains the update fields of a ClusterVersion's status.
type Judged struct {
	Available   []configv1.Release
	Conditional []configv1.ConditionalUpdate
	Risks       []configv1.ConditionalUpdateRisk
}

// Output is the result of Judge.
type Output struct {
	Judged
	// Problems contains sorted descriptions of omitted updates and risks, and of risks with different definitions under one name.
	Problems []string
}

// The API server's limits for a ClusterVersion.
const (
	maxUpdates     = 500
	maxRisks       = 500
	maxUpdateRisks = 200
	// maxStatus is the maximum size of all updates in the status, in bytes of JSON, and maxAvailable of those without risks. An object may
	// have 1.5 MiB: 256 KiB of that are for the history, and 384 KiB for the conditions, the spec and the metadata.
	maxStatus    = 896 << 10
	maxAvailable = maxStatus / 2
)

// messageLimits returns limits for the length of each message, to be tried in order until everything fits. The first is the API server's
// limit.
func messageLimits() []int { return []int{32 << 10, 4 << 10, 1 << 10, 256} }

// noURL is the URL of a risk in the cluster without a web page, because the API server requires a URL.
const noURL = "about:blank"

// The messages of Recommended=True.
const (
	notExposedMessage = "The update is recommended, because none of the conditional update risks apply to this cluster."
	acceptedMessage   = "The update is recommended, because either risk does not apply to this cluster or it is accepted by cluster admins."
)

var (
	// extraName matches valid names of the cluster's own risks.
	extraName = regexp.MustCompile(`^[A-Z][A-Za-z0-9.-]*$`)
	// conditionReason matches valid reasons of a condition.
	conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)
)

// Judge returns the updates with their recommendations. An update is recommended, and therefore available, if each of its risks is accepted
// or does not apply. Judge omits updates that the API server would reject, so that one invalid risk cannot block the whole status. It does
// not change its input.
func Judge(in Input) Output {
	j := &judgement{Input: in, now: metav1.NewTime(in.Now).Rfc3339Copy(), applies: maps.Clone(in.Applies), problems: map[string]bool{}}
	if j.applies == nil {
		j.applies = map[string]metav1.Condition{}
	}
	available, updates := j.merge()
	available, used := j.fittingAvailable(available)
	first := nearest.First(updates, j.Current, func(u configv1.ConditionalUpdate) string { return u.Release.Version })
	if len(first) > maxUpdates {
		j.problem("%d updates have risks, more than the limit of %d: "+nearest.Kept, len(first), maxUpdates)
		first = first[:maxUpdates]
	}
	limit, n := j.fitting(first, used)
	out := j.judge(available, first[:n], limit)
	for ; n > 0 && size(out) > maxStatus; n /= 2 { // more characters are escaped than expected
		out = j.judge(available, first[:n/2], limit)
	}
	if n < len(first) {
		j.problem("the texts of %d conditional updates do not fit into a ClusterVersion: "+nearest.Kept, len(first))
	}
	return Output{out, slices.Sorted(maps.Keys(j.problems))}
}

type judgement struct {
	Input
	now      metav1.Time
	applies  map[string]metav1.Condition
	problems map[string]bool
}

func (j *judgement) problem(format string, args ...any) {
	j.problems[fmt.Sprintf(format, args...)] = true
}

// merge adds the cluster's own risks to the affected updates. It returns the updates without risks and the updates with risks, both sorted
// by version, highest first.
func (j *judgement) merge() ([]configv1.Release, []configv1.ConditionalUpdate) {
	extras := j.extras()
	var updates []configv1.ConditionalUpdate
	conditional := map[string]bool{}
	for _, update := range j.Conditional {
		conditional[update.Release.Image] = true
		if why := unfit(update.Risks); why != "" {
			j.problem("omitted the update to %s: %s", update.Release.Version, why)
			continue
		}
		updates = append(updates, configv1.ConditionalUpdate{Release: update.Release, Risks: j.addExtras(update.Release.Version, update.Risks, extras)})
	}
	var available []configv1.Release
	for _, release := range j.Available {
		if conditional[release.Image] {
			continue
		}
		if risks := j.addExtras(release.Version, nil, extras); len(risks) > 0 {
			updates = append(updates, configv1.ConditionalUpdate{Release: release, Risks: risks})
		} else {
			available = append(available, release)
		}
	}
	sorted.By(available, release.NewestFirst)
	sorted.By(updates, release.ConditionalNewestFirst)
	return available, updates
}

// extras returns the cluster's own risks with a valid name, sorted by name. It also records whether they apply.
func (j *judgement) extras() []Extra {
	var extras []Extra
	for _, extra := range j.Extra {
		if !extraName.MatchString(extra.Name) || len(extra.Name) > api.MaxRiskName {
			j.problem("%.300q is not a valid name for a risk of this cluster", extra.Name)
			continue
		}
		condition := missing(extra.Name)
		if found := meta.FindStatusCondition(extra.Conditions, api.RiskApplies); found != nil {
			condition = *found
			if !conditionReason.MatchString(condition.Reason) {
				condition.Reason = reasonOf(condition.Status)
			}
		}
		j.applies[extra.Name] = worse(j.applies, extra.Name, condition)
		extra.Message = cmp.Or(extra.Message, extra.Name)
		if !isURL(extra.URL) {
			extra.URL = noURL
		}
		if len(extra.MatchingRules) == 0 {
			extra.MatchingRules = []configv1.ClusterCondition{{Type: always}}
		}
		extras = append(extras, extra)
	}
	sorted.By(extras, func(a, b Extra) int { return strings.Compare(a.Name, b.Name) })
	return extras
}

// worse returns the stronger reason against updates: the existing condition with the name, or other.
func worse(conditions map[string]metav1.Condition, name string, other metav1.Condition) metav1.Condition {
	if there, ok := conditions[name]; ok && gravity(there.Status) >= gravity(other.Status) {
		return there
	}
	return other
}

// reasonOf returns the default reason for the status of a risk.
func reasonOf(status metav1.ConditionStatus) string {
	switch status {
	case metav1.ConditionTrue:
		return ReasonMatch
	case metav1.ConditionFalse:
		return ReasonNotMatch
	default:
		return ReasonEvaluationFailed
	}
}

func gravity(status metav1.ConditionStatus) int {
	switch status {
	case metav1.ConditionFalse:
		return 0
	case metav1.ConditionTrue:
		return 2
	default:
		return 1
	}
}

// addExtras returns the risks and the extras that affect a version, without their conditions.
func (j *judgement) addExtras(version string, risks []configv1.ConditionalUpdateRisk, extras []Extra) []configv1.ConditionalUpdateRisk {
	var all []configv1.ConditionalUpdateRisk
	add := func(risk configv1.ConditionalUpdateRisk) {
		risk.Conditions = nil
		if i := slices.IndexFunc(all, func(other configv1.ConditionalUpdateRisk) bool { return other.Name == risk.Name }); i < 0 {
			all = append(all, *risk.DeepCopy())
		} else if !sameRisk(all[i], risk) {
			j.problem("risk %s of the update to %s has different definitions", risk.Name, version)
		}
	}
	for _, risk := range risks {
		add(risk)
	}
	for _, extra := range extras {
		if extra.Concerns == nil || extra.Concerns(version) {
			add(extra.ConditionalUpdateRisk)
		}
	}
	return all
}

func sameRisk(a, b configv1.ConditionalUpdateRisk) bool {
	return a.URL == b.URL && a.Message == b.Message && reflect.DeepEqual(a.MatchingRules, b.MatchingRules)
}

// judge returns the judgement of updates, newest first, with messages of at most limit bytes.
func (j *judgement) judge(available []configv1.Release, updates []configv1.ConditionalUpdate, limit int) Judged {
	out := Judged{Available: slices.Clone(available)}
	listed := map[string]configv1.ConditionalUpdateRisk{}
	for _, merged := range slices.SortedStableFunc(slices.Values(updates), release.ConditionalNewestFirst) {
		update := *merged.DeepCopy()
		recommended := j.recommended(update.Risks, limit)
		update.Conditions = j.carriedOver(update.Release.Image)
		meta.SetStatusCondition(&update.Conditions, recommended)
		if recommended.Status == metav1.ConditionTrue {
			out.Available = append(out.Available, update.Release)
		}
		if len(update.Risks) > maxUpdateRisks {
			j.problem("the update to %s has %d risks, but only %d are listed", update.Release.Version, len(update.Risks), maxUpdateRisks)
			update.Risks = update.Risks[:maxUpdateRisks]
		}
		for i := range update.Risks {
			risk := &update.Risks[i]
			risk.Message = printable.Excerpt(risk.Message, limit)
			if j.Plain {
				continue
			}
			risk.Conditions = j.conditions(risk.Name, limit)
			update.RiskNames = append(update.RiskNames, risk.Name)
			if _, ok := listed[risk.Name]; !ok {
				listed[risk.Name] = *risk.DeepCopy()
			}
		}
		slices.Sort(update.RiskNames)
		out.Conditional = append(out.Conditional, update)
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		out.Risks = append(out.Risks, listed[name])
	}
	if len(out.Risks) > maxRisks {
		j.problem("there are %d risks, but only %d are listed", len(out.Risks), maxRisks)
		out.Risks = out.Risks[:maxRisks]
	}
	sorted.By(out.Available, release.NewestFirst)
	return out
}

// recommended returns the Recommended condition of an update with these risks. limit is the maximum length of its message.
func (j *judgement) recommended(risks []configv1.ConditionalUpdateRisk, limit int) metav1.Condition {
	condition := metav1.Condition{
		Type: api.UpdateRecommended, Status: metav1.ConditionTrue, Reason: ReasonNotExposed, Message: notExposedMessage, LastTransitionTime: j.now,
	}
	reasons := map[string]bool{}
	var messages message
	for _, risk := range risks {
		applies := j.condition(risk.Name)
		switch {
		case applies.Status == metav1.ConditionFalse:
		case slices.Contains(j.Accepted, risk.Name):
			condition.Reason, condition.Message = ReasonAccepted, acceptedMessage
		case applies.Status == metav1.ConditionTrue:
			condition.Status = metav1.ConditionFalse
			reasons[exposedReason(risk.Name)] = true
			messages.add(risk.Message, " "+risk.URL, limit)
		default:
			if condition.Status == metav1.ConditionTrue {
				condition.Status = metav1.ConditionUnknown
			}
			reasons[ReasonEvaluationFailed] = true
			messages.add(applies.Message, "", limit)
		}
	}
	if len(reasons) > 0 {
		condition.Reason, condition.Message = oneReason(reasons), printable.Excerpt(string(messages), limit)
	}
	return condition
}

// exposedReason returns the risk's name if it is valid as a reason of a condition, otherwise a general reason.
func exposedReason(name string) string {
	if conditionReason.MatchString(name) {
		return name
	}
	return ReasonExposed
}

// oneReason combines reasons. If the name of an applicable risk cannot be a reason, it ignores risks that could not be evaluated.
func oneReason(reasons map[string]bool) string {
	if reasons[ReasonExposed] {
		delete(reasons, ReasonEvaluationFailed)
	}
	if len(reasons) > 1 {
		return ReasonMultipleReasons
	}
	for reason := range reasons {
		return reason
	}
	return ReasonExposed
}

// carriedOver returns the earlier conditions of the update with the image.
func (j *judgement) carriedOver(image string) []metav1.Condition {
	for _, previous := range j.Previous.Conditional {
		if previous.Release.Image == image {
			return slices.Clone(previous.Conditions)
		}
	}
	return nil
}

// conditions returns a risk's condition as a list. An unchanged condition keeps its transition time.
func (j *judgement) conditions(name string, limit int) []metav1.Condition {
	applies := j.condition(name)
	applies.Type, applies.LastTransitionTime, applies.Message = api.RiskApplies, j.now, printable.Excerpt(applies.Message, limit)
	var conditions []metav1.Condition
	for _, previous := range j.Previous.Risks {
		if found := meta.FindStatusCondition(previous.Conditions, api.RiskApplies); found != nil && previous.Name == name {
			conditions = []metav1.Condition{*found}
			break
		}
	}
	meta.SetStatusCondition(&conditions, applies)
	return conditions
}

// condition returns the known condition of a risk.
func (j *judgement) condition(name string) metav1.Condition {
	if applies, ok := j.applies[name]; ok {
		return applies
	}
	return missing(name)
}

// missing returns the condition of a risk that was not evaluated.
func missing(name string) metav1.Condition {
	return metav1.Condition{
		Type: api.RiskApplies, Status: metav1.ConditionUnknown, Reason: ReasonNoCondition,
		Message: fmt.Sprintf("Risk %s was not evaluated", name),
	}
}
