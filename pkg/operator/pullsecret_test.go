package operator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
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
	go func() { ended <- newPullSecretKeeper(clock.RealClock{}, core, api.OperatorNamespace).Start(ctx) }()
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
