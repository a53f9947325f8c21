package releasestatus

import (
	"context"
	"errors"
	"slices"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// TestOverridesAreComparedOnceForEachPayload removes the manifests of a payload between two writes to detect a second comparison.
func TestOverridesAreComparedOnceForEachPayload(t *testing.T) {
	object := &heldRecord{status: &api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{Name: "version"}}}
	r := New(clocktesting.NewFakePassiveClock(now), object, "version", "ns")
	r.Read(Found{Object: object.status})
	containing := func(name string) *payload.Payload {
		manifests, err := manifest.Parse("0000_50_x_y.yaml", []byte("{apiVersion: v1, kind: Secret, metadata: {namespace: ns, name: "+name+"}}"), manifest.Limits{})
		require.NoError(t, err)
		return &payload.Payload{Manifests: manifests}
	}
	var recorded []manifest.ID
	var unreadable error
	inInventory := func(context.Context) ([]manifest.ID, error) { return slices.Clone(recorded), unreadable }
	isUnmatched := func(p *payload.Payload, names ...string) bool {
		var overrides []configv1.ComponentOverride
		for _, name := range names {
			overrides = append(overrides, configv1.ComponentOverride{Kind: "Secret", Namespace: "ns", Name: name, Unmanaged: true})
		}
		_, err := r.Keep(t.Context(), Content{Identity: oneRelease(), NamesService: true, Payload: p, Overrides: overrides, Recorded: inInventory})
		require.NoError(t, err)
		return r.UnmatchedOverrides() != ""
	}
	first, second := containing("first"), containing("second")
	assert.False(t, isUnmatched(first, "first"))
	assert.True(t, isUnmatched(second, "first"), "the payload has changed")
	assert.True(t, isUnmatched(nil, "first"), "unknown without a payload")
	assert.False(t, isUnmatched(second, "second"), "the overrides have changed")
	second.Manifests = nil
	assert.False(t, isUnmatched(second, "second"), "nothing has changed")
	assert.True(t, isUnmatched(second, "second", "third"))
	unreadable = errors.New("no answer")
	assert.True(t, isUnmatched(second, "fourth", "first"), "the last comparison stays")
	unreadable, recorded = nil, []manifest.ID{{Kind: "Secret", Namespace: "ns", Name: "first"}, {Kind: "Secret", Namespace: "ns", Name: "fourth"}}
	assert.False(t, isUnmatched(second, "fourth", "first"), "an override also keeps an orphan")
	assert.False(t, isUnmatched(nil), "without overrides, no payload is needed")
}

// TestUnmatchedOverridesNeedNoStoredCondition also covers a process that starts after the condition was stored.
func TestUnmatchedOverridesNeedNoStoredCondition(t *testing.T) {
	const stored = "the message of an earlier process"
	object := &api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
	meta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{
		Type: api.ConditionOverridesMatch, Status: metav1.ConditionFalse, Reason: api.ReasonOverrideUnmatched, Message: stored,
	})
	r := New(clocktesting.NewFakePassiveClock(now), nil, "version", "ns") // the kind is not served
	r.Read(Found{Object: object})
	overrides := []configv1.ComponentOverride{{Kind: "Secret", Namespace: "ns", Name: "a", Unmanaged: true}}
	_, err := r.Keep(t.Context(), Content{Overrides: overrides})
	require.NoError(t, err)
	assert.Equal(t, stored, r.UnmatchedOverrides())
	_, err = r.Keep(t.Context(), Content{Overrides: overrides, Payload: &payload.Payload{}, Recorded: func(context.Context) ([]manifest.ID, error) { return nil, nil }})
	require.NoError(t, err)
	assert.Contains(t, r.UnmatchedOverrides(), `kind "Secret", namespace "ns", name "a"`)

	r = New(clocktesting.NewFakePassiveClock(now), nil, "version", "ns")
	r.Read(Found{Object: object})
	_, err = r.Keep(t.Context(), Content{})
	require.NoError(t, err)
	assert.Empty(t, r.UnmatchedOverrides(), "the overrides are gone since the earlier process")
}
