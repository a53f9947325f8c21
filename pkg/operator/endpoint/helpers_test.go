package endpoint

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/kube/lead"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/kube/telemetry"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/operator/rolloutpage"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
)

// controlPlane is shared by all tests of the package. Each test has its own users.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// replica is a serving endpoint that counts its requests to the API server.
type replica struct {
	*Endpoint

	lease     *lead.Lease
	url, name string
	requests  atomic.Int64
	elected   chan struct{}
	// snapshot is the snapshot that the replica serves.
	snapshot atomic.Pointer[report.Snapshot]
}

// newReplica serves as Serve does. It leads only after lead and serves the snapshot that the test sets.
func newReplica(t *testing.T, options Options) *replica {
	t.Helper()
	options.Listen, options.Namespace = "127.0.0.1:0", "default"
	e, err := Listen(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	r := &replica{
		Endpoint: e, url: "https://" + e.Address(), elected: make(chan struct{}),
		name: "version-" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")),
	}
	cfg := controlPlane.For(t).Config("operator-test")
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			r.requests.Add(1)
			return next.RoundTrip(req)
		})
	})
	r.lease, err = lead.NewLease(cfg, options.Namespace, r.name, e.Identity, 20*time.Second)
	require.NoError(t, err)
	httpClient, err := rest.HTTPClientFor(cfg)
	require.NoError(t, err)
	guard, err := newGuard(testingclock.NewFakePassiveClock(time.Now().Add(time.Minute)), cfg, httpClient) // the clock stands still, and certificates are issued later
	require.NoError(t, err)
	page := &rolloutpage.Page{Leader: r.lease.Leader, Elected: r.elected, Snapshot: func() (report.Snapshot, bool) {
		if s := r.snapshot.Load(); s != nil {
			return *s, true
		}
		return report.Snapshot{}, false
	}}
	registry, err := telemetry.Registry()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	// The watch of the TLS profile must not count as requests of the replica.
	profile := dynamic.NewForConfigOrDie(controlPlane.For(t).Config("test"))
	for _, runnable := range e.Runnables(ctx, profile, e.handler(guard, page, registry)) {
		running.Go(func() {
			if err := runnable.Start(ctx); err != nil {
				t.Errorf("serving: %v", err)
			}
		})
	}
	return r
}

// lead makes the replica lead and serve a rollout.
func (r *replica) lead() *replica {
	r.snapshot.Store(&report.Snapshot{
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Progress: report.Progress{
			Release: release.Release{Version: "1.1.0"}, Mode: release.Updating, Total: 2, Done: 1,
			Runlevels: []report.Runlevel{{Runlevel: 10, Total: 2, Done: 1, Components: []report.Component{{Name: "dns", Total: 2, Done: 1}}}},
		},
		Objects: []report.Object{
			{ID: manifest.ID{Kind: "Namespace", Name: "dns"}, File: "0000_10_dns_00.yaml", Runlevel: 10, Component: "dns", State: report.StateSettled},
			{ID: manifest.ID{Group: "apps", Kind: "Deployment", Namespace: "dns", Name: "dns"}, Runlevel: 10, Component: "dns", State: report.StateWaiting},
		},
	})
	close(r.elected)
	return r
}

// client returns a client that trusts the replica's own certificate.
func (r *replica) client(t *testing.T, cfg *rest.Config) *serve.Client {
	t.Helper()
	c, err := serve.NewClient(cfg, r.url, serve.Trust{Fingerprint: r.Identity.Fingerprint}, nil)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// grant permits a subject to get paths, and waits until the API server knows the role.
func grant(t *testing.T, subject rbacv1.Subject, user string, groups []string, paths ...string) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(controlPlane.For(t).Config("test"))
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
	}, time.Minute, 20*time.Millisecond, "the API server knows the role")
}

// userNamed returns the credentials of a user with a certificate of the cluster.
func userNamed(t *testing.T, name string) *rest.Config {
	t.Helper()
	cfg, err := controlPlane.For(t).User(name)
	require.NoError(t, err)
	return cfg
}

func person(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}
