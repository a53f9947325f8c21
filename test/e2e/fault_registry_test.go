package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/e2e/registry/control"
)

// testFaultRegistry requests an update while the registry does not answer for a minute.
func testFaultRegistry(t *testing.T, s *site) {
	o := newScenario(t, s, "registry down for a minute")
	t.Cleanup(func() { _ = o.registry.Heal(o.Context()) }) // in case the test ends early
	const down = time.Minute
	back := time.Now().Add(down)
	require.NoError(t, o.registry.Inject(t.Context(), control.Fault{Kind: control.Down, For: down}))
	o.begin()
	o.awaitMessage("ReleaseAccepted", "False|RetrievePayload|", o.registry.Host)
	o.over(back)
}
