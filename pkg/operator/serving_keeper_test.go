package operator

import (
	"context"
	"crypto/x509"
	"net/http"
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
)

// kept is a replica's keeper that runs.
type kept struct {
	*servingKeeper

	clock *testingclock.FakeClock
	// cluster is for what the test asks.
	cluster corev1client.CoreV1Interface
	// writes counts what it asked the API server to change, reads what else but watches.
	writes, reads atomic.Int64
}

// newServingNamespace has the name that certificates are made for in these tests.
func newServingNamespace(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(t.Name())
	_, err := kubernetes.NewForConfigOrDie(controlPlane.Config("test")).CoreV1().Namespaces().
		Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return name
}

func keepServing(t *testing.T, cfg *rest.Config, namespace string, start time.Time) *kept {
	t.Helper()
	k := &kept{clock: testingclock.NewFakeClock(start), cluster: kubernetes.NewForConfigOrDie(controlPlane.Config("test")).CoreV1()}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			switch {
			case req.Method != http.MethodGet:
				defer k.writes.Add(1) // once it has had its effect
			case req.URL.Query().Get("watch") == "":
				k.reads.Add(1)
			}
			return next.RoundTrip(req)
		})
	})
	core, err := corev1client.NewForConfig(cfg)
	require.NoError(t, err)
	certificate, err := newCertificate(k.clock, Options{Namespace: namespace})
	require.NoError(t, err)
	k.servingKeeper = newServingKeeper(k.clock, core, namespace, certificate)
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

// set moves the replica's clock. It looks at it even if it was about to wait.
func (k *kept) set(now time.Time) {
	k.clock.SetTime(now)
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

func (k *kept) leaf() *x509.Certificate { return k.certificate.own.Load().Leaf }

// published is what clients trust now. It is asked while something is waited for, where a test cannot be ended.
func (k *kept) published(t *testing.T) string {
	t.Helper()
	cm, err := k.cluster.ConfigMaps(k.namespace).Get(t.Context(), api.ServingCAName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return ""
	case err != nil:
		return err.Error() // no bundle, and not none
	}
	return cm.Data[api.CABundleKey]
}

// trusted waits until clients that read the bundle trust all the replicas.
func trusted(t *testing.T, replicas ...*kept) (bundle string) {
	t.Helper()
	require.Eventually(t, func() bool {
		bundle = replicas[0].published(t)
		for _, k := range replicas {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM([]byte(bundle))
			_, err := k.leaf().Verify(x509.VerifyOptions{
				Roots: roots, CurrentTime: k.clock.Now(), DNSName: "cluster-version-operator." + k.namespace + ".svc.cluster.local",
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
	cfg := controlPlane.Config("test")
	replicas := []*kept{keepServing(t, cfg, namespace, start), keepServing(t, cfg, namespace, start.Add(10*time.Minute)), keepServing(t, cfg, namespace, start)}
	before := map[*kept]string{}
	for _, k := range replicas {
		before[k] = k.certificate.fingerprint()
	}
	bundle := trusted(t, replicas...)
	assert.Equal(t, 1, strings.Count(bundle, "BEGIN CERTIFICATE"), "one authority, whoever was first")

	year := start.Add(caLifetime - caRenewal + time.Hour)
	for _, k := range replicas {
		k.set(year)
	}
	require.Eventually(t, func() bool { return strings.Count(replicas[0].published(t), "BEGIN CERTIFICATE") == 2 }, time.Minute, 10*time.Millisecond)
	both := trusted(t, replicas...)
	for _, k := range replicas {
		require.NoError(t, verifiesWith(bundle, k), "the next authority does not sign yet")
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
	}, time.Minute, 10*time.Millisecond, "the next authority signs for all")
	trusted(t, replicas...)
	for _, k := range replicas {
		assert.Equal(t, before[k], k.certificate.fingerprint(), "the key in the Lease stays")
		k.set(year.Add(caPublished + caKept + 2*time.Hour))
	}
	require.Eventually(t, func() bool {
		now := replicas[0].published(t)
		return strings.Count(now, "BEGIN CERTIFICATE") == 1 && !strings.Contains(now, strings.TrimSpace(bundle))
	}, time.Minute, 10*time.Millisecond, "the old authority goes")
	trusted(t, replicas...)
}

func verifiesWith(bundle string, k *kept) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(bundle))
	_, err := k.leaf().Verify(x509.VerifyOptions{Roots: roots, CurrentTime: k.clock.Now()})
	return err
}

func TestServingCAComesBack(t *testing.T) {
	namespace := newServingNamespace(t)
	k := keepServing(t, controlPlane.Config("test"), namespace, time.Now())
	bundle := trusted(t, k)
	secrets, configMaps := k.cluster.Secrets(namespace), k.cluster.ConfigMaps(namespace)
	same := func() bool {
		secret, err := secrets.Get(t.Context(), api.ServingCAName, metav1.GetOptions{})
		if err != nil {
			return false
		}
		ca, err := parseServingCA(secret.Data)
		return err == nil && ca.bundle() == bundle && k.published(t) == bundle
	}
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T) error
	}{
		{"a Secret that was deleted", func(t *testing.T) error {
			return secrets.Delete(t.Context(), api.ServingCAName, metav1.DeleteOptions{})
		}},
		{"a Secret that was spoilt", func(t *testing.T) error {
			_, err := secrets.Patch(t.Context(), api.ServingCAName, "application/merge-patch+json", []byte(`{"data":{"tls.key":"eA=="}}`), metav1.PatchOptions{})
			return err
		}},
		{"a ConfigMap that was deleted", func(t *testing.T) error {
			return configMaps.Delete(t.Context(), api.ServingCAName, metav1.DeleteOptions{})
		}},
		{"a ConfigMap that was emptied", func(t *testing.T) error {
			_, err := configMaps.Patch(t.Context(), api.ServingCAName, "application/merge-patch+json", []byte(`{"data":null}`), metav1.PatchOptions{})
			return err
		}},
	} {
		t.Run("it restores "+c.name, func(t *testing.T) {
			require.NoError(t, c.spoil(t))
			require.Eventually(t, same, time.Minute, 10*time.Millisecond)
		})
	}

	other, err := newServingCA(time.Now())
	require.NoError(t, err)
	data, err := other.data()
	require.NoError(t, err)
	secret, err := secrets.Get(t.Context(), api.ServingCAName, metav1.GetOptions{})
	require.NoError(t, err)
	secret.Data = data
	_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return k.published(t) == other.bundle() }, time.Minute, 10*time.Millisecond, "an administrator's authority is taken")
	trusted(t, k)
}

// Whoever deletes it for ever does not have the operator write for ever.
func TestServingCAIsPutRightWithinBounds(t *testing.T) {
	namespace := newServingNamespace(t)
	k := keepServing(t, controlPlane.Config("test"), namespace, time.Now())
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
		return k.writes.Load() >= repairsAtOnce && gone()
	}, time.Minute, 10*time.Millisecond)
	assert.Equal(t, int64(repairsAtOnce), k.writes.Load())
	assert.Equal(t, repairsAtOnce-1, deleted, "the Secret was the first write")
	k.set(k.clock.Now().Add(repairsEvery))
	require.Eventually(t, func() bool { return !gone() }, time.Minute, 10*time.Millisecond, "a minute later it is put right once more")
	assert.LessOrEqual(t, k.reads.Load(), int64(2), "one list for each of the two, or none where the API server streams them")
}

// Its deletion may be told before the answer to the write that made it has come.
func TestServingCAComesBackWhenDeletedWhileItIsWritten(t *testing.T) {
	namespace := newServingNamespace(t)
	running := make(chan *kept, 1)
	var once atomic.Bool
	deleted := make(chan struct{})
	cfg := controlPlane.Config("test")
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
				k.mu.Lock()
				defer k.mu.Unlock()
				return k.bundle.told == 2
			}, time.Minute, 10*time.Millisecond, "its creation and its deletion")
			close(deleted)
			return response, err
		})
	})
	k := keepServing(t, cfg, namespace, time.Now())
	running <- k
	<-deleted
	trusted(t, k)
}

func TestServingCAIsWrittenByWhoeverLeads(t *testing.T) {
	namespace := newServingNamespace(t)
	clk := testingclock.NewFakePassiveClock(time.Now())
	guarded := newFence(clk, time.Hour)
	cfg := controlPlane.Config("test")
	cfg.Wrap(guarded.wrap)
	standby := keepServing(t, cfg, namespace, time.Now())
	require.Eventually(t, standby.clock.HasWaiters, time.Minute, 10*time.Millisecond)
	for range 3 * repairsAtOnce {
		standby.set(standby.clock.Now().Add(lookForLead))
	}
	assert.Empty(t, standby.published(t))
	guarded.renew(clk.Now())
	standby.set(standby.clock.Now().Add(lookForLead))
	trusted(t, standby)
}

// These rules and no others are what the keeper needs.
func servingRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}, ResourceNames: []string{api.ServingCAName}, Verbs: []string{"get", "list", "watch", "update"}},
	}
}

func TestServingCANeedsARoleForItsName(t *testing.T) {
	namespace := newServingNamespace(t)
	cfg := userNamed(t, "serving-keeper")
	k := keepServing(t, cfg, namespace, time.Now())
	assert.NotNil(t, k.certificate.own.Load(), "it serves all the same")

	rbac := kubernetes.NewForConfigOrDie(controlPlane.Config("test")).RbacV1()
	_, err := rbac.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "keeper"}, Rules: servingRules()}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "keeper"}, Subjects: []rbacv1.Subject{person("serving-keeper")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "keeper"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	trusted(t, k)
}

func TestEndpointSwitchesToTheCertificateThatItIsGiven(t *testing.T) {
	dir, given := t.TempDir(), newAuthority(t, "given")
	r := newReplica(t, Options{ServingCertFile: dir + "/tls.crt", ServingKeyFile: dir + "/tls.key", ServingCertOptional: true}).lead()
	cfg := controlPlane.Config("test")
	_, _, err := r.client(t, cfg).Rollout(t.Context(), false, "")
	require.NoError(t, err, "the files are missing")
	ask := func() error {
		client, err := NewClient(cfg, r.url, Trust{CA: given.Certificate}, nil)
		require.NoError(t, err)
		defer client.Close()
		_, _, err = client.Rollout(t.Context(), false, "")
		return err
	}
	require.Error(t, ask())
	certificate, key := given.issue(t, "server", x509.ExtKeyUsageServerAuth)
	writePair(t, dir, certificate, key)
	require.Eventually(t, func() bool { return ask() == nil }, time.Minute, 20*time.Millisecond)
	fresh, err := NewClient(cfg, r.url, Trust{Fingerprint: r.identity.Fingerprint}, nil)
	require.NoError(t, err)
	defer fresh.Close()
	_, _, err = fresh.Rollout(t.Context(), false, "")
	require.NoError(t, err, "clients of the Lease are served the key that it tells")
}

func TestGivenCertificateServesUntilItExpires(t *testing.T) {
	certificate, key := newAuthority(t, "given").issue(t, "server", x509.ExtKeyUsageServerAuth)
	certFile, keyFile := writePair(t, t.TempDir(), certificate, key)
	clk := testingclock.NewFakePassiveClock(time.Now())
	c, err := newCertificate(clk, Options{ServingCertFile: certFile, ServingKeyFile: keyFile, ServingCertOptional: true})
	require.NoError(t, err)
	assert.NotNil(t, c.given.current())
	clk.SetTime(time.Now().Add(2 * time.Hour))
	assert.Nil(t, c.given.current(), "the operator's own is better than one that nobody accepts")
}
