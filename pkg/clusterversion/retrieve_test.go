package clusterversion

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
)

// wakes counts how often each slot was woken.
type wakes map[string]int

func (wakes) Start(string, string, func(context.Context) background.Next) {}
func (w wakes) Wake(slot string)                                          { w[slot]++ }
func (wakes) Stop()                                                       {}

// TestChangedInputsTriggerARetrieval changes an input of a retrieval in each phase of an acceptance.
func TestChangedInputsTriggerARetrieval(t *testing.T) {
	work := wakes{}
	s := newScribe(t, func(p *parts) { p.runner = work })
	s.reconcile(t)
	s.at(time.Minute)
	woken := func() bool {
		before := work[background.SlotAccept]
		s.RetrieveAgain()
		return work[background.SlotAccept] > before
	}
	unsigned := errors.New("signed by no key")
	phase := func(step string, err error) accept.Acceptance {
		a := acceptedRelease("1.0.0")
		a.Done, a.Step, a.Err = false, step, err
		return a
	}
	assert.True(t, woken(), "before the first step")
	s.accepts(phase(api.ReasonRetrievePayload, nil))
	assert.True(t, woken(), "the running verification may have read the earlier input")
	s.accepts(phase(api.ReasonRetrievePayload, unsigned))
	assert.True(t, woken(), "rejected")
	s.accepts(phase(api.ReasonPreconditionChecks, errors.New("too far ahead")))
	assert.False(t, woken(), "no input of the retrieval rejected it")
	s.accepts(phase(api.ReasonPreconditionChecks, nil))
	assert.False(t, woken())
	s.accepts(phase(api.ReasonRetrievePayload, nil))
	assert.True(t, woken(), "preconditions pass now, and the release is being verified again")
	s.accepts(acceptedRelease("1.0.0"))
	s.reconcile(t)
	assert.False(t, woken(), "it is accepted")
	assert.Zero(t, work[background.SlotPreflight], "no preflight failed")
	s.unretrievedAhead.Store(true)
	assert.False(t, woken())
	assert.Equal(t, 1, work[background.SlotPreflight])
}
