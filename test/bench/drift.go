package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cluster-version/cvo/test/vandal"
)

// driftMisses is the number of unrepaired edits after which the same edit of a kind is not tried again, so that a broken repair costs
// minutes instead of hours.
const driftMisses = 2

// Drift is the result of a series of hostile edits.
type Drift struct {
	// Edits is the number of edits, made sequentially on objects of Kinds kinds. Repaired counts those that were undone in time.
	Edits    int `json:"edits"`
	Kinds    int `json:"kinds"`
	Repaired int `json:"repaired"`
	// NotTried counts edits that were omitted because others of their kind were not repaired.
	NotTried int `json:"notTried,omitempty"`
	// NotRepaired counts the edits that were not undone, by edit and kind.
	NotRepaired map[string]int `json:"notRepaired,omitempty"`
	// P50, P99 and Max are the seconds from the response to an edit to the watch event that shows the repair.
	P50 float64 `json:"p50Seconds"`
	P99 float64 `json:"p99Seconds"`
	Max float64 `json:"maxSeconds"`
}

// drift edits objects of the release sequentially and waits for each repair.
func (o *operation) drift(ctx context.Context) error {
	if o.options.drift == 0 {
		return nil
	}
	v, err := vandal.New(o.env.Config("bench"), o.last().payload.Manifests, o.options.driftWait, rand.New(rand.NewPCG(o.options.seed, 1)))
	if err != nil {
		return err
	}
	o.cvo.ResetPeak()
	before := o.used()
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
			o.say("%s: %s: not repaired within %s", o.subject.name, e, o.options.driftWait)
			continue
		}
		p.Drift.Repaired++
		times = append(times, took.Seconds())
	}
	p.Drift.P50, p.Drift.P99, p.Drift.Max = vandal.Percentile(times, 0.5), vandal.Percentile(times, 0.99), vandal.Percentile(times, 1)
	after := o.used()
	p.end = time.Now()
	p.Seconds = p.end.Sub(p.start).Seconds()
	p.use(before, after)
	o.phases = append(o.phases, p)
	return nil
}
