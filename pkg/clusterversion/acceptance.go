package clusterversion

import (
	"errors"
	"strconv"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/identity"
	"github.com/cluster-version/cvo/pkg/clusterversion/releasestatus"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// acceptance owns the current question, which is whether to accept the requested release, and its answer. A reconcile sets the question and
// adopts the answer. The background work answers it. Both read snapshots.
type acceptance struct {
	clock clock.PassiveClock
	own   string

	mu sync.Mutex
	answers
}

// answers is a snapshot of an acceptance. Everything in it is immutable.
type answers struct {
	// key identifies the current question, which was asked at askedAt, and questions counts all questions. latest is the answer to it. While
	// the same release is examined again with other settings, latest is the previous answer.
	key       string
	questions int
	asked     accept.Question
	askedAt   time.Time
	latest    accept.Acceptance
	// retrieving: the release is being retrieved or verified, for the first time or again.
	retrieving bool
	// generation is the ClusterVersion's generation for which the preconditions were last checked.
	generation int64
	// identity maps requests to content. recalled reports that it was restored from the record of an earlier process.
	identity identity.Identity
	recalled bool
	// inherited is the release in the inventory if this process found a history that does not show what the cluster runs.
	inherited identity.Inherited
	// recorded is the payload of the newest recorded release, nil before the first.
	recorded *payload.Payload
	// accepted is the release that is rolled out. serial counts the accepted releases.
	accepted *accept.Acceptance
	serial   int
	// resumption is the resumed release of the history until it is accepted; nil for none.
	resumption *accept.Acceptance
	// resumeFailure is the reason why the release of the history could not be resumed for the current question.
	resumeFailure string
	idle          idleness
}

// idleness is the reason why no release is accepted, and the time when it was first known; zero while a release is accepted or no reason is
// known yet.
type idleness struct {
	cause string
	since time.Time
}

func (a *acceptance) snapshot() answers {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answers
}

// Reset drops all state. Work that is still ending reports its result under its question's number, which no later question gets.
func (a *acceptance) Reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers = answers{questions: a.questions, serial: a.serial}
}

// inherit sets the release from the inventory, and the image that the operator's own tag had in an earlier process.
func (a *acceptance) inherit(from identity.Inherited, own *api.OwnImage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inherited, a.identity = from, a.identity.WithOwn(own)
}

// observe updates the identity with the request in the spec; an invalid request changes nothing. The first call restores the identity from
// the record of an earlier process. observe returns the restored identity and whether it migrated releases of the history.
func (a *acceptance) observe(cv *configv1.ClusterVersion, target request.Target, invalid bool, record *releasestatus.Record) (restored identity.Identity, migrated bool) {
	found, predates := record.Status(), record.Predates()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.recalled {
		restored = identity.Recall(found, cv, target)
		a.identity, a.recalled = restored, true
		if predates {
			a.identity = restored.Migrate(cv.Status.History)
			migrated = a.identity.IsMigrated(cv.Status.History)
		}
	}
	if !invalid {
		a.identity = a.identity.Observe(identity.Of(cv), a.clock.Now()).ObserveInstall(cv, a.inherited)
	}
	return restored, migrated
}

// withoutMigration drops migrated releases that could not be recorded. The next process migrates them again.
func (a *acceptance) withoutMigration(restored identity.Identity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.identity = a.identity.WithoutMigration(restored)
}

// ask makes a round's question the current one. It reports whether the preconditions that rejected the release have to be checked again,
// because they may depend on the changed spec. If the spec changes during a check, another check follows the answer.
func (a *acceptance) ask(cv *configv1.ClusterVersion, target request.Target, serial int, settings accept.Settings) (recheck bool) {
	q := accept.NewQuestion(cv, target, serial, settings)
	a.mu.Lock()
	defer a.mu.Unlock()
	sameRelease := a.key != "" && q.SameRelease(a.asked, a.latest)
	if sameRelease && q.SettingsStand(cv, a.asked, a.latest) {
		if !a.latest.Answered() {
			return false
		}
		recheck = a.refused() && a.generation != cv.Generation
		a.generation = cv.Generation
		return recheck
	}
	if !sameRelease {
		a.latest, a.resumeFailure = accept.Acceptance{}, ""
	}
	a.questions++
	a.key, a.asked, a.askedAt, a.generation, a.retrieving = strconv.Itoa(a.questions), q, a.clock.Now(), cv.Generation, false
	return false
}

// refused reports whether the release is rejected only by preconditions or permissions.
func (a answers) refused() bool { return a.latest.Err != nil && a.latest.Loaded() }

// awaitsRetrievalInputs reports whether a release waits for a change of the retrieval inputs, or is being retrieved: the inputs may have
// changed since.
func (a answers) awaitsRetrievalInputs() bool {
	return !a.latest.Answered() || a.retrieving ||
		a.latest.Err != nil && a.latest.Step == api.ReasonRetrievePayload || a.resumeFailure != "" && a.accepted == nil
}

// news returns an accepted release that is not rolled out yet, or nil.
func (a answers) news() *accept.Acceptance {
	switch latest := a.latest; {
	case latest.Done && (a.accepted == nil || a.accepted.Payload != latest.Payload):
		return &latest
	case a.accepted == nil:
		return a.resumption
	}
	return nil
}

// running returns the release that is rolled out or about to be; nil before the first one of this process.
func (a answers) running() *accept.Acceptance {
	if a.accepted == nil {
		return a.resumption
	}
	return a.accepted
}

// answer stores the result for the question with the given key and returns the previous answer. It reports whether it stored the result:
// another question may be current by now. While a release is retried or checked again, its last answer stays until the new one arrives.
func (a *acceptance) answer(key string, result accept.Acceptance) (before accept.Acceptance, news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.key != key {
		return accept.Acceptance{}, false
	}
	before, a.retrieving = a.latest, !result.Answered() && result.Step == api.ReasonRetrievePayload
	if result.Target.Requested && result.Verified.Digest != "" {
		a.identity = a.identity.Resolve(a.asked.Request(), result.Verified.Digest, a.clock.Now())
	}
	if before.Answered() && result.Err == nil && !result.Done {
		return before, false
	}
	a.latest = result
	return before, true
}

// resume stores the result of resuming the release of the history, for the question with the given key. It reports whether an earlier
// attempt had the same result, or whether another question is current by now.
func (a *acceptance) resume(key string, result accept.Acceptance) (known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.key != key {
		return true
	}
	known = a.resumeFailure == result.Message
	if result.Done && a.accepted == nil {
		a.resumption, a.resumeFailure = &result, ""
	} else if result.Err != nil {
		a.resumeFailure = result.Message
	}
	return known
}

// explainIdle keeps the reason why no release is accepted: the release of the history could not be resumed, or the requested one was not
// accepted. latest is the state of the requested release. While a new question has no answer, the reason for the previous one stays.
func (a *acceptance) explainIdle(latest accept.Acceptance) answers {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.accepted != nil:
		return a.answers
	case a.resumeFailure != "":
		a.idle.cause = a.resumeFailure
	case latest.Err != nil:
		a.idle.cause = latest.Message
	}
	if a.idle.cause != "" && a.idle.since.IsZero() {
		a.idle.since = a.clock.Now()
	}
	return a.answers
}

// unapplied returns the reason why the operator applies nothing, nil if a release is accepted or no reason is known yet.
func (a answers) unapplied(cv *configv1.ClusterVersion) *report.Problem {
	if a.idle.cause == "" {
		return nil
	}
	remedy := ""
	switch {
	case reported.HasCompleted(cv.Status.History):
		remedy = ", or request a release by digest: " + api.RequestByDigest + " (with --force if no one signed it)"
	case len(cv.Status.History) > 0: // before that, every request waits for the install
		remedy = ", or request a release by digest: " + api.RequestByDigest + " (the same digest from another registry, or another release with --force)"
	}
	return &report.Problem{
		Reason: api.ReasonNoAcceptedRelease, Since: a.idle.since, Err: errors.New(a.idle.cause),
		Message: "The operator applies and repairs nothing until it accepts a release. Remove the cause" + remedy + ". " + a.idle.cause,
	}
}

// record adds an accepted release to the identity and returns the previous answers.
func (a *acceptance) record(accepted accept.Acceptance) (before answers) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before = a.answers
	a.identity, a.recorded = a.identity.Accept(accepted.Identified(), a.own, a.clock.Now()), accepted.Payload
	return before
}

// unrecord undoes record after a release could not be recorded.
func (a *acceptance) unrecord(before answers) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.identity, a.recorded = before.identity, before.recorded
}

// adopt marks an accepted release as the one that is rolled out.
func (a *acceptance) adopt(accepted accept.Acceptance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.accepted, a.resumption, a.idle = &accepted, nil, idleness{}
	a.serial++
}
