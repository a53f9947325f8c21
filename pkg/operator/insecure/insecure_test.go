package insecure_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/operator/insecure"
)

// TestInsecureRegistriesAreReportedOnChange edits the list while a Reporter runs, and lets the first reading fail. The test of the operator
// as a process covers the API server.
func TestInsecureRegistriesAreReportedOnChange(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, configv1.Install(scheme))
	var fails atomic.Bool
	fails.Store(true)
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.RegistriesConfigMap}, Data: map[string]string{"insecure-registries": "b.example"},
	}
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(cm, &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}).Build(),
		interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if fails.Load() {
				return errors.New("unavailable")
			}
			return c.Get(ctx, key, obj, opts...)
		}})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		recorder := record.NewFakeRecorder(10)
		r := insecure.New(clock.RealClock{}, c, event.Emitter{Recorder: recorder, Namespace: "ns"}, "version", []string{"a.example"})
		done := make(chan struct{})
		go func() {
			defer close(done)
			assert.NoError(t, r.Start(ctx))
		}()
		said := func() string {
			synctest.Wait()
			select {
			case text := <-recorder.Events:
				return strings.TrimPrefix(text, "Warning InsecureRegistries The operator contacts these registries without TLS, or without checking their certificates: ")
			default:
				return ""
			}
		}
		set := func(hosts string) {
			cm.Data["insecure-registries"] = hosts
			require.NoError(t, c.Update(ctx, cm))
			r.Changed()
		}
		assert.Empty(t, said())
		fails.Store(false)
		time.Sleep(30 * time.Second)
		assert.Equal(t, "a.example, b.example. Releases must still be signed.", said(), "a failed reading is repeated")
		r.Changed()
		assert.Empty(t, said(), "the list is the same")
		set("c.example")
		assert.Equal(t, "a.example, c.example. Releases must still be signed.", said())
		assert.Equal(t, []string{"a.example", "c.example"}, r.Registries())
		cancel()
		<-done
	})
}
