package installconfig_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/extract/installconfig"
	"github.com/cluster-version/cvo/test/fixture"
)

//threat:yaml-alias-bombs
func TestHostileInstallConfigIsRejectedInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for name, text := range fixture.HostileYAML() {
		t.Run("it survives "+name, func(t *testing.T) {
			fixture.Bounded(t, func() {
				if _, err := installconfig.Parse([]byte("apiVersion: v1\n" + text)); err != nil {
					require.ErrorContains(t, err, "install config")
					assert.Less(t, len(err.Error()), 2000)
				}
			})
		})
	}
}
