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

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// Recommended is the type of a conditional update's condition: whether the update is recommended to this cluster.
const Recommended = "Recommended"

// Input is what Judge judges by.
type Input struct {
	// Available are the updates that the update service recommends to every cluster, Conditional those that have risks.
	Available   []configv1.Release
	Conditional []configv1.ConditionalUpdate
	// Applies has the condition Applies for each name of a risk of Conditional; see Answers.
	Applies map[string]metav1.Condition
	// Accepted are the names of the risks that the administrator accepts.
	Accepted []string
	// Extra are risks that were found in the cluster itself.
	Extra []Extra
	// Previous is what was judged last, from status: conditions that say the same keep their time.
	Previous Judged
	// Plain leaves out what a ClusterVersion has no fields for where risks cannot be accepted: names of risks, their
	// conditions, and the list of all risks. An API server would drop them, and every comparison find them missing.
	Plain bool
	// Now is when conditions change.
	Now time.Time
}

// Extra is a risk that was found in the cluster itself. Whether it applies is told by its own condition Applies.
type Extra struct {
	configv1.ConditionalUpdateRisk
	// Concerns tells whether an update to a version has the risk; nil for every update.
	Concerns func(version string) bool
}

// Judged are the fields of a ClusterVersion's status that tell of updates.
type Judged struct {
	Available   []configv1.Release
	Conditional []configv1.ConditionalUpdate
	Risks       []configv1.ConditionalUpdateRisk
}

// Output is what became of the updates.
type Output struct {
	Judged
	// Problems tells of risks that had to be left out or disagree with others of their name, sorted.
	Problems []string
}

// Limits of what an API server takes of a ClusterVersion.
const (
	maxUpdates     = 500
	maxRisks       = 500
	maxUpdateRisks = 200
	maxRiskName    = 256
	// maxStatus bounds what is told of updates, in bytes of JSON: an object may have 1.5 MiB, history and all.
	maxStatus = 1 << 20
)

// messageLimits bound each message, one after the other until everything fits. The first is that of the API server.
func messageLimits() []int { return []int{32 << 10, 4 << 10, 1 << 10, 256} }

// noURL stands where a risk of the cluster itself has no page to read, because the API server wants one.
const noURL = "about:blank"

// The texts of Recommended=True.
const (
	notExposedMessage = "The update is recommended, because none of the conditional update risks apply to this cluster."
	acceptedMessage   = "The update is recommended, because either risk does not apply to this cluster or it is accepted by cluster admins."
)

var (
	// extraName is what a risk of the cluster itself may be called.
	extraName = regexp.MustCompile(`^[A-Z][A-Za-z0-9.-]*$`)
	// conditionReason is what the API server takes as the reason of a condition.
	conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)
)

// Judge tells which updates are recommended. An update is, if each of its risks does not apply or is accepted; it is
// available then, too. What the API server would refuse is not in what is returned, so that one odd risk does not keep
// everything else from being told. Judge changes nothing that it is given.
func Judge(in Input) Output {
	j := &judgement{Input: in, now: metav1.NewTime(in.Now).Rfc3339Copy(), applies: maps.Clone(in.Applies), problems: map[string]bool{}}
	if j.applies == nil {
		j.applies = map[string]metav1.Condition{}
	}
	available, updates := j.merge()
	limit, n := j.fitting(updates)
	out := j.judge(available, updates[:n], limit)
	// What is written as an escape sequence takes more than was reckoned with.
	for ; n > 0 && size(out) > maxStatus+maxStatus/4; n /= 2 {
		out = j.judge(available, updates[:n/2], limit)
	}
	if n < len(updates) {
		j.problem("there is more to tell of %d conditional updates than a ClusterVersion can hold: those to the lowest versions are left out", len(updates))
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

// merge brings the risks of the cluster to the updates that they concern, and returns the updates without risks and those
// with risks, the highest version first.
func (j *judgement) merge() ([]configv1.Release, []configv1.ConditionalUpdate) {
	extras := j.extras()
	var updates []configv1.ConditionalUpdate
	conditional := map[string]bool{}
	for _, update := range j.Conditional {
		conditional[update.Release.Image] = true
		if why := unfit(update.Risks); why != "" {
			j.problem("the update to %s is left out: %s", update.Release.Version, why)
			continue
		}
		updates = append(updates, configv1.ConditionalUpdate{Release: update.Release, Risks: j.with(update.Release.Version, update.Risks, extras)})
	}
	var available []configv1.Release
	for _, release := range j.Available {
		if conditional[release.Image] {
			continue
		}
		if risks := j.with(release.Version, nil, extras); len(risks) > 0 {
			updates = append(updates, configv1.ConditionalUpdate{Release: release, Risks: risks})
		} else {
			available = append(available, release)
		}
	}
	slices.SortStableFunc(available, release.NewestFirst)
	slices.SortStableFunc(updates, func(a, b configv1.ConditionalUpdate) int { return release.NewestFirst(a.Release, b.Release) })
	if len(updates) > maxUpdates {
		j.problem("%d updates have risks: those to the lowest versions beyond %d are left out", len(updates), maxUpdates)
		updates = updates[:maxUpdates]
	}
	return available, updates
}

// extras are the risks of the cluster that have a fitting name, sorted by it; whether they apply is taken over.
func (j *judgement) extras() []Extra {
	var extras []Extra
	for _, extra := range j.Extra {
		if !extraName.MatchString(extra.Name) || len(extra.Name) > maxRiskName {
			j.problem("a risk of this cluster cannot be called %.300q", extra.Name)
			continue
		}
		condition := missing(extra.Name)
		if found := meta.FindStatusCondition(extra.Conditions, Applies); found != nil {
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
	slices.SortStableFunc(extras, func(a, b Extra) int { return strings.Compare(a.Name, b.Name) })
	return extras
}

// worse is the condition that speaks more against updates: the one that is there under a name, or another.
func worse(conditions map[string]metav1.Condition, name string, other metav1.Condition) metav1.Condition {
	if there, ok := conditions[name]; ok && gravity(there.Status) >= gravity(other.Status) {
		return there
	}
	return other
}

// reasonOf is the reason why a risk has a status, where nobody has a better one.
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

// with returns risks and the extras that concern a version, without their conditions.
func (j *judgement) with(version string, risks []configv1.ConditionalUpdateRisk, extras []Extra) []configv1.ConditionalUpdateRisk {
	var all []configv1.ConditionalUpdateRisk
	add := func(risk configv1.ConditionalUpdateRisk) {
		risk.Conditions = nil
		if i := slices.IndexFunc(all, func(other configv1.ConditionalUpdateRisk) bool { return other.Name == risk.Name }); i < 0 {
			all = append(all, *risk.DeepCopy())
		} else if !sameRisk(all[i], risk) {
			j.problem("risk %s of the update to %s is defined in more than one way", risk.Name, version)
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

// judge returns what is told, with no message longer than limit.
func (j *judgement) judge(available []configv1.Release, updates []configv1.ConditionalUpdate, limit int) Judged {
	out := Judged{Available: slices.Clone(available)}
	listed := map[string]configv1.ConditionalUpdateRisk{}
	for _, merged := range updates {
		update := *merged.DeepCopy()
		recommended := j.recommended(update.Risks, limit)
		update.Conditions = j.carriedOver(update.Release.Image)
		meta.SetStatusCondition(&update.Conditions, recommended)
		if recommended.Status == metav1.ConditionTrue {
			out.Available = append(out.Available, update.Release)
		}
		if len(update.Risks) > maxUpdateRisks {
			j.problem("the update to %s has %d risks: %d are listed", update.Release.Version, len(update.Risks), maxUpdateRisks)
			update.Risks = update.Risks[:maxUpdateRisks]
		}
		for i := range update.Risks {
			risk := &update.Risks[i]
			risk.Message = api.Excerpt(risk.Message, limit)
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
		j.problem("there are %d risks: %d are listed", len(out.Risks), maxRisks)
		out.Risks = out.Risks[:maxRisks]
	}
	slices.SortStableFunc(out.Available, release.NewestFirst)
	return out
}

// recommended is the condition of an update with these risks, its message no longer than limit.
func (j *judgement) recommended(risks []configv1.ConditionalUpdateRisk, limit int) metav1.Condition {
	condition := metav1.Condition{
		Type: Recommended, Status: metav1.ConditionTrue, Reason: ReasonNotExposed, Message: notExposedMessage, LastTransitionTime: j.now,
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
		condition.Reason, condition.Message = oneReason(reasons), api.Excerpt(string(messages), limit)
	}
	return condition
}

// exposedReason is the risk's name if a condition can have it as its reason.
func exposedReason(name string) string {
	if conditionReason.MatchString(name) {
		return name
	}
	return ReasonExposed
}

// oneReason sums up reasons. Where some risk applies whose name cannot be told, one that cannot be evaluated adds nothing.
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

// carriedOver are the conditions that the update to an image had.
func (j *judgement) carriedOver(image string) []metav1.Condition {
	for _, previous := range j.Previous.Conditional {
		if previous.Release.Image == image {
			return slices.Clone(previous.Conditions)
		}
	}
	return nil
}

// conditions is whether a risk applies, as a list that keeps the time of what it said before.
func (j *judgement) conditions(name string, limit int) []metav1.Condition {
	applies := j.condition(name)
	applies.Type, applies.LastTransitionTime, applies.Message = Applies, j.now, api.Excerpt(applies.Message, limit)
	var conditions []metav1.Condition
	for _, previous := range j.Previous.Risks {
		if found := meta.FindStatusCondition(previous.Conditions, Applies); found != nil && previous.Name == name {
			conditions = []metav1.Condition{*found}
			break
		}
	}
	meta.SetStatusCondition(&conditions, applies)
	return conditions
}

// condition is what is known of a risk.
func (j *judgement) condition(name string) metav1.Condition {
	if applies, ok := j.applies[name]; ok {
		return applies
	}
	return missing(name)
}

// missing is the condition of a risk of which nobody said whether it applies.
func missing(name string) metav1.Condition {
	return metav1.Condition{
		Type: Applies, Status: metav1.ConditionUnknown, Reason: ReasonNoCondition,
		Message: fmt.Sprintf("Whether risk %s applies was not evaluated", name),
	}
}
