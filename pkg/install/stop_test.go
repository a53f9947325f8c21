package install_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/install"
)

// giveWord plays an operator that finds itself named on a Lease which an uninstall has.
func giveWord(ctx context.Context, c client.Client, identity string) error {
	key := client.ObjectKey{Namespace: api.OperatorNamespace, Name: "version"}
	for ctx.Err() == nil {
		lease := &coordinationv1.Lease{}
		err := c.Get(ctx, key, lease)
		if err == nil && *lease.Spec.HolderIdentity == api.UninstallHolder && lease.Annotations[api.FencedFromAnnotation] == identity {
			delete(lease.Annotations, api.FencedFromAnnotation)
			delete(lease.Annotations, api.FencedUntilAnnotation)
			if c.Update(ctx, lease) == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(stepTick):
		}
	}
	return ctx.Err()
}

// TestUninstallHearsWord has whoever led before give its word. Without it each of these uninstalls would wait for longer
// than the test lets it.
func TestUninstallHearsWord(t *testing.T) {
	t.Parallel()
	const seconds = 300
	cfg, c, _ := installed(t)
	lease := leaseOf("somewhere_1", seconds)
	require.NoError(t, c.Create(t.Context(), lease))
	said := make(chan error, 1)
	go func() { said <- giveWord(t.Context(), c, "somewhere_1") }()

	// Nobody collects garbage, so the ClusterVersion stays, and the uninstall is interrupted after the operator is stopped.
	interrupted := func() {
		t.Helper()
		ctx, interrupt := context.WithTimeout(t.Context(), 2*stepTimeout)
		defer interrupt()
		_, err := install.Uninstall(ctx, clock.RealClock{}, cfg, install.Removal{}, func(install.Result) {}, func(text string) {
			if strings.HasPrefix(text, "waiting for the end of ClusterVersion version") {
				interrupt()
			}
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "deleting the ClusterVersion")
		require.True(t, there(t, c, lease))
		assert.Empty(t, *lease.Spec.HolderIdentity, "an operator need not wait")
		assert.NotContains(t, lease.Annotations, api.FencedFromAnnotation)
	}
	interrupted()
	require.NoError(t, <-said)

	// An uninstall was killed, and the word is given before, or while, another one goes on.
	killed := func(annotations map[string]string) {
		t.Helper()
		require.True(t, there(t, c, lease))
		lease.Spec, lease.Annotations = leaseOf(api.UninstallHolder, seconds).Spec, annotations
		require.NoError(t, c.Update(t.Context(), lease))
	}
	named := func() map[string]string {
		return map[string]string{
			api.FencedFromAnnotation: "somewhere_2", api.FencedUntilAnnotation: time.Now().Add(seconds * time.Second).UTC().Format(time.RFC3339Nano),
		}
	}
	killed(nil)
	interrupted()
	killed(named())
	go func() { said <- giveWord(t.Context(), c, "somewhere_2") }()
	interrupted()
	require.NoError(t, <-said)
}

// TestUninstallWithoutWord has an operator lead that gives none, as those of earlier versions, and somebody else give one.
func TestUninstallWithoutWord(t *testing.T) {
	t.Parallel()
	const seconds = 6
	cfg, c, _ := installed(t)
	collectGarbage(t, c)
	lease := leaseOf("somewhere_1", seconds)
	require.NoError(t, c.Create(t.Context(), lease))
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan error, 1)
	go func() { said <- giveWord(ctx, c, "somewhere_2") }()
	began := time.Now()
	told := false
	_, err := install.Uninstall(t.Context(), clock.RealClock{}, cfg, install.Removal{}, func(install.Result) {
		assert.GreaterOrEqual(t, time.Since(began), seconds*time.Second, "nothing is deleted before")
	}, func(text string) {
		told = told || strings.HasSuffix(text, ", for operator somewhere_1 to notice that it leads no more")
	})
	require.NoError(t, err)
	assert.True(t, told)
	cancel()
	require.ErrorIs(t, <-said, context.Canceled)
}
