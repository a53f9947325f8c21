package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/release"
)

func TestRecordBeginsAndEndsEntries(t *testing.T) {
	at := metav1.NewTime(now)
	forced := acceptedRelease("1.1.0")
	forced.Verified, forced.AcceptedRisks = false, "risk"
	t.Run("begins an entry", func(t *testing.T) {
		history := Record(nil, forced, nil, at)
		assert.Equal(t, []configv1.UpdateHistory{{State: "Partial", StartedTime: at, Version: "1.1.0", Image: imageOf("1.1.0"), AcceptedRisks: "risk"}}, history)
	})
	t.Run("ends an incomplete entry", func(t *testing.T) {
		history := Record([]configv1.UpdateHistory{partial("1.0.1"), completed("1.0.0")}, forced, nil, at)
		assert.Equal(t, []string{"1.1.0", "1.0.1", "1.0.0"}, versionsOf(history))
		assert.Equal(t, &at, history[1].CompletionTime)
		assert.Equal(t, configv1.PartialUpdate, history[1].State, "the entry stays Partial")
		assert.Equal(t, now.Add(-50*time.Minute), history[2].CompletionTime.Time)
	})
	t.Run("keeps the entry of the same release", func(t *testing.T) {
		history := Record([]configv1.UpdateHistory{completed("1.1.0")}, forced, nil, at)
		assert.Len(t, history, 1)
		assert.Equal(t, configv1.CompletedUpdate, history[0].State)
		assert.True(t, history[0].Verified, "verified is never cleared")
		assert.Equal(t, "risk", history[0].AcceptedRisks)
		for _, later := range []string{"", "less"} {
			again := acceptedRelease("1.1.0")
			again.AcceptedRisks = later
			history = Record(history, again, nil, at)
			assert.Equal(t, "risk", history[0].AcceptedRisks, "accepted risks stay recorded")
		}
	})
	t.Run("records a later signature", func(t *testing.T) {
		history := Record(Record(nil, forced, nil, at), acceptedRelease("1.1.0"), nil, at)
		assert.True(t, history[0].Verified)
	})
	t.Run("starts a new entry on a rollback", func(t *testing.T) {
		history := Record([]configv1.UpdateHistory{partial("1.1.0"), completed("1.0.0")}, acceptedRelease("1.0.0"), nil, at)
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

// TestEntriesNeverEndBeforeTheyBegin ends an entry that a leader with a faster clock wrote.
func TestEntriesNeverEndBeforeTheyBegin(t *testing.T) {
	at, ahead := metav1.NewTime(now), metav1.NewTime(now.Add(10*time.Minute))
	begun := partial("1.1.0")
	begun.StartedTime = ahead
	history := []configv1.UpdateHistory{begun}
	Complete(history, at)
	assert.Equal(t, &ahead, history[0].CompletionTime, "no entry completes before it begins")

	history = Record(history, acceptedRelease("1.2.0"), nil, at)
	assert.Equal(t, ahead, history[0].StartedTime, "no entry begins before its predecessor ends")

	history = Record([]configv1.UpdateHistory{begun}, acceptedRelease("1.2.0"), nil, at)
	assert.Equal(t, &ahead, history[1].CompletionTime)
	assert.Equal(t, ahead, history[0].StartedTime)

	ended := completed("1.1.0")
	ended.CompletionTime = &ahead
	history = Record([]configv1.UpdateHistory{ended}, acceptedRelease("1.2.0"), nil, at)
	assert.Equal(t, ahead, history[0].StartedTime, "only the end of the predecessor is ahead")
}

func TestEntriesMatchByVersionAndImage(t *testing.T) {
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
		got := Same(configv1.UpdateHistory{Version: tt.entryVersion, Image: tt.entryImage}, tt.version, tt.image)
		assert.Equal(t, tt.want, got, "%+v", tt)
	}
}

func TestCompleteEndsTheNewestEntryOnce(t *testing.T) {
	Complete(nil, metav1.NewTime(now)) // an empty history must not panic
	history := []configv1.UpdateHistory{partial("1.1.0"), partial("1.0.0")}
	Complete(history, metav1.NewTime(now))
	Complete(history, metav1.NewTime(now.Add(time.Hour)))
	assert.Equal(t, now, history[0].CompletionTime.Time)
	assert.Equal(t, configv1.PartialUpdate, history[1].State)
}

// longHistory returns n Completed patch releases of 4.1, newest first.
func longHistory(n int) []configv1.UpdateHistory {
	var history []configv1.UpdateHistory
	for i := range n {
		history = append(history, completed(fmt.Sprintf("4.1.%d", n-i)))
	}
	return history
}

func TestPruneKeepsImportantEntries(t *testing.T) {
	assert.Len(t, prune(longHistory(100), nil), 100, "a hundred entries are kept")

	// If all entries are patch releases of one minor version, the rank is -1.01 × index, plus 1000 for the newest five and the oldest. The
	// lowest rank is that of index 99: -99.99.
	assert.Equal(t, without(longHistory(101), 99), prune(longHistory(101), nil))

	// Index 99 is the first of its minor version: -99.99 + 30 = -69.99. The lowest rank is therefore that of index 98: -98.98.
	h := longHistory(101)
	h[100].Version = "4.0.9"
	assert.Equal(t, without(h, 98), prune(h, nil), "the first of a minor version (99) outlives its successor")

	// A partial entry between two patch releases at index 80: -80.80 - 20 = -100.80, which is below index 99's -99.99.
	h = longHistory(101)
	h[80].State = configv1.PartialUpdate
	assert.Equal(t, without(h, 80), prune(h, nil))
	// At index 79 its rank is -79.79 - 20 = -99.79, which is above -99.99.
	h = longHistory(101)
	h[79].State = configv1.PartialUpdate
	assert.Equal(t, without(h, 99), prune(h, nil))

	// A partial entry between two minor versions at index 99, between 4.0.9 and 4.1.2: -99.99 + 20 = -79.99. Index 98 is the first of 4.1:
	// -98.98 + 30 = -68.98. So index 97 is dropped with -97.97.
	h = longHistory(101)
	h[99].State, h[100].Version = configv1.PartialUpdate, "4.0.9"
	assert.Equal(t, without(h, 97), prune(h, nil))

	// Partial entries newer than index 60, with no later completed entry: the last completed one, at 60, stays. Those at 5 to 59 have no
	// newer completed neighbor and no adjusted rank. The lowest is still index 99.
	h = longHistory(101)
	for i := range 60 {
		h[i].State = configv1.PartialUpdate
	}
	assert.Equal(t, without(h, 99), prune(h, nil))

	// Ranks include the major version: 5.1.x and 4.1.x are different minor versions.
	h = longHistory(101)
	for i := range 99 {
		h[i].Version = fmt.Sprintf("5.1.%d", 99-i)
	}
	assert.Equal(t, without(h, 97), prune(h, nil), "98 is the first of 5.1, 99 the last of 4.1")
}

func TestPruneKeepsTheLastCompletedEntry(t *testing.T) {
	// All entries are partial except index 90, so none has completed neighbors on both sides. The rank is -1.01 × index, and index 90 gets
	// 1000 more.
	h := longHistory(101)
	for i := range h {
		h[i].State = configv1.PartialUpdate
	}
	h[99].State = configv1.CompletedUpdate
	assert.Equal(t, without(h, 98), prune(h, nil))
}

// without returns a copy of the history that lacks one entry.
func without(history []configv1.UpdateHistory, i int) []configv1.UpdateHistory {
	return slices.Delete(slices.Clone(history), i, i+1)
}

//threat:history-forged-grows
func TestHistoryStaysBounded(t *testing.T) {
	var history []configv1.UpdateHistory
	for i := range 250 {
		history = Record(history, acceptedRelease(fmt.Sprintf("4.%d.%d", i/40, i%40)), nil, metav1.NewTime(now))
		Complete(history, metav1.NewTime(now))
	}
	assert.Len(t, history, 100)
	assert.Equal(t, "4.0.0", history[99].Version, "the first release of the cluster")
	assert.Equal(t, "4.6.9", history[0].Version)
	for _, edge := range []string{"4.0.39", "4.1.0", "4.1.39", "4.5.0", "4.5.39", "4.6.0"} {
		assert.Contains(t, versionsOf(history), edge)
	}
}

// TestAcceptedRisksStayBounded accepts risks whose texts need six times their length in the status.
//
//threat:history-forged-grows
func TestAcceptedRisksStayBounded(t *testing.T) {
	next := acceptedRelease("1.0.0")
	next.AcceptedRisks = "Forced: " + strings.Repeat("<", 20_000)
	var history []configv1.UpdateHistory
	for i := range 110 {
		next.Version, next.Image = fmt.Sprintf("1.0.%d", i), fmt.Sprintf("example.com/r:%d", i)
		history = Record(history, next, nil, metav1.NewTime(now))
	}
	text, err := json.Marshal(history)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(text), 256<<10)
	assert.Len(t, history[0].AcceptedRisks, release.MaxText, "the newest text stays whole")
	assert.Contains(t, history[99].AcceptedRisks, "Forced: <<", "the start of every text stays")
}

// TestForgedEntriesStayBounded has another client write huge entries. They do not cost the texts of the other entries.
//
//threat:history-forged-grows
func TestForgedEntriesStayBounded(t *testing.T) {
	huge := strings.Repeat("<", 300_000)
	for _, tt := range []struct {
		name string
		edit func(i int, e *configv1.UpdateHistory)
		kept bool // the texts of the others
	}{
		{"a huge version", func(i int, e *configv1.UpdateHistory) { e.Version = at(i, 1, huge, e.Version) }, true},
		{"a huge image", func(i int, e *configv1.UpdateHistory) { e.Image = at(i, 50, huge, e.Image) }, true},
		{"huge risks", func(i int, e *configv1.UpdateHistory) { e.AcceptedRisks = at(i, 1, huge, e.AcceptedRisks) }, true},
		{"a huge state of the newest entry", func(i int, e *configv1.UpdateHistory) {
			e.State = configv1.UpdateState(at(i, 0, huge, string(e.State)))
		}, true},
		{"many large entries", func(i int, e *configv1.UpdateHistory) {
			if i > 0 {
				*e = configv1.UpdateHistory{State: configv1.UpdateState(huge[:2000]), Version: huge[:900], Image: huge[:900], AcceptedRisks: huge[:9000]}
			}
		}, false},
	} {
		t.Run("it bounds "+tt.name, func(t *testing.T) {
			history := longHistory(100)
			for i := range history {
				history[i].AcceptedRisks = strings.Repeat("a", 1000)
				tt.edit(i, &history[i])
			}
			next := Release{Version: history[0].Version, Image: history[0].Image}
			history = Record(history, next, nil, metav1.NewTime(now))
			text, err := json.Marshal(history)
			require.NoError(t, err)
			assert.LessOrEqual(t, len(text), 256<<10)
			assert.Len(t, history, 100)
			assert.True(t, Same(history[0], next.Version, next.Image), "the newest entry stays")
			if tt.kept {
				assert.Len(t, history[99].AcceptedRisks, 1000)
			}
		})
	}
}

// at returns forged for one index and genuine for the others.
func at(i, index int, forged, genuine string) string {
	if i == index {
		return forged
	}
	return genuine
}

// TestUnchangedHistoryCostsNothing checks the call of each reconcile.
func TestUnchangedHistoryCostsNothing(t *testing.T) {
	history := longHistory(100)
	for i := range history {
		history[i].AcceptedRisks = strings.Repeat("a", 2000)
	}
	next := Release{Version: history[0].Version, Image: history[0].Image, Verified: true}
	assert.Zero(t, testing.AllocsPerRun(10, func() { history = Record(history, next, nil, metav1.NewTime(now)) }))
}

// TestSizeIsNeverTooSmall compares the size with that of the encoded entry.
func TestSizeIsNeverTooSmall(t *testing.T) {
	for _, text := range []string{"", "abc", "é€😀", "<>&\"\\\n\r\t\b\f\x00\x1f\x7f", "\u2028\u2029\uFFFD", "\xff\xc3", strings.Repeat("<", 100)} {
		at := metav1.NewTime(now)
		entry := configv1.UpdateHistory{
			State: configv1.UpdateState(text), StartedTime: at, CompletionTime: &at, Version: text, Image: text, AcceptedRisks: text,
		}
		encoded, err := json.Marshal(entry)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, size(entry), len(encoded)+len(","), "%q", text)
	}
}

// TestPruneShortensALongHistoryAtOnce starts with a history that an earlier operator did not prune or that another client has written.
func TestPruneShortensALongHistoryAtOnce(t *testing.T) {
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
			name: "keeps the last completed entry, however old", n: 500,
			edit: func(i int, e *configv1.UpdateHistory) {
				if i != 20 {
					e.State = configv1.PartialUpdate
				}
			},
			keep: []int{500, 20, 1}, drop: []int{19, 21},
		},
		{
			name: "drops incomplete entries between patch releases first", n: 190,
			edit: func(i int, e *configv1.UpdateHistory) {
				if i%2 == 0 && i != 190 {
					e.State = configv1.PartialUpdate
				}
			},
			keep: []int{190, 189, 188, 109, 73, 1}, drop: []int{2, 71, 108},
		},
		{name: "accepts invalid versions", n: 300, edit: func(_ int, e *configv1.UpdateHistory) { e.Version = "x" }, keep: []int{300, 1}},
		{name: "accepts empty versions", n: 300, edit: func(_ int, e *configv1.UpdateHistory) { *e = configv1.UpdateHistory{} }},
		{name: "is fast for the largest history that etcd can hold", n: 6000, keep: []int{6000, 1}, drop: []int{2, 3000}},
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
			got := prune(history, nil)
			assert.Len(t, got, 100)
			assert.Equal(t, before[:5], got[:5], "the newest five are kept")
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
	assert.Len(t, Record(history, a, nil, metav1.NewTime(now)), 100)
}

// TestForcedEntriesArePrunedLast prunes to a hundred entries and keeps the forced one.
func TestForcedEntriesArePrunedLast(t *testing.T) {
	history := longHistory(140)
	forced := sets.New[string]()
	for i := 100; i < 110; i++ {
		history[i].Image = fmt.Sprintf("r@sha256:%d", i)
		forced.Insert(fmt.Sprintf("sha256:%d", i))
	}
	kept := prune(history, forced)
	assert.Len(t, kept, 100)
	found := 0
	for _, e := range kept {
		if forced.Has(string(release.Pullspec(e.Image).Digest())) {
			found++
		}
	}
	assert.Equal(t, 10, found)
}

// TestModeIsKnownAfterACrash covers the histories that a new process can find in each phase of a cluster's life.
func TestModeIsKnownAfterACrash(t *testing.T) {
	for _, tt := range []struct {
		name    string
		history []configv1.UpdateHistory
		image   string
		want    release.Mode
	}{
		{"installs before anything is recorded", nil, "1.0.0", release.Initializing},
		{"installs during the first install", []configv1.UpdateHistory{partial("1.0.0")}, "1.0.0", release.Initializing},
		{"installs during a second attempt", []configv1.UpdateHistory{partial("1.0.1"), partial("1.0.0")}, "1.0.1", release.Initializing},
		{"reconciles a completed release", []configv1.UpdateHistory{completed("1.0.0")}, "1.0.0", release.Reconciling},
		{"updates to an accepted release that is not recorded", []configv1.UpdateHistory{completed("1.0.0")}, "1.1.0", release.Updating},
		{"updates during an update", []configv1.UpdateHistory{partial("1.1.0"), completed("1.0.0")}, "1.1.0", release.Updating},
		{"updates during a rollback", []configv1.UpdateHistory{partial("1.0.0"), partial("1.1.0"), completed("1.0.0")}, "1.0.0", release.Updating},
		{"updated", []configv1.UpdateHistory{completed("1.1.0"), completed("1.0.0")}, "1.1.0", release.Reconciling},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, Mode(clusterAt(tt.history...), imageOf(tt.image)))
		})
	}
}

//threat:control-characters-rewrite
func TestAcceptedRisksAreSafeForATerminal(t *testing.T) {
	history := Record(nil, Release{Version: "1.0.0", Image: "a", AcceptedRisks: "forced:\nno\x1b[2J"}, nil, metav1.Now())
	assert.Equal(t, "forced:\nno?[2J", history[0].AcceptedRisks)
	history[0].AcceptedRisks = ""
	history = Record(history, Release{Version: "1.0.0", Image: "a", AcceptedRisks: "no\a"}, nil, metav1.Now())
	assert.Equal(t, "no?", history[0].AcceptedRisks)
}

//threat:long-texts
func TestAcceptedRisksFitIntoAStatus(t *testing.T) {
	history := Record(nil, Release{Version: "1.0.0", Image: "a", AcceptedRisks: strings.Repeat("x", 3<<20)}, nil, metav1.Now())
	assert.LessOrEqual(t, len(history[0].AcceptedRisks), release.MaxText)
}
