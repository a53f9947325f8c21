package env_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cluster-version/cvo/test/env"
)

// TestNextTestGetsAnEmptyCluster leaves everything behind that an API server would not delete at once: objects with finalizers, a namespace,
// a kind and its objects, a built-in role that it has changed or deleted, and a watch.
func TestNextTestGetsAnEmptyCluster(t *testing.T) {
	env.NeedControlPlane(t)
	operators := configv1.GroupVersion.WithResource("clusteroperators")
	hosts := map[string]bool{}
	endWatch := func() {}
	for i := range 3 {
		t.Run("each test begins with an empty cluster", func(t *testing.T) {
			e := env.New(t, env.Options{Audit: env.AuditWrites})
			hosts[e.Config("").Host] = true
			endWatch()
			require.Eventually(t, func() bool {
				log, err := os.ReadFile(e.AuditLog)
				return err == nil && (i == 0 || strings.Contains(string(log), `"verb":"watch"`) && strings.Contains(string(log), `"userAgent":"left"`))
			}, time.Minute, 10*time.Millisecond, "waiting for the API server to log the watch of the test before")
			requests, err := e.Audit()
			require.NoError(t, err)
			for _, request := range requests {
				require.NotEqual(t, "left", request.UserAgent, "%s %s", request.Verb, request.URI)
			}
			watching, cancel := context.WithCancel(context.Background()) //nolint:usetesting // the watch outlives the test
			endWatch = cancel
			left, err := kubernetes.NewForConfig(e.Config("left"))
			require.NoError(t, err)
			_, err = left.CoreV1().ConfigMaps("").Watch(watching, metav1.ListOptions{})
			require.NoError(t, err)

			_, err = clientcmd.LoadFromFile(e.Kubeconfig)
			require.NoError(t, err, "a test may change its kubeconfig, for example with kubectl config")
			require.NoError(t, os.WriteFile(e.Kubeconfig, []byte("left"), 0o600))
			client, err := kubernetes.NewForConfig(e.Config(""))
			require.NoError(t, err)
			resources, err := dynamic.NewForConfig(e.Config(""))
			require.NoError(t, err)
			_, err = resources.Resource(operators).List(t.Context(), metav1.ListOptions{})
			require.True(t, apierrors.IsNotFound(err), "no test has defined the kind yet: %v", err)
			_ = e.Serve(t, "0000_00_cluster-version-operator_01_clusteroperators.crd.yaml")
			operator := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
			operator.SetGroupVersionKind(configv1.GroupVersion.WithKind("ClusterOperator"))
			operator.SetName("left")
			operator.SetFinalizers([]string{"example.com/wait"})
			_, err = resources.Resource(operators).Create(t.Context(), operator, metav1.CreateOptions{})
			require.NoError(t, err)
			require.NoError(t, resources.Resource(operators).Delete(t.Context(), "left", metav1.DeleteOptions{}))

			_, err = client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left"}}, metav1.CreateOptions{})
			require.NoError(t, err)
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "left"}, Spec: corev1.ServiceSpec{
				ClusterIP: "10.0.0.77", Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30077}},
			}}
			_, err = client.CoreV1().Services("left").Create(t.Context(), service, metav1.CreateOptions{})
			require.NoError(t, err)
			require.NoError(t, client.CoreV1().Namespaces().Delete(t.Context(), "left", metav1.DeleteOptions{}))

			role, err := client.RbacV1().ClusterRoles().Get(t.Context(), "view", metav1.GetOptions{})
			require.NoError(t, err)
			require.NotContains(t, role.Labels, "left")
			role.Labels["left"] = "yes"
			_, err = client.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{})
			require.NoError(t, err)
			require.NoError(t, client.RbacV1().ClusterRoles().Delete(t.Context(), "edit", metav1.DeleteOptions{}))
		})
	}
	endWatch()
	assert.Len(t, hosts, 1, "the tests share a control plane")
}

func TestStoppedControlPlaneIsNotReused(t *testing.T) {
	t.Run("stops its control plane", func(t *testing.T) {
		require.NoError(t, env.New(t, env.Options{Audit: env.AuditNone}).Stop())
	})
	e := env.New(t, env.Options{Audit: env.AuditNone})
	client, err := kubernetes.NewForConfig(e.Config(""))
	require.NoError(t, err)
	_, err = client.Discovery().ServerVersion()
	require.NoError(t, err)
}
