package payload_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/fixture"
)

// TestHostileMetadataIsRejectedInTime reads the two metadata files, because a release's metadata is read before its manifests.
//
//threat:yaml-alias-bombs
func TestHostileMetadataIsRejectedInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	readers := map[string]func(text string) error{
		payload.MetadataFile: func(text string) error {
			_, err := payload.ParseMetadata([]byte("kind: cincinnati-metadata-v0\nversion: 1.0.0\n" + text))
			return err
		},
		payload.ReferencesFile: func(text string) error {
			_, err := payload.ParseReferences([]byte("kind: ImageStream\napiVersion: image.openshift.io/v1\n" + text))
			return err
		},
	}
	for file, read := range readers {
		for name, text := range fixture.HostileYAML() {
			t.Run("it survives "+name+" in "+file, func(t *testing.T) {
				fixture.Bounded(t, func() {
					if err := read(text); err != nil {
						require.ErrorContains(t, err, file)
						assert.Less(t, len(err.Error()), 2000)
					}
				})
			})
		}
		require.ErrorContains(t, read(fixture.HostileYAML()["aliases that repeat a large text"]), "once aliases are expanded")
		require.ErrorContains(t, read(strings.Repeat(" ", 4<<20)), "too large")
	}
}
