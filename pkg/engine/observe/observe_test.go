package observe_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/observe"
)

func TestLookReturnsTheLatestState(t *testing.T) {
	ns := namespace(t)
	us, them := as(t, controlPlane.For(t), api.FieldManager), as(t, controlPlane.For(t), "kubectl-edit")
	w := watcher(t)
	scope := observe.Scope{Resource: configMaps}

	assert.False(t, w.Look(scope, ns, "a").Synced, "the watch has only just been requested")
	w.synced(t, scope)
	assert.Nil(t, w.Look(scope, ns, "a").State)

	us.apply(t, configMaps, configMap(t, ns, "a", "k: v"))
	before := w.until(t, scope, ns, "a", there)
	assert.NotEmpty(t, before.State.UID)
	assert.NotZero(t, before.State.Fields)
	assert.Empty(t, before.State.Writer)
	assert.Equal(t, before.State.ResourceVersion, before.At)

	foreign := them.edit(t, configMaps, ns, "a", func(obj map[string]any) { set(t, obj, "w", "data", "other") })
	after := w.until(t, scope, ns, "a", at(foreign.GetResourceVersion()))
	assert.Equal(t, before.State.Fields, after.State.Fields, "the key does not belong to us")
	assert.Equal(t, "kubectl-edit", after.State.Writer)

	hostile := them.edit(t, configMaps, ns, "a", func(obj map[string]any) { set(t, obj, "w", "data", "k") })
	after = w.until(t, scope, ns, "a", at(hostile.GetResourceVersion()))
	assert.NotEqual(t, before.State.Fields, after.State.Fields, "the key belongs to us")

	us.delete(t, configMaps, ns, "a")
	require.NotNil(t, after.State)
	w.until(t, scope, ns, "a", gone)
}
