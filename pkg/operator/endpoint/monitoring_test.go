package endpoint

import (
	"bytes"
	"io/fs"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/operator/rolloutpage"
	testendpoint "github.com/cluster-version/cvo/test/endpoint"
	"github.com/cluster-version/cvo/test/fixture"
)

// prometheusUser is the user name of OpenShift's Prometheus in its token and its certificate.
const prometheusUser = "system:serviceaccount:openshift-monitoring:prometheus-k8s"

// allowMonitoring creates the roles in manifests/monitoring and waits until the API server knows them.
func allowMonitoring(t *testing.T) {
	t.Helper()
	cfg := controlPlane.For(t).Config("test")
	c, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	cluster := kubernetes.NewForConfigOrDie(cfg)
	_, err = cluster.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.OperatorNamespace}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	data, err := fs.ReadFile(manifests.Monitoring(), "0000_90_cluster-version-operator_00_monitoring-access.yaml")
	require.NoError(t, err)
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(document, &object.Object))
		require.NoError(t, c.Create(t.Context(), object), "%s %s", object.GetKind(), object.GetName())
	}
	require.Eventually(t, func() bool {
		review, err := cluster.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: prometheusUser, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: serve.MetricsPath, Verb: "get"},
			},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed
	}, time.Minute, 20*time.Millisecond, "the API server knows the role")
}

// TestEndpointServesPrometheus admits OpenShift's Prometheus with its certificate, and any other Prometheus with the token of the
// ServiceMonitor. It rejects similar users.
func TestEndpointServesPrometheus(t *testing.T) {
	r := newReplica(t, Options{}).lead()
	allowMonitoring(t)
	cluster := kubernetes.NewForConfigOrDie(controlPlane.For(t).Config("test"))
	token := func(name string) *rest.Config {
		request, err := cluster.CoreV1().ServiceAccounts(api.OperatorNamespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		require.NoError(t, err)
		return &rest.Config{BearerToken: request.Status.Token}
	}
	other := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	_, err := cluster.CoreV1().ServiceAccounts(api.OperatorNamespace).Create(t.Context(), other, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, tt := range []struct {
		name string
		cfg  *rest.Config
		want int
	}{
		{"admits the certificate of OpenShift's Prometheus", userNamed(t, prometheusUser), http.StatusOK},
		{"rejects a certificate of another service account", userNamed(t, "system:serviceaccount:openshift-monitoring:grafana"), http.StatusForbidden},
		{"rejects the user name in a certificate of another authority", fixture.NewIssuer(t, "other").ClientConfig(t, prometheusUser), http.StatusUnauthorized},
		{"admits the token of the ServiceMonitor", token("cluster-version-operator-metrics-reader"), http.StatusOK},
		{"rejects a token of another service account", token("other"), http.StatusForbidden},
		{"rejects an invalid token", &rest.Config{BearerToken: "x"}, http.StatusUnauthorized},
		{"nothing", &rest.Config{}, http.StatusUnauthorized},
	} {
		t.Run(tt.name, func(t *testing.T) {
			served := r.client(t, tt.cfg)
			text, err := testendpoint.Metrics(t.Context(), served)
			assert.Equal(t, tt.want, code(t, err))
			assert.Equal(t, tt.want == http.StatusOK, bytes.Contains(text, []byte("go_goroutines")))
			_, _, err = rolloutpage.Read(t.Context(), served, false, "")
			assert.NotEqual(t, http.StatusOK, code(t, err), "access to metrics is enough")
		})
	}
}

// TestScrapesNeedFewRequests checks that the review of the caller is cached and that a scrape sends no other request.
func TestScrapesNeedFewRequests(t *testing.T) {
	r := newReplica(t, Options{}).lead()
	served := r.client(t, controlPlane.For(t).Config("test"))
	_, err := testendpoint.Metrics(t.Context(), served)
	require.NoError(t, err)
	asked := r.requests.Load()
	for range 10 {
		_, err := testendpoint.Metrics(t.Context(), served)
		require.NoError(t, err)
	}
	assert.Equal(t, asked, r.requests.Load())
}
