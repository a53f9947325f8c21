package lead

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// phase is a process's part in the election.
type phase string

const (
	// idle means that the process has not requested the Lease.
	idle phase = "Idle"
	// withdrawn means that it never will.
	withdrawn phase = "Withdrawn"
	// standby means that it waits for its turn and for the Lease.
	standby phase = "Standby"
	// standingIn means that it claims the Lease although its successor should replace it, because no process leads.
	standingIn phase = "StandingIn"
	// leading means that it holds the Lease, and has confirmed that it is its turn.
	leading phase = "Leading"
	// deposed means that it has lost the Lease, perhaps to another process. It never leads again, because what it remembers may be outdated.
	// The process ends once no uninstall waits for its acknowledgement.
	deposed phase = "Deposed"
	// leaving means that it releases the Lease and ends.
	leaving phase = "Leaving"
)

// state is the state of a candidate. Only next changes it.
type state struct {
	phase phase
	// holder is the holder at the last read or write of the Lease, and otherAt the last time when it was another process.
	holder  string
	otherAt time.Time
	// term is the number of terms that other processes have ended. The response to a renewal from an earlier term does not open the fence.
	term int
	// claimed is true if this process has requested the Lease. It may then hold the Lease, even without a response. An uninstall that holds
	// the Lease may have taken it from this process.
	claimed bool
	// acquired is the time when this process last claimed the Lease.
	acquired metav1.Time
	// renewed is the time when the last successful renewal was sent. It is zero, and the fence closed, in every phase except leading.
	renewed time.Time
}

// waits reports whether the process waits for its turn and for the Lease before it requests the Lease.
func (s state) waits() bool {
	switch s.phase {
	case standby, standingIn:
		return !s.owesAck()
	case idle, withdrawn, leading, deposed, leaving:
	}
	return false
}

// owesAck reports whether an uninstall may be waiting for this process's acknowledgement.
func (s state) owesAck() bool { return s.claimed && s.holder == api.UninstallHolder }

// event is an input of the state machine.
type event interface{ isEvent() }

type (
	// begin means that the elector requests the Lease.
	begin struct{}
	// withdraw means that the process ends. If it has not taken part in the election yet, it never will.
	withdraw struct{}
	// wait means that the process waits for its turn.
	wait struct{}
	// standIn means that it is not this process's turn, but no process leads.
	standIn struct{}
	// claim means that a request for the Lease, or a renewal, is about to be sent at the given time.
	claim struct{ at time.Time }
	// renew means that a request for the Lease has succeeded and it is this process's turn. sent and term are the time and the term of
	// the request.
	renew struct {
		self string
		term int
		sent time.Time
	}
	// see means that the API server's latest response contains this holder, which may be this process itself.
	see struct {
		holder string
		self   bool
		at     time.Time
	}
	// acknowledged means that the uninstall has the acknowledgement, or needs none.
	acknowledged struct{}
	// leave means that the elector gives up the Lease.
	leave struct{}
)

func (begin) isEvent()        {}
func (withdraw) isEvent()     {}
func (wait) isEvent()         {}
func (standIn) isEvent()      {}
func (claim) isEvent()        {}
func (renew) isEvent()        {}
func (see) isEvent()          {}
func (acknowledged) isEvent() {}
func (leave) isEvent()        {}

// effect is the action of the process after a transition.
type effect string

const (
	none effect = ""
	// drain means to wait for the responses to pending writes before another process can get the Lease.
	drain effect = "Drain"
	// acknowledge means to confirm to the uninstall that this process has stopped writing.
	acknowledge effect = "Acknowledge"
	// discard means to ignore a successful renewal, because another process has held the Lease since then.
	discard effect = "Discard"
)

// next returns the state after an event, and its effect. It is a pure function.
func next(s state, e event) (state, effect) {
	switch e := e.(type) {
	case begin:
		s.begin()
	case withdraw:
		if s.phase == idle {
			s.phase = withdrawn
		}
	case wait:
		if s.phase == standingIn {
			s.phase = standby
		}
	case standIn:
		if s.phase == standby {
			s.phase = standingIn
		}
	case claim:
		s.begin()
		s.claimed = true // whether or not the request succeeds
		if s.phase != leading {
			s.acquired = metav1.NewTime(e.at)
		}
	case renew:
		// The server cannot have accepted the renewal after another process changed the Lease. But its response may arrive after the watch
		// has reported the change. Then the fence stays closed, because this process may already have confirmed that it has stopped
		// writing.
		if e.term != s.term || s.phase == withdrawn || s.phase == deposed || s.phase == leaving {
			return s, discard
		}
		s.phase, s.holder, s.renewed = leading, e.self, e.sent
	case see:
		return s.see(e)
	case acknowledged:
		s.claimed = false
	case leave:
		if s.phase != withdrawn {
			s.phase, s.renewed = leaving, time.Time{}
		}
		return s, drain
	}
	return s, none
}

func (s *state) begin() {
	if s.phase == idle {
		s.phase = standby
	}
}

// see records the holder of the Lease. If that is not this process, it stops writing.
func (s state) see(e see) (state, effect) {
	s.holder = e.holder
	if e.self {
		return s, none
	}
	if e.holder != "" {
		s.otherAt = e.at
	}
	s.term++ // even if a claim of this process has no response yet
	if s.phase == leading {
		s.phase, s.renewed = deposed, time.Time{}
	}
	if s.owesAck() {
		return s, acknowledge
	}
	return s, none
}
