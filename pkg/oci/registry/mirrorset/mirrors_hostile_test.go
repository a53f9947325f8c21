package mirrorset_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/oci/registry/mirrorset"
	"github.com/cluster-version/cvo/test/fixture"
)

//threat:yaml-alias-bombs
func TestHostileMirrorSetsAreReadInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for name, text := range fixture.HostileYAML() {
		t.Run("it survives "+name, func(t *testing.T) {
			fixture.Bounded(t, func() {
				_, err := mirrorset.Parse([]byte("apiVersion: config.openshift.io/v1\nkind: ImageDigestMirrorSet\n" + text))
				if err != nil {
					assert.Less(t, len(err.Error()), 2000)
				}
			})
		})
	}
}
