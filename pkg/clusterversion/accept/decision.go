package accept

import (
	"strconv"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/history"
	"github.com/cluster-version/cvo/pkg/clusterversion/identity"
	"github.com/cluster-version/cvo/pkg/payload"
)

// Decision is the current question, which is whether to accept the requested release, and its answer. It is an immutable value: each
// transition returns the next Decision. The reconciler keeps the current one.
type Decision struct {
	// Key identifies the current question, which was asked at AskedAt, and questions counts all questions. Latest is the answer to it. While
	// the same release is examined again with other settings, Latest is the previous answer.
	Key       string
	questions int
	asked     Question
	AskedAt   time.Time
	Latest    Acceptance
	// retrieving: the release is being retrieved or verified, for the first time or again.
	retrieving bool
	// generation is the ClusterVersion's generation for which the preconditions were last checked.
	generation int64
	// Identity maps requests to content. Recalled reports that it was restored from the record of an earlier process.
	Identity identity.Identity
	Recalled bool
	// Inherited is the release in the inventory if this process found a history that does not show what the cluster runs.
	Inherited identity.Inherited
	// Recorded is the payload of the newest recorded release, nil before the first.
	Recorded *payload.Payload
	// Accepted is the release that is rolled out. Serial counts the accepted releases.
	Accepted *Acceptance
	Serial   int
	// resumption is the resumed release of the history until it is accepted; nil for none.
	resumption *Acceptance
	// resumeFailure is the reason why the release of the history could not be resumed for the current question.
	resumeFailure string
	// Idle is the reason why no release is accepted.
	Idle Idleness
}

// Idleness is the reason why no release is accepted, and the time when it was first known; zero while a release is accepted or no reason is
// known yet.
type Idleness struct {
	Cause string
	Since time.Time
}

// Reset drops all state. Work that is still ending reports its result under its question's number, which no later question gets.
func (d Decision) Reset() Decision { return Decision{questions: d.questions, Serial: d.Serial} }

// Inherit sets the release from the inventory, and the image that the operator's own tag had in an earlier process.
func (d Decision) Inherit(from identity.Inherited, own *api.OwnImage) Decision {
	d.Inherited, d.Identity = from, d.Identity.WithOwn(own)
	return d
}

// Recall sets the identity that was restored from the record of an earlier process.
func (d Decision) Recall(restored identity.Identity) Decision {
	d.Identity, d.Recalled = restored, true
	return d
}

// Observe updates the identity with the request in the spec.
func (d Decision) Observe(cv *configv1.ClusterVersion, now time.Time) Decision {
	now = history.NotBefore(cv.Status.History, metav1.NewTime(now)).Time
	d.Identity = d.Identity.Observe(identity.Of(cv), now).ObserveInstall(cv, d.Inherited)
	return d
}

// WithoutMigration drops migrated releases that could not be recorded. The next process migrates them again.
func (d Decision) WithoutMigration(restored identity.Identity) Decision {
	d.Identity = d.Identity.WithoutMigration(restored)
	return d
}

// Ask makes a round's question the current one, unless the question and its settings stand. For a release whose answer stands, it sets the
// generation. If the spec changes during a check, another check follows the answer, see NeedsRecheck.
func (d Decision) Ask(q Question, cv *configv1.ClusterVersion, now time.Time) Decision {
	sameRelease := d.Key != "" && q.sameRelease(d.asked, d.Latest)
	if sameRelease && q.SettingsStand(cv, d.asked, d.Latest) {
		if d.Latest.Answered() {
			d.generation = cv.Generation
		}
		return d
	}
	if !sameRelease {
		d.Latest, d.resumeFailure = Acceptance{}, ""
	}
	d.questions++
	d.Key, d.asked, d.AskedAt, d.generation, d.retrieving = strconv.Itoa(d.questions), q, now, cv.Generation, false
	return d
}

// NeedsRecheck reports whether the preconditions that rejected the release have to be checked again after Ask, because they may depend on
// the changed spec. before is the decision before Ask.
func (d Decision) NeedsRecheck(before Decision) bool {
	return d.Key == before.Key && d.generation != before.generation && d.Refused()
}

// Refused reports whether the release is rejected only by preconditions or permissions.
func (d Decision) Refused() bool { return d.Latest.Err != nil && d.Latest.Loaded() }

// AwaitsRetrievalInputs reports whether a release waits for a change of the retrieval inputs, or is being retrieved: the inputs may have
// changed since.
func (d Decision) AwaitsRetrievalInputs() bool {
	return !d.Latest.Answered() || d.retrieving ||
		d.Latest.Err != nil && d.Latest.Step == api.ReasonRetrievePayload || d.resumeFailure != "" && d.Accepted == nil
}

// News returns an accepted release that is not rolled out yet, or nil.
func (d Decision) News() *Acceptance {
	switch latest := d.Latest; {
	case latest.Done && (d.Accepted == nil || d.Accepted.Payload != latest.Payload):
		return &latest
	case d.Accepted == nil:
		return d.resumption
	}
	return nil
}

// Running returns the release that is rolled out or about to be; nil before the first one of this process.
func (d Decision) Running() *Acceptance {
	if d.Accepted == nil {
		return d.resumption
	}
	return d.Accepted
}

// Answer stores the result for the question with the given key. While a release is retried or checked again, its last answer stays until
// the new one arrives.
func (d Decision) Answer(key string, result Acceptance, now time.Time) Decision {
	if d.Key != key {
		return d
	}
	d.retrieving = !result.Answered() && result.Step == api.ReasonRetrievePayload
	if result.Target.Requested && result.Verified.Digest != "" {
		d.Identity = d.Identity.Resolve(d.asked.request, result.Verified.Digest, now)
	}
	if d.IsNews(key, result) {
		d.Latest = result
	}
	return d
}

// IsNews reports whether a result for the question with the given key replaces the last answer. Another question may be current by now.
func (d Decision) IsNews(key string, result Acceptance) bool {
	return d.Key == key && (result.Answered() || !d.Latest.Answered())
}

// Resume stores the result of resuming the release of the history, for the question with the given key.
func (d Decision) Resume(key string, result Acceptance) Decision {
	switch {
	case d.Key != key:
	case result.Done && d.Accepted == nil:
		d.resumption, d.resumeFailure = &result, ""
	case result.Err != nil:
		d.resumeFailure = result.Message
	}
	return d
}

// KnowsResumption reports whether an earlier attempt to resume the release of the history had the same result, or whether another question
// is current by now.
func (d Decision) KnowsResumption(key string, result Acceptance) bool {
	return d.Key != key || d.resumeFailure == result.Message
}

// ExplainIdle keeps the reason why no release is accepted: the release of the history could not be resumed, or the requested one was not
// accepted. latest is the state of the requested release. While a new question has no answer, the reason for the previous one stays.
func (d Decision) ExplainIdle(latest Acceptance, now time.Time) Decision {
	switch {
	case d.Accepted != nil:
		return d
	case d.resumeFailure != "":
		d.Idle.Cause = d.resumeFailure
	case latest.Err != nil:
		d.Idle.Cause = latest.Message
	}
	if d.Idle.Cause != "" && d.Idle.Since.IsZero() {
		d.Idle.Since = now
	}
	return d
}

// Record adds an accepted release to the identity. own is the image of the operator's own release.
func (d Decision) Record(accepted Acceptance, own string, now time.Time) Decision {
	d.Identity, d.Recorded = d.Identity.Accept(accepted.Identified(), own, now), accepted.Payload
	return d
}

// Adopt marks an accepted release as the one that is rolled out.
func (d Decision) Adopt(accepted Acceptance) Decision {
	d.Accepted, d.resumption, d.Idle = &accepted, nil, Idleness{}
	d.Serial++
	return d
}
