package clusterversion

import (
	"fmt"
	"slices"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRecordTarget(t *testing.T) {
	at := metav1.NewTime(now)
	forced := acceptedRelease("1.1.0")
	forced.Verified.Evidence, forced.Risks = nil, "risk"
	t.Run("begins", func(t *testing.T) {
		history := recordTarget(nil, forced, at)
		assert.Equal(t, []configv1.UpdateHistory{{State: "Partial", StartedTime: at, Version: "1.1.0", Image: imageOf("1.1.0"), AcceptedRisks: "risk"}}, history)
	})
	t.Run("ends what did not complete", func(t *testing.T) {
		history := recordTarget([]configv1.UpdateHistory{partial("1.0.1"), completed("1.0.0")}, forced, at)
		assert.Equal(t, []string{"1.1.0", "1.0.1", "1.0.0"}, versionsOf(history))
		assert.Equal(t, &at, history[1].CompletionTime)
		assert.Equal(t, configv1.PartialUpdate, history[1].State, "it stays Partial for ever")
		assert.Equal(t, now.Add(-50*time.Minute), history[2].CompletionTime.Time)
	})
	t.Run("keeps the entry of the same release", func(t *testing.T) {
		history := recordTarget([]configv1.UpdateHistory{completed("1.1.0")}, forced, at)
		assert.Len(t, history, 1)
		assert.Equal(t, configv1.CompletedUpdate, history[0].State)
		assert.True(t, history[0].Verified, "verified is only ever set")
		assert.Equal(t, "risk", history[0].AcceptedRisks)
		for _, later := range []string{"", "less"} {
			again := acceptedRelease("1.1.0")
			again.Risks = later
			history = recordTarget(history, again, at)
			assert.Equal(t, "risk", history[0].AcceptedRisks, "what was accepted stays told")
		}
	})
	t.Run("notes a signature that came later", func(t *testing.T) {
		history := recordTarget(recordTarget(nil, forced, at), acceptedRelease("1.1.0"), at)
		assert.True(t, history[0].Verified)
	})
	t.Run("begins anew on the way back", func(t *testing.T) {
		history := recordTarget([]configv1.UpdateHistory{partial("1.1.0"), completed("1.0.0")}, acceptedRelease("1.0.0"), at)
		assert.Equal(t, []string{"1.0.0", "1.1.0", "1.0.0"}, versionsOf(history))
	})
}

func versionsOf(history []configv1.UpdateHistory) []string {
	var versions []string
	for _, e := range history {
		versions = append(versions, e.Version)
	}
	return versions
}

// TestHistoryOfClocksThatDiffer: a leader whose clock is ahead has written the entry that another one ends.
func TestHistoryOfClocksThatDiffer(t *testing.T) {
	at, ahead := metav1.NewTime(now), metav1.NewTime(now.Add(10*time.Minute))
	begun := partial("1.1.0")
	begun.StartedTime = ahead
	history := []configv1.UpdateHistory{begun}
	recordCompleted(history, at)
	assert.Equal(t, &ahead, history[0].CompletionTime, "nothing is completed before it begins")

	history = recordTarget(history, acceptedRelease("1.2.0"), at)
	assert.Equal(t, ahead, history[0].StartedTime, "nothing begins before what it follows is completed")

	history = recordTarget([]configv1.UpdateHistory{begun}, acceptedRelease("1.2.0"), at)
	assert.Equal(t, &ahead, history[1].CompletionTime)
	assert.Equal(t, ahead, history[0].StartedTime)
}

func TestSameEntry(t *testing.T) {
	for _, tt := range []struct {
		entryVersion, entryImage, version, image string
		want                                     bool
	}{
		{"1", "a", "1", "a", true},
		{"", "a", "1", "a", true},
		{"1", "a", "", "a", true},
		{"1", "a", "2", "a", false},
		{"1", "", "1", "a", true},
		{"1", "a", "1", "", true},
		{"1", "a", "1", "b", false},
		{"2", "", "1", "a", false},
		{"", "", "", "", true},
	} {
		got := sameEntry(configv1.UpdateHistory{Version: tt.entryVersion, Image: tt.entryImage}, tt.version, tt.image)
		assert.Equal(t, tt.want, got, "%+v", tt)
	}
}

func TestRecordCompleted(t *testing.T) {
	recordCompleted(nil, metav1.NewTime(now)) // nothing to complete is nothing to fail on
	history := []configv1.UpdateHistory{partial("1.1.0"), partial("1.0.0")}
	recordCompleted(history, metav1.NewTime(now))
	recordCompleted(history, metav1.NewTime(now.Add(time.Hour)))
	assert.Equal(t, now, history[0].CompletionTime.Time)
	assert.Equal(t, configv1.PartialUpdate, history[1].State)
}

// longHistory has n Completed patch releases of 4.1, newest first.
func longHistory(n int) []configv1.UpdateHistory {
	var history []configv1.UpdateHistory
	for i := range n {
		history = append(history, completed(fmt.Sprintf("4.1.%d", n-i)))
	}
	return history
}

func TestPrune(t *testing.T) {
	assert.Len(t, prune(longHistory(100)), 100, "a hundred are kept")

	// With nothing but patch releases of one minor version, rank is -1.01 × index but for the newest five and the oldest
	// (+1000 each). The lowest is index 99: -99.99.
	assert.Equal(t, without(longHistory(101), 99), prune(longHistory(101)))

	// Index 99 is the first of its minor version: -99.99 + 30 = -69.99. So index 98 is the lowest: -98.98.
	h := longHistory(101)
	h[100].Version = "4.0.9"
	assert.Equal(t, without(h, 98), prune(h), "the first of a minor version (99) outlives its successor")

	// A Partial between two patch releases at index 80: -80.80 - 20 = -100.80, below index 99's -99.99.
	h = longHistory(101)
	h[80].State = configv1.PartialUpdate
	assert.Equal(t, without(h, 80), prune(h))
	// At index 79 it is -79.79 - 20 = -99.79, above -99.99.
	h = longHistory(101)
	h[79].State = configv1.PartialUpdate
	assert.Equal(t, without(h, 99), prune(h))

	// A Partial between two minor versions at index 99, between 4.0.9 and 4.1.2: -99.99 + 20 = -79.99; 98 is the first of
	// 4.1 (-98.98 + 30 = -68.98); so 97 goes with -97.97.
	h = longHistory(101)
	h[99].State, h[100].Version = configv1.PartialUpdate, "4.0.9"
	assert.Equal(t, without(h, 97), prune(h))

	// Partials that completed nowhere after index 60: the last completed, at 60, stays. Those at 5 to 59 have no newer
	// completed neighbour and no rank of their own; 99 still is the lowest.
	h = longHistory(101)
	for i := range 60 {
		h[i].State = configv1.PartialUpdate
	}
	assert.Equal(t, without(h, 99), prune(h))

	// Ranks look at the major version, too: 5.1.x and 4.1.x are different minor versions.
	h = longHistory(101)
	for i := range 99 {
		h[i].Version = fmt.Sprintf("5.1.%d", 99-i)
	}
	assert.Equal(t, without(h, 97), prune(h), "98 is the first of 5.1, 99 the last of 4.1")
}

func TestPruneKeepsTheLastCompleted(t *testing.T) {
	// All Partial but the one at index 90, with no completed neighbour on either side: -1.01 × index, and 90 has +1000.
	h := longHistory(101)
	for i := range h {
		h[i].State = configv1.PartialUpdate
	}
	h[99].State = configv1.CompletedUpdate
	assert.Equal(t, without(h, 98), prune(h))
}

// without is a copy that lacks one entry.
func without(history []configv1.UpdateHistory, i int) []configv1.UpdateHistory {
	return slices.Delete(slices.Clone(history), i, i+1)
}

func TestHistoryStaysBounded(t *testing.T) {
	var history []configv1.UpdateHistory
	for i := range 250 {
		history = recordTarget(history, acceptedRelease(fmt.Sprintf("4.%d.%d", i/40, i%40)), metav1.NewTime(now))
		recordCompleted(history, metav1.NewTime(now))
	}
	assert.Len(t, history, 100)
	assert.Equal(t, "4.0.0", history[99].Version, "where the cluster began")
	assert.Equal(t, "4.6.9", history[0].Version)
	for _, edge := range []string{"4.0.39", "4.1.0", "4.1.39", "4.5.0", "4.5.39", "4.6.0"} {
		assert.Contains(t, versionsOf(history), edge)
	}
}

// TestPruneAtOnce begins with the history of a cluster whose former operator did not prune, or whose status somebody has
// written to.
func TestPruneAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name string
		n    int
		edit func(i int, e *configv1.UpdateHistory)
		keep []int // counted from the oldest, which is 1
		drop []int
	}{
		{name: "drops one of 101", n: 101, keep: []int{101, 97, 1}, drop: []int{2}},
		{name: "drops 400 of 500", n: 500, keep: []int{500, 402, 1}, drop: []int{2, 401}},
		{
			name: "keeps the edges of minor versions", n: 500,
			edit: func(i int, e *configv1.UpdateHistory) { e.Version = fmt.Sprintf("4.%d.%d", i/50, i%50) },
			// Entries are counted from 1, so 4.1 begins with entry 50 and 4.0 ends with 49.
			keep: []int{1, 49, 50, 99, 100, 149, 150, 449, 450, 500}, drop: []int{2, 48, 51},
		},
		{
			name: "keeps the edges of major versions", n: 500,
			edit: func(i int, e *configv1.UpdateHistory) { e.Version = fmt.Sprintf("%d.1.%d", 4+i/250, i%250) },
			keep: []int{1, 249, 250, 500}, drop: []int{2, 248, 251},
		},
		{
			name: "keeps the last that completed, however long ago", n: 500,
			edit: func(i int, e *configv1.UpdateHistory) {
				if i != 20 {
					e.State = configv1.PartialUpdate
				}
			},
			keep: []int{500, 20, 1}, drop: []int{19, 21},
		},
		{
			name: "drops those first that did not complete on the way to another patch", n: 190,
			edit: func(i int, e *configv1.UpdateHistory) {
				if i%2 == 0 && i != 190 {
					e.State = configv1.PartialUpdate
				}
			},
			keep: []int{190, 189, 188, 109, 73, 1}, drop: []int{2, 71, 108},
		},
		{name: "copes with versions that are none", n: 300, edit: func(_ int, e *configv1.UpdateHistory) { e.Version = "x" }, keep: []int{300, 1}},
		{name: "and with none at all", n: 300, edit: func(_ int, e *configv1.UpdateHistory) { *e = configv1.UpdateHistory{} }},
		{name: "takes no time for what etcd can hold at most", n: 6000, keep: []int{6000, 1}, drop: []int{2, 3000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			history := longHistory(tt.n)
			for i := range history {
				if tt.edit != nil {
					tt.edit(tt.n-i, &history[i])
				}
			}
			before := slices.Clone(history)
			started := func(number int) configv1.UpdateHistory { return before[tt.n-number] }
			got := prune(history)
			assert.Len(t, got, 100)
			assert.Equal(t, before[:5], got[:5], "the newest five")
			for _, number := range tt.keep {
				assert.True(t, slices.Contains(got, started(number)), "entry %d", number)
			}
			for _, number := range tt.drop {
				assert.False(t, slices.Contains(got, started(number)), "entry %d", number)
			}
		})
	}
}

func TestLongHistoryIsPrunedWithoutANewRelease(t *testing.T) {
	history := longHistory(300)
	a := acceptedRelease(history[0].Version)
	assert.Len(t, recordTarget(history, a, metav1.NewTime(now)), 100)
}

// TestAcceptedRisksAreToldOnce: what was accepted by name stands in the history as it was when the update began.
func TestAcceptedRisksAreToldOnce(t *testing.T) {
	a := acceptedRelease("1.1.0")
	cv := clusterAt(completed("1.0.0"))
	cv.Spec.DesiredUpdate = &configv1.Update{Image: a.Image(), AcceptRisks: []configv1.AcceptRisk{{Name: "Fire"}}}
	cv.Status.ConditionalUpdates = []configv1.ConditionalUpdate{{
		Release: configv1.Release{Version: "1.1.0", Image: a.Image()},
		Risks:   []configv1.ConditionalUpdateRisk{{Name: "Fire", Conditions: []metav1.Condition{{Type: "Applies", Status: metav1.ConditionTrue}}}},
	}}
	in := observed{accepted: &a, updates: knownUpdates{accepted: acceptedRisks(cv.Spec.DesiredUpdate)}, now: now}
	want := "The target release " + a.Image() + " is exposed to the risks [Fire] which were all explicitly accepted by the cluster administrator."
	cv.Status, _ = nextStatus(cv, in)
	assert.Equal(t, want, cv.Status.History[0].AcceptedRisks)
	cv.Status, _ = nextStatus(cv, in)
	assert.Equal(t, want, cv.Status.History[0].AcceptedRisks)

	assert.NotEmpty(t, cv.Status.ConditionalUpdates)
	own := a
	own.Target.Own = true
	updates := cv.Status.ConditionalUpdates
	cv = clusterAt(completed("1.0.0"))
	cv.Status.ConditionalUpdates = updates
	in.accepted = &own
	after, _ := nextStatus(cv, in)
	assert.Empty(t, after.History[0].AcceptedRisks, "nobody accepts anything for the operator's own release")
}
