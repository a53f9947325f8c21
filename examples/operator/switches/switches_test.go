package switches

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSwitchesAreReadFromAConfigMap(t *testing.T) {
	tests := []struct {
		name     string
		entries  map[string]string
		workload string
		want     Set
		err      string
	}{
		{name: "finds nothing in an empty ConfigMap"},
		{
			name: "reads every switch of an operator, in upper or lower case",
			entries: map[string]string{
				"slow": "30s", "degraded": "true", "unavailable": "1", "notUpgradeable": "t", "notready": "true", "CrashLoop": "true",
			},
			want: Set{Slow: 30 * time.Second, Degraded: true, Unavailable: true, NotUpgradeable: true, NotReady: true, CrashLoop: true},
		},
		{name: "ignores switches for workloads", entries: map[string]string{"console.notReady": "true", "degraded": "false"}},
		{
			name: "selects the switches of a workload", workload: "console",
			entries: map[string]string{"console.slow": "2s", "slow": "9s", "console.v2.slow": "3s"},
			want:    Set{Slow: 2 * time.Second},
		},
		{
			name:    "respects the version",
			entries: map[string]string{"degraded": "true@1.1.0", "slow": "1m@1.0.0", "crashLoop": "nonsense@1.0.0"},
			want:    Set{Degraded: true},
		},
		{
			name: "reads the valid switches among invalid ones", want: Set{NotReady: true},
			entries: map[string]string{"notReady": "true", "degraded": "maybe", "slow": "-1s", "sleepy": "true@1.0.0"},
			err: "switch \"degraded\": \"maybe\" is neither true nor false\nswitch \"sleepy\": no such switch: use slow, degraded, " +
				"unavailable, notUpgradeable, notReady or crashLoop\nswitch \"slow\": \"-1s\" is not a duration, such as 30s",
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
