package registry_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/test/fixture"
)

func TestHostileMirrorSets(t *testing.T) {
	for name, text := range fixture.HostileYAML() {
		t.Run("it survives "+name, func(t *testing.T) {
			fixture.Bounded(t, func() {
				_, err := registry.ParseMirrorSets([]byte("apiVersion: config.openshift.io/v1\nkind: ImageDigestMirrorSet\n" + text))
				if err != nil {
					assert.Less(t, len(err.Error()), 2000)
				}
			})
		})
	}
}
