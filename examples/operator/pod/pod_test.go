package pod

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/examples/operator/switches"
)

func TestReadinessFollowsTheSwitches(t *testing.T) {
	tests := []struct {
		name     string
		workload string
		state    *state
		after    time.Duration
		err      string
	}{
		{name: "is not ready before the switches are read", err: "the switches are not read yet"},
		{name: "is ready when nothing is wrong", state: &state{}},
		{name: "is not ready if a switch says so", state: &state{set: switches.Set{NotReady: true}}, err: "not ready because of a switch"},
		{name: "is not ready shortly before a crash", state: &state{set: switches.Set{CrashLoop: true}}, err: "crashing because of a switch"},
		{
			name: "is not ready during the delay of a slow workload", workload: "console", state: &state{set: switches.Set{Slow: time.Minute}},
			after: 59 * time.Second, err: "not ready for the first 1m0s because of a switch",
		},
		{name: "is ready after the delay", workload: "console", state: &state{set: switches.Set{Slow: time.Minute}}, after: time.Minute},
		{name: "is ready at once in an operator, which delays its report instead", state: &state{set: switches.Set{Slow: time.Minute}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			clock := clocktesting.NewFakePassiveClock(started)
			p := &Pod{opts: Options{Workload: tt.workload, Clock: clock}, started: started}
			p.state.Store(tt.state)
			clock.SetTime(started.Add(tt.after))
			if tt.err == "" {
				assert.NoError(t, p.Ready())
			} else {
				assert.EqualError(t, p.Ready(), tt.err)
			}
		})
	}
}
