package publish

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRunlevelsLeaveBudgetForTheEnd(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p, written, writes := newPacer(time.Second), now, 0
	for range 30 {
		now = now.Add(20 * time.Millisecond)
		if p.wait(false, true, written, now) == 0 {
			written = now
			writes++
		}
	}
	assert.Greater(t, writes, 4, "the first runlevels are written at once")
	assert.Less(t, writes, 8)
	for range edgeReserve {
		now = now.Add(20 * time.Millisecond)
		assert.Zero(t, p.wait(true, false, written, now), "an edge of the status is written at once")
		written = now
	}
}
