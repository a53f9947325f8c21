package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cluster-version/cvo/test/vandal"
)

// driftMisses is after how many edits that nobody repaired the same edit is not tried on a kind any more, so that
// repair that does not work costs minutes and not hours.
const driftMisses = 2

// Drift is what became of a row of hostile edits.
type Drift struct {
	// Edits were made, one at a time, on objects of Kinds kinds. Of these Repaired were undone in time.
	Edits    int `json:"edits"`
	Kinds    int `json:"kinds"`
	Repaired int `json:"repaired"`
	// NotTried edits were left out because others of their kind were not repaired.
	NotTried int `json:"notTried,omitempty"`
	// NotRepaired counts edits that nobody undid, by edit and kind.
	NotRepaired map[string]int `json:"notRepaired,omitempty"`
	// P50, P99 and Max are seconds from the answer to an edit to the watch event that shows it undone, of those that
	// were.
	P50 float64 `json:"p50Seconds"`
	P99 float64 `json:"p99Seconds"`
	Max float64 `json:"maxSeconds"`
}

// drift edits objects of the release one after the other and waits for each to be put right.
func (o *operation) drift(ctx context.Context) error {
	if o.options.drift == 0 {
		return nil
	}
	v, err := vandal.New(o.env.Config("bench"), o.last().payload.Manifests, o.options.driftWait, rand.New(rand.NewPCG(o.options.seed, 1)))
	if err != nil {
		return err
	}
	o.cvo.resetPeak()
	before := o.cvo.usage()
	p := Phase{Name: phaseDrift, start: time.Now(), Drift: &Drift{NotRepaired: map[string]int{}}}
	edits, kinds := vandal.Plan(o.last().payload.Manifests, o.options.drift, rand.New(rand.NewPCG(o.options.seed, 0)))
	p.Drift.Kinds = kinds
	var times []float64
	for _, e := range edits {
		if p.Drift.NotRepaired[e.Kind()] >= driftMisses {
			p.Drift.NotTried++
			continue
		}
		took, err := v.Do(ctx, e)
		if err != nil && !errors.Is(err, vandal.ErrNotRepaired) {
			return fmt.Errorf("%s: %w", e, err)
		}
		p.Drift.Edits++
		if err != nil {
			p.Drift.NotRepaired[e.Kind()]++
			o.say("%s: %s: nobody repaired it in %s", o.subject.name, e, o.options.driftWait)
			continue
		}
		p.Drift.Repaired++
		times = append(times, took.Seconds())
	}
	p.Drift.P50, p.Drift.P99, p.Drift.Max = vandal.Percentile(times, 0.5), vandal.Percentile(times, 0.99), vandal.Percentile(times, 1)
	after := o.cvo.usage()
	p.end = time.Now()
	p.Seconds = p.end.Sub(p.start).Seconds()
	p.use(before, after)
	o.phases = append(o.phases, p)
	return nil
}
