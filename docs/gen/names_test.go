package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEventsHaveTheTypesOfTheirCalls(t *testing.T) {
	types, err := eventTypes(folderWith(t, `func reason(b bool) string {
	if b {
		return api.EventC
	}
	return api.EventD
}

func emit() {
	emit(event.Normal(api.EventA, "%s", api.EventE), event.Warning(api.EventB, ""), event.Warning(api.EventA, ""))
	emit(event.Warning(a.reason(true), ""))
	r.recorder.Event(o, corev1.EventTypeNormal, api.EventF+": "+reason, api.EventE)
	r.recorder.Eventf(o, corev1.EventTypeWarning, api.EventF, "%s", api.EventE)
	r.recorder.Event(o, e.kind, api.EventE, "")
}
`))
	require.NoError(t, err)
	warning := map[string]bool{"Warning": true}
	assert.Equal(t, map[string]map[string]bool{
		"EventA": {"Normal": true, "Warning": true}, "EventB": warning, "EventC": warning, "EventD": warning, "reason": warning,
		"EventF": {"Normal": true, "Warning": true},
	}, types)
}
