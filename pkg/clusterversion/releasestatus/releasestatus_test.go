package releasestatus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/identity"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

func TestAcceptedReleasesAreRecorded(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	accepted := func(version string, forced error, evidence ...release.Evidence) accept.Acceptance {
		img := release.Image{Pullspec: "example.com/r", Digest: cluster.Digest(version)}
		return accept.Acceptance{
			Verified: release.Verified{Image: img, Evidence: evidence, Forced: forced},
			Update:   payload.Update{Payload: &payload.Payload{Release: release.Release{Version: version}}},
		}
	}
	signed := func(key, store string) release.Evidence {
		return release.Evidence{Root: "team", Method: "openpgp", KeyID: key, Store: store, SignedAt: now}
	}
	next := func(old identity.Identity, a accept.Acceptance, later time.Duration) identity.Identity {
		return old.Accept(a.Identified(), "own", now.Add(later))
	}
	first := next(identity.Identity{}, accepted("1.0.0", nil, signed("A", "https://store")), 0)
	assert.Equal(t, "https://store", first.Record(api.ReleaseStatusStatus{}).Releases[0].Evidence[0].Store)
	r := New(testingclock.NewFakePassiveClock(now), nil, "version", "ns")
	recorded := r.next(api.ReleaseStatusStatus{}, Content{Identity: first})
	assert.Equal(t, api.InventoryReference{Namespace: "ns", Selector: api.InventoryLabel + "=version"}, recorded.Inventory)

	for _, test := range []struct {
		name string
		next accept.Acceptance
		same bool
	}{
		{"keeps the evidence if the same signature is found in another store", accepted("1.0.0", nil, signed("A", "ConfigMap")), true},
		{"keeps the evidence if the operator starts from the release", accepted("1.0.0", nil), true},
		{"records another signer", accepted("1.0.0", nil, signed("B", "https://store")), false},
		{"records that the release was forced", accepted("1.0.0", errors.New("no signature")), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			second := next(first, test.next, time.Hour)
			assert.Len(t, second.Record(api.ReleaseStatusStatus{}).Releases, 1)
			assert.Equal(t, first.Record(api.ReleaseStatusStatus{}).Releases[0].AcceptedAt, second.Record(api.ReleaseStatusStatus{}).Releases[0].AcceptedAt)
			assert.Equal(t, test.same, assert.ObjectsAreEqual(first, second))
		})
	}

	t.Run("keeps the conditions", func(t *testing.T) {
		old := api.ReleaseStatusStatus{Conditions: []metav1.Condition{{Type: api.ConditionInventorySaved, Status: metav1.ConditionFalse}}}
		c := Content{Identity: next(first, accepted("1.1.0", nil), time.Hour), NamesService: true}
		assert.Equal(t, old.Conditions, r.next(old, c).Conditions)
	})
	t.Run("keeps the digest of the updates until there is another answer", func(t *testing.T) {
		for next, want := range map[string]string{"": "old", "new": "new"} {
			assert.Equal(t, want, r.next(api.ReleaseStatusStatus{UpdatesDigest: "old"}, Content{Identity: first, UpdatesDigest: next}).UpdatesDigest)
		}
	})
	t.Run("keeps a bounded number of releases", func(t *testing.T) {
		status := first
		for i := range api.ReleaseStatusReleases + 3 {
			status = next(status, accepted("1.1."+string(rune('a'+i)), nil), time.Hour)
		}
		assert.Len(t, status.Record(api.ReleaseStatusStatus{}).Releases, api.ReleaseStatusReleases)
		assert.Equal(t, "1.1.m", status.Record(api.ReleaseStatusStatus{}).Releases[0].Version)
	})
}

// olderDefinition stores a ReleaseStatus as a cluster whose definition lacks fields install.replaces and updatesDigest until it is current.
type olderDefinition struct {
	Object
	current bool
	writes  int
}

func (d *olderDefinition) Put(_ context.Context, object *api.ReleaseStatus) (*api.ReleaseStatus, error) {
	d.writes++
	stored := *object
	if !d.current {
		stored.Status.UpdatesDigest = ""
	}
	if install := stored.Status.Install; install != nil && !d.current {
		stored.Status.Install = new(*install)
		stored.Status.Install.Replaces = nil
	}
	return &stored, nil
}

// TestOlderDefinitionRecordsTheInstall has a request that replaces a failing install in a cluster with an older definition, which the
// replacement updates.
func TestOlderDefinitionRecordsTheInstall(t *testing.T) {
	older := &olderDefinition{}
	r := New(testingclock.NewFakePassiveClock(time.Now()), older, "version", "ns")
	r.Read(Found{Object: &api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{Name: "version"}}})
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
	id := identity.Identity{}.ObserveInstall(cv, identity.Inherited{Image: "example.com/r@" + string(cluster.Digest("1.0.0"))})
	cv.Status.History = []configv1.UpdateHistory{{State: configv1.PartialUpdate, Image: "example.com/r@" + string(cluster.Digest("1.0.0"))}}
	cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{{Type: api.Failing, Status: configv1.ConditionTrue, Reason: "Broken"}}
	cv.Spec.DesiredUpdate = &configv1.Update{Image: "example.com/r@" + string(cluster.Digest("1.0.1"))}
	c := Content{Identity: id.ObserveInstall(cv, identity.Inherited{}), UpdatesDigest: "digest", Needed: true}
	require.NotNil(t, c.Identity.Record(api.ReleaseStatusStatus{}).Install.Replaces)
	for range 3 {
		_, err := r.Keep(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, r.Unrecorded())
		assert.True(t, r.HasInstall(c.Identity), "the request may replace the install")
	}
	assert.Equal(t, 1, older.writes, "what the definition drops is not written again")

	older.current = true
	replacement := release.Image{Pullspec: "example.com/r", Digest: cluster.Digest("1.0.1")}
	c.Identity = c.Identity.Accept(identity.Accepted{Verified: release.Verified{Image: replacement}, Image: replacement.ByDigest()}, "own", time.Now())
	_, err := r.Keep(t.Context(), c)
	require.NoError(t, err)
	assert.NotNil(t, r.Status().Install.Replaces, "the next write has the field again")
	assert.Equal(t, "digest", r.Status().UpdatesDigest)
	assert.Equal(t, 2, older.writes)
}

// TestUnwrittenReplacementIsNotRecorded decides to replace a failing install while the API server fails.
func TestUnwrittenReplacementIsNotRecorded(t *testing.T) {
	object, clk := &heldRecord{}, testingclock.NewFakePassiveClock(now)
	r := New(clk, object, "version", "ns")
	cv := cluster.Wants(cluster.InstallingAt(true, cluster.Partial("1.0.0")), configv1.Update{Image: cluster.Image("1.0.1")})
	install := &api.FirstInstall{ClusterVersionUID: cv.UID}
	r.Read(Found{Object: &api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{Name: "version"}, Status: api.ReleaseStatusStatus{Install: install}}})
	id := identity.Recall(r.Status(), cv, identity.Of(cv), request.Target{}, "").ObserveInstall(cv, identity.Inherited{})
	object.failure = errors.New("timeout")
	_, err := r.Keep(t.Context(), Content{Identity: id, Needed: true})
	require.ErrorIs(t, err, object.failure)
	assert.False(t, r.HasInstall(id), "a new process would let the request wait")
	object.failure = nil
	clk.SetTime(now.Add(retry))
	_, err = r.Keep(t.Context(), Content{Identity: id, Needed: true})
	require.NoError(t, err)
	assert.True(t, r.HasInstall(id))
}

// TestChangesOfOtherClientsAreRepaired feeds one record with the versions that a watch reports.
func TestChangesOfOtherClientsAreRepaired(t *testing.T) {
	at := func(version, phase string) *api.ReleaseStatus {
		s := &api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{Name: "version", UID: "uid", ResourceVersion: version}}
		s.Status.Request = &api.ReleaseRequest{Phase: api.RequestPhase(phase)}
		return s
	}
	again := at("3", "Seen")
	again.UID = "another"
	clk := testingclock.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	r := New(clk, nil, "version", "ns")
	assert.False(t, r.Changed(at("1", "Seen")), "changes count only after the earlier record was read")
	r.Read(Found{Object: at("10", "Accepted")})
	for _, step := range []struct {
		name string
		live *api.ReleaseStatus
		want bool
	}{
		{"ignores a version before the known one", at("9", "Seen"), false},
		{"ignores the known version", at("10", "Accepted"), false},
		{"adopts a version with the same status", at("11", "Accepted"), false},
		{"repairs another status", at("12", "Seen"), true},
		{"repairs a status from a backup of etcd", at("8", "Accepted"), true},
		{"repairs a deletion", nil, true},
		{"ignores a repeated deletion", nil, false},
		{"repairs an object of another client", again, true},
	} {
		assert.Equal(t, step.want, r.Changed(step.live), step.name)
	}
}

// TestRepairsAreFrequentAndLimited has a client that changes the object four times a second. The watch reports each change before or after
// the response to our write.
func TestRepairsAreFrequentAndLimited(t *testing.T) {
	for _, early := range []bool{false, true} {
		clk, o := testingclock.NewFakePassiveClock(now), &overtakenObject{}
		r := New(clk, o, "version", "ns")
		r.Read(Found{})
		content := Content{Identity: identity.Identity{}.Observe(&api.ReleaseRequest{Image: "example.com/r:t", Phase: api.RequestSeen}, now)}
		version := 10
		change := func(stored *api.ReleaseStatus) {
			other := *stored
			version++
			other.ResourceVersion, other.Status.Request = strconv.Itoa(version), nil
			r.Changed(&other)
		}
		o.other = func(stored *api.ReleaseStatus) {
			version++
			stored.ResourceVersion = strconv.Itoa(version)
			if early {
				change(stored)
			}
		}
		const duration = 20 * time.Second
		for ; clk.Since(now) < duration; clk.SetTime(clk.Now().Add(repairInterval / 8)) {
			_, _ = r.Keep(t.Context(), content) // it fails while a repair has to wait
			change(o.live)
		}
		assert.Equal(t, int(duration/repairInterval), o.puts)
	}
}

// TestRecordIsSafeForATerminal records a release whose texts contain control characters.
//
//threat:control-characters-rewrite
func TestRecordIsSafeForATerminal(t *testing.T) {
	const evil = "a\x1b[2J\r\u202eb"
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	img := release.Image{Pullspec: "example.com/r", Digest: cluster.Digest("1.0.0")}
	a := accept.Acceptance{
		Verified:   release.Verified{Image: img, Forced: errors.New(evil), Evidence: []release.Evidence{{Identity: evil, Issuer: evil, Store: evil}}},
		ForcedPast: []api.ForcedCheck{{What: api.ForcedVerification, Why: evil}},
		Update: payload.Update{Payload: &payload.Payload{Release: release.Release{Version: "1.0.0"}, Excluded: []payload.Exclusion{{
			Manifest: &manifest.Manifest{File: evil, Object: &unstructured.Unstructured{Object: map[string]any{"kind": "A", "metadata": map[string]any{"name": evil}}}}, Reason: evil,
		}}}},
	}
	id := identity.Identity{}.Accept(a.Identified(), "own", now)
	r := New(testingclock.NewFakePassiveClock(now), nil, "version", "ns")
	recorded := r.next(api.ReleaseStatusStatus{Conditions: []metav1.Condition{{Type: "Other", Message: evil}}}, Content{Identity: id, Payload: a.Payload})
	text := fmt.Sprintf("%+v", recorded)
	assert.Contains(t, text, "a?[2J??b")
	assert.Equal(t, printable.Lines(text), text)
	assert.Equal(t, evil, id.Record(api.ReleaseStatusStatus{}).Releases[0].Forced, "the identity does not change")
	assert.Equal(t, recorded, r.next(recorded, Content{Identity: id, Payload: a.Payload}), "the record is written once")
}

// overtakenObject lets another client write the ReleaseStatus before the response to our write.
type overtakenObject struct {
	Object
	live  *api.ReleaseStatus
	other func(stored *api.ReleaseStatus)
	puts  int
}

func (o *overtakenObject) Put(_ context.Context, s *api.ReleaseStatus) (*api.ReleaseStatus, error) {
	o.puts++
	s.UID, s.ResourceVersion = "u", strconv.Itoa(10*o.puts)
	o.live = s
	o.other(s)
	return s, nil
}

func TestChangeDuringAWriteIsRepaired(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clk, o := testingclock.NewFakePassiveClock(now), &overtakenObject{}
	r := New(clk, o, "version", "ns")
	r.Read(Found{})
	content := Content{Identity: identity.Identity{}.Observe(&api.ReleaseRequest{Image: "example.com/r:t", Phase: api.RequestSeen}, now)}
	o.other = func(stored *api.ReleaseStatus) {
		other := *stored
		other.ResourceVersion, other.Status.Request = "11", nil
		o.live = &other
		assert.True(t, r.Changed(&other), "the watch reports it before the response arrives")
	}
	_, err := r.Keep(t.Context(), content)
	require.ErrorIs(t, err, ErrChanged)
	require.Nil(t, o.live.Status.Request)

	o.other = func(*api.ReleaseStatus) {}
	clk.SetTime(now.Add(time.Hour))
	_, err = r.Keep(t.Context(), content)
	require.NoError(t, err)
	assert.Equal(t, 2, o.puts)
	assert.NotNil(t, o.live.Status.Request)

	content.Identity = identity.Identity{}
	o.other = func(*api.ReleaseStatus) { assert.True(t, r.Changed(nil), "no later event repeats the deletion") }
	_, err = r.Keep(t.Context(), content)
	require.ErrorIs(t, err, ErrChanged)
	assert.Nil(t, r.Status())
}

// TestRevertDuringAWriteIsRepaired has another client restore the earlier status before the response to a write. A watch that lists the object
// again reports only that status.
func TestRevertDuringAWriteIsRepaired(t *testing.T) {
	clk, o := testingclock.NewFakePassiveClock(now), &overtakenObject{}
	r := New(clk, o, "version", "ns")
	before := &api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{Name: "version", UID: "u", ResourceVersion: "1"}}
	r.Read(Found{Object: before})
	o.other = func(*api.ReleaseStatus) {
		reverted := *before
		reverted.ResourceVersion = "11"
		require.False(t, r.Changed(&reverted), "its status is known")
	}
	content := Content{Identity: requestingTag(), Needed: true}
	kept, err := r.Keep(t.Context(), content)
	require.ErrorIs(t, err, ErrChanged, "the record is not written")
	assert.Equal(t, repairInterval, kept.Again, "no event announces the repair")

	clk.SetTime(now.Add(repairInterval / 2))
	kept, err = r.Keep(t.Context(), content)
	require.ErrorIs(t, err, ErrChanged)
	assert.Equal(t, repairInterval/2, kept.Again)
	assert.Equal(t, 1, o.puts)

	o.other = func(*api.ReleaseStatus) {}
	clk.SetTime(now.Add(repairInterval))
	_, err = r.Keep(t.Context(), content)
	require.NoError(t, err)
	assert.Equal(t, 2, o.puts)
}

// TestReadKeepsALaterEvent has another client change the object between the read of the earlier record and its use.
func TestReadKeepsALaterEvent(t *testing.T) {
	at := func(version string) *api.ReleaseStatus {
		return &api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{Name: "version", UID: "u", ResourceVersion: version}}
	}
	early, read, late := at("1"), at("2"), at("3")
	for _, tt := range []struct {
		name                string
		read, before, after *api.ReleaseStatus
		events              int // after the read
		want                *api.ReleaseStatus
	}{
		{"keeps a later version", read, nil, late, 1, late},
		{"ignores an earlier version", read, nil, early, 1, read},
		{"ignores an event before the read", read, early, nil, 0, read},
		{"keeps a later object", nil, nil, late, 1, late},
		{"keeps a later deletion", read, early, nil, 1, nil},
		{"reads that the object is gone", nil, early, nil, 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := New(testingclock.NewFakePassiveClock(now), &heldRecord{status: tt.read}, "version", "ns")
			if tt.before != nil {
				r.Changed(tt.before)
			}
			found, err := r.Get(t.Context())
			require.NoError(t, err)
			for range tt.events {
				r.Changed(tt.after)
			}
			r.Read(found)
			assert.Same(t, tt.want, r.known().found.Object)
		})
	}
}

// TestFailureIsReportedUntilTheNextWrite has another client change the object after a failed write.
func TestFailureIsReportedUntilTheNextWrite(t *testing.T) {
	clk, o := testingclock.NewFakePassiveClock(now), &heldRecord{failure: errors.New("timeout")}
	r := New(clk, o, "version", "ns")
	r.Read(Found{})
	content := Content{Identity: requestingTag(), Needed: true}
	_, err := r.Keep(t.Context(), content)
	require.ErrorIs(t, err, o.failure)
	require.True(t, r.Changed(&api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{Name: "version", UID: "uid", ResourceVersion: "1"}}))

	for _, later := range []time.Duration{repairInterval / 2, repairInterval} {
		clk.SetTime(now.Add(later))
		kept, err := r.Keep(t.Context(), content)
		require.ErrorIs(t, err, o.failure)
		assert.Equal(t, retry-later, kept.Again)
	}
	assert.Equal(t, 1, o.puts)
}

// requestingTag returns an identity that requests a tag.
func requestingTag() identity.Identity {
	return identity.Identity{}.Observe(&api.ReleaseRequest{Image: "example.com/r:t", Phase: api.RequestSeen}, now)
}
