package inspect_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/inspect"
	"github.com/cluster-version/cvo/test/fixture"
)

func TestHostileInstallConfig(t *testing.T) {
	for name, text := range fixture.HostileYAML() {
		t.Run("it survives "+name, func(t *testing.T) {
			fixture.Bounded(t, func() {
				if _, err := inspect.ParseInstallConfig([]byte("apiVersion: v1\n" + text)); err != nil {
					require.ErrorContains(t, err, "install config")
					assert.Less(t, len(err.Error()), 2000)
				}
			})
		})
	}
}
