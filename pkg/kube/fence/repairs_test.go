package fence

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRepairsAreBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := NewRepairs(now)
	sent := func(result error) (n int) {
		for ; n < 2*RepairsAtOnce && r.Allowed(now); n++ {
			r.Count(result)
		}
		return n
	}
	assert.Equal(t, 2*RepairsAtOnce, sent(errors.New("forbidden")), "a failed write does not count")
	assert.Equal(t, RepairsAtOnce, sent(nil))
	now = now.Add(RepairsEvery - time.Second)
	assert.False(t, r.Allowed(now))
	now = now.Add(time.Second)
	assert.Equal(t, 1, sent(nil))
	now = now.Add(time.Hour)
	assert.Equal(t, RepairsAtOnce, sent(nil), "the budget does not grow beyond its start")
}
