package operator

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
)

// prometheusUser is what OpenShift's Prometheus is called, by its token and by its certificate.
const prometheusUser = "system:serviceaccount:openshift-monitoring:prometheus-k8s"

// allowMonitoring creates what manifests/monitoring has of access, and returns when the API server acts by it.
func allowMonitoring(t *testing.T) {
	t.Helper()
	cfg := controlPlane.Config("test")
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
				User: prometheusUser, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: MetricsPath, Verb: "get"},
			},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed
	}, time.Minute, 20*time.Millisecond, "the API server comes to know of the role")
}

// TestEndpointServesPrometheus lets in the Prometheus of OpenShift by its certificate, and any other by the token that
// comes with the ServiceMonitor, and nobody who resembles them.
func TestEndpointServesPrometheus(t *testing.T) {
	r := newReplica(t, Options{}).lead()
	allowMonitoring(t)
	cluster := kubernetes.NewForConfigOrDie(controlPlane.Config("test"))
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
		{"the certificate of OpenShift's Prometheus", userNamed(t, prometheusUser), http.StatusOK},
		{"a certificate of another service account", userNamed(t, "system:serviceaccount:openshift-monitoring:grafana"), http.StatusForbidden},
		{"its name on a certificate of another authority", newAuthority(t, "other").clientConfig(t, prometheusUser), http.StatusUnauthorized},
		{"the token of the ServiceMonitor", token("cluster-version-operator-metrics-reader"), http.StatusOK},
		{"a token of another service account", token("other"), http.StatusForbidden},
		{"a token that nobody issued", &rest.Config{BearerToken: "x"}, http.StatusUnauthorized},
		{"nothing", &rest.Config{}, http.StatusUnauthorized},
	} {
		t.Run("it answers "+tt.name, func(t *testing.T) {
			served := r.client(t, tt.cfg)
			text, err := served.Metrics(t.Context())
			assert.Equal(t, tt.want, code(t, err))
			assert.Equal(t, tt.want == http.StatusOK, bytes.Contains(text, []byte("go_goroutines")))
			_, _, err = served.Rollout(t.Context(), false, "")
			assert.NotEqual(t, http.StatusOK, code(t, err), "metrics are all that it takes to watch")
		})
	}
}

// TestScrapesCostTheClusterLittle: who asks is looked up once in a while, and what is told is known already.
func TestScrapesCostTheClusterLittle(t *testing.T) {
	r := newReplica(t, Options{}).lead()
	served := r.client(t, controlPlane.Config("test"))
	_, err := served.Metrics(t.Context())
	require.NoError(t, err)
	asked := r.asked.Load()
	for range 10 {
		_, err := served.Metrics(t.Context())
		require.NoError(t, err)
	}
	assert.Equal(t, asked, r.asked.Load())
}
