package switches

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	tests := []struct {
		name     string
		entries  map[string]string
		workload string
		want     Set
		err      string
	}{
		{name: "finds nothing in nothing"},
		{
			name: "reads every switch of an operator, in any case",
			entries: map[string]string{
				"slow": "30s", "degraded": "true", "unavailable": "1", "notUpgradeable": "t", "notready": "true", "CrashLoop": "true",
			},
			want: Set{Slow: 30 * time.Second, Degraded: true, Unavailable: true, NotUpgradeable: true, NotReady: true, CrashLoop: true},
		},
		{name: "passes over what is meant for workloads", entries: map[string]string{"console.notReady": "true", "degraded": "false"}},
		{
			name: "gives a workload what is meant for it", workload: "console",
			entries: map[string]string{"console.slow": "2s", "slow": "9s", "console.v2.slow": "3s"},
			want:    Set{Slow: 2 * time.Second},
		},
		{
			name:    "heeds the version",
			entries: map[string]string{"degraded": "true@1.1.0", "slow": "1m@1.0.0", "crashLoop": "nonsense@1.0.0"},
			want:    Set{Degraded: true},
		},
		{
			name: "reads what it can beside mistakes", want: Set{NotReady: true},
			entries: map[string]string{"notReady": "true", "degraded": "maybe", "slow": "-1s", "sleepy": "true@1.0.0"},
			err: "switch \"degraded\": \"maybe\" is neither true nor false\nswitch \"sleepy\": no such switch: use slow, degraded, " +
				"unavailable, notUpgradeable, notReady or crashLoop\nswitch \"slow\": \"-1s\" is no duration, such as 30s",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set, err := Read(tt.entries, tt.workload, "1.1.0")
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, tt.err)
			}
			assert.Equal(t, tt.want, set)
		})
	}
}
