package integration_test

import (
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/fault"
)

// gadgets has a CRD of the releases and one object of its kind.
const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com, annotations: {include.release.openshift.io/self-managed-high-availability: "true", example.com/version: "$VERSION"}}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Gadget, listKind: GadgetList, plural: gadgets, singular: gadget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: example.com/v1
kind: Gadget
metadata: {namespace: tiny-a, name: ours, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
version: "$VERSION"
`

// TestUpdateSurvivesFaultsOfTheCluster blocks updates with objects of other clients in the cluster.
func TestUpdateSurvivesFaultsOfTheCluster(t *testing.T) {
	t.Parallel()
	f := newFaultPlatform(t, func(f *faultPlatform) {
		f.files = func(version string) fs.FS {
			files := f.tiny.files(version).(fstest.MapFS)
			values := strings.NewReplacer("$NAME", "c", "$VERSION", version)
			files["release-manifests/0000_10_tiny-c_01.yaml"] = &fstest.MapFile{Data: []byte(values.Replace(component))}
			files["release-manifests/0000_15_gadgets_01.yaml"] = &fstest.MapFile{Data: []byte(values.Replace(gadgets))}
			return files
		}
		f.cvo = f.operator(f.own.ByDigest())
	})
	// The first release is the tiny platform's. The others contain more.
	version, img := f.next()
	f.update(configv1.Update{Image: img.ByDigest()})
	f.await(version, time.Minute, at(version))
	f.chapter("webhook refuses one manifest", func() { webhookRefuses(f) })
	f.chapter("webhook down", func() { webhookDown(f) })
	f.chapter("CRD stuck terminating", func() { definitionStuck(f) })
	f.chapter("namespace stuck terminating", func() { namespaceStuck(f) })
}

// guardian is another owner's admission webhook on a fixed port.
type guardian struct {
	f       *faultPlatform
	address string
	// denies makes it deny every request.
	denies atomic.Bool
	server *httptest.Server
	bundle []byte
}

// newGuardian registers the webhook for ConfigMap settings of component a.
func newGuardian(f *faultPlatform) *guardian {
	f.t.Helper()
	g := &guardian{f: f}
	g.listen("127.0.0.1:0")
	g.address = g.server.Listener.Addr().String()
	exact := admissionregistrationv1.Exact
	require.NoError(f.t, admissionregistrationv1.AddToScheme(f.client.Scheme()))
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "guardian"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "guardian.example.com", SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			FailurePolicy: new(admissionregistrationv1.Fail), TimeoutSeconds: new(int32(5)), MatchPolicy: &exact,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://" + g.address + "/"), CABundle: g.bundle},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "tiny-a"}},
		}},
	}
	require.NoError(f.t, f.client.Create(f.t.Context(), configuration))
	f.book.Cleanup(func() { g.server.Close() })
	return g
}

func (g *guardian) listen(address string) {
	g.f.t.Helper()
	listener, err := fault.Listen(address)
	require.NoError(g.f.t, err)
	g.server = httptest.NewUnstartedServer(http.HandlerFunc(g.review))
	require.NoError(g.f.t, g.server.Listener.Close())
	g.server.Listener = listener
	g.server.Config.ErrorLog = nil
	g.server.StartTLS()
	g.bundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
}

func (g *guardian) review(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: !g.denies.Load()}
	if !review.Response.Allowed {
		review.Response.Result = &metav1.Status{Message: "the guardian does not like it"}
	}
	_ = json.NewEncoder(w).Encode(review)
}

// remove removes the webhook from the cluster.
func (g *guardian) remove() {
	g.f.t.Helper()
	require.NoError(g.f.t, g.f.client.Delete(g.f.t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "guardian"}}))
}

// awaitRefusal waits until the API server calls the webhook, which takes a moment.
func (g *guardian) awaitRefusal(refusal string) {
	g.f.t.Helper()
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "tiny-a", Name: "probe"}}
	require.Eventually(g.f.t, func() bool {
		err := g.f.client.Create(g.f.t.Context(), probe.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), refusal)
	}, time.Minute, 20*time.Millisecond)
}

// webhookRefuses rejects one manifest. Objects that do not depend on it are still applied.
func webhookRefuses(f *faultPlatform) {
	g := newGuardian(f)
	g.denies.Store(true)
	g.awaitRefusal("does not like it")
	version, img := f.next()
	o := f.begin("webhook refuses one manifest", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	o.awaitMessage(api.Failing, "True|", "ConfigMap tiny-a/settings", "0000_10_tiny-a_01.yaml", `admission webhook "guardian.example.com" denied the request: the guardian does not like it`)
	require.Eventually(f.t, func() bool { got, _ := f.settings("c"); return got == version }, time.Minute, 20*time.Millisecond, "waiting for the other component of the runlevel")
	got, _ := f.settings("b")
	assert.NotEqual(f.t, version, got, "the next runlevel waits")
	g.denies.Store(false)
	o.over(time.Now())
	g.remove()
}

// webhookDown makes a webhook unreachable. Because of its failurePolicy, every request is rejected.
func webhookDown(f *faultPlatform) {
	g := newGuardian(f)
	g.server.Close()
	g.awaitRefusal("failed calling webhook")
	version, img := f.next()
	o := f.begin("webhook down", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	o.awaitMessage(api.Failing, "True|UpdatePayloadClusterError|", "ConfigMap tiny-a/settings", `failed calling webhook "guardian.example.com"`,
		"connection refused", "repair the service behind webhook guardian.example.com")
	g.listen(g.address)
	o.over(time.Now())
	g.remove()
}

// definitionStuck deletes a definition as another client. The deletion of one of its objects hangs.
func definitionStuck(f *faultPlatform) {
	held := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Gadget",
		"metadata": map[string]any{"namespace": "tiny-b", "name": "held", "finalizers": []any{"example.com/hold"}},
	}}
	require.NoError(f.t, f.client.Create(f.t.Context(), held))
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "gadgets.example.com"},
	}}
	require.NoError(f.t, f.client.Delete(f.t.Context(), definition))
	version, img := f.next()
	o := f.begin("CRD stuck terminating", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	o.awaitMessage(api.Failing, "True|Deleting|", "gadgets.example.com is being deleted by another client", "check for remaining objects and their finalizers", "customresourcecleanup.apiextensions.k8s.io")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`))
	require.NoError(f.t, f.client.Patch(f.t.Context(), held, patch))
	o.over(time.Now())
}

// namespaceStuck deletes a namespace as another client. The deletion hangs, because no controller here finalizes namespaces.
func namespaceStuck(f *faultPlatform) {
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "tiny-c", Name: "settings"}}
	namespaces := kubernetes.NewForConfigOrDie(f.env.Config("integration")).CoreV1().Namespaces()
	require.NoError(f.t, namespaces.Delete(f.t.Context(), "tiny-c", metav1.DeleteOptions{}))
	require.NoError(f.t, f.client.Delete(f.t.Context(), settings))
	version, img := f.next()
	o := f.begin("namespace stuck terminating", version)
	f.update(configv1.Update{Image: img.ByDigest()})
	o.awaitMessage(api.Failing, "True|", "tiny-c", "is being deleted")
	require.Eventually(f.t, func() bool { got, _ := f.settings("a"); return got == version }, time.Minute, 20*time.Millisecond, "waiting for the other component of the runlevel")
	namespace, err := namespaces.Get(f.t.Context(), "tiny-c", metav1.GetOptions{})
	require.NoError(f.t, err)
	namespace.Spec.Finalizers = nil
	_, err = namespaces.Finalize(f.t.Context(), namespace, metav1.UpdateOptions{})
	require.NoError(f.t, err)
	o.over(time.Now())
}
