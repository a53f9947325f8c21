package permit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/permission"
	"github.com/cluster-version/cvo/pkg/engine/permit"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
)

// controlPlane is the control plane of all tests in this package. The tests write the same two roles, so they do not run in parallel.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// wire is the operator's connection. It counts writes of roles and can make one fail. It can also repeat the last review of permissions, as
// from an API server that has not seen the last write of a role.
type wire struct {
	next http.RoundTripper

	mu     sync.Mutex
	writes int
	fault  fault
	review []byte
	isLate bool
	// afterWrite is called by each review after a write; nil for nothing.
	afterWrite func()
}

// fault is the fate of the next write of a role.
type fault string

const (
	none fault = ""
	// rejected means that the server responds with 403 and writes nothing.
	rejected fault = "rejected"
	// lost means that the request never arrives.
	lost fault = "lost"
	// unanswered means that the server writes the role, but its response never arrives.
	unanswered fault = "unanswered"
)

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/selfsubjectrulesreviews") {
		w.mu.Lock()
		if w.writes > 0 && w.afterWrite != nil {
			w.afterWrite()
		}
		w.mu.Unlock()
		return w.reviewed(req)
	}
	if req.Method != http.MethodPatch {
		return w.next.RoundTrip(req)
	}
	w.mu.Lock()
	fault := w.fault
	w.fault = none
	w.writes++
	w.mu.Unlock()
	switch fault {
	case rejected:
		body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"not now"}`
		return &http.Response{
			StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(body)), Request: req,
		}, nil
	case lost:
		return nil, errLost
	case none, unanswered: // the server receives the request
	}
	answer, err := w.next.RoundTrip(req)
	if err == nil && fault == unanswered {
		_ = answer.Body.Close()
		return nil, errLost
	}
	return answer, err
}

func (w *wire) reviewed(req *http.Request) (*http.Response, error) {
	answer, err := w.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isLate {
		if w.review, err = io.ReadAll(answer.Body); err != nil {
			return nil, err
		}
	}
	_ = answer.Body.Close()
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(w.review)), int64(len(w.review))
	return answer, nil
}

// late sets whether reviews repeat the last one.
func (w *wire) late(is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isLate = is
}

var errLost = errors.New("the connection was lost")

// fail makes the next write of a role fail.
func (w *wire) fail(f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

// onReviewAfterWrite calls do for each review after a write of a role.
func (w *wire) onReviewAfterWrite(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.afterWrite = do
}

// takeWrites returns the number of writes since its last call.
func (w *wire) takeWrites() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.writes
	w.writes = 0
	return n
}

// account is the operator's account in a cluster, and its roles.
type account struct {
	*permit.Roles
	clock  *clocktesting.FakePassiveClock
	wire   *wire
	config *rest.Config
	admin  kubernetes.Interface
	own    kubernetes.Interface
	name   string
}

// mayWiden returns the permissions to write the operator's own roles, like the operator's manifests.
func mayWiden() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"},
		ResourceNames: []string{api.UpdateRole, api.ReleaseRole}, Verbs: []string{"get", "create", "patch", "escalate"},
	}}
}

// newAccount returns an account with these permissions. api.UpdateRole is not bound to it yet.
func newAccount(t *testing.T, name string, rules ...rbacv1.PolicyRule) *account {
	t.Helper()
	e := controlPlane.For(t)
	admin, err := kubernetes.NewForConfig(e.Config("admin"))
	require.NoError(t, err)
	a := &account{clock: clocktesting.NewFakePassiveClock(time.Now()), admin: admin, name: name, wire: &wire{}}
	a.config, err = e.User(name)
	require.NoError(t, err)
	a.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		a.wire.next = next
		return a.wire
	})
	a.own, err = kubernetes.NewForConfig(a.config)
	require.NoError(t, err)
	a.Roles = a.process(t)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, role := range []string{name, api.UpdateRole, api.ReleaseRole} {
			_ = admin.RbacV1().ClusterRoles().Delete(ctx, role, metav1.DeleteOptions{})
			_ = admin.RbacV1().ClusterRoleBindings().Delete(ctx, name+"-"+role, metav1.DeleteOptions{})
		}
	})
	_, err = admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	require.NoError(t, err)
	a.bind(t, name)
	a.await(t, func(have []rbacv1.PolicyRule) bool { return len(permission.Missing(have, rules)) == 0 })
	return a
}

// process returns the roles as seen by a new process of the operator.
func (a *account) process(t *testing.T) *permit.Roles {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(a.config)
	require.NoError(t, err)
	roles, err := permit.New(a.clock, a.config, httpClient)
	require.NoError(t, err)
	return roles
}

// bind binds a role to the account.
func (a *account) bind(t *testing.T, role string) {
	t.Helper()
	_, err := a.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: a.name + "-" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: a.name}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// await waits until the API server has seen the roles of a test.
func (a *account) await(t *testing.T, seen func(have []rbacv1.PolicyRule) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		review, err := a.own.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(),
			&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}, metav1.CreateOptions{})
		if err != nil {
			return false
		}
		var have []rbacv1.PolicyRule
		for _, r := range review.Status.ResourceRules {
			have = append(have, rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames})
		}
		return seen(have)
	}, time.Minute, 20*time.Millisecond)
}

// role returns the rules of a role, or nil if it does not exist.
func (a *account) role(t *testing.T, name string) []rbacv1.PolicyRule {
	t.Helper()
	role, err := a.admin.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return role.Rules
}

// payloadOf returns a release with one ConfigMap of that name.
func payloadOf(t *testing.T, version, name string) *payload.Payload {
	t.Helper()
	list, err := manifest.Parse("0000_10_a_01.yaml", []byte("{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: "+name+"}}"), manifest.Limits{})
	require.NoError(t, err)
	return &payload.Payload{Release: release.Release{Version: version, Image: "registry.example/release:" + version}, Manifests: list}
}

// running returns an account that may only apply the current release, that release, and the next one.
func running(t *testing.T, name string) (a *account, current, target *payload.Payload) {
	t.Helper()
	current, target = payloadOf(t, "1.0.0", name+"-current"), payloadOf(t, "1.1.0", name+"-target")
	rules := permission.Union(mayWiden(), permission.Rules(current.Manifests))
	a = newAccount(t, name, rules...)
	return a, current, target
}

func TestAccountWithAllPermissionsWritesNothing(t *testing.T) {
	a := newAccount(t, "all", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
	target := payloadOf(t, "1.1.0", "all")
	require.NoError(t, a.Rollout(t.Context(), nil, target))
	require.NoError(t, a.Preflight(t.Context(), target))
	a.EndPreflight(t.Context())
	a.Settle(t.Context(), target)
	assert.Zero(t, a.wire.takeWrites())
	assert.Nil(t, a.role(t, api.UpdateRole))
}

func TestRestrictedAccountListsMissingPermissions(t *testing.T) {
	current, target := payloadOf(t, "1.0.0", "fixed-current"), payloadOf(t, "1.1.0", "fixed-target")
	a := newAccount(t, "fixed", permission.Rules(current.Manifests)...)
	require.NoError(t, a.Rollout(t.Context(), nil, current))
	err := a.Rollout(t.Context(), current, target)
	missing, ok := errors.AsType[*permission.Error](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, permission.Missing(permission.Rules(current.Manifests), permission.Rules(target.Manifests)), missing.Missing)
	assert.Contains(t, missing.Remedy, "cvo release rbac registry.example/release:1.1.0 --from registry.example/release:1.0.0")
	assert.Zero(t, a.wire.takeWrites())
}

func TestRolloutExtendsPermissionsUntilItSettles(t *testing.T) {
	a, current, target := running(t, "rollout")
	a.bind(t, api.UpdateRole)
	missing := permission.Missing(permission.Rules(current.Manifests), permission.Rules(target.Manifests))

	require.NoError(t, a.Rollout(t.Context(), current, current))
	assert.Zero(t, a.wire.takeWrites(), "the running release needs no more permissions")

	require.NoError(t, a.Rollout(t.Context(), current, target))
	assert.Equal(t, missing, a.role(t, api.UpdateRole))
	a.Settle(t.Context(), current)
	assert.Equal(t, missing, a.role(t, api.UpdateRole), "the accepted update still needs its permissions")

	a.Settle(t.Context(), target)
	assert.Empty(t, a.role(t, api.UpdateRole))
	a.wire.takeWrites()
	a.Settle(t.Context(), target)
	assert.Zero(t, a.wire.takeWrites(), "a settled release is not written again")
}

func TestRulesOfAnEarlierProcessAreRemoved(t *testing.T) {
	a, current, target := running(t, "predecessor")
	a.bind(t, api.UpdateRole)
	require.NoError(t, a.Rollout(t.Context(), current, target))
	require.NotEmpty(t, a.role(t, api.UpdateRole))

	next := a.process(t) // no update is requested any more
	require.NoError(t, next.Rollout(t.Context(), nil, current))
	next.Settle(t.Context(), current)
	assert.Empty(t, a.role(t, api.UpdateRole))
}

func TestSettleReducesTheReleaseRole(t *testing.T) {
	a, current, target := running(t, "release")
	a.bind(t, api.UpdateRole)
	_, err := a.admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: api.ReleaseRole}, Rules: permission.Rules(current.Manifests),
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, a.Rollout(t.Context(), current, target))
	a.Settle(t.Context(), target)
	assert.Equal(t, permission.Rules(target.Manifests), a.role(t, api.ReleaseRole))
}

func TestPruneExtendsPermissionsUntilTheNextSettle(t *testing.T) {
	a, current, _ := running(t, "prune")
	a.bind(t, api.UpdateRole)
	orphan := inventory.Record{ID: manifest.ID{Kind: "Service", Namespace: "ns", Name: "old"}}
	require.NoError(t, a.Prune(t.Context(), []inventory.Record{orphan}))
	assert.Equal(t, permission.Prune([]permission.Orphan{{Kind: "Service", Name: "old"}}), a.role(t, api.UpdateRole))
	a.Settle(t.Context(), current)
	assert.Empty(t, a.role(t, api.UpdateRole))
}

func TestFailedPreflightLosesItsPermissions(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault fault
		// writes is the number of writes during and after the preflight.
		writes int
	}{
		{"removes rules that never took effect", none, 2},
		{"removes rules after a write without a response", unanswered, 2},
		{"removes rules after a lost write", lost, 2},
		{"writes nothing after a rejected write", rejected, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, _, target := running(t, "preflight-"+string(tt.fault))
			a.wire.fail(tt.fault)
			ctx, cancel := context.WithCancel(t.Context()) // without a binding the rules never take effect
			defer cancel()
			a.wire.onReviewAfterWrite(cancel)
			require.Error(t, a.Preflight(ctx, target))
			a.EndPreflight(t.Context())
			assert.Empty(t, a.role(t, api.UpdateRole))
			assert.Equal(t, tt.writes, a.wire.takeWrites())
		})
	}
}

func TestPreflightDoesNotDelayTheRollout(t *testing.T) {
	a, current, target := running(t, "held")
	ended := make(chan error, 1)
	go func() { ended <- a.Preflight(t.Context(), target) }() // waits, because without a binding the rules never take effect
	require.Eventually(t, func() bool { return len(a.role(t, api.UpdateRole)) > 0 }, time.Minute, 10*time.Millisecond)

	require.NoError(t, a.Rollout(t.Context(), nil, current))
	a.Settle(t.Context(), current)
	select {
	case err := <-ended:
		assert.Fail(t, "the preflight did not wait", "%v", err)
	default:
	}
	a.bind(t, api.UpdateRole)
	require.NoError(t, <-ended)
	assert.NotEmpty(t, a.role(t, api.UpdateRole), "settling keeps the rules of the preflight")
	a.EndPreflight(t.Context())
	assert.Empty(t, a.role(t, api.UpdateRole))
}

func TestRolloutContinuesAfterAFailedWrite(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault fault
		// inRole is true if the role has the rules after the failed write. assumed is true if it may have them, so Settle removes them.
		inRole, assumed bool
	}{
		{"forgets the rules of a rejected write", rejected, false, false},
		{"assumes the rules of an unanswered write", unanswered, true, true},
		{"assumes the rules of a lost write", lost, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, current, target := running(t, "widen-"+string(tt.fault))
			a.bind(t, api.UpdateRole)
			a.wire.fail(tt.fault)
			require.Error(t, a.Rollout(t.Context(), current, target))
			assert.Equal(t, tt.inRole, len(a.role(t, api.UpdateRole)) > 0)
			a.wire.takeWrites()

			a.Settle(t.Context(), current)
			assert.Empty(t, a.role(t, api.UpdateRole))
			assert.Equal(t, tt.assumed, a.wire.takeWrites() > 0)

			require.NoError(t, a.Rollout(t.Context(), current, target))
			assert.Equal(t, 1, a.wire.takeWrites(), "the next attempt writes")
			assert.Equal(t, permission.Missing(permission.Rules(current.Manifests), permission.Rules(target.Manifests)), a.role(t, api.UpdateRole))
		})
	}
}

// TestRolloutRestoresRulesThatWereJustRemoved starts a rollout while the API server's reviews still contain the rules that were removed
// after the last one.
func TestRolloutRestoresRulesThatWereJustRemoved(t *testing.T) {
	a, current, target := running(t, "late")
	a.bind(t, api.UpdateRole)
	require.NoError(t, a.Rollout(t.Context(), current, target))
	wanted := a.role(t, api.UpdateRole)
	require.NotEmpty(t, wanted)

	a.wire.late(true)
	a.Settle(t.Context(), target)
	assert.Empty(t, a.role(t, api.UpdateRole))
	require.NoError(t, a.Rollout(t.Context(), current, target))
	assert.Equal(t, wanted, a.role(t, api.UpdateRole))

	a.Settle(t.Context(), target)
	a.clock.SetTime(a.clock.Now().Add(20 * time.Second))
	require.NoError(t, a.Rollout(t.Context(), current, target))
	assert.Empty(t, a.role(t, api.UpdateRole), "another role has the rules, because reviews are not that late")
}

// TestUnansweredWriteDoesNotReduceAcceptedPermissions checks that an accepted update keeps its permissions while those of another update
// are uncertain.
func TestUnansweredWriteDoesNotReduceAcceptedPermissions(t *testing.T) {
	a, current, target := running(t, "second")
	a.bind(t, api.UpdateRole)
	require.NoError(t, a.Rollout(t.Context(), current, target))
	accepted := a.role(t, api.UpdateRole)

	a.wire.fail(lost)
	require.Error(t, a.Rollout(t.Context(), current, payloadOf(t, "1.2.0", "second-later")))
	a.Settle(t.Context(), current)
	assert.Equal(t, accepted, a.role(t, api.UpdateRole))
	a.Settle(t.Context(), target)
	assert.Empty(t, a.role(t, api.UpdateRole))
}

func TestFailedReductionIsRepeated(t *testing.T) {
	for _, fault := range []fault{rejected, lost, unanswered} {
		t.Run(string(fault), func(t *testing.T) {
			a, current, target := running(t, "narrow-"+string(fault))
			a.bind(t, api.UpdateRole)
			require.NoError(t, a.Preflight(t.Context(), target))
			a.wire.takeWrites()
			a.wire.fail(fault)
			a.EndPreflight(t.Context())
			assert.Equal(t, fault != unanswered, len(a.role(t, api.UpdateRole)) > 0)
			a.EndPreflight(t.Context())
			assert.Empty(t, a.role(t, api.UpdateRole))
			assert.Equal(t, 2, a.wire.takeWrites())
			a.Settle(t.Context(), current)
			assert.Zero(t, a.wire.takeWrites())
		})
	}
}
