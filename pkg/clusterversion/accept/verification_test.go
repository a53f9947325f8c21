package accept_test

import (
	"errors"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/identity"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// TestOnlyRecordedReleasesNeedNoVerification covers every record that can make a release count as verified. All other releases have to be
// verified.
//
//threat:trust-policy-changes
func TestOnlyRecordedReleasesNeedNoVerification(t *testing.T) {
	recorded := func(version string) api.AcceptedRelease {
		return api.AcceptedRelease{ClusterVersionUID: "uid", Version: version, Image: imageOf(version), Evidence: []api.SignatureEvidence{{KeyID: "K"}}}
	}
	running := acceptedRelease("1.1.0")
	local := acceptedRelease("1.1.0")
	local.Verified = release.Verified{}
	bare, forced := recorded("1.1.0"), recorded("1.1.0")
	bare.Evidence = nil
	forced.Evidence, forced.Forced = nil, "no signature"
	tag := request.Target{Image: "example.com/r:stable", Requested: true}
	resolved := request.Target{Image: "example.com/r:stable", Digest: digestOf("1.1.0"), Requested: true}
	history := []configv1.UpdateHistory{completed("1.1.0"), completed("1.0.0")}
	for _, tt := range []struct {
		name     string
		running  *accept.Acceptance
		releases []api.AcceptedRelease
		uid      types.UID
		target   request.Target
		want     bool
	}{
		{"verifies a new request", &running, nil, "uid", request.Target{Image: imageOf("1.2.0"), Requested: true}, false},
		{"verifies a new request by tag, even for the running release", &running, []api.AcceptedRelease{recorded("1.1.0")}, "uid", tag, false},
		{"knows the release that this process accepted and runs", &running, nil, "uid", request.Target{Image: imageOf("1.1.0"), Requested: true}, true},
		{"knows an accepted tag by its digest", &running, nil, "uid", resolved, true},
		{"verifies a pullspec despite the operator's own files", &local, nil, "uid", request.Target{Image: imageOf("1.1.0"), Requested: true}, false},
		{"knows the newest release of the history by its record", nil, []api.AcceptedRelease{recorded("1.1.0")}, "uid", request.Target{Image: imageOf("1.1.0")}, true},
		{"knows a forced release by its record", nil, []api.AcceptedRelease{forced}, "uid", request.Target{Image: imageOf("1.1.0")}, true},
		{"verifies a requested older release", nil, []api.AcceptedRelease{recorded("1.1.0"), recorded("1.0.0")}, "uid", request.Target{Image: imageOf("1.0.0"), Requested: true}, false},
		{"knows the older release to which a canceled update returns", nil, []api.AcceptedRelease{recorded("1.0.0")}, "uid", request.Target{Image: imageOf("1.0.0"), Return: true}, true},
		{"verifies a recorded release that is not in the history", nil, []api.AcceptedRelease{recorded("1.2.0")}, "uid", request.Target{Image: imageOf("1.2.0"), Requested: true}, false},
		{"ignores a record of another digest", nil, []api.AcceptedRelease{recorded("6.6.6")}, "uid", request.Target{Image: imageOf("1.1.0")}, false},
		{"ignores a record of another ClusterVersion", nil, []api.AcceptedRelease{recorded("1.1.0")}, "another", request.Target{Image: imageOf("1.1.0")}, false},
		{"ignores a record without evidence", nil, []api.AcceptedRelease{bare}, "uid", request.Target{Image: imageOf("1.1.0")}, false},
		{"verifies a release without a record", nil, nil, "uid", request.Target{Image: imageOf("1.1.0")}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			owner := &configv1.ClusterVersion{}
			owner.UID = tt.uid
			id := identity.Recall(&api.ReleaseStatusStatus{Releases: tt.releases}, owner, nil, request.Target{}, "")
			in := accept.Input{ClusterVersion: clusterAt(history...), Identity: id}
			assert.Equal(t, tt.want, in.VerifiedBefore(tt.running, tt.target) != nil)
		})
	}
}

// TestAcceptanceVerifiesAgain accepts a release that was examined or rejected earlier. Its signature must be valid at the time of the
// acceptance, whatever the earlier result was.
//
//threat:trust-policy-changes
func TestAcceptanceVerifiesAgain(t *testing.T) {
	target := request.Target{Image: imageOf("1.1.0"), Requested: true}
	later := request.Target{Image: imageOf("1.3.0"), Requested: true}
	const from, nearer = "1.0.0", "1.2.0" // an update to 1.3.0 is rejected from the first and accepted from the second
	silent := func(accept.Acceptance) {}
	input := func(s *shelf, cv *configv1.ClusterVersion) accept.Input {
		return accept.Input{Stages: s.stages(), ClusterVersion: cv, Own: imageOf("1.0.0")}
	}
	t.Run("verifies after a preflight", func(t *testing.T) {
		s := newShelf("1.1.0")
		require.NoError(t, accept.Examine(t.Context(), input(s, clusterAt(completed("1.0.0"))), target, accept.Hooks{}).Err)
		clear(s.signed)
		a := accept.Run(t.Context(), input(s, clusterAt(completed("1.0.0"))), target, silent)
		require.ErrorIs(t, a.Err, errUnsigned)
	})
	t.Run("verifies after a failed verification", func(t *testing.T) {
		s := newShelf("1.1.0")
		clear(s.signed)
		a := accept.Run(t.Context(), input(s, clusterAt(completed("1.0.0"))), target, silent)
		require.ErrorIs(t, a.Err, errUnsigned)
		assert.False(t, a.Loaded(), "the preconditions alone are not checked again")
		again := accept.Run(t.Context(), input(s, clusterAt(completed("1.0.0"))), target, silent)
		require.ErrorIs(t, again.Err, errUnsigned)
	})
	t.Run("verifies after failed preconditions", func(t *testing.T) {
		s := newShelf("1.3.0")
		a := accept.Run(t.Context(), input(s, clusterAt(completed(from))), later, silent)
		require.Equal(t, api.ReasonPreconditionChecks, a.Step)
		require.Error(t, a.Err)
		clear(s.signed)
		again := accept.Again(t.Context(), input(s, clusterAt(completed(nearer))), a, silent)
		require.ErrorIs(t, again.Err, errUnsigned, "the trust policy has changed")
		assert.Equal(t, api.ReasonRetrievePayload, again.Step)
		assert.False(t, again.Done)
		assert.False(t, again.Loaded(), "the next attempt retrieves it again")
	})
	t.Run("accepts a release that is still signed without retrieving it again", func(t *testing.T) {
		s := newShelf("1.3.0")
		a := accept.Run(t.Context(), input(s, clusterAt(completed(from))), later, silent)
		require.Error(t, a.Err)
		pulled := len(s.pulled)
		again := accept.Again(t.Context(), input(s, clusterAt(completed(nearer))), a, silent)
		require.NoError(t, again.Err)
		assert.True(t, again.Done)
		assert.Len(t, s.pulled, pulled)
		assert.NotEmpty(t, again.Verified.Evidence)
	})
	t.Run("does not verify again while preconditions fail", func(t *testing.T) {
		s := newShelf("1.3.0")
		a := accept.Run(t.Context(), input(s, clusterAt(completed(from))), later, silent)
		asked := len(s.trusted)
		for range 3 {
			a = accept.Again(t.Context(), input(s, clusterAt(completed(from))), a, silent)
			require.Error(t, a.Err)
		}
		assert.Len(t, s.trusted, asked)
	})
	t.Run("does not verify a release that was forced past verification", func(t *testing.T) {
		s := newShelf("1.1.0")
		a := accept.Acceptance{Target: target, Update: payload.Update{Payload: &payload.Payload{Release: release.Release{Version: "1.1.0"}}}}
		a.Target.Force = true
		a.Verified = release.Verified{Image: release.Image{Pullspec: target.Image, Digest: digestOf("1.1.0")}, Forced: errors.New("no signature")}
		again := accept.Again(t.Context(), input(s, clusterAt(completed("1.0.0"))), a, silent)
		require.NoError(t, again.Err)
		assert.Empty(t, s.trusted)
	})
}
