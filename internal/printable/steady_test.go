package printable_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/internal/printable"
)

func TestSteadyRemovesVariableParts(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{
			"removes the local port of a DNS query",
			"lookup example.com on 10.96.0.10:53: read udp 10.244.0.5:38522->10.96.0.10:53: i/o timeout",
			"lookup example.com on 10.96.0.10:53: read udp 10.96.0.10:53: i/o timeout",
		},
		{"removes IPv6 addresses", "read tcp [fd00::1%eth0]:4321->[fd00::2]:443: connection reset", "read tcp [fd00::2]:443: connection reset"},
		{"keeps other text", "a->b: 1:2->3", "a->b: 1:2->3"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, printable.Steady(tt.text))
		})
	}
}
