package clusterversion

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/risk"
	"github.com/cluster-version/cvo/pkg/updategraph"
	"github.com/cluster-version/cvo/pkg/upgradeable"
)

// Updates are the collaborators that tell which updates there are. The zero value knows of none.
type Updates struct {
	// Ask asks an update service; before is its last answer.
	Ask func(ctx context.Context, q updategraph.Query, before updategraph.Answer) (updategraph.Answer, error)
	// Risks tells which risks apply; nil if nobody knows.
	Risks Risks
	// Service is asked in place of spec.upstream, Default where neither is set.
	Service, Default string
	// Interval is the time between two questions; default 3 minutes.
	Interval time.Duration
}

// Risks tells which risks of updates apply to the cluster; *risk.Evaluator does.
type Risks interface {
	Evaluate(ctx context.Context, risks []configv1.ConditionalUpdateRisk) risk.Answers
	Alerts(ctx context.Context) ([]configv1.ConditionalUpdateRisk, error)
	AlertsDue() time.Time
	// RememberAlerts takes over the alerts among risks that an earlier process knew.
	RememberAlerts(risks []configv1.ConditionalUpdateRisk)
}

// The slots in which it is found out which updates there are.
const (
	SlotUpdates = "updates"
	SlotRisks   = "risks"
)

const (
	// defaultUpdatesInterval is about what OpenShift's operator has.
	defaultUpdatesInterval = 3 * time.Minute
	// updatesKept is how long updates count that the service could not confirm.
	updatesKept = 24 * time.Hour
	// risksPause is the least time between two evaluations that nobody asked for.
	risksPause = 5 * time.Second
	// maxRetrievedText bounds the message of RetrievedUpdates.
	maxRetrievedText = 2 << 10
)

// knownUpdates are the releases that the cluster can be updated to, as far as that is known.
type knownUpdates struct {
	// retrieved is condition RetrievedUpdates; without a status nothing is known of it yet.
	retrieved retrieval
	// judged: the rest is known; until then status stays as it is.
	judged  bool
	updates updategraph.Updates
	// applies has the condition Applies by names of risks; alerts are risks of the cluster itself.
	applies map[string]metav1.Condition
	alerts  []configv1.ConditionalUpdateRisk
	// accepted are the names of risks that the administrator accepts.
	accepted []string
}

// retrieval is what is told of the last question to the update service.
type retrieval struct {
	status          configv1.ConditionStatus
	reason, message string
}

// updateMemory is what the background has found of updates so far.
type updateMemory struct {
	// query is the last question, problem why it cannot be asked; both zero before the first round.
	query   updategraph.Query
	problem retrieval
	asked   bool
	// since is when the service answered last, or the question changed. stale: it has not answered this question yet, and
	// what is known is the answer to another.
	since time.Time
	stale bool
	// answer is the last one to this question, or what status told of it before this process started.
	answer updategraph.Answer
	// withAlerts: alerts are risks in this cluster.
	withAlerts bool
	known      knownUpdates
}

// lookForUpdates has the update service asked in the background, and takes over what is known.
func (c *Reconciler) lookForUpdates(ctx context.Context, r *round) error {
	service := c.options.Updates
	query, problem := questionFor(r.original, service)
	c.mu.Lock()
	m := &c.memory.updates
	if !m.asked && service.Risks != nil {
		service.Risks.RememberAlerts(r.original.Status.ConditionalUpdateRisks)
	}
	m.ask(query, problem, r.original.Status, c.clock.Now())
	m.withAlerts = r.control.schema.AcceptRisks
	r.updates = m.known
	c.mu.Unlock()
	r.updates.accepted = acceptedRisks(r.original.Spec.DesiredUpdate)
	log := logr.FromContextOrDiscard(ctx)
	if problem.status != "" || service.Ask == nil {
		c.runner.Start(SlotUpdates, "none", func(context.Context) Next { return Next{Done: true} })
		return nil
	}
	c.runner.Start(SlotUpdates, fmt.Sprintf("%#v", query), c.askService(log, query))
	c.runner.Start(SlotRisks, "risks", c.evaluateRisks(log))
	return nil
}

// questionFor is what the update service is asked for a cluster, or why it cannot be. Fields of the spec that are wrong
// are not replaced by a default here: whoever names a service wants no other.
func questionFor(cv *configv1.ClusterVersion, u Updates) (updategraph.Query, retrieval) {
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
	not := func(reason, format string, args ...any) (updategraph.Query, retrieval) {
		return updategraph.Query{}, retrieval{configv1.ConditionFalse, reason, fmt.Sprintf(format, args...)}
	}
	// A cluster with neither wants no updates; alerts let that be.
	if q.Service == "" && q.Channel != "" {
		return not("NoUpstream", "No update service has been configured. Set spec.upstream to the URL of one.")
	}
	if err := updategraph.CheckService(q.Service); q.Service != "" && err != nil {
		return not("InvalidURI", "failed to parse update service URL: %v", err)
	}
	if q.ClusterID != "" && !clusterIDPattern.MatchString(q.ClusterID) {
		return not("InvalidID", "invalid cluster ID: %q is no UUID of version 4", q.ClusterID)
	}
	if q.Version == "" {
		return not("NoCurrentVersion", "The cluster version does not have a semantic version assigned and cannot calculate valid upgrades.")
	}
	if q.Channel == "" {
		return not("NoChannel", "The update channel has not been configured.")
	}
	if _, err := semver.Parse(q.Version); err != nil {
		return not("InvalidCurrentVersion", "The current cluster version is not a valid semantic version and cannot be used to calculate upgrades.")
	}
	return q, retrieval{}
}

// ask makes a question the one that is asked. A process that has just started takes over what status tells of its answer;
// of another question's answer nothing is kept if the service does not answer this one.
func (m *updateMemory) ask(query updategraph.Query, problem retrieval, status configv1.ClusterVersionStatus, now time.Time) {
	first := !m.asked
	if !first && m.query == query && m.problem == problem {
		return
	}
	m.asked, m.query, m.problem, m.since, m.stale = true, query, problem, now, !first
	if problem.status != "" {
		m.forget()
		m.known.retrieved = problem
		return
	}
	if first {
		m.answer.Updates = restoredUpdates(status)
		if c := api.FindCondition(status.Conditions, configv1.RetrievedUpdates); c != nil && c.Status == configv1.ConditionFalse && c.LastTransitionTime.Time.Before(now) {
			m.since = c.LastTransitionTime.Time // it has not answered since then at least
		}
	}
}

// forget drops what is known of updates.
func (m *updateMemory) forget() {
	m.answer = updategraph.Answer{}
	m.known = knownUpdates{judged: true}
}

// restoredUpdates are the updates of the service that status tells of. Risks of the cluster itself are not the service's:
// they are found anew.
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
	slices.SortStableFunc(u.Available, release.NewestFirst)
	return u
}

// foundInCluster reports whether a risk is none of the update service: an alert, or an obstacle.
func foundInCluster(r configv1.ConditionalUpdateRisk) bool {
	return risk.IsAlert(r) || slices.ContainsFunc([]string{
		upgradeable.SourceOverrides, upgradeable.SourceAdminAck, upgradeable.SourceOperators, upgradeable.SourceDeletions, upgradeable.SourceUpdating,
	}, func(source string) bool { return strings.HasPrefix(r.Name, source) })
}

// askService asks the service again and again.
func (c *Reconciler) askService(log logr.Logger, query updategraph.Query) func(context.Context) Next {
	interval := c.options.Updates.Interval
	if interval == 0 {
		interval = defaultUpdatesInterval
	}
	return func(ctx context.Context) Next {
		c.mu.Lock()
		before := c.memory.updates.answer
		c.mu.Unlock()
		answer, err := c.options.Updates.Ask(ctx, query, before)
		if ctx.Err() != nil {
			return Next{Done: true}
		}
		c.mu.Lock()
		told := c.memory.updates.known.retrieved
		c.options.Metrics.fetched(err)
		c.memory.updates.answered(query, answer, err, c.clock.Now())
		now := c.memory.updates.known.retrieved
		c.mu.Unlock()
		if told != now {
			log.Info("update service asked", "service", query.Service, "channel", query.Channel, "reason", now.reason, "message", now.message)
		}
		c.runner.Wake(SlotRisks)
		c.changed()
		return Next{After: interval}
	}
}

// answered takes over what came of a question.
func (m *updateMemory) answered(query updategraph.Query, answer updategraph.Answer, err error, now time.Time) {
	if m.query != query {
		return
	}
	if err == nil {
		m.answer, m.since, m.stale = answer, now, false
		m.known.retrieved = retrieval{status: configv1.ConditionTrue, message: listed("Left out of what the update service offers: ", answer.LeftOut)}
		return
	}
	if m.stale || now.Sub(m.since) > updatesKept {
		m.forget()
	}
	reason := updategraph.ReasonUnknown
	if refused := (*updategraph.Error)(nil); errors.As(err, &refused) {
		reason = refused.Reason
	}
	m.known.retrieved = retrieval{configv1.ConditionFalse, reason, api.Excerpt(steady("Unable to retrieve available updates: "+err.Error()), maxRetrievedText)}
}

// evaluateRisks finds out which risks of the known updates apply, and puts both into effect together.
func (c *Reconciler) evaluateRisks(log logr.Logger) func(context.Context) Next {
	told := ""
	return func(ctx context.Context) Next {
		c.mu.Lock()
		m := &c.memory.updates
		query, updates, withAlerts, ready := m.query, m.answer.Updates, m.withAlerts, m.asked && !m.stale && m.problem.status == ""
		c.mu.Unlock()
		if !ready {
			return Next{}
		}
		known := knownUpdates{judged: true, updates: updates}
		var due time.Time
		if risks := c.options.Updates.Risks; risks != nil {
			var all []configv1.ConditionalUpdateRisk
			for _, update := range updates.Conditional {
				all = append(all, update.Risks...)
			}
			answers := risks.Evaluate(ctx, all)
			known.applies, due = answers.Applies, answers.Next
			for name, applies := range known.applies {
				applies.Message = steady(applies.Message)
				known.applies[name] = applies
			}
			if withAlerts && len(updates.Available)+len(updates.Conditional) > 0 {
				var err error
				known.alerts, err = risks.Alerts(ctx)
				if next := risks.AlertsDue(); due.IsZero() || next.Before(due) {
					due = next
				}
				if text := fmt.Sprint(err); err != nil && text != told {
					log.Info("alerts are not all known", "error", text)
					told = text
				}
			}
		}
		if ctx.Err() != nil {
			return Next{Done: true}
		}
		c.mu.Lock()
		if m.query == query && !m.stale {
			known.retrieved = m.known.retrieved
			m.known = known
		}
		c.mu.Unlock()
		c.changed()
		if due.IsZero() {
			return Next{}
		}
		return Next{After: max(due.Sub(c.clock.Now()), risksPause)}
	}
}

// acceptedRisks are the names of the risks that an administrator accepts.
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

// setUpdates puts what is known of updates into status.
func setUpdates(status *configv1.ClusterVersionStatus, set setter, in observed) {
	u := in.updates
	if u.judged && !upgradeable.Pending(in.obstacles) {
		out := risk.Judge(u.judgeable(status, in))
		status.AvailableUpdates, status.ConditionalUpdates, status.ConditionalUpdateRisks = out.Available, out.Conditional, out.Risks
		if problems := listed("Left out: ", out.Problems); problems != "" && u.retrieved.status == configv1.ConditionTrue {
			u.retrieved.message = api.Excerpt(strings.TrimSpace(u.retrieved.message+" "+problems), maxRetrievedText)
		}
	}
	switch {
	case u.retrieved.status != "":
		set(configv1.RetrievedUpdates, u.retrieved.status, u.retrieved.reason, u.retrieved.message)
	case api.FindCondition(status.Conditions, configv1.RetrievedUpdates) == nil:
		set(configv1.RetrievedUpdates, configv1.ConditionFalse, "", "")
	}
}

// judgeable is everything that it depends on which updates are recommended. Where risks cannot be accepted, those of the
// cluster itself are told by condition Upgradeable and by alerts alone, as in OpenShift.
func (u knownUpdates) judgeable(status *configv1.ClusterVersionStatus, in observed) risk.Input {
	schema := in.control.schema
	input := risk.Input{
		Available: u.updates.Available, Conditional: u.updates.Conditional, Applies: u.applies, Accepted: u.accepted, Now: in.now,
		Previous: risk.Judged{Available: status.AvailableUpdates, Conditional: status.ConditionalUpdates, Risks: status.ConditionalUpdateRisks},
		Plain:    !schema.AcceptRisks || !schema.ConditionalUpdateRisks || !schema.RiskNames || !schema.RiskConditions,
	}
	if input.Plain {
		return input
	}
	for _, alert := range u.alerts {
		input.Extra = append(input.Extra, risk.Extra{ConditionalUpdateRisk: alert})
	}
	current := status.Desired.Version
	for _, o := range in.obstacles {
		applies := metav1.Condition{Type: risk.Applies, Status: metav1.ConditionTrue, Reason: o.Reason, Message: o.Message}
		if o.Unknown {
			applies.Status = metav1.ConditionUnknown
		}
		input.Extra = append(input.Extra, risk.Extra{
			ConditionalUpdateRisk: configv1.ConditionalUpdateRisk{Name: o.Risk, Message: o.Message, URL: o.URL, Conditions: []metav1.Condition{applies}},
			Concerns:              func(version string) bool { return o.Concerns(current, version) },
		})
	}
	return input
}

// describing are the releases that tell more of the one that runs: as the service knows it, as status told of it, and as
// an update.
func (u knownUpdates) describing(status configv1.ClusterVersionStatus) []configv1.Release {
	releases := append([]configv1.Release{u.updates.Current, status.Desired}, status.AvailableUpdates...)
	for _, update := range status.ConditionalUpdates {
		releases = append(releases, update.Release)
	}
	return releases
}

// recordAcceptedRisks has the history tell of the risks that an administrator accepted for a release, as its update had
// them when it began.
func recordAcceptedRisks(entry *configv1.UpdateHistory, updates []configv1.ConditionalUpdate, accepted []string) {
	i := slices.IndexFunc(updates, func(u configv1.ConditionalUpdate) bool { return u.Release.Image == entry.Image })
	if i < 0 {
		return
	}
	var names []string
	for _, r := range updates[i].Risks {
		applies := slices.ContainsFunc(r.Conditions, func(c metav1.Condition) bool { return c.Type == risk.Applies && c.Status != metav1.ConditionFalse })
		switch {
		case !applies:
		case slices.Contains(accepted, r.Name):
			names = append(names, r.Name)
		default:
			return // it was not accepted, but asked for anyway; the precondition tells of that
		}
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	exposed := fmt.Sprintf("exposed to the risks [%s] which were all explicitly accepted by the cluster administrator.", strings.Join(names, ","))
	if entry.AcceptedRisks == "" {
		entry.AcceptedRisks = fmt.Sprintf("The target release %s is %s", entry.Image, exposed)
	} else {
		entry.AcceptedRisks += "; It is " + exposed
	}
}

// listed is a sentence that lists something, empty if there is nothing.
func listed(start string, items []string) string {
	if len(items) == 0 {
		return ""
	}
	return api.Excerpt(start+strings.Join(items, "; ")+".", maxRetrievedText)
}
