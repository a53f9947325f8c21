package clusterversion

import (
	"errors"
	"strconv"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/identity"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// acceptance is the one writer of the answers. A reconcile sets the question and adopts the answer. The background work answers it. Both
// read snapshots.
type acceptance struct {
	mu      sync.Mutex
	current answers
}

// snapshot returns the current answers.
func (a *acceptance) snapshot() answers {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current
}

// change replaces the answers with the result of a transition. It returns the answers before and after it.
func (a *acceptance) change(transition func(answers) answers) (before, after answers) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before = a.current
	a.current = transition(before)
	return before, a.current
}

// Reset drops all state.
func (a *acceptance) Reset() { a.change(answers.reset) }

// answers are the current question, which is whether to accept the requested release, and its answer. They are a value: each transition
// returns the next answers.
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

// reset drops all state. Work that is still ending reports its result under its question's number, which no later question gets.
func (a answers) reset() answers { return answers{questions: a.questions, serial: a.serial} }

// inherit sets the release from the inventory, and the image that the operator's own tag had in an earlier process.
func (a answers) inherit(from identity.Inherited, own *api.OwnImage) answers {
	a.inherited, a.identity = from, a.identity.WithOwn(own)
	return a
}

// recall sets the identity that was restored from the record of an earlier process.
func (a answers) recall(restored identity.Identity) answers {
	a.identity, a.recalled = restored, true
	return a
}

// observe updates the identity with the request in the spec.
func (a answers) observe(cv *configv1.ClusterVersion, now time.Time) answers {
	a.identity = a.identity.Observe(identity.Of(cv), now).ObserveInstall(cv, a.inherited)
	return a
}

// withoutMigration drops migrated releases that could not be recorded. The next process migrates them again.
func (a answers) withoutMigration(restored identity.Identity) answers {
	a.identity = a.identity.WithoutMigration(restored)
	return a
}

// ask makes a round's question the current one, unless the question and its settings stand. For a release whose answer stands, it sets the
// generation. If the spec changes during a check, another check follows the answer, see recheck.
func (a answers) ask(q accept.Question, cv *configv1.ClusterVersion, now time.Time) answers {
	sameRelease := a.key != "" && q.SameRelease(a.asked, a.latest)
	if sameRelease && q.SettingsStand(cv, a.asked, a.latest) {
		if a.latest.Answered() {
			a.generation = cv.Generation
		}
		return a
	}
	if !sameRelease {
		a.latest, a.resumeFailure = accept.Acceptance{}, ""
	}
	a.questions++
	a.key, a.asked, a.askedAt, a.generation, a.retrieving = strconv.Itoa(a.questions), q, now, cv.Generation, false
	return a
}

// recheck reports whether the preconditions that rejected the release have to be checked again after ask, because they may depend on the
// changed spec. before are the answers before ask.
func (a answers) recheck(before answers) bool {
	return a.key == before.key && a.generation != before.generation && a.refused()
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

// answer stores the result for the question with the given key. While a release is retried or checked again, its last answer stays until
// the new one arrives.
func (a answers) answer(key string, result accept.Acceptance, now time.Time) answers {
	if a.key != key {
		return a
	}
	a.retrieving = !result.Answered() && result.Step == api.ReasonRetrievePayload
	if result.Target.Requested && result.Verified.Digest != "" {
		a.identity = a.identity.Resolve(a.asked.Request(), result.Verified.Digest, now)
	}
	if a.isNews(key, result) {
		a.latest = result
	}
	return a
}

// isNews reports whether a result for the question with the given key replaces the last answer. Another question may be current by now.
func (a answers) isNews(key string, result accept.Acceptance) bool {
	return a.key == key && (result.Answered() || !a.latest.Answered())
}

// resume stores the result of resuming the release of the history, for the question with the given key.
func (a answers) resume(key string, result accept.Acceptance) answers {
	switch {
	case a.key != key:
	case result.Done && a.accepted == nil:
		a.resumption, a.resumeFailure = &result, ""
	case result.Err != nil:
		a.resumeFailure = result.Message
	}
	return a
}

// knowsResumption reports whether an earlier attempt to resume the release of the history had the same result, or whether another question
// is current by now.
func (a answers) knowsResumption(key string, result accept.Acceptance) bool {
	return a.key != key || a.resumeFailure == result.Message
}

// explainIdle keeps the reason why no release is accepted: the release of the history could not be resumed, or the requested one was not
// accepted. latest is the state of the requested release. While a new question has no answer, the reason for the previous one stays.
func (a answers) explainIdle(latest accept.Acceptance, now time.Time) answers {
	switch {
	case a.accepted != nil:
		return a
	case a.resumeFailure != "":
		a.idle.cause = a.resumeFailure
	case latest.Err != nil:
		a.idle.cause = latest.Message
	}
	if a.idle.cause != "" && a.idle.since.IsZero() {
		a.idle.since = now
	}
	return a
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

// record adds an accepted release to the identity. own is the image of the operator's own release.
func (a answers) record(accepted accept.Acceptance, own string, now time.Time) answers {
	a.identity, a.recorded = a.identity.Accept(accepted.Identified(), own, now), accepted.Payload
	return a
}

// unrecord undoes record after a release could not be recorded. before are the answers before record.
func (a answers) unrecord(before answers) answers {
	a.identity, a.recorded = before.identity, before.recorded
	return a
}

// adopt marks an accepted release as the one that is rolled out.
func (a answers) adopt(accepted accept.Acceptance) answers {
	a.accepted, a.resumption, a.idle = &accepted, nil, idleness{}
	a.serial++
	return a
}
