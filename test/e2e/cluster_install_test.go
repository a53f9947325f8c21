package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/env"
)

// testInstall installs a platform on a bare cluster with one command.
func testInstall(t *testing.T, s *site) {
	l := newTestPlatform(t, s)
	if _, err := l.clusterVersion(); err == nil {
		l.mustRun("uninstall", "--with-platform", "--delete-data", "--yes", "--force", "--timeout=3m")
	}
	release := l.release("1.0.0")
	l.trustRegistry()
	began := time.Now()
	l.install(release, "--wait")
	t.Logf("installed a platform on a bare cluster in %s", since(began))

	pods := l.settled(release)
	t.Run("runs two replicas on different nodes", func(t *testing.T) {
		assert.NotEqual(t, pods[0].Spec.NodeName, pods[1].Spec.NodeName)
		for _, pod := range pods {
			started := pod.Status.ContainerStatuses[0].State.Running.StartedAt.Time
			took := readySince(pod).Sub(started)
			t.Logf("%s on %s was ready %s after its start", pod.Name, pod.Spec.NodeName, took)
			assert.Zero(t, pod.Status.ContainerStatuses[0].RestartCount)
		}
	})
	t.Run("runs every component", func(t *testing.T) {
		l, operators := l.in(t), &configv1.ClusterOperatorList{}
		require.NoError(t, l.client.List(t.Context(), operators))
		assert.Len(t, operators.Items, 8)
		for _, operator := range operators.Items {
			for _, version := range operator.Status.Versions {
				if version.Name == "operator" {
					assert.Equal(t, "1.0.0", version.Version, operator.Name)
				}
			}
		}
		// A second replica may become ready after its Deployment has become available.
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			pods, err := l.kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
			require.NoError(c, err)
			var ready int
			for _, pod := range pods.Items {
				if strings.HasPrefix(pod.Namespace, "example-") && !readySince(pod).IsZero() {
					ready++
					assert.Contains(t, pod.Spec.Containers[0].Image, l.registry.Host+"/components/", pod.Name)
				}
			}
			assert.GreaterOrEqual(c, ready, 20, "pods of components that are ready")
		}, patience, tick)
	})
	t.Run("changes nothing on a second install", func(t *testing.T) {
		l, again := l.in(t), time.Now()
		for _, object := range l.install(release).Objects {
			assert.Equal(t, "unchanged", object.Outcome, "%s %s/%s: %s", object.Kind, object.Namespace, object.Name, object.Message)
		}
		for _, e := range l.changes(began) {
			secret := e.Object.Resource == "secrets" // the log omits Secrets, so every write of one looks like a change
			if e.Received.After(again) && strings.HasPrefix(e.UserAgent, "cvo-install") && !secret {
				assert.Fail(t, "changed: "+e.Object.String())
			}
		}
	})
	t.Run("grants the service account no wildcard permission", func(t *testing.T) { l.in(t).noWildcard(api.OperatorNamespace, "default") })
	t.Run("admits only restricted pods in its namespace", func(t *testing.T) {
		namespace, err := l.kube.CoreV1().Namespaces().Get(t.Context(), api.OperatorNamespace, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, "restricted", namespace.Labels["pod-security.kubernetes.io/enforce"])
	})
	t.Run("answers commands from outside", func(t *testing.T) {
		l := l.in(t)
		assert.Contains(t, l.mustRun("status"), "1.0.0")
		assert.Contains(t, l.mustRun("upgrade", "status"), "not updating")
	})
	t.Run("serves metrics with a verifiable certificate", func(t *testing.T) {
		l := l.in(t)
		for _, pod := range pods {
			assert.Contains(t, l.metrics(pod), "go_goroutines")
		}
	})
	t.Run("has a small image", func(t *testing.T) {
		size := l.in(t).imageSize(release)
		t.Logf("the release image: %.1f MB", float64(size)/1e6)
		assert.Less(t, size, int64(60e6))
	})
}

// changes returns the writes since a time that changed something.
func (l *testPlatform) changes(since time.Time) []env.AuditEvent {
	l.Helper()
	events, err := l.Audit(l.Context(), since)
	require.NoError(l, err)
	return env.Changes(events)
}

// noWildcard checks the operator's permissions in the given namespaces.
func (l *testPlatform) noWildcard(namespaces ...string) {
	l.Helper()
	config := rest.CopyConfig(l.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + api.OperatorNamespace + ":cluster-version-operator",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + api.OperatorNamespace, "system:authenticated"},
	}
	account, err := kubernetes.NewForConfig(config)
	require.NoError(l, err)
	for _, namespace := range namespaces {
		review, err := account.AuthorizationV1().SelfSubjectRulesReviews().Create(l.Context(), &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
		}, metav1.CreateOptions{})
		require.NoError(l, err)
		require.False(l, review.Status.Incomplete, review.Status.EvaluationError)
		require.NotEmpty(l, review.Status.ResourceRules)
		for _, rule := range review.Status.ResourceRules {
			for _, words := range [][]string{rule.Verbs, rule.APIGroups, rule.Resources} {
				assert.NotContains(l, words, "*", "in %s: %+v", namespace, rule)
			}
		}
		for _, rule := range review.Status.NonResourceRules {
			assert.NotContains(l, rule.NonResourceURLs, "*")
		}
	}
}

// metrics reads the metrics of a pod as a Prometheus does, with the published certificates and a token.
func (l *testPlatform) metrics(pod corev1.Pod) string {
	l.Helper()
	bundle, err := l.kube.CoreV1().ConfigMaps(api.OperatorNamespace).Get(l.Context(), "cluster-version-operator-serving-ca", metav1.GetOptions{})
	require.NoError(l, err)
	roots := x509.NewCertPool()
	require.True(l, roots.AppendCertsFromPEM([]byte(bundle.Data["ca-bundle.crt"])), "no certificates in %v", bundle.Data)
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: "cluster-version-operator." + api.OperatorNamespace + ".svc", MinVersion: tls.VersionTLS12,
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(l.Context(), http.MethodGet, "https://"+l.forward(pod, "9099")+"/metrics", nil)
	require.NoError(l, err)
	request.Header.Set("Authorization", "Bearer "+l.scraper())
	response, err := transport.RoundTrip(request)
	require.NoError(l, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(l, err)
	require.Equal(l, http.StatusOK, response.StatusCode, string(body))
	return string(body)
}

// scraper returns the token of an account that may only read metrics.
func (l *testPlatform) scraper() string {
	l.Helper()
	namespace := newNamespace(l.T, l.kube)
	named := metav1.ObjectMeta{Name: namespace}
	_, err := l.kube.CoreV1().ServiceAccounts(namespace).Create(l.Context(), &corev1.ServiceAccount{ObjectMeta: named}, metav1.CreateOptions{})
	require.NoError(l, err)
	_, err = l.kube.RbacV1().ClusterRoles().Create(l.Context(), &rbacv1.ClusterRole{
		ObjectMeta: named, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}},
	}, metav1.CreateOptions{})
	require.NoError(l, err)
	_, err = l.kube.RbacV1().ClusterRoleBindings().Create(l.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespace},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: namespace}},
	}, metav1.CreateOptions{})
	require.NoError(l, err)
	token, err := l.kube.CoreV1().ServiceAccounts(namespace).CreateToken(l.Context(), namespace, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(l, err)
	return token.Status.Token
}

// forward forwards a port of a pod until the test ends and returns its local address.
func (l *testPlatform) forward(pod corev1.Pod, port string) string {
	l.Helper()
	url := l.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(l.Config)
	require.NoError(l, err)
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var said bytes.Buffer
	forwarder, err := portforward.New(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url), []string{"0:" + port}, stop, ready, io.Discard, &said)
	require.NoError(l, err)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		require.NoError(l, err, said.String())
	}
	l.Cleanup(func() {
		close(stop)
		if err := <-ended; err != nil {
			l.Log(err)
		}
	})
	ports, err := forwarder.GetPorts()
	require.NoError(l, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local)))
}

// imageSize returns the number of bytes that a node pulls.
func (l *testPlatform) imageSize(pullspec string) (size int64) {
	l.Helper()
	reference, err := name.ParseReference(pullspec)
	require.NoError(l, err)
	image, err := remote.Image(reference, remote.WithContext(l.Context()), remote.WithTransport(l.registry.Transport()), remote.WithAuth(l.registry.Auth()))
	require.NoError(l, err)
	manifest, err := image.Manifest()
	require.NoError(l, err)
	for _, layer := range manifest.Layers {
		size += layer.Size
	}
	return size
}
