package identity

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/release"
)

// forcedPast is the history text about a forced image, from an operator without request records.
const forcedPast = `Target release version="1.1.0" image="x" cannot be verified, but continuing anyway because the update was forced: nobody signed it`

const stableTag = "example.com/r:stable"

// requesting returns a cluster whose status has observed the requested update.
func requesting(update configv1.Update, history ...configv1.UpdateHistory) *configv1.ClusterVersion {
	cv := wants(clusterAt(history...), update)
	cv.UID, cv.Status.ObservedGeneration = "uid", cv.Generation
	return cv
}

// recordedAs returns the record of a request that was seen after the newest history entry began.
func recordedAs(phase api.RequestPhase, version string, force bool) *api.ReleaseStatusStatus {
	r := &api.ReleaseRequest{ClusterVersionUID: "uid", Image: stableTag, Force: force, Phase: phase, SeenAt: metav1.NewTime(now.Add(-time.Minute))}
	if version != "" {
		r.Digest = string(digestOf(version))
	}
	return &api.ReleaseStatusStatus{Request: r}
}

// answeredBy changes a record to a request that was seen before the newest history entry began.
func answeredBy(s *api.ReleaseStatusStatus) *api.ReleaseStatusStatus {
	s.Request.SeenAt = metav1.NewTime(completed("1.0.0").StartedTime.Add(-time.Second))
	return s
}

// seenAtOnce changes a record to a request that was seen in the second in which the newest history entry began.
func seenAtOnce(s *api.ReleaseStatusStatus) *api.ReleaseStatusStatus {
	s.Request.SeenAt = completed("1.0.0").StartedTime
	return s
}

//threat:tag-moved-release
func TestRecallRestoresTheRequest(t *testing.T) {
	tagged, forced := configv1.Update{Image: stableTag}, configv1.Update{Image: stableTag, Force: true}
	says := func(cv *configv1.ClusterVersion, image string) *configv1.ClusterVersion {
		cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{{
			Type: api.ReleaseAccepted, Status: configv1.ConditionTrue, Message: fmt.Sprintf("Payload loaded version=%q image=%q", "1", image),
		}}
		return cv
	}
	edited := func(cv *configv1.ClusterVersion) *configv1.ClusterVersion {
		cv.Generation++
		return cv
	}
	elsewhere := completed("1.1.0")
	elsewhere.Image = "other.example/r@" + string(digestOf("1.1.0"))
	foreign := recordedAs(api.RequestAccepted, "1.1.0", false)
	foreign.Request.ClusterVersionUID = "before"
	for _, tt := range []struct {
		name  string
		found *api.ReleaseStatusStatus
		cv    *configv1.ClusterVersion
		// want is the phase and the version of the request, "" for a new one. unforced reports that its force was lost.
		want     string
		unforced bool
		// own is the operator's image; default that of 0.1.0.
		own string
	}{
		{"keeps an accepted request accepted", recordedAs(api.RequestAccepted, "1.1.0", false), requesting(tagged, completed("1.1.0")), "Accepted 1.1.0", false, ""},
		{"sees no new request in a channel edit", recordedAs(api.RequestAccepted, "1.1.0", false), edited(requesting(tagged, completed("1.1.0"))), "Accepted 1.1.0", false, ""},
		{"sees no new request in removed force", recordedAs(api.RequestAccepted, "1.1.0", true), requesting(tagged, completed("1.1.0")), "Accepted 1.1.0", false, ""},
		{"ignores a record of another digest", answeredBy(recordedAs(api.RequestAccepted, "6.6.6", true)), requesting(forced, completed("1.1.0"), completed("1.0.0")), "Accepted 1.1.0", false, ""},
		{"ignores a resolution to another digest", answeredBy(recordedAs(api.RequestResolved, "6.6.6", true)), requesting(forced, completed("1.1.0"), completed("1.0.0")), "Accepted 1.1.0", false, ""},
		{"ignores a forged phase", answeredBy(recordedAs(api.RequestSeen, "", true)), requesting(forced, completed("1.1.0"), completed("1.0.0")), "Accepted 1.1.0", false, ""},
		{"ignores a forged phase after an edit of the spec", answeredBy(recordedAs(api.RequestSeen, "", true)), edited(requesting(forced, completed("1.1.0"), completed("1.0.0"))), "Seen ", true, ""},
		{"keeps a request of the second in which another update began", seenAtOnce(recordedAs(api.RequestSeen, "", false)), requesting(tagged, completed("1.1.0"), completed("1.0.0")), "Seen ", false, ""},
		{"ignores a record without a time", &api.ReleaseStatusStatus{Request: &api.ReleaseRequest{
			ClusterVersionUID: "uid", Image: stableTag, Force: true, Phase: api.RequestResolved, Digest: string(digestOf("6.6.6")),
		}}, requesting(forced, completed("1.1.0"), completed("1.0.0")), "Accepted 1.1.0", false, ""},
		{"ignores a condition's text about a recorded request", recordedAs(api.RequestSeen, "", false), says(requesting(tagged, completed("1.1.0"), completed("1.0.0")), stableTag), "Seen ", false, ""},
		{"ignores a condition's text about a new spec", nil, says(edited(requesting(tagged, completed("1.0.0"))), stableTag), "", false, ""},
		{"does not count the install as the answer to an earlier request", answeredBy(recordedAs(api.RequestSeen, "", true)), requesting(forced, completed("1.0.0")), "Seen ", false, ""},
		{"ignores a record of another ClusterVersion", foreign, requesting(tagged, completed("1.0.0")), "Accepted 1.0.0", false, ""},
		{"answers an observed spec from the history without a record", nil, requesting(tagged, completed("1.0.0")), "Accepted 1.0.0", false, ""},
		{"sees a new request in a new spec without a record", nil, edited(requesting(tagged, completed("1.0.0"))), "", false, ""},
		{"drops force after any edit of the spec without a record", nil, edited(requesting(forced, completed("1.0.0"))), "Seen ", true, ""},
		{"keeps the force of a new spec if the record has another request", recordedAs(api.RequestSeen, "", false), edited(requesting(forced, completed("1.0.0"))), "", false, ""},
		{"drops force if the history has another repository and there is no record", nil, requesting(forced, elsewhere), "Seen ", true, ""},
		{"sees a new request during a first install without a record", nil, requesting(tagged, partial("1.0.0")), "", false, ""},
		{"sees a new forced request before a first install", nil, requesting(forced), "", false, ""},
		{"drops force during a first install without a record", nil, requesting(forced, partial("1.0.0")), "Seen ", true, ""},
		{"drops force after any edit of the spec during a first install", nil, edited(requesting(forced, partial("1.0.0"))), "Seen ", true, ""},
		{
			"keeps the force of a new spec if the record has the install", &api.ReleaseStatusStatus{Install: &api.FirstInstall{ClusterVersionUID: "uid"}},
			edited(requesting(forced, partial("1.0.0"))), "", false, "",
		},
		{"answers a request that has replaced the install from the history", nil, requesting(forced, partial("1.1.0"), partial("1.0.0")), "Accepted 1.1.0", false, ""},
		{"resolves a seen request", recordedAs(api.RequestSeen, "", false), requesting(tagged, completed("1.0.0")), "Seen ", false, ""},
		{"resolves a request after the install during which it was seen", recordedAs(api.RequestSeen, "", false), says(requesting(tagged, completed("1.0.0")), imageOf("1.0.0")), "Seen ", false, ""},
		{"keeps the digest of a forced request", recordedAs(api.RequestResolved, "1.1.0", true), requesting(forced, completed("1.0.0")), "Resolved 1.1.0", false, ""},
		{"ignores an acceptance that is not in the history", recordedAs(api.RequestAccepted, "1.1.0", true), requesting(forced, completed("1.0.0")), "Resolved 1.1.0", true, ""},
		{"sees a new request in another image", recordedAs(api.RequestAccepted, "1.1.0", false), edited(requesting(configv1.Update{Image: "example.com/r:other"}, completed("1.1.0"))), "", false, ""},
		{"sees a new request in a request by digest", nil, requesting(configv1.Update{Image: imageOf("1.1.0")}, completed("1.0.0")), "", false, ""},
		{"has no request if none is made", recordedAs(api.RequestAccepted, "1.1.0", false), requesting(configv1.Update{}, completed("1.1.0")), "", false, ""},
		{"does not count a replaced operator's release as the answer", nil, requesting(tagged, partial("1.1.0"), partial("1.0.0")), "", false, imageOf("1.1.0")},
		{
			"keeps a waiting request when the operator is replaced", answeredBy(recordedAs(api.RequestSeen, "", true)),
			requesting(forced, partial("1.1.0"), partial("1.0.0")), "Seen ", false, imageOf("1.1.0"),
		},
		{"does not count an unknown release as the answer", nil, requesting(tagged, partial("1.1.0"), partial("1.0.0")), "", false, "example.com/own:tag"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			own := cmp.Or(tt.own, imageOf("0.1.0"))
			id := Recall(tt.found, tt.cv, Of(tt.cv), request.Choose(tt.cv, own, false), own)
			got := ""
			if id.request != nil {
				got = string(id.request.Phase) + " "
				for _, v := range []string{"1.0.0", "1.1.0", "6.6.6"} {
					if id.request.Digest == string(digestOf(v)) {
						got += v
					}
				}
			}
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.unforced, id.unforced)
		})
	}
}

// TestRequestSeenEarlierStaysPending restarts the operator twice after an edit of the spec that no process has seen.
func TestRequestSeenEarlierStaysPending(t *testing.T) {
	cv := requesting(configv1.Update{Image: stableTag, Force: true}, completed("1.1.0"), completed("1.0.0"))
	var found *api.ReleaseStatusStatus
	for _, observed := range []int64{cv.Generation - 1, cv.Generation} {
		cv.Status.ObservedGeneration = observed
		id := Recall(found, cv, Of(cv), request.Choose(cv, imageOf("0.1.0"), false), imageOf("0.1.0"))
		require.NotNil(t, id.request)
		assert.Equal(t, api.RequestSeen, id.request.Phase)
		assert.True(t, id.unforced)
		found = new(id.Record(api.ReleaseStatusStatus{}))
	}
}

func TestRequestPassesThroughItsStates(t *testing.T) {
	at := now
	cv := requesting(configv1.Update{Image: stableTag, Force: true}, completed("1.0.0"))
	target := request.Choose(cv, imageOf("0.1.0"), false)
	id := Identity{uid: "uid"}.Observe(Of(cv), at)
	assert.Equal(t, api.RequestSeen, id.request.Phase)
	assert.Equal(t, id, id.Observe(Of(cv), at.Add(time.Hour)), "equal content is the same request")
	assert.Empty(t, id.Pin(target).Digest)
	require.NoError(t, id.Covers(target, digestOf("1.1.0")))

	id = id.Resolve(id.Serial(), digestOf("1.1.0"), at)
	assert.Equal(t, api.RequestResolved, id.request.Phase)
	require.NoError(t, id.Covers(target, digestOf("1.1.0")))
	require.ErrorContains(t, id.Covers(target, digestOf("6.6.6")), "force does not cover")
	assert.Equal(t, string(digestOf("1.1.0")), id.Resolve(id.Serial(), digestOf("6.6.6"), at).request.Digest, "force keeps the first digest")
	assert.Empty(t, id.Pin(target).Digest, "the tag may be resolved again until the request is accepted")

	a := acceptedRelease("1.1.0")
	a.Target = target
	a.Verified = release.Verified{Image: release.Image{Pullspec: stableTag, Digest: digestOf("1.1.0")}, Forced: errors.New("no signature")}
	a.ForcedPast = []api.ForcedCheck{{What: api.ForcedVerification, Why: "no signature"}}
	id = id.Accept(a, "own", at)
	assert.Equal(t, api.RequestAccepted, id.request.Phase)
	assert.Equal(t, imageOf("1.1.0"), id.Pin(target).Named())
	assert.False(t, id.Pin(target).Force)
	assert.Equal(t, sets.New(string(digestOf("1.1.0"))), id.ForcedDigests())
	assert.Equal(t, id, id.Resolve(id.Serial(), digestOf("6.6.6"), at), "an accepted tag is never resolved again")
	calmed := Of(requesting(configv1.Update{Image: stableTag}))
	assert.Equal(t, id, id.Observe(calmed, at), "nothing is left to force")

	_, ok := id.VerifiedBefore(cv, id.Pin(target))
	assert.False(t, ok, "the record counts only after the history has the digest")
	cv.Status.History = append([]configv1.UpdateHistory{partial("1.1.0")}, cv.Status.History...)
	verified, ok := id.VerifiedBefore(cv, id.Pin(target))
	assert.True(t, ok)
	require.EqualError(t, verified.Forced, "no signature")
	same, ok := id.Evidence(verified.Image)
	assert.True(t, ok, "the record of an image counts wherever it is in the history")
	assert.Equal(t, verified, same)
	other := id
	other.uid = "another"
	_, ok = other.VerifiedBefore(cv, id.Pin(target))
	assert.False(t, ok, "the record is of another ClusterVersion")

	id = id.Observe(nil, at)
	assert.Nil(t, id.request)
	again := id.Observe(Of(cv), at)
	assert.Equal(t, api.RequestSeen, again.request.Phase, "clearing and repeating the request makes a new one")
	assert.Greater(t, again.serial, id.serial)
}

func TestOwnTagIsResolvedOnce(t *testing.T) {
	a := acceptedRelease("1.0.0")
	a.Target = request.Target{Image: stableTag, Own: true}
	id := Identity{uid: "uid"}.Accept(a, stableTag, now)
	assert.Equal(t, imageOf("1.0.0"), id.OwnImage(stableTag))
	assert.Equal(t, "example.com/r:newer", id.OwnImage("example.com/r:newer"))
	found := id.Record(api.ReleaseStatusStatus{})
	cv := clusterAt(partial("1.0.0"))
	cv.UID = "uid"
	assert.Equal(t, id.own, RecallOwn(&found, cv))
	cv.Status.History[0].Image = imageOf("1.1.0")
	assert.Nil(t, RecallOwn(&found, cv), "the digest is not in the history")
	cv.UID = types.UID("another")
	assert.Nil(t, RecallOwn(&found, cv))
}

// TestForcedListIsBounded shows one line per digest, newest first, and counts the dropped lines.
func TestForcedListIsBounded(t *testing.T) {
	id := Identity{}
	for i := range api.ReleaseStatusForced + 3 {
		for range 2 {
			id = id.withForced(fmt.Sprintf("sha256:%d", i), "1", []api.ForcedCheck{{What: "Verification", Why: string(make([]byte, 9999))}}, metav1.NewTime(now))
		}
	}
	assert.Len(t, id.forced, api.ReleaseStatusForced)
	assert.Equal(t, 3, id.older)
	assert.Equal(t, fmt.Sprintf("sha256:%d", api.ReleaseStatusForced+2), id.forced[0].Digest)
	assert.LessOrEqual(t, len(id.forced[0].Reason), api.ReleaseStatusText)
}

func TestMigrateReadsEarlierRecords(t *testing.T) {
	forced, older := completed("1.1.0"), completed("1.0.0")
	for _, e := range []*configv1.UpdateHistory{&forced, &older} {
		e.Verified, e.AcceptedRisks = false, forcedPast
	}
	id := Identity{uid: "uid"}.Migrate([]configv1.UpdateHistory{forced, older})
	assert.True(t, id.hasForced(string(digestOf("1.1.0"))))
	assert.False(t, id.hasForced(string(digestOf("1.0.0"))), "only the newest entry counts as accepted")
	assert.Len(t, id.forced, 2)
	found := id.Record(api.ReleaseStatusStatus{})
	assert.True(t, HasRecords(&found), "the history is never migrated again")
	assert.False(t, HasRecords(&api.ReleaseStatusStatus{Releases: []api.AcceptedRelease{{Image: imageOf("1.1.0"), Forced: "x"}}}))
	for _, risks := range []string{
		"", `Precondition "ClusterVersionRecommendedUpdate" failed because of "NoChannel": Configured channel is unset`,
		"The target release x is exposed to the risks [A] which were all explicitly accepted by the cluster administrator.",
		`Precondition "A" failed because of "B": ` + forcedPast,
	} {
		assert.False(t, forcedByText(configv1.UpdateHistory{AcceptedRisks: risks}), risks)
	}
	assert.False(t, forcedByText(configv1.UpdateHistory{AcceptedRisks: forcedPast, Verified: true}))
}
