package pullsecret

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/fence"
	"github.com/cluster-version/cvo/test/env"
)

func TestPullSecretIsCopied(t *testing.T) {
	cfg := env.New(t, env.Options{Audit: env.AuditNone}).Config("test")
	core, err := corev1client.NewForConfig(cfg)
	require.NoError(t, err)
	for _, name := range []string{api.ConfigNamespace, api.OperatorNamespace} {
		_, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- NewKeeper(clock.RealClock{}, core, api.OperatorNamespace).Start(ctx) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
	copied := func(want string) {
		t.Helper()
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			secret, err := core.Secrets(api.OperatorNamespace).Get(ctx, api.PullSecretCopy, metav1.GetOptions{})
			if !assert.NoError(collect, err) {
				return
			}
			assert.JSONEq(collect, want, string(secret.Data[corev1.DockerConfigJsonKey]))
			assert.Equal(collect, corev1.SecretTypeDockerConfigJson, secret.Type)
		}, time.Minute, 50*time.Millisecond)
	}
	const first, second = `{"auths":{"a.example":{}}}`, `{"auths":{"b.example":{}}}`
	original, err := core.Secrets(api.ConfigNamespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: api.PullSecret}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(first)},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	copied(first)

	original.Data[corev1.DockerConfigJsonKey] = []byte(second)
	_, err = core.Secrets(api.ConfigNamespace).Update(ctx, original, metav1.UpdateOptions{})
	require.NoError(t, err)
	copied(second)

	require.NoError(t, core.Secrets(api.OperatorNamespace).Delete(ctx, api.PullSecretCopy, metav1.DeleteOptions{}))
	copied(second)

	require.NoError(t, core.Secrets(api.ConfigNamespace).Delete(ctx, api.PullSecret, metav1.DeleteOptions{}))
	_, err = core.Secrets(api.ConfigNamespace).Get(ctx, api.PullSecret, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))
	copied(second)
}

// TestPullSecretFightIsBounded reverts every write of the copy, as another client might. This must not cause endless writes.
func TestPullSecretFightIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		writes := 0
		client.PrependReactor("patch", "secrets", func(clientgotesting.Action) (bool, runtime.Object, error) {
			writes++
			return true, &corev1.Secret{}, nil
		})
		k := NewKeeper(clock.RealClock{}, client.CoreV1(), api.OperatorNamespace)
		secret := func(data string) *corev1.Secret {
			return &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(data)}}
		}
		k.original, k.copy = secret("ours"), secret("theirs")
		for range 100 {
			_ = k.keep(t.Context())
		}
		assert.Equal(t, fence.RepairsAtOnce, writes)
		require.ErrorIs(t, k.keep(t.Context()), fence.ErrTooMany)
		time.Sleep(fence.RepairsEvery)
		require.NoError(t, k.keep(t.Context()))
	})
}
