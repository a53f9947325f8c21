package clusterversion

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/payload"
)

func TestFormerReadsTheEarlierReleasesOnce(t *testing.T) {
	of := func(version string) *manifest.Manifest {
		list, err := manifest.Parse(version+".yaml", []byte("{apiVersion: v1, kind: ConfigMap, metadata: {namespace: a, name: b}}"), manifest.Limits{})
		require.NoError(t, err)
		return list[0]
	}
	clk := clocktesting.NewFakePassiveClock(time.Now())
	var err error
	reads := 0
	f := &former{
		clock: clk, targets: []request.Target{{Version: "1.1.0"}, {Version: "1.0.0"}},
		read: func(_ context.Context, target request.Target) (payload.Update, error) {
			reads++
			return payload.Update{Payload: &payload.Payload{Manifests: []*manifest.Manifest{of(target.Version)}}}, err
		},
	}
	ask := func() ([]*manifest.Manifest, error) { return f.manifests(t.Context(), of("x").ID()) }

	err = errors.New("away")
	_, got := ask()
	require.EqualError(t, got, "release 1.1.0 cannot be read: away")
	_, got = ask()
	require.NotErrorIs(t, got, apply.ErrNoFormer)
	assert.Equal(t, 1, reads, "another object does not repeat the attempt at once")
	clk.SetTime(clk.Now().Add(formerRetry))
	err = nil
	list, got := ask()
	require.NoError(t, got)
	assert.Len(t, list, 2)
	_, _ = ask()
	assert.Equal(t, 3, reads, "the result is kept")
}

// A worker whose rollout has ended does not wait for the read of another one, and the read continues.
func TestFormerSharesARead(t *testing.T) {
	reads, blocked := make(chan struct{}, 2), make(chan struct{})
	f := &former{
		clock: clocktesting.NewFakePassiveClock(time.Now()), targets: []request.Target{{Version: "1.0.0"}},
		read: func(ctx context.Context, _ request.Target) (payload.Update, error) {
			reads <- struct{}{}
			<-blocked
			return payload.Update{Payload: &payload.Payload{}}, ctx.Err()
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { _, err := f.manifests(ctx, manifest.ID{}); first <- err }()
	<-reads
	ended, end := context.WithCancel(t.Context())
	end()
	_, err := f.manifests(ended, manifest.ID{})
	require.ErrorIs(t, err, context.Canceled)
	cancel()
	require.ErrorIs(t, <-first, context.Canceled)
	close(blocked)
	_, err = f.manifests(t.Context(), manifest.ID{})
	require.NoError(t, err, "the canceled caller does not end the read")
	assert.Empty(t, reads, "the result is kept")
}

func TestFormerGivesUp(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		after time.Duration
	}{
		{"at once if the release is gone", fmt.Errorf("x: %w", failure.ErrNotFound), 0},
		{"after a while if the registry is away", errors.New("away"), formerPatience},
	} {
		t.Run("it gives up "+tt.name, func(t *testing.T) {
			clk := clocktesting.NewFakePassiveClock(time.Now())
			began := clk.Now()
			f := &former{clock: clk, targets: []request.Target{{Version: "1.0.0"}}, read: func(context.Context, request.Target) (payload.Update, error) {
				return payload.Update{}, tt.err
			}}
			for {
				_, err := f.manifests(t.Context(), manifest.ID{})
				if errors.Is(err, apply.ErrNoFormer) {
					break
				}
				require.Error(t, err)
				clk.SetTime(clk.Now().Add(2*formerRetry + time.Second))
				require.LessOrEqual(t, clk.Since(began), formerPatience+2*formerRetry)
			}
			assert.GreaterOrEqual(t, clk.Since(began), tt.after)
		})
	}
}
