package lead

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// TestNextDecidesEachTransition covers every transition of the state machine. Phases that are missing from a row's moves do not change.
func TestNextDecidesEachTransition(t *testing.T) {
	t.Parallel()
	phases := []phase{idle, withdrawn, standby, standingIn, leading, deposed, leaving}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		name  string
		event event
		// moves contains the changes of the phase.
		moves map[phase]phase
		// effects contains the effects by the phase before the event.
		effects map[phase]effect
	}{
		{name: "takes part in the election with the first request", event: begin{}, moves: map[phase]phase{idle: standby}},
		{name: "withdraws only before the first request", event: withdraw{}, moves: map[phase]phase{idle: withdrawn}},
		{name: "does not stand in while it waits for its turn", event: wait{}, moves: map[phase]phase{standingIn: standby}},
		{name: "stands in if no process leads", event: standIn{}, moves: map[phase]phase{standby: standingIn}},
		{name: "takes part in the election with a claim", event: claim{at: at}, moves: map[phase]phase{idle: standby}},
		{
			name: "leads after a renewal", event: renew{self: "me", term: 3, sent: at},
			moves:   map[phase]phase{idle: leading, standby: leading, standingIn: leading},
			effects: map[phase]effect{withdrawn: discard, deposed: discard, leaving: discard},
		},
		{
			name: "ignores a renewal of an earlier term", event: renew{self: "me", term: 2, sent: at},
			effects: map[phase]effect{
				idle: discard, withdrawn: discard, standby: discard, standingIn: discard, leading: discard, deposed: discard, leaving: discard,
			},
		},
		{name: "keeps its phase while it has the Lease", event: see{holder: "me", self: true, at: at}},
		{name: "is deposed by another holder", event: see{holder: "other", at: at}, moves: map[phase]phase{leading: deposed}},
		{name: "is deposed if the Lease has no holder", event: see{at: at}, moves: map[phase]phase{leading: deposed}},
		{name: "keeps its phase after an acknowledgement", event: acknowledged{}},
		{
			name: "leaves the election", event: leave{},
			moves: map[phase]phase{idle: leaving, standby: leaving, standingIn: leaving, leading: leaving, deposed: leaving},
			effects: map[phase]effect{
				idle: drain, withdrawn: drain, standby: drain, standingIn: drain, leading: drain, deposed: drain, leaving: drain,
			},
		},
	} {
		for _, from := range phases {
			t.Run(tt.name+"/"+string(from), func(t *testing.T) {
				t.Parallel()
				before := state{phase: from, term: 3}
				if from == leading {
					before.renewed = at.Add(-time.Second)
				}
				after, todo := next(before, tt.event)
				want, moves := tt.moves[from]
				if !moves {
					want = from
				}
				assert.Equal(t, want, after.phase)
				assert.Equal(t, tt.effects[from], todo)
				assert.Equal(t, after.phase == leading, !after.renewed.IsZero(), "the fence is open only for a leader")
			})
		}
	}
}

// TestNextRecordsFacts covers the facts that the state machine records in addition to its phase.
func TestNextRecordsFacts(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before := at.Add(-time.Minute)
	for _, tt := range []struct {
		name   string
		state  state
		event  event
		want   state
		effect effect
	}{
		{
			"records the time of the first claim",
			state{phase: standby, term: 1},
			claim{at: at},
			state{phase: standby, term: 1, claimed: true, acquired: metav1.NewTime(at)},
			none,
		},
		{
			"keeps the time of the claim when a leader renews",
			state{phase: leading, acquired: metav1.NewTime(before), renewed: before},
			claim{at: at},
			state{phase: leading, acquired: metav1.NewTime(before), renewed: before, claimed: true},
			none,
		},
		{
			"records when a renewal was sent, which opens the fence",
			state{phase: leading, holder: "me", renewed: before},
			renew{self: "me", sent: at},
			state{phase: leading, holder: "me", renewed: at},
			none,
		},
		{
			"ignores a renewal if another holder has followed",
			state{phase: deposed, holder: "other", term: 1},
			renew{self: "me", sent: at},
			state{phase: deposed, holder: "other", term: 1},
			discard,
		},
		{
			"records another holder and the end of a term",
			state{phase: leading, holder: "me", renewed: before},
			see{holder: "other", at: at},
			state{phase: deposed, holder: "other", otherAt: at, term: 1},
			none,
		},
		{
			"records only the end of a term if the Lease has no holder",
			state{phase: standby, holder: "other", otherAt: before},
			see{at: at},
			state{phase: standby, otherAt: before, term: 1},
			none,
		},
		{
			"keeps the term while it holds the Lease",
			state{phase: standby, holder: "other", otherAt: before, term: 1},
			see{holder: "me", self: true, at: at},
			state{phase: standby, holder: "me", otherAt: before, term: 1},
			none,
		},
		{
			"records an uninstall that may wait for its acknowledgement",
			state{phase: leading, holder: "me", claimed: true, renewed: before},
			see{holder: api.UninstallHolder, at: at},
			state{phase: deposed, holder: api.UninstallHolder, otherAt: at, term: 1, claimed: true},
			acknowledge,
		},
		{
			"owes no acknowledgement for a Lease that it has not claimed",
			state{phase: standby},
			see{holder: api.UninstallHolder, at: at},
			state{phase: standby, holder: api.UninstallHolder, otherAt: at, term: 1},
			none,
		},
		{
			"owes no acknowledgement after it has been sent",
			state{phase: deposed, holder: api.UninstallHolder, claimed: true},
			acknowledged{},
			state{phase: deposed, holder: api.UninstallHolder},
			none,
		},
		{
			"records the end of its leadership, which closes the fence",
			state{phase: leading, holder: "me", claimed: true, renewed: before},
			leave{},
			state{phase: leaving, holder: "me", claimed: true},
			drain,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			after, todo := next(tt.state, tt.event)
			assert.Equal(t, tt.want, after)
			assert.Equal(t, tt.effect, todo)
		})
	}
}

// TestOnlyWaitingPhasesDelayARequest covers the states in which a process waits before it requests the Lease.
func TestOnlyWaitingPhasesDelayARequest(t *testing.T) {
	t.Parallel()
	for phase, want := range map[phase]bool{
		idle: false, withdrawn: false, standby: true, standingIn: true, leading: false, deposed: false, leaving: false,
	} {
		assert.Equal(t, want, state{phase: phase}.waits(), phase)
		assert.False(t, state{phase: phase, claimed: true, holder: api.UninstallHolder}.waits(), "an uninstall waits for its acknowledgement")
	}
}
