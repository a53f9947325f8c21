package env_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cluster-version/cvo/test/env"
)

// TestObjectsSurviveFaults kills the API server and stops etcd. All objects are unchanged afterwards.
func TestObjectsSurviveFaults(t *testing.T) {
	e := env.New(t, env.Options{Audit: env.AuditNone})
	maps := kubernetes.NewForConfigOrDie(e.Config("test")).CoreV1().ConfigMaps("default")
	create := func(ctx context.Context, name string) error {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	require.NoError(t, create(t.Context(), "before"))

	require.NoError(t, e.KillAPIServer())
	require.Eventually(t, func() bool { // a dying server still responds
		err := create(t.Context(), "during")
		return err != nil && !apierrors.IsAlreadyExists(err)
	}, time.Minute, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, e.StartAPIServer(ctx))
	_, err := maps.Get(t.Context(), "before", metav1.GetOptions{})
	require.NoError(t, err, "the same port serves the same data")

	resume, err := e.PauseEtcd()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, resume()) }) // otherwise etcd could not be stopped
	require.Eventually(t, func() bool {               // earlier requests may still be answered
		soon, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer stop()
		err := create(soon, "paused")
		return err != nil && !apierrors.IsAlreadyExists(err)
	}, time.Minute, time.Millisecond)
	require.NoError(t, resume())
	assert.Eventually(t, func() bool { return create(t.Context(), "after") == nil }, time.Minute, 100*time.Millisecond)
}
