package clusterversion

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestNextReleaseStatus(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	accepted := func(version string, forced error, evidence ...release.Evidence) Acceptance {
		img := release.Image{Pullspec: "example.com/r", Digest: digestOf(version)}
		return Acceptance{
			Verified: release.Verified{Image: img, Evidence: evidence, Forced: forced},
			Payload:  &payload.Payload{Release: release.Release{Version: version}},
		}
	}
	signed := func(key, store string) release.Evidence {
		return release.Evidence{Root: "team", Method: "openpgp", KeyID: key, Store: store, SignedAt: now}
	}
	next := func(old api.ReleaseStatusStatus, a Acceptance, later time.Duration) api.ReleaseStatusStatus {
		return nextReleaseStatus(old, a, now.Add(later), Options{Name: "version", Namespace: "ns"})
	}
	first := next(api.ReleaseStatusStatus{}, accepted("1.0.0", nil, signed("A", "https://store")), 0)
	assert.Equal(t, "https://store", first.Releases[0].Evidence[0].Store)
	assert.Equal(t, api.InventoryReference{Namespace: "ns", Selector: api.InventoryLabel + "=version"}, first.Inventory)

	for _, test := range []struct {
		name string
		next Acceptance
		same bool
	}{
		{"it stays when the same signer is found in another place", accepted("1.0.0", nil, signed("A", "ConfigMap")), true},
		{"it stays when the operator is started from the release", accepted("1.0.0", nil), true},
		{"it tells of another signer", accepted("1.0.0", nil, signed("B", "https://store")), false},
		{"it tells that the release was forced", accepted("1.0.0", errors.New("nobody signed")), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			second := next(first, test.next, time.Hour)
			assert.Len(t, second.Releases, 1)
			assert.Equal(t, first.Releases[0].AcceptedAt, second.Releases[0].AcceptedAt)
			assert.Equal(t, test.same, assert.ObjectsAreEqual(first, second))
		})
	}

	t.Run("it remembers so many releases and no more", func(t *testing.T) {
		status := first
		for i := range api.ReleaseStatusReleases + 3 {
			status = next(status, accepted("1.1."+string(rune('a'+i)), nil), time.Hour)
		}
		assert.Len(t, status.Releases, api.ReleaseStatusReleases)
		assert.Equal(t, "1.1.m", status.Releases[0].Version)
	})
}
