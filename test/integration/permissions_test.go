package integration_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/permission"
	"github.com/cluster-version/cvo/test/env"
)

// account is a service account of the platform with a kubeconfig that contains its token.
type account struct {
	*platform
	namespace, name string
	kubeconfig      string
	client          kubernetes.Interface
}

func (p *platform) account(namespace, name string) *account {
	p.t.Helper()
	admin, err := kubernetes.NewForConfig(p.env.Config("integration"))
	require.NoError(p.t, err)
	_, err = admin.CoreV1().Namespaces().Create(p.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(p.t, err)
	}
	accounts := admin.CoreV1().ServiceAccounts(namespace)
	_, err = accounts.Create(p.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(p.t, err)
	hour := int64(3600)
	token, err := accounts.CreateToken(p.t.Context(), name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	require.NoError(p.t, err)

	config := p.env.Config("")
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	file.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	file.CurrentContext = "x"
	a := &account{platform: p, namespace: namespace, name: name, kubeconfig: filepath.Join(p.dir, name+".kubeconfig")}
	require.NoError(p.t, clientcmd.WriteToFile(*file, a.kubeconfig))
	own, err := clientcmd.BuildConfigFromFlags("", a.kubeconfig)
	require.NoError(p.t, err)
	a.client, err = kubernetes.NewForConfig(own)
	require.NoError(p.t, err)
	return a
}

// allow applies the output of cvo release rbac for the account, as kubectl apply does. edit may change the objects first.
func (a *account) allow(edit func(*unstructured.Unstructured), args ...string) {
	a.t.Helper()
	out, err := a.run(append([]string{"release", "rbac", "--service-account", a.namespace + "/" + a.name}, args...)...)
	require.NoError(a.t, err)
	for document := range strings.SplitSeq("\n"+out, "\n---") {
		obj := &unstructured.Unstructured{}
		require.NoError(a.t, yaml.Unmarshal([]byte(document), &obj.Object))
		if edit != nil {
			edit(obj)
		}
		err := a.platform.client.Apply(a.t.Context(), client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner("kubectl"), client.ForceOwnership)
		require.NoError(a.t, err, obj.GetName())
	}
}

// mayNotWiden removes the rules that allow the operator to extend its own role.
func mayNotWiden(obj *unstructured.Unstructured) {
	if rules, ok := obj.Object["rules"].([]any); ok && obj.GetName() == "cluster-version-operator" {
		obj.Object["rules"] = slices.DeleteFunc(rules, func(r any) bool { return strings.Contains(fmt.Sprint(r), api.UpdateRole) })
	}
}

// requests returns the requests of the account since a time and checks that none was forbidden.
func (a *account) requests(since time.Time) []env.AuditEvent {
	a.t.Helper()
	var own []env.AuditEvent
	var refused []string
	for _, e := range a.audit(since) {
		if e.User != "system:serviceaccount:"+a.namespace+":"+a.name {
			continue
		}
		own = append(own, e)
		if e.Code == http.StatusForbidden {
			refused = append(refused, e.Verb+" "+e.Object.String()+" "+e.URI)
		}
	}
	slices.Sort(refused)
	assert.Empty(a.t, slices.Compact(refused), "the operator sends no forbidden request")
	return own
}

// requireNoWildcard checks that the account has no wildcard permission.
func (a *account) requireNoWildcard() {
	a.t.Helper()
	for _, namespace := range []string{"default", api.OperatorNamespace, api.ConfigNamespace} {
		review, err := a.client.AuthorizationV1().SelfSubjectRulesReviews().Create(a.t.Context(),
			&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
		require.NoError(a.t, err)
		require.NotEmpty(a.t, review.Status.ResourceRules)
		for _, r := range review.Status.ResourceRules {
			for _, list := range [][]string{r.Verbs, r.APIGroups, r.Resources, r.ResourceNames} {
				for _, item := range list {
					require.NotContains(a.t, item, "*", "%v", r)
				}
			}
		}
	}
}

func (p *platform) roleRules(name string) []rbacv1.PolicyRule {
	p.t.Helper()
	admin, err := kubernetes.NewForConfig(p.env.Config("integration"))
	require.NoError(p.t, err)
	role, err := admin.RbacV1().ClusterRoles().Get(p.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(p.t, err)
	return role.Rules
}

// TestRealReleasesNeedOnlyTheirRules installs and updates with only the output of cvo release rbac. It does not use an account to which the
// releases themselves bind cluster-admin, because that account would have all permissions when the binding is applied.
func TestRealReleasesNeedOnlyTheirRules(t *testing.T) {
	t.Parallel()
	p, r := newRealPlatform(t)
	p.start("operators")
	a := p.account("ops", "updater")
	began := time.Now()
	a.allow(mayNotWiden, r.fromDir, "--operator")
	a.requireNoWildcard()
	p.operator(r.from.ByDigest(), "--kubeconfig", a.kubeconfig)
	p.await("4.22.9 to complete", 3*time.Minute, completed("4.22.9"))
	p.await("the cluster to be at 4.22.9", 10*time.Second, func(cv *configv1.ClusterVersion) bool {
		return condition(cv, configv1.OperatorProgressing) == "False||Cluster version is 4.22.9"
	})

	p.update(configv1.Update{Image: r.to.ByDigest()})
	cv := p.await("the rejection", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return strings.HasPrefix(condition(cv, api.ReleaseAccepted), "False|"+api.ReasonPermissions)
	})
	says := condition(cv, api.ReleaseAccepted)
	assert.Contains(t, says, "cannot grant them to itself:\n* ")
	assert.Contains(t, says, "cvo release rbac "+r.to.ByDigest()+" --from "+r.from.ByDigest()+" | kubectl apply -f -")
	assert.Equal(t, "4.22.9", cv.Status.Desired.Version)
	a.requests(began)

	a.allow(nil, r.toDir, "--from", r.fromDir)
	updated := time.Now()
	p.await("4.23.0 to complete", 5*time.Minute, completed("4.23.0"))
	t.Logf("updated in %s, with %d requests", time.Since(updated).Round(100*time.Millisecond), len(a.requests(updated)))
	a.requireNoWildcard()
	assert.NotEmpty(t, a.requests(began))
}

// TestExamplePlatformNeedsOnlyItsRoles runs the operator with the account and the role that a release contains. The operator extends that
// role itself.
func TestExamplePlatformNeedsOnlyItsRoles(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	images := map[string]string{}
	for _, version := range []string{"1.0.0", "1.1.0"} {
		from, dir := filepath.Join(p.dir, "from-"+version), filepath.Join(p.dir, version)
		require.NoError(t, os.CopyFS(from, os.DirFS(filepath.Join("../../examples/platform", version))))
		if version == "1.1.0" { // its dropped objects are deleted on request
			require.NoError(t, os.RemoveAll(filepath.Join(from, "example-backup")))
		}
		_, err := p.run("release", "new", "--from-dir", from, "--name", version,
			"--previous", "1.0.0", "--no-operator", "--to-dir", dir)
		require.NoError(t, err)
		require.FileExists(t, filepath.Join(dir, "release-manifests", permission.File))
		images[version] = p.push(os.DirFS(dir), version, true).ByDigest()
	}
	_, err := p.run("install", "--no-operator", "--release-image", images["1.0.0"], "--trust", p.trust)
	require.NoError(t, err)
	a := p.account(api.OperatorNamespace, api.OperatorServiceAccount)
	began := time.Now()
	a.allow(nil, filepath.Join(p.dir, "1.0.0"), "--operator")
	p.start("operators", "--delay", "200ms")
	p.operator(images["1.0.0"], "--kubeconfig", a.kubeconfig)
	p.await("1.0.0 to complete", time.Minute, completed("1.0.0"))
	p.rest()
	a.requests(began)
	a.requireNoWildcard()
	assert.Empty(t, p.roleRules(api.UpdateRole))
	first := p.roleRules(api.ReleaseRole)

	t.Run("repairs drift", func(t *testing.T) {
		service := p.object("v1", "Service", "example-dns", "example-dns-legacy")
		require.NotNil(t, service)
		require.NoError(t, p.client.Delete(t.Context(), service))
		require.Eventually(t, func() bool {
			now := p.object("v1", "Service", "example-dns", "example-dns-legacy")
			return now != nil && now.GetUID() != service.GetUID()
		}, time.Minute, 50*time.Millisecond)
	})

	t.Run("grants the permissions of a preflight only during the preflight", func(t *testing.T) {
		p.update(configv1.Update{Image: images["1.1.0"], Mode: configv1.UpdateModePreflight})
		require.Eventually(t, func() bool {
			u := p.object(api.ReleaseRolloutVersion.String(), api.ReleaseRolloutKind, "", "version")
			if u == nil {
				return false
			}
			state, _, _ := unstructured.NestedString(u.Object, "status", "preflight", "state")
			message, _, _ := unstructured.NestedString(u.Object, "status", "preflight", "message")
			require.NotEqual(t, api.PreflightFailed, state, message)
			return state == api.PreflightPassed || state == api.PreflightObjected
		}, time.Minute, 100*time.Millisecond)
		require.Eventually(t, func() bool { return len(p.roleRules(api.UpdateRole)) == 0 }, time.Minute, 50*time.Millisecond)
		preflight := 0
		for _, e := range a.requests(began) {
			if strings.Contains(e.URI, "dryRun=All") {
				preflight++
			}
		}
		assert.NotZero(t, preflight)
	})

	updating := time.Now()
	p.update(configv1.Update{Version: "1.1.0", Image: images["1.1.0"]})
	p.await("1.1.0 to complete", time.Minute, completed("1.1.0"))
	assert.Nil(t, p.object("v1", "Service", "example-dns", "example-dns-legacy"), "the tombstone's object still exists")
	require.Eventually(t, func() bool { return len(p.roleRules(api.UpdateRole)) == 0 }, time.Minute, 50*time.Millisecond, "waiting for the removal of the update's permissions")
	second := p.roleRules(api.ReleaseRole)
	assert.NotEqual(t, first, second, "the role belongs to the running release")
	assert.Contains(t, fmt.Sprint(second), "example-autoscaler")
	assert.NotContains(t, fmt.Sprint(first), "example-autoscaler")
	reviews := 0
	for _, e := range a.requests(updating) {
		if strings.HasPrefix(e.Object.Resource, "selfsubject") || e.Object.Name == api.UpdateRole {
			reviews++
		}
	}
	t.Logf("permissions needed %d requests", reviews)
	assert.Less(t, reviews, 40)
	assert.NotZero(t, reviews)

	t.Run("deletes orphans on request", func(t *testing.T) {
		require.NotNil(t, p.object("v1", "ConfigMap", "example-backup", "retention"))
		version := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+api.PruneAnnotation+`":"true"}}}`))
		require.NoError(t, p.client.Patch(t.Context(), version, patch))
		require.Eventually(t, func() bool { return p.object("v1", "ConfigMap", "example-backup", "retention") == nil }, time.Minute, 100*time.Millisecond)
		require.Eventually(t, func() bool { return len(p.roleRules(api.UpdateRole)) == 0 }, time.Minute, 50*time.Millisecond)
		a.requests(updating)
	})
	a.requireNoWildcard()
}
