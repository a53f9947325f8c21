package operator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/cluster-version/cvo/manifests/apicrd"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture/authority"
)

// controlPlane is shared by all tests of the package; each has users of its own.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// definitionFile is where the API module has a definition.
func definitionFile(t *testing.T, name string) string {
	t.Helper()
	dir, err := apicrd.Dir(t.Context())
	require.NoError(t, err)
	return filepath.Join(dir, name)
}

// serveKind has the control plane serve the kind of a definition that the API module has, until forget is called.
func serveKind(t *testing.T, file string) (forget func()) {
	t.Helper()
	options := envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{definitionFile(t, file)}}
	_, err := envtest.InstallCRDs(controlPlane.Config("test"), options)
	require.NoError(t, err)
	return func() {
		if err := envtest.UninstallCRDs(controlPlane.Config("test"), options); err != nil {
			t.Errorf("removing %s: %v", file, err)
		}
	}
}

// issuer is a certificate authority.
type issuer struct{ *authority.Authority }

func newAuthority(t *testing.T, name string) issuer {
	t.Helper()
	a, err := authority.New(name)
	require.NoError(t, err)
	return issuer{a}
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// issue returns a certificate for an hour and its key in PEM, for this machine as a server and for the user as a client.
func (a issuer) issue(t *testing.T, user string, usage x509.ExtKeyUsage) (certificate, key []byte) {
	t.Helper()
	pair, err := a.Sign(x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: []string{"system:masters"}},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		NotAfter: time.Now().Add(time.Hour),
	})
	require.NoError(t, err)
	certificate, key, err = authority.PEM(pair)
	require.NoError(t, err)
	return certificate, key
}

// clientConfig are the credentials of a user whom this authority vouches for.
func (a issuer) clientConfig(t *testing.T, user string) *rest.Config {
	t.Helper()
	certificate, key := a.issue(t, user, x509.ExtKeyUsageClientAuth)
	return &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: certificate, KeyData: key}}
}

// replica is an endpoint that serves, with what it asks the API server counted.
type replica struct {
	*endpoint

	url     string
	clock   *testingclock.FakePassiveClock
	asked   atomic.Int64
	elected chan struct{}
	// told is what the replica knows of the rollout.
	told atomic.Pointer[rollout.Snapshot]
}

// newReplica serves as Run does, but leads only if it is told to, and tells what the test wants.
func newReplica(t *testing.T, options Options) *replica {
	t.Helper()
	options.Listen, options.Name, options.Namespace = "127.0.0.1:0", "version-"+strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), "default"
	options.RenewDeadline = 20 * time.Second
	e, err := newEndpoint(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.close() })
	r := &replica{
		endpoint: e, url: "https://" + e.listener.Addr().String(), elected: make(chan struct{}),
		clock: testingclock.NewFakePassiveClock(time.Now().Add(time.Minute)), // it stands, and certificates are issued later
	}
	cfg := controlPlane.Config("operator-test")
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			r.asked.Add(1)
			return next.RoundTrip(req)
		})
	})
	_, err = e.lock(cfg, options)
	require.NoError(t, err)
	httpClient, err := rest.HTTPClientFor(cfg)
	require.NoError(t, err)
	guard, err := newGuard(r.clock, cfg, httpClient)
	require.NoError(t, err)
	account := &account{leader: e.leader, elected: r.elected, snapshot: func() (rollout.Snapshot, bool) {
		if s := r.told.Load(); s != nil {
			return *s, true
		}
		return rollout.Snapshot{}, false
	}}
	server := newServer(t.Context(), e.handler(guard, account))
	served := make(chan error, 1)
	go func() { served <- server.Serve(tls.NewListener(e.listener, e.handshakes.config())) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serving: %v", err)
		}
	})
	if e.certificate.given != nil {
		e.certificate.given.every = 10 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() { watched <- e.certificate.given.Start(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-watched; err != nil {
				t.Errorf("watching the certificate: %v", err)
			}
		})
	}
	return r
}

// lead has the replica lead and tell of a rollout.
func (r *replica) lead() *replica {
	r.told.Store(&rollout.Snapshot{
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Progress: rollout.Progress{
			Release: release.Release{Version: "1.1.0"}, Mode: release.Updating, Total: 2, Done: 1,
			Runlevels: []rollout.Runlevel{{Runlevel: 10, Total: 2, Done: 1, Components: []rollout.Component{{Name: "dns", Total: 2, Done: 1}}}},
		},
		Objects: []rollout.Object{
			{ID: manifest.ID{Kind: "Namespace", Name: "dns"}, File: "0000_10_dns_00.yaml", Runlevel: 10, Component: "dns", State: rollout.StateSettled},
			{ID: manifest.ID{Group: "apps", Kind: "Deployment", Namespace: "dns", Name: "dns"}, Runlevel: 10, Component: "dns", State: rollout.StateWaiting},
		},
	})
	close(r.elected)
	return r
}

// client is one that trusts the replica's own certificate.
func (r *replica) client(t *testing.T, cfg *rest.Config) *Client {
	t.Helper()
	c, err := NewClient(cfg, r.url, Trust{Fingerprint: r.identity.Fingerprint}, nil)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// grant lets a subject get paths, and returns when the API server says so.
func grant(t *testing.T, subject rbacv1.Subject, user string, groups []string, paths ...string) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(controlPlane.Config("test"))
	name := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-") + "-" + strings.ReplaceAll(user, ":", "-"))
	_, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: paths, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{subject},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, Groups: groups,
				NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: paths[0], Verb: "get"},
			},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed
	}, time.Minute, 20*time.Millisecond, "the API server comes to know of the role")
}

// userNamed is a person with a certificate of the cluster.
func userNamed(t *testing.T, name string) *rest.Config {
	t.Helper()
	cfg, err := controlPlane.User(name)
	require.NoError(t, err)
	return cfg
}

func person(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

// fingerprintOf is the fingerprint of a key that nobody has.
func fingerprintOf(key string) string {
	return Fingerprint(&x509.Certificate{RawSubjectPublicKeyInfo: []byte(key)})
}

// writePair writes a certificate and its key the way a mounted Secret changes: file by file, each at once.
func writePair(t *testing.T, dir string, certificate, key []byte) (certFile, keyFile string) {
	t.Helper()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, data := range map[string][]byte{certFile: certificate, keyFile: key} {
		temporary := fmt.Sprintf("%s.%d", file, time.Now().UnixNano())
		require.NoError(t, os.WriteFile(temporary, data, 0o600))
		require.NoError(t, os.Rename(temporary, file))
	}
	return certFile, keyFile
}
