// Package updates finds the releases to which a cluster can be updated. It queries the update service and evaluates the risks of the answer
// in the background, and returns the known updates. It sets them in a given status but does not write that status to the API server.
package updates

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/blang/semver/v4"
	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/release"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
	"github.com/cluster-version/cvo/pkg/update/risk"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

// Options configure the search for available updates. The zero value finds none.
type Options struct {
	// Ask queries an update service. before is the service's last answer.
	Ask func(ctx context.Context, q updategraph.Query, before updategraph.Answer) (updategraph.Answer, error)
	// Risks evaluates which risks apply; nil if there is no evaluator.
	Risks Risks
	// Service overrides spec.upstream. Default applies if neither is set.
	Service, Default string
	// Interval is the time between two requests; default 3 minutes.
	Interval time.Duration
	// Asked is called after each request, with nil if the service answered. Nil for no call.
	Asked func(err error)
}

// NamesService reports whether the operator was started with an update service.
func (o Options) NamesService() bool { return o.Service != "" || o.Default != "" }

// Risks evaluates which risks of updates apply to the cluster. *risk.Evaluator implements it.
type Risks interface {
	Evaluate(ctx context.Context, risks []configv1.ConditionalUpdateRisk) risk.Answers
	Alerts(ctx context.Context) ([]configv1.ConditionalUpdateRisk, error)
	AlertsDue() time.Time
	// RememberAlerts restores the alerts that an earlier process found from a list of risks.
	RememberAlerts(risks []configv1.ConditionalUpdateRisk)
}

const (
	// defaultInterval is close to that of OpenShift's operator.
	defaultInterval = 3 * time.Minute
	// kept is how long known updates stay valid while the service does not confirm them.
	kept = 24 * time.Hour
	// risksPause is the least time between two scheduled evaluations.
	risksPause = 5 * time.Second
	// maxText bounds the message of RetrievedUpdates.
	maxText = 2 << 10
)

// Known are the releases to which the cluster can be updated, as far as they are known. It is an immutable value.
type Known struct {
	// retrieved is condition RetrievedUpdates. An empty status means that the updates are unknown.
	retrieved Retrieval
	// evaluated reports that the fields below are known. Until then the status does not change.
	evaluated bool
	updates   updategraph.Updates
	// digest identifies the updates and their query; empty for an unanswered query.
	digest string
	// applies has the condition Applies of each risk, by name. alerts are risks of the cluster itself.
	applies map[string]metav1.Condition
	alerts  []configv1.ConditionalUpdateRisk
	// accepted are the names of risks that the administrator accepts.
	accepted []string
}

// Retrieval is the result of the last request to the update service, for condition RetrievedUpdates.
type Retrieval struct {
	Status          configv1.ConditionStatus
	Reason, Message string
}

// Search looks for updates in the background. Only Search changes its results.
type Search struct {
	clock   clock.PassiveClock
	runner  background.Runner
	changed func()
	options Options

	mu sync.Mutex
	results
}

// New returns a search for updates. It calls changed when it has a result.
func New(clk clock.PassiveClock, runner background.Runner, changed func(), options Options) *Search {
	return &Search{clock: clk, runner: runner, changed: changed, options: options}
}

// results are the results of a Search.
type results struct {
	// query is the last request. problem is the reason why it cannot be sent. Both are zero before the first round.
	query   updategraph.Query
	problem Retrieval
	asked   bool
	// recalled is the digest in the record of an earlier process; empty if unknown.
	recalled string
	// since is the time of the service's last answer or of the last change of the query. stale reports that the service has not answered
	// this query yet and that answer may belong to another query.
	since time.Time
	stale bool
	// answer is the last answer to this query or, if stale is set, to another one.
	answer updategraph.Answer
	// withAlerts reports that alerts count as risks in this cluster.
	withAlerts bool
	known      Known
}

// Look starts the requests to the update service in the background and returns the known updates. withAlerts reports that alerts count as
// risks in this cluster.
func (s *Search) Look(ctx context.Context, cv *configv1.ClusterVersion, withAlerts bool) Known {
	query, problem := questionFor(cv, s.options)
	known := s.ask(query, problem, cv.Status, withAlerts)
	known.accepted = acceptedRisks(cv.Spec.DesiredUpdate)
	log := logr.FromContextOrDiscard(ctx)
	if problem.Status != "" || s.options.Ask == nil {
		nothing := func(context.Context) background.Next { return background.Next{Done: true} }
		s.runner.Start(background.SlotUpdates, "none", nothing)
		s.runner.Start(background.SlotRisks, "none", nothing)
		return known
	}
	key := fmt.Sprintf("%#v", query)
	s.runner.Start(background.SlotUpdates, key, s.askService(log, query))
	s.runner.Start(background.SlotRisks, key, s.evaluateRisks(log)) // another query cancels the evaluation
	return known
}

// Recall restores the digest that an earlier process found with Known.Digest. It must be called before the first call of Look.
func (s *Search) Recall(digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recalled = digest
}

// Retrieved returns the time of the service's last answer or of the last change of the query; zero for never.
func (s *Search) Retrieved() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

// Reset drops all state, as a restart does.
func (s *Search) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results = results{}
}

// questionFor returns the query for the update service, or the problem that prevents it. An invalid spec field has no fallback: an
// administrator who names a service wants no other.
func questionFor(cv *configv1.ClusterVersion, u Options) (updategraph.Query, Retrieval) {
	q := updategraph.Query{
		Service: string(cv.Spec.Upstream), Channel: cv.Spec.Channel, ClusterID: string(cv.Spec.ClusterID),
		Version: cv.Status.Desired.Version, Architecture: runtime.GOARCH,
	}
	if u.Service != "" {
		q.Service = u.Service
	} else if q.Service == "" {
		q.Service = u.Default
	}
	const multi = configv1.ClusterVersionArchitectureMulti
	update := cv.Spec.DesiredUpdate
	q.Migrate = cv.Status.Desired.Architecture != multi && update != nil && update.Architecture == multi
	if q.Migrate || cv.Status.Desired.Architecture == multi {
		q.Architecture = "multi"
	}
	not := func(reason, format string, args ...any) (updategraph.Query, Retrieval) {
		return updategraph.Query{}, Retrieval{configv1.ConditionFalse, reason, fmt.Sprintf(format, args...)}
	}
	// A cluster with neither service nor channel wants no updates, and the alerts allow that.
	if q.Service == "" && q.Channel != "" {
		return not(updategraph.ReasonNoUpstream, "No update service has been configured. Set spec.upstream to the URL of one.")
	}
	if err := updategraph.CheckService(q.Service); q.Service != "" && err != nil {
		return not(updategraph.ReasonInvalidURI, "failed to parse update service URL: %v", err)
	}
	if q.ClusterID != "" && !request.IsClusterID(q.ClusterID) {
		return not(updategraph.ReasonInvalidID, "invalid cluster ID: %q is not a version 4 UUID", q.ClusterID)
	}
	if q.Version == "" {
		return not(updategraph.ReasonNoCurrentVersion, "The cluster version does not have a semantic version assigned and cannot calculate valid upgrades.")
	}
	if q.Channel == "" {
		return not(updategraph.ReasonNoChannel, "The update channel has not been configured.")
	}
	if _, err := semver.Parse(q.Version); err != nil {
		return not(updategraph.ReasonInvalidCurrentVersion, "The current cluster version is not a valid semantic version and cannot be used to calculate upgrades.")
	}
	return q, Retrieval{}
}

// ask sets the current query and returns the known updates. A process that has just started uses the answer in the status if it is known to
// answer its query. Otherwise, and if the query changes later, the old answer is dropped unless the service answers the query.
func (s *Search) ask(query updategraph.Query, problem Retrieval, status configv1.ClusterVersionStatus, withAlerts bool) Known {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.asked
	if first && s.options.Risks != nil {
		s.options.Risks.RememberAlerts(status.ConditionalUpdateRisks)
	}
	if first || s.query != query || s.problem != problem {
		s.change(query, problem, status, now)
	}
	s.withAlerts = withAlerts
	return s.known
}

// change replaces the current query.
func (m *results) change(query updategraph.Query, problem Retrieval, status configv1.ClusterVersionStatus, now time.Time) {
	first := !m.asked
	m.asked, m.query, m.problem, m.since, m.stale = true, query, problem, now, true
	if problem.Status != "" {
		m.forget()
		m.known.retrieved = problem
		return
	}
	if first {
		m.answer.Updates = restoredUpdates(status)
		m.stale = digestOf(query, m.answer.Updates) != m.recalled
		if c := api.FindCondition(status.Conditions, configv1.RetrievedUpdates); c != nil && c.Status == configv1.ConditionFalse && c.LastTransitionTime.Time.Before(now) {
			m.since = c.LastTransitionTime.Time // the last answer is at least that old
		}
	}
}

// forget drops all known updates.
func (m *results) forget() {
	m.answer = updategraph.Answer{}
	m.known = Known{evaluated: true}
}

// restoredUpdates returns the service's updates in a status. It drops risks of the cluster itself: they do not come from the service, and
// the operator finds them again.
func restoredUpdates(status configv1.ClusterVersionStatus) updategraph.Updates {
	var u updategraph.Updates
	conditional := map[string]bool{}
	for _, update := range status.ConditionalUpdates {
		conditional[update.Release.Image] = true
		risks := slices.DeleteFunc(slices.Clone(update.Risks), foundInCluster)
		if len(risks) == 0 {
			u.Available = append(u.Available, update.Release)
			continue
		}
		for i := range risks {
			risks[i].Conditions = nil
		}
		u.Conditional = append(u.Conditional, configv1.ConditionalUpdate{Release: update.Release, Risks: risks})
	}
	for _, r := range status.AvailableUpdates {
		if !conditional[r.Image] {
			u.Available = append(u.Available, r)
		}
	}
	sorted.By(u.Available, release.NewestFirst)
	return u
}

// digestOf returns the digest of a query and of those parts of its answer that restoredUpdates restores unchanged. The digest is recorded in
// another object than the updates. It has both so that no crash between the two writes assigns the updates to a query that they do not answer.
// An answer of which the status holds only a part has another digest, so it is not restored.
func digestOf(query updategraph.Query, u updategraph.Updates) string {
	rules := map[string]map[string][]configv1.ClusterCondition{} // by image and risk
	for _, r := range u.Available {
		rules[r.Image] = nil
	}
	for _, update := range u.Conditional {
		of := map[string][]configv1.ClusterCondition{}
		for _, r := range update.Risks {
			of[r.Name] = r.MatchingRules
		}
		rules[update.Release.Image] = of
	}
	text, err := json.Marshal([]any{query, rules})
	if err != nil {
		panic(err) // these types have no values that JSON lacks
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// foundInCluster reports whether a risk is an alert or an obstacle, and not a risk from the update service.
func foundInCluster(r configv1.ConditionalUpdateRisk) bool {
	return risk.IsAlert(r) || upgradeable.IsRisk(r.Name)
}

// askService queries the service at each interval.
func (s *Search) askService(log logr.Logger, query updategraph.Query) func(context.Context) background.Next {
	interval := s.options.Interval
	if interval == 0 {
		interval = defaultInterval
	}
	return func(ctx context.Context) background.Next {
		answer, err := s.options.Ask(ctx, query, s.lastAnswer())
		if ctx.Err() != nil {
			return background.Next{Done: true}
		}
		if s.options.Asked != nil {
			s.options.Asked(err)
		}
		if now, changed := s.store(query, answer, err); changed {
			log.Info("update service queried", "service", query.Service, "channel", query.Channel, "reason", now.Reason, "message", now.Message)
		}
		s.runner.Wake(background.SlotRisks)
		s.changed()
		return background.Next{After: interval}
	}
}

func (s *Search) lastAnswer() updategraph.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer
}

// store stores the result of a query. It returns condition RetrievedUpdates and whether the condition has changed.
func (s *Search) store(query updategraph.Query, answer updategraph.Answer, err error) (now Retrieval, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.known.retrieved
	s.answered(query, answer, err, s.clock.Now())
	return s.known.retrieved, before != s.known.retrieved
}

// answered stores the result of a query.
func (m *results) answered(query updategraph.Query, answer updategraph.Answer, err error, now time.Time) {
	if m.query != query {
		return
	}
	if err == nil {
		m.answer, m.since, m.stale = answer, now, false
		m.known.retrieved = Retrieval{Status: configv1.ConditionTrue, Message: listed("Omitted updates of the update service: ", answer.LeftOut)}
		return
	}
	if m.stale || now.Sub(m.since) > kept {
		m.forget()
	}
	reason := updategraph.ReasonUnknown
	if refused := (*updategraph.Error)(nil); errors.As(err, &refused) {
		reason = refused.Reason
	}
	m.known.retrieved = Retrieval{configv1.ConditionFalse, reason, printable.Excerpt(event.Steady("Unable to retrieve available updates: "+err.Error()), maxText)}
}

// evaluateRisks evaluates which risks apply to the known updates, and publishes updates and risks together.
func (s *Search) evaluateRisks(log logr.Logger) func(context.Context) background.Next {
	reported := ""
	return func(ctx context.Context) background.Next {
		query, updates, withAlerts, ready := s.toEvaluate()
		if !ready {
			return background.Next{}
		}
		known := Known{evaluated: true, updates: updates, digest: digestOf(query, updates)}
		var due time.Time
		if risks := s.options.Risks; risks != nil {
			var all []configv1.ConditionalUpdateRisk
			for _, update := range updates.Conditional {
				all = append(all, update.Risks...)
			}
			answers := risks.Evaluate(ctx, all)
			known.applies, due = answers.Applies, answers.Next
			for name, applies := range known.applies {
				applies.Message = event.Steady(applies.Message)
				known.applies[name] = applies
			}
			if withAlerts && len(updates.Available)+len(updates.Conditional) > 0 {
				var err error
				known.alerts, err = risks.Alerts(ctx)
				if next := risks.AlertsDue(); due.IsZero() || next.Before(due) {
					due = next
				}
				if text := fmt.Sprint(err); err != nil && text != reported {
					log.Info("alerts incomplete", "error", text)
					reported = text
				}
			}
		}
		if ctx.Err() != nil {
			return background.Next{Done: true}
		}
		s.publish(query, known)
		s.changed()
		if due.IsZero() {
			return background.Next{}
		}
		return background.Next{After: max(due.Sub(s.clock.Now()), risksPause)}
	}
}

// toEvaluate returns the updates whose risks have to be evaluated, and the query that they answer. ready reports that there is an answer.
func (s *Search) toEvaluate() (query updategraph.Query, updates updategraph.Updates, withAlerts, ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.query, s.answer.Updates, s.withAlerts, s.asked && !s.stale && s.problem.Status == ""
}

// publish stores the updates with their evaluated risks, unless they answer an earlier query.
func (s *Search) publish(query updategraph.Query, known Known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.query == query && !s.stale {
		known.retrieved = s.known.retrieved
		s.known = known
	}
}

// acceptedRisks returns the names of the risks that an administrator accepts.
func acceptedRisks(update *configv1.Update) []string {
	if update == nil {
		return nil
	}
	names := make([]string, len(update.AcceptRisks))
	for i, accepted := range update.AcceptRisks {
		names[i] = accepted.Name
	}
	return names
}

// listed returns a sentence that lists the items, empty if there are none.
func listed(start string, items []string) string {
	if len(items) == 0 {
		return ""
	}
	return printable.Excerpt(start+strings.Join(items, "; ")+".", maxText)
}
