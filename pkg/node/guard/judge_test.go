//go:build linux

package guard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestGuardUndoesAChangeThatFailsOrIsNotConfirmed(t *testing.T) {
	const m = time.Minute
	type seen struct {
		at      time.Duration
		failure string
	}
	for _, test := range []struct {
		name string
		seen []seen
		at   time.Duration
		want string
	}{
		{"nothing is pending", nil, 100 * m, ""},
		{"a check fails shortly", []seen{{0, "kubelet"}}, 10*m - 1, ""},
		{"a check fails for the deadline of the boot", []seen{{0, "kubelet"}}, 10 * m, "a check failed for 10m0s: kubelet"},
		{"the clock starts with the first observation", []seen{{5 * m, "kubelet"}}, 15*m - 1, ""},
		{"another check fails without interruption", []seen{{0, "kubelet"}, {6 * m, "/etc/a: missing"}}, 10 * m, "a check failed for 10m0s: /etc/a: missing"},
		{"a check fails with an interruption", []seen{{0, "kubelet"}, {9 * m, ""}, {10 * m, "kubelet"}}, 20*m - 1, ""},
		{"a check fails later", []seen{{0, ""}, {15 * m, "kubelet"}}, 25 * m, "a check failed for 10m0s: kubelet"},
		{"the daemon has time", []seen{{0, ""}}, 30*m - 1, ""},
		{
			"the daemon does not confirm",
			[]seen{{0, ""}},
			30 * m, "all checks pass, but the daemon did not confirm the change for 30m0s",
		},
		{
			"a check fails again and again",
			[]seen{{0, "kubelet"}, {9 * m, ""}, {18 * m, "kubelet"}, {27 * m, ""}, {29 * m, "kubelet"}},
			30 * m,
			"the change was not confirmed for 30m0s, and a check fails: kubelet",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var trial Trial
			for _, s := range test.seen {
				trial = trial.Observe(s.at, s.failure)
				assert.Empty(t, trial.Judge(s.at, Options{}))
			}
			assert.Equal(t, test.want, trial.Judge(test.at, Options{}))
		})
	}
	short := Options{BootDeadline: 45 * time.Second, ContactDeadline: 50 * time.Second}
	assert.NotEmpty(t, Trial{}.Observe(0, "kubelet").Judge(45*time.Second, short))
	assert.NotEmpty(t, Trial{}.Observe(0, "").Judge(50*time.Second, short))
}

func TestTrialIsPassedAfterAMinuteWithoutAFailure(t *testing.T) {
	const s = time.Second
	assert.False(t, Trial{}.HasPassed(0, Options{}))
	trial := Trial{}.Observe(0, "")
	assert.False(t, trial.HasPassed(60*s-1, Options{}))
	assert.True(t, trial.HasPassed(60*s, Options{}))
	trial = trial.Observe(50*s, "kubelet")
	assert.False(t, trial.HasPassed(200*s, Options{}))
	trial = trial.Observe(55*s, "")
	assert.False(t, trial.HasPassed(110*s-1, Options{}))
	assert.True(t, trial.HasPassed(110*s, Options{}))
	assert.True(t, Trial{}.Observe(0, "").HasPassed(20*s, Options{ContactDeadline: 40 * s}), "it must end before that deadline")
}
