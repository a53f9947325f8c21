package certificate

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/fence"
	"github.com/cluster-version/cvo/test/env"
	testauthority "github.com/cluster-version/cvo/test/fixture/authority"
)

// controlPlane is the control plane of all tests in this package.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// service is the name of the Service in the certificates of these tests.
const service = "cluster-version-operator"

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// kept is a replica's running keeper.
type kept struct {
	*Keeper

	clock *testingclock.FakeClock
	// cluster is the client of the test itself.
	cluster corev1client.CoreV1Interface
	// writes counts the keeper's write requests, and reads its other requests except watches.
	writes, reads atomic.Int64
}

// newServingNamespace creates the namespace that the certificates' server names contain.
func newServingNamespace(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(t.Name())
	_, err := kubernetes.NewForConfigOrDie(controlPlane.For(t).Config("test")).CoreV1().Namespaces().
		Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return name
}

func keepServing(t *testing.T, cfg *rest.Config, namespace string, start time.Time) *kept {
	t.Helper()
	k := &kept{clock: testingclock.NewFakeClock(start), cluster: kubernetes.NewForConfigOrDie(controlPlane.For(t).Config("test")).CoreV1()}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			switch {
			case req.Method != http.MethodGet:
				defer k.writes.Add(1) // after the write has taken effect
			case req.URL.Query().Get("watch") == "":
				k.reads.Add(1)
			}
			return next.RoundTrip(req)
		})
	})
	core, err := corev1client.NewForConfig(cfg)
	require.NoError(t, err)
	certificate, err := New(k.clock, Options{Service: service, Namespace: namespace})
	require.NoError(t, err)
	k.Keeper = NewKeeper(k.clock, core, KeeperOptions{Namespace: namespace, Name: api.ServingCAName, Owner: "version operator"}, certificate)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("keeping the serving CA: %v", err)
		}
	})
	return k
}

// set sets the replica's clock and wakes the keeper, even if it was about to wait.
func (k *kept) set(now time.Time) {
	k.clock.SetTime(now)
	k.changes.Signal()
}

func (k *kept) leaf() *x509.Certificate { return k.certificate.own.Load().Leaf }

// published returns the current bundle for clients. It does not fail the test, because it is called while waiting.
func (k *kept) published(t *testing.T) string {
	t.Helper()
	cm, err := k.cluster.ConfigMaps(k.options.Namespace).Get(t.Context(), api.ServingCAName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return ""
	case err != nil:
		return err.Error() // neither a bundle nor empty
	}
	return cm.Data[api.CABundleKey]
}

// trusted waits until clients with the current bundle trust all replicas.
func trusted(t *testing.T, replicas ...*kept) (bundle string) {
	t.Helper()
	require.Eventually(t, func() bool {
		bundle = replicas[0].published(t)
		for _, k := range replicas {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM([]byte(bundle))
			_, err := k.leaf().Verify(x509.VerifyOptions{
				Roots: roots, CurrentTime: k.clock.Now(), DNSName: "cluster-version-operator." + k.options.Namespace + ".svc.cluster.local",
			})
			if err != nil {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond)
	return bundle
}

func TestServingCAIsSharedByReplicas(t *testing.T) {
	namespace, start := newServingNamespace(t), time.Now()
	cfg := controlPlane.For(t).Config("test")
	replicas := []*kept{keepServing(t, cfg, namespace, start), keepServing(t, cfg, namespace, start.Add(10*time.Minute)), keepServing(t, cfg, namespace, start)}
	before := map[*kept]string{}
	for _, k := range replicas {
		before[k] = k.certificate.Fingerprint()
	}
	bundle := trusted(t, replicas...)
	assert.Equal(t, 1, strings.Count(bundle, "BEGIN CERTIFICATE"), "one CA from the first writer")

	year := start.Add(caLifetime - caRenewal + time.Hour)
	for _, k := range replicas {
		k.set(year)
	}
	require.Eventually(t, func() bool { return strings.Count(replicas[0].published(t), "BEGIN CERTIFICATE") == 2 }, time.Minute, 10*time.Millisecond)
	both := trusted(t, replicas...)
	for _, k := range replicas {
		require.NoError(t, verifiesWith(bundle, k), "the next CA does not sign yet")
	}
	for _, k := range replicas {
		k.set(year.Add(caPublished + time.Hour))
	}
	require.Eventually(t, func() bool {
		for _, k := range replicas {
			if verifiesWith(bundle, k) == nil || verifiesWith(both, k) != nil {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond, "the next CA signs for all replicas")
	trusted(t, replicas...)
	for _, k := range replicas {
		assert.Equal(t, before[k], k.certificate.Fingerprint(), "the key in the Lease does not change")
		k.set(year.Add(caPublished + caKept + 2*time.Hour))
	}
	require.Eventually(t, func() bool {
		now := replicas[0].published(t)
		return strings.Count(now, "BEGIN CERTIFICATE") == 1 && !strings.Contains(now, strings.TrimSpace(bundle))
	}, time.Minute, 10*time.Millisecond, "the old CA is removed")
	trusted(t, replicas...)
}

func verifiesWith(bundle string, k *kept) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(bundle))
	_, err := k.leaf().Verify(x509.VerifyOptions{Roots: roots, CurrentTime: k.clock.Now()})
	return err
}

func TestDeletedServingCAIsRestored(t *testing.T) {
	namespace := newServingNamespace(t)
	k := keepServing(t, controlPlane.For(t).Config("test"), namespace, time.Now())
	bundle := trusted(t, k)
	secrets, configMaps := k.cluster.Secrets(namespace), k.cluster.ConfigMaps(namespace)
	same := func() bool {
		secret, err := secrets.Get(t.Context(), api.ServingCAName, metav1.GetOptions{})
		if err != nil {
			return false
		}
		ca, err := parseAuthority(service, secret.Data)
		return err == nil && ca.bundle() == bundle && k.published(t) == bundle
	}
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T) error
	}{
		{"a deleted Secret", func(t *testing.T) error {
			return secrets.Delete(t.Context(), api.ServingCAName, metav1.DeleteOptions{})
		}},
		{"a damaged Secret", func(t *testing.T) error {
			_, err := secrets.Patch(t.Context(), api.ServingCAName, "application/merge-patch+json", []byte(`{"data":{"tls.key":"eA=="}}`), metav1.PatchOptions{})
			return err
		}},
		{"a deleted ConfigMap", func(t *testing.T) error {
			return configMaps.Delete(t.Context(), api.ServingCAName, metav1.DeleteOptions{})
		}},
		{"an emptied ConfigMap", func(t *testing.T) error {
			_, err := configMaps.Patch(t.Context(), api.ServingCAName, "application/merge-patch+json", []byte(`{"data":null}`), metav1.PatchOptions{})
			return err
		}},
	} {
		t.Run("it restores "+c.name, func(t *testing.T) {
			require.NoError(t, c.spoil(t))
			require.Eventually(t, same, time.Minute, 10*time.Millisecond)
		})
	}

	other, err := newAuthority(service, time.Now())
	require.NoError(t, err)
	data, err := other.data()
	require.NoError(t, err)
	secret, err := secrets.Get(t.Context(), api.ServingCAName, metav1.GetOptions{})
	require.NoError(t, err)
	secret.Data = data
	_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return k.published(t) == other.bundle() }, time.Minute, 10*time.Millisecond, "an administrator's CA is used")
	trusted(t, k)
}

// TestServingCAIsRestoredWithinBounds keeps deleting the Secret, which must not cause endless writes.
func TestServingCAIsRestoredWithinBounds(t *testing.T) {
	namespace := newServingNamespace(t)
	k := keepServing(t, controlPlane.For(t).Config("test"), namespace, time.Now())
	trusted(t, k)
	gone := func() bool {
		_, err := k.cluster.ConfigMaps(namespace).Get(t.Context(), api.ServingCAName, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
	deleted := 0
	require.Eventually(t, func() bool {
		if err := k.cluster.ConfigMaps(namespace).Delete(t.Context(), api.ServingCAName, metav1.DeleteOptions{}); err == nil {
			deleted++
		}
		return k.writes.Load() >= fence.RepairsAtOnce && gone()
	}, time.Minute, 10*time.Millisecond)
	assert.Equal(t, int64(fence.RepairsAtOnce), k.writes.Load())
	assert.Equal(t, fence.RepairsAtOnce-1, deleted, "the Secret was the first write")
	k.set(k.clock.Now().Add(fence.RepairsEvery))
	require.Eventually(t, func() bool { return !gone() }, time.Minute, 10*time.Millisecond, "the Secret is restored again a minute later")
	assert.LessOrEqual(t, k.reads.Load(), int64(2), "at most one list per object, or none if the API server streams them")
}

// TestServingCADeletedDuringItsWriteIsRestored deletes the Secret so early that the watch may report the deletion before the write has
// returned.
func TestServingCADeletedDuringItsWriteIsRestored(t *testing.T) {
	namespace := newServingNamespace(t)
	running := make(chan *kept, 1)
	var once atomic.Bool
	deleted := make(chan struct{})
	cfg := controlPlane.For(t).Config("test")
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(req)
			if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/configmaps") || once.Swap(true) {
				return response, err
			}
			k := <-running
			deletion := k.cluster.ConfigMaps(namespace).Delete(t.Context(), api.ServingCAName, metav1.DeleteOptions{})
			assert.NoError(t, deletion) //nolint:testifylint // not the test's goroutine
			assert.Eventually(t, func() bool {
				events := 0
				k.changes.Locked(func() { events = k.bundle.Events })
				return events == 2
			}, time.Minute, 10*time.Millisecond, "the watch reports the creation and the deletion")
			close(deleted)
			return response, err
		})
	})
	k := keepServing(t, cfg, namespace, time.Now())
	running <- k
	<-deleted
	trusted(t, k)
}

// servingRules returns exactly the rules that the keeper needs.
func servingRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}, ResourceNames: []string{api.ServingCAName}, Verbs: []string{"get", "list", "watch", "update"}},
	}
}

func TestServingCAIsSharedOnceThePermissionIsGranted(t *testing.T) {
	namespace := newServingNamespace(t)
	user, err := controlPlane.For(t).User("serving-keeper")
	require.NoError(t, err)
	cfg := user
	k := keepServing(t, cfg, namespace, time.Now())
	assert.NotNil(t, k.certificate.own.Load(), "the replica serves without the permission")

	rbac := kubernetes.NewForConfigOrDie(controlPlane.For(t).Config("test")).RbacV1()
	_, err = rbac.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "keeper"}, Rules: servingRules()}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "keeper"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "serving-keeper"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "keeper"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	trusted(t, k)
}

func TestGivenCertificateServesUntilItExpires(t *testing.T) {
	certificate, key := issuedPair(t)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	require.NoError(t, os.WriteFile(certFile, certificate, 0o600))
	require.NoError(t, os.WriteFile(keyFile, key, 0o600))
	clk := testingclock.NewFakePassiveClock(time.Now())
	c, err := New(clk, Options{CertFile: certFile, KeyFile: keyFile, Optional: true})
	require.NoError(t, err)
	assert.NotNil(t, c.given.current())
	clk.SetTime(time.Now().Add(2 * time.Hour))
	assert.Nil(t, c.given.current(), "an expired certificate is not served")
}

// issuedPair returns a certificate and its key in PEM from another CA, valid for an hour.
func issuedPair(t *testing.T) (certificate, key []byte) {
	t.Helper()
	issuer, err := testauthority.New("given")
	require.NoError(t, err)
	pair, err := issuer.Sign(x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotAfter: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	certificate, key, err = testauthority.PEM(pair)
	require.NoError(t, err)
	return certificate, key
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
