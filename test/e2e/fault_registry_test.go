package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/e2e/registry/control"
)

// TestFaultRegistry asks for an update while the registry does not answer, for a minute.
func TestFaultRegistry(t *testing.T) {
	o := newOrdeal(t, "registry down for a minute")
	t.Cleanup(func() { _ = shared.registry.Heal(o.Context()) }) // if the test ends early
	const down = time.Minute
	back := time.Now().Add(down)
	require.NoError(t, shared.registry.Inject(t.Context(), control.Fault{Kind: control.Down, For: down}))
	o.begin()
	o.tells("ReleaseAccepted", "False|RetrievePayload|", shared.registry.Host)
	o.over(back)
}
