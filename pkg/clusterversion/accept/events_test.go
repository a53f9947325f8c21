package accept_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/precondition"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

func TestRetriesEmitNoRepeatedEvents(t *testing.T) {
	failed := accept.Acceptance{Step: "RetrievePayload", Message: "m1", Err: errors.New("e")}
	other := failed
	other.Message = "m2"
	assert.Equal(t, []string{"RetrievePayloadFailed"}, reasonsOf(accept.Events(accept.Acceptance{Step: "RetrievePayload"}, failed)))
	assert.Empty(t, accept.Events(failed, failed), "a repeated failure emits nothing")
	assert.Equal(t, []event.Event{{Kind: "Warning", Reason: "RetrievePayloadFailed", Message: "m2"}}, accept.Events(failed, other))

	// A retry is reported after it has succeeded.
	done := acceptedRelease("1.1.0")
	assert.Equal(t, []string{"PreconditionsPassed", "PayloadLoaded"}, reasonsOf(accept.Events(failed, done)))
	done.Verified = release.Verified{Forced: errUnsigned}
	assert.Equal(t, []string{"RetrievePayload", "PreconditionsPassed", "PayloadLoaded"}, reasonsOf(accept.Events(failed, done)), "force always emits an event")
	assert.Empty(t, accept.Events(done, done))
}

func TestPreconditionsDecideAcceptance(t *testing.T) {
	objects := upgradeable.Obstacle{Source: "X", Reason: "Y", Message: "Z.", Risk: "SomeRisk"}
	accepting := func(names ...string) *configv1.ClusterVersion {
		cv := clusterAt(completed("1.0.0"))
		cv.Spec.DesiredUpdate = &configv1.Update{}
		for _, name := range names {
			cv.Spec.DesiredUpdate.AcceptRisks = append(cv.Spec.DesiredUpdate.AcceptRisks, configv1.AcceptRisk{Name: name})
		}
		return cv
	}
	for _, tt := range []struct {
		name          string
		cv            *configv1.ClusterVersion
		server        precondition.Server
		refused, risk string
		// pending adds a pending obstacle.
		pending, undecided bool
	}{
		{name: "rejects a minor update with an obstacle", cv: accepting(), refused: `Precondition "ClusterVersionUpgradeable" failed because of "Y": Z.`},
		{name: "ignores other accepted risks", cv: accepting("OtherRisk"), refused: `Precondition "ClusterVersionUpgradeable" failed because of "Y": Z.`},
		{name: "accepts and records a risk that was accepted by name", cv: accepting("SomeRisk"), risk: `Precondition "ClusterVersionUpgradeable" failed because of "Y": Z.`},
		{name: "is undecided if only a pending obstacle blocks", cv: accepting("SomeRisk"), pending: true, undecided: true, refused: `Precondition "ClusterVersionUpgradeable" failed because of "UnknownError": Q.`},
		{name: "is decided if another obstacle blocks", cv: accepting(), pending: true, refused: `Precondition "ClusterVersionUpgradeable" failed because of "Y": Z.`},
		{
			name: "is decided if another precondition blocks", cv: accepting("SomeRisk"), pending: true, server: precondition.Server{Err: context.DeadlineExceeded},
			refused: `Precondition "RemovedAPI" failed because of "UnknownError": Cannot read the APIs of the API server: context deadline exceeded`,
		},
		{name: "accepts a pending risk by name", cv: accepting("SomeRisk", "PendingRisk"), pending: true, risk: `Precondition "ClusterVersionUpgradeable" failed because of "Y": Z.`},
		{name: "continues an update under way", cv: clusterAt(partial("1.1.0"), completed("1.0.0")), server: precondition.Server{Err: context.DeadlineExceeded}},
		{
			name: "rejects the release while the API server does not answer", cv: accepting("SomeRisk"), server: precondition.Server{Err: context.DeadlineExceeded},
			refused: `Precondition "RemovedAPI" failed because of "UnknownError": Cannot read the APIs of the API server: context deadline exceeded`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stages := newShelf("1.1.0").stages()
			stages.Server = func(context.Context) precondition.Server { return tt.server }
			found := []upgradeable.Obstacle{objects}
			if tt.pending {
				found = append(found, upgradeable.Obstacle{Source: "P", Reason: "EvaluationFailed", Message: "Q.", Risk: "PendingRisk", Unknown: true, Pending: true})
			}
			stages.Obstacles = func(*configv1.ClusterVersion) []upgradeable.Obstacle { return found }
			a, _ := try(t, accept.Input{Stages: stages, ClusterVersion: tt.cv}, request.Target{Image: imageOf("1.1.0")})
			if tt.refused != "" {
				require.EqualError(t, a.Err, tt.refused)
				assert.Equal(t, found, a.Obstacles)
				assert.Equal(t, tt.undecided, a.Undecided)
				return
			}
			require.NoError(t, a.Err)
			assert.Equal(t, tt.risk, a.Risks)
		})
	}
}

// TestRepeatedFailureKeepsItsMessage meets a registry that resets each connection. The message stays the same.
func TestRepeatedFailureKeepsItsMessage(t *testing.T) {
	reset := func(port int) error {
		return fmt.Errorf("read tcp 10.0.0.1:%d->10.0.0.2:443: connection reset by peer", port)
	}
	t.Run("rejects the release", func(t *testing.T) {
		message := func(port int) string {
			in := accept.Input{Stages: accept.Stages{Outside: func(context.Context, *configv1.ClusterVersion) (accept.Outside, error) { return nil, reset(port) }}}
			return accept.Run(t.Context(), in, request.Target{Image: "r"}, func(accept.Acceptance) {}).Message
		}
		assert.Contains(t, message(1), "connection reset")
		assert.Equal(t, message(1), message(2))
	})
}
