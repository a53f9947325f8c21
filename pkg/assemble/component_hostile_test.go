package assemble

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/fixture"
)

// TestHostileReferences reads image-references as any component image may bring them.
func TestHostileReferences(t *testing.T) {
	for name, text := range fixture.HostileYAML() {
		t.Run("it survives "+name, func(t *testing.T) {
			fixture.Bounded(t, func() {
				if _, err := parseReferences([]byte("kind: ImageStream\n" + text)); err != nil {
					require.ErrorContains(t, err, referencesFile)
					assert.Less(t, len(err.Error()), 2000)
				}
			})
		})
	}
}
