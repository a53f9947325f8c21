package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// testFaultWebhook requires a webhook for each ConfigMap of a component, but the webhook's service does not answer.
func testFaultWebhook(t *testing.T, s *site) {
	o := newScenario(t, s, "webhook down")
	namespace := newNamespace(t, o.kube)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "guardian"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "nobody"}, Ports: []corev1.ServicePort{{Port: 443}},
	}}
	_, err := o.kube.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{})
	require.NoError(t, err)
	guardian := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "guardian.example.com", SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			FailurePolicy: new(admissionregistrationv1.Fail), TimeoutSeconds: new(int32(5)),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: "guardian"},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: changedComponent}},
		}},
	}
	webhooks := o.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err = webhooks.Create(t.Context(), guardian, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = webhooks.Delete(context.WithoutCancel(t.Context()), namespace, metav1.DeleteOptions{}) }) // in case the test ends early
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := o.kube.CoreV1().ConfigMaps(changedComponent).Create(t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.ErrorContains(c, err, "failed calling webhook")
	}, patience, tick)

	o.begin()
	o.awaitMessage("Failing", "True|UpdatePayloadClusterError|", "ConfigMap example-dns/release", `failed calling webhook "guardian.example.com"`,
		"repair the service behind webhook guardian.example.com")
	require.NoError(t, webhooks.Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	o.over(time.Now())
}

// testFaultNamespace deletes a namespace of the platform as another client, while a finalizer keeps an object in it.
func testFaultNamespace(t *testing.T, s *site) {
	o := newScenario(t, s, "namespace terminating")
	const finalizer = "example.com/hold"
	configs, namespaces := o.kube.CoreV1().ConfigMaps(changedComponent), o.kube.CoreV1().Namespaces()
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{finalizer}}}
	_, err := configs.Create(t.Context(), held, metav1.CreateOptions{})
	require.NoError(t, err)
	release := func(ctx context.Context) error {
		_, err := configs.Patch(ctx, held.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return err
	}
	t.Cleanup(func() { _ = release(context.WithoutCancel(t.Context())) }) // in case the test ends early
	require.NoError(t, namespaces.Delete(t.Context(), changedComponent, metav1.DeleteOptions{}))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		pods, err := o.kube.CoreV1().Pods(changedComponent).List(t.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		assert.Empty(c, pods.Items)
		_, err = o.kube.AppsV1().Deployments(changedComponent).Get(t.Context(), changedComponent, metav1.GetOptions{})
		assert.True(c, apierrors.IsNotFound(err), "%v", err)
	}, patience, tick)

	o.begin()
	o.awaitMessage("Failing", "True|", "Namespace "+changedComponent+" is being deleted", "finalizers remaining: "+finalizer)
	require.NoError(t, release(t.Context()))
	o.over(time.Now(), changedComponent)
}
