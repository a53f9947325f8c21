package input

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/fixture"
)

// TestHostileReferencesAreRejectedInTime parses image-references, which may come from any component image.
//
//threat:yaml-alias-bombs
func TestHostileReferencesAreRejectedInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for name, text := range fixture.HostileYAML() {
		t.Run("it survives "+name, func(t *testing.T) {
			fixture.Bounded(t, func() {
				if _, err := parseReferences([]byte("kind: ImageStream\n" + text)); err != nil {
					require.ErrorContains(t, err, ReferencesFile)
					assert.Less(t, len(err.Error()), 2000)
				}
			})
		})
	}
}
