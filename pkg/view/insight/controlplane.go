package insight

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// State is the state of the control plane or of a pool.
type State string

// States of the control plane and of pools.
const (
	StateUnknown     State = "Unknown"
	StateProgressing State = "Progressing"
	StateSlow        State = "Progressing - Slow"
	StateStalled     State = "Stalled"
	StateCompleted   State = "Completed"
	StatePending     State = "Pending"
	StateDegraded    State = "Degraded"
	StateExcluded    State = "Excluded"
)

// ControlPlane is the progress of the cluster's operators.
type ControlPlane struct {
	State  State  `json:"assessment"`
	Target Target `json:"target"`
	// Started is the start of the update. Completed is its end, or nil while it runs.
	Started   time.Time       `json:"started"`
	Completed *time.Time      `json:"completed,omitempty"`
	Duration  metav1.Duration `json:"duration"`
	// Remaining is the estimated remaining duration; nil if there is no estimate.
	Remaining *metav1.Duration `json:"remaining,omitempty"`
	// Estimated is the estimated duration of the whole update; nil if there is no estimate.
	Estimated *metav1.Duration `json:"estimated,omitempty"`
	Operators Operators        `json:"operators"`
	// Pending is what the ClusterVersion reports about the rest of the update, after all operators are updated or if there are none; empty
	// otherwise.
	Pending string `json:"pending,omitempty"`
}

// Target is the version that the cluster is updating to.
type Target struct {
	Version string `json:"version"`
	// Previous is the previous version; empty for an install.
	Previous           string `json:"previous,omitempty"`
	PreviousIncomplete bool   `json:"previousIncomplete,omitempty"`
	// MultiArchitecture means that the update keeps the version and changes to its multi-architecture image.
	MultiArchitecture bool `json:"multiArchitecture,omitempty"`
	Install           bool `json:"install,omitempty"`
}

// Operators counts the cluster operators of the release.
type Operators struct {
	Total       int        `json:"total"`
	Updated     int        `json:"updated"`
	Waiting     int        `json:"waiting"`
	Healthy     int        `json:"healthy"`
	Unavailable int        `json:"unavailable"`
	Degraded    int        `json:"degraded"`
	Updating    []Operator `json:"updating"`
}

// Operator is an updating cluster operator.
type Operator struct {
	Name    string    `json:"name"`
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
}

// The ClusterOperator that is updated last, and its operand that reports the running image.
const (
	ConfigOperator      = "machine-config"
	ConfigOperatorImage = "operator-image"
)

func assessControlPlane(in Input) (ControlPlane, []Insight) {
	cv := in.ClusterVersion
	found := versionInsights(cv, in.Now)
	operators, progressed, more := countOperators(in)
	found = append(found, more...)

	p := ControlPlane{State: StateUnknown, Target: target(cv), Operators: operators}
	finished := operators.Total > 0 && operators.Updated == operators.Total
	end := in.Now
	p.Started = end            // without a history the start is unknown
	completed := in.AsOriginal // oc does not require it
	if history := cv.Status.History; len(history) > 0 {
		p.Started = history[0].StartedTime.Time
		isCompleted := history[0].State == configv1.CompletedUpdate
		completed = completed || isCompleted
		if done := history[0].CompletionTime; isCompleted && done != nil {
			end = done.Time
		}
		if !finished && (!isCompleted || in.AsOriginal) && len(history) > 1 && history[1].State == configv1.PartialUpdate {
			found = append(found, interrupted(cv.Name, history))
		}
	}
	took := end.Sub(p.Started)
	p.Duration = duration(rounded(took))
	switch {
	case finished && completed:
		p.State, p.Completed = StateCompleted, &end
	case finished: // manifests after the last ClusterOperator are pending
		p.State, p.Pending = reportedState(cv), reportedProgress(cv)
	case operators.Total > 0:
		if !progressed.After(p.Started) {
			progressed = in.Now
		}
		completion := float64(operators.Updated) / float64(operators.Total)
		remaining := remainingTime(baseline(cv.Status.History), took, progressed.Sub(p.Started), completion)
		estimated := duration((took + remaining).Truncate(time.Minute))
		left := duration(remaining)
		p.Remaining, p.Estimated, p.State = &left, &estimated, pace(remaining)
	case !in.AsOriginal && !slices.ContainsFunc(in.Missing, func(m Missing) bool { return m.Section == SectionOperators && !m.Absent }):
		if p.State = reportedState(cv); p.State == StateCompleted {
			p.Completed = &end
		} else {
			p.Pending = reportedProgress(cv)
		}
	}
	return p, found
}

// reportedState returns the state that the ClusterVersion reports, for a platform without ClusterOperators or after their update.
func reportedState(cv *configv1.ClusterVersion) State {
	failing := api.FindCondition(cv.Status.Conditions, api.Failing)
	switch {
	case reported.Completed(cv):
		return StateCompleted
	case failing == nil:
		return StateUnknown
	case failing.Status == configv1.ConditionTrue:
		return StateStalled
	case failing.Status == configv1.ConditionUnknown:
		return StateSlow
	}
	return StateProgressing
}

// reportedProgress returns the message of condition Progressing.
func reportedProgress(cv *configv1.ClusterVersion) string {
	progressing := api.FindCondition(cv.Status.Conditions, configv1.OperatorProgressing)
	if progressing == nil {
		return ""
	}
	return progressing.Message
}

func target(cv *configv1.ClusterVersion) Target {
	history := cv.Status.History
	if len(history) == 0 {
		return Target{}
	}
	t := Target{Version: history[0].Version, Install: len(history) == 1}
	if len(history) > 1 {
		t.Previous = history[1].Version
		t.PreviousIncomplete = history[1].State == configv1.PartialUpdate
		t.MultiArchitecture = migratesArchitecture(cv)
	}
	return t
}

// countOperators counts the operators. It also returns the time of their last progress, and their insights.
func countOperators(in Input) (Operators, time.Time, []Insight) {
	n := Operators{Updating: []Operator{}}
	var found []Insight
	var progressed time.Time
	var outdated []*configv1.ClusterOperatorStatusCondition
	var outdatedNames []string
	for i := range in.Operators {
		operator := &in.Operators[i]
		if !fromRelease(operator) {
			continue
		}
		n.Total++
		progressing := api.FindCondition(operator.Status.Conditions, configv1.OperatorProgressing)
		if progressing != nil && progressing.LastTransitionTime.After(progressed) {
			progressed = progressing.LastTransitionTime.Time
		}
		if operatorUpdated(operator, in) {
			n.Updated++
		} else {
			outdated, outdatedNames = append(outdated, progressing), append(outdatedNames, operator.Name)
		}
		available := api.FindCondition(operator.Status.Conditions, configv1.OperatorAvailable)
		degraded := api.FindCondition(operator.Status.Conditions, configv1.OperatorDegraded)
		switch {
		case available == nil || available.Status != configv1.ConditionTrue:
			n.Unavailable++
		case degraded != nil && degraded.Status == configv1.ConditionTrue:
			n.Degraded++
		}
		found = append(found, operatorInsights(operator.Name, available, degraded, in.Now)...)
	}
	n.Healthy = n.Total - n.Unavailable - n.Degraded
	for i, progressing := range outdated {
		switch {
		case progressing == nil:
		case progressing.Status == configv1.ConditionTrue:
			n.Updating = append(n.Updating, Operator{
				Name: outdatedNames[i], Since: progressing.LastTransitionTime.Time, Reason: progressing.Reason, Message: progressing.Message,
			})
		case progressing.Status == configv1.ConditionFalse:
			n.Waiting++
		}
	}
	// The last operator restarts all nodes. Meanwhile the conditions of other operators flap, which does not count as progress.
	if len(outdated) == 1 && len(n.Updating) == 1 && n.Updating[0].Name == ConfigOperator {
		progressed = n.Updating[0].Since
	}
	return n, progressed, found
}

// fromRelease reports whether an operator is part of a release. Only manifests of a release have these annotations; operators that users
// add have none.
func fromRelease(operator *configv1.ClusterOperator) bool {
	for key := range operator.Annotations {
		if strings.HasPrefix(key, api.IncludePrefix) || strings.HasPrefix(key, api.ExcludePrefix) {
			return true
		}
	}
	return false
}

func operatorUpdated(operator *configv1.ClusterOperator, in Input) bool {
	operand := func(name string) (string, bool) {
		i := slices.IndexFunc(operator.Status.Versions, func(v configv1.OperandVersion) bool { return v.Name == name })
		if i < 0 {
			return "", false
		}
		return operator.Status.Versions[i].Version, true
	}
	version, ok := operand("operator")
	if !ok || version != in.ClusterVersion.Status.Desired.Version {
		return false
	}
	// An update to another architecture keeps the version, so only the image shows that it is complete.
	if operator.Name == ConfigOperator && in.ConfigOperatorImage != nil {
		if image, ok := operand(ConfigOperatorImage); ok {
			return image == *in.ConfigOperatorImage
		}
	}
	return true
}

// baseline returns the duration of the cluster's last ordinary update. The first update is an install, which is not
// typical.
func baseline(history []configv1.UpdateHistory) time.Duration {
	if len(history) >= 3 {
		for _, past := range history[1 : len(history)-1] {
			if past.State == configv1.CompletedUpdate && past.CompletionTime != nil {
				return past.CompletionTime.Sub(past.StartedTime.Time)
			}
		}
	}
	return time.Hour
}

// remainingTime estimates the remaining time as oc does, from the progress of the operators and its duration.
func remainingTime(usual, took, toLastProgress time.Duration, completion float64) time.Duration {
	total := usual
	if share := timeShare(completion); completion > 0 && share > 0 && toLastProgress > 5*time.Minute {
		total = time.Duration(float64(toLastProgress) / share)
	}
	remaining := float64(total - took)
	// The estimate is pessimistic: it adds a fifth to the remaining time, and reduces an overdue time in the same ratio.
	if remaining >= 0 {
		remaining *= 1.2
	} else {
		remaining /= 1.2
	}
	return rounded(time.Duration(remaining).Truncate(time.Second))
}

// timeShare returns the share of an update's time that has passed when the given share of its operators is done. The coefficients are oc's,
// fitted to an observed update. Nearly all operators are done after two thirds of the time; the nodes need most of the rest.
func timeShare(completion float64) float64 {
	var coefficients []float64
	switch {
	case completion < 0.25:
		coefficients = []float64{-0.03078788, 2.62886, -3.823954}
	case completion < 0.9:
		coefficients = []float64{0.1851215, 1.64994, -4.676898, 5.451824, -2.125286}
	default:
		coefficients = []float64{25053.32, -107394.3, 172527.2, -123107, 32921.81}
	}
	share := 0.0
	for power, coefficient := range coefficients {
		share += coefficient * math.Pow(completion, float64(power))
	}
	return share
}

func pace(remaining time.Duration) State {
	switch {
	case remaining < -10*time.Minute:
		return StateStalled
	case remaining < 0:
		return StateSlow
	}
	return StateProgressing
}

// rounded rounds a duration to seconds, or a longer one to minutes.
func rounded(d time.Duration) time.Duration {
	if d > 10*time.Minute {
		return d.Round(time.Minute)
	}
	return d.Round(time.Second)
}

func interrupted(name string, history []configv1.UpdateHistory) Insight {
	last := "unknown"
	for _, past := range history[2:] {
		if past.State == configv1.CompletedUpdate {
			last = past.Version
			break
		}
	}
	return Insight{
		Since: history[0].StartedTime.Time, Level: Warning, Impact: ImpactNone,
		Summary: fmt.Sprintf("Previous update to %s never completed, last complete update was %s", history[1].Version, last),
		Description: fmt.Sprintf("Current update to %s was initiated while the previous update to version %s was still in progress",
			history[0].Version, history[1].Version),
		Reference: referenceHistory,
		Resources: []Resource{{clusterVersions, name}},
	}
}
