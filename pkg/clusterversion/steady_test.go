package clusterversion

import (
	"context"
	"fmt"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
)

func TestSteady(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{
			"leaves out the port that a question to a name server came from",
			"lookup example.com on 10.96.0.10:53: read udp 10.244.0.5:38522->10.96.0.10:53: i/o timeout",
			"lookup example.com on 10.96.0.10:53: read udp 10.96.0.10:53: i/o timeout",
		},
		{"knows the other kind of addresses", "read tcp [fd00::1%eth0]:4321->[fd00::2]:443: connection reset", "read tcp [fd00::2]:443: connection reset"},
		{"leaves alone what is not an address", "a->b: 1:2->3", "a->b: 1:2->3"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, steady(tt.text))
		})
	}
}

// TestRepeatedFailuresReadTheSame: a registry or an update service that resets each connection fails in one way.
func TestRepeatedFailuresReadTheSame(t *testing.T) {
	reset := func(port int) error {
		return fmt.Errorf("read tcp 10.0.0.1:%d->10.0.0.2:443: connection reset by peer", port)
	}
	t.Run("it accepts no release", func(t *testing.T) {
		tell := func(port int) string {
			in := acceptInput{Stages: Stages{Outside: func(context.Context, *configv1.ClusterVersion) (Outside, error) { return nil, reset(port) }}}
			return accept(t.Context(), in, Target{Image: "r"}, func(Acceptance) {}).Message
		}
		assert.Contains(t, tell(1), "connection reset")
		assert.Equal(t, tell(1), tell(2))
	})
	t.Run("it retrieves no updates", func(t *testing.T) {
		tell := func(port int) retrieval {
			m := updateMemory{}
			m.answered(m.query, m.answer, reset(port), now)
			return m.known.retrieved
		}
		assert.Contains(t, tell(1).message, "connection reset")
		assert.Equal(t, tell(1), tell(2))
	})
}
