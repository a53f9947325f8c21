package install_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/install"
	"github.com/cluster-version/cvo/pkg/install/plan"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/kube/apiserver"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fault"
	"github.com/cluster-version/cvo/test/installed"
)

// snapshot returns all objects of a plan without the fields that differ between any two clusters.
func snapshot(t *testing.T, c client.Client, p plan.Plan) map[string]map[string]any {
	t.Helper()
	objects := map[string]map[string]any{}
	for _, item := range p.Items {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(item.GVK())
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(item.Object), live), item.ID())
		for _, path := range [][]string{
			{"metadata", "uid"},
			{"metadata", "resourceVersion"},
			{"metadata", "creationTimestamp"},
			{"metadata", "managedFields"},
			{"metadata", "generation"},
			{"status"},
			{"spec", "clusterIP"},
			{"spec", "clusterIPs"},
		} {
			unstructured.RemoveNestedField(live.Object, path...)
		}
		objects[item.ID().String()] = live.Object
	}
	return objects
}

// versions returns the resource version of each object of a plan.
func versions(t *testing.T, c client.Client, objects plan.Plan) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, item := range objects.Items {
		live := &metav1.PartialObjectMetadata{}
		live.SetGroupVersionKind(item.GVK())
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(item.Object), live), item.ID())
		all[item.ID().String()] = live.ResourceVersion
	}
	return all
}

// settled waits until the CRDs of a plan are established. That is the API server's own last write to them.
func settled(t *testing.T, c client.Client, objects plan.Plan) {
	t.Helper()
	for _, item := range objects.Items {
		if !item.Is("apiextensions.k8s.io", "CustomResourceDefinition") {
			continue
		}
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			live := &unstructured.Unstructured{}
			live.SetGroupVersionKind(item.GVK())
			if !assert.NoError(collect, c.Get(t.Context(), client.ObjectKeyFromObject(item.Object), live)) {
				return
			}
			conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
			assert.True(collect, slices.ContainsFunc(conditions, func(each any) bool {
				condition, _ := each.(map[string]any)
				return condition["type"] == "Established" && condition["status"] == "True"
			}))
		}, installed.StepTimeout, installed.StepTick, item.ID())
	}
}

// losing returns a configuration for connections that break before the response to each first attempt of a write.
func losing(t *testing.T, cfg *rest.Config) *rest.Config {
	t.Helper()
	var lost sync.Map
	spare := func(r *http.Request) bool {
		attempt := r.Method + r.URL.String()
		_, isRepeated := lost.LoadAndDelete(attempt)
		if !isRepeated && r.Method != http.MethodGet {
			lost.Store(attempt, nil)
		}
		return isRepeated || r.Method == http.MethodGet
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		faulty, err := fault.New(next, fault.Options{Rates: map[fault.Kind]float64{fault.LostAnswer: 1}, Spare: spare})
		require.NoError(t, err)
		return faulty
	})
	return cfg
}

func TestDeployKeepsChoicesAndRestoresObjects(t *testing.T) {
	t.Parallel()
	cfg := env.New(t, env.Options{Audit: env.AuditNone}).Config("install")
	c := installed.Client(t, cfg)
	objects, err := plan.New(installed.Release(t, "1.0.0", payload.Options{}), installed.Settings())
	require.NoError(t, err)
	results, err := install.Deploy(t.Context(), apiserver.Retrying(losing(t, cfg), func(string) {}), objects, inject.Values{}, nil)
	require.NoError(t, err)
	var kinds []string
	for _, r := range results {
		assert.Equal(t, target.Created, r.Outcome, r.String())
		kinds = append(kinds, r.Kind)
	}
	first := func(kind string) int { return slices.Index(kinds, kind) }
	order := []string{"Namespace", "ConfigMap", "CustomResourceDefinition", "ValidatingAdmissionPolicy", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Service", "ClusterVersion", "Deployment"}
	assert.True(t, slices.IsSortedFunc(order, func(a, b string) int { return first(a) - first(b) }), kinds)
	assert.Equal(t, "Deployment", kinds[len(kinds)-1])

	deployment := &appsv1.Deployment{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: api.OperatorNamespace, Name: target.Operator}, deployment))
	assert.Equal(t, installed.ReleaseImage, deployment.Spec.Template.Spec.Containers[0].Image)
	assert.Contains(t, deployment.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "CVO_PAYLOAD_RETRIEVAL", Value: "job"})
	assert.EqualValues(t, 1, deployment.Generation, "the Deployment is created with the choices")
	secret := &corev1.Secret{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: api.OperatorNamespace, Name: api.PullSecretCopy}, secret))
	assert.Equal(t, installed.Settings().PullSecret, secret.Data[corev1.DockerConfigJsonKey])
	cv := &configv1.ClusterVersion{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
	assert.Equal(t, "stable", cv.Spec.Channel)

	t.Run("changes nothing when repeated", func(t *testing.T) {
		settled(t, c, objects)
		before := versions(t, c, objects)
		results, err := install.Deploy(t.Context(), cfg, objects, inject.Values{}, nil)
		require.NoError(t, err)
		for _, r := range results {
			assert.Equal(t, target.Unchanged, r.Outcome, r.String())
		}
		assert.Equal(t, before, versions(t, c, objects))
	})

	t.Run("keeps choices that are not in the settings", func(t *testing.T) {
		s := installed.Settings()
		s.Retrieval = ""
		objects, err := plan.New(installed.Release(t, "1.0.0", payload.Options{}), s)
		require.NoError(t, err)
		before := versions(t, c, objects)
		_, err = install.Deploy(t.Context(), cfg, objects, inject.Values{}, nil)
		require.NoError(t, err)
		assert.Equal(t, before, versions(t, c, objects))
	})

	t.Run("keeps the owner reference to the ClusterVersion", func(t *testing.T) {
		service := &corev1.Service{}
		key := client.ObjectKey{Namespace: api.OperatorNamespace, Name: target.Operator}
		require.NoError(t, c.Get(t.Context(), key, service))
		marked := &unstructured.Unstructured{}
		for _, item := range objects.Items {
			if item.Is("", "Service") {
				marked = item.Object.DeepCopy()
			}
		}
		marked.SetLabels(map[string]string{"k8s-app": target.Operator, api.OwnedByLabel: "version"})
		controller := true
		marked.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: configv1.GroupVersion.String(), Kind: "ClusterVersion", Name: "version", UID: cv.UID, Controller: &controller}})
		require.NoError(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(marked), client.FieldOwner(api.FieldManager), client.ForceOwnership))
		_, err := install.Deploy(t.Context(), cfg, objects, inject.Values{}, nil)
		require.NoError(t, err)
		require.NoError(t, c.Get(t.Context(), key, service))
		assert.Equal(t, "version", service.Labels[api.OwnedByLabel])
		assert.Len(t, service.OwnerReferences, 1)
	})

	t.Run("recreates missing objects", func(t *testing.T) {
		require.NoError(t, c.Delete(t.Context(), deployment))
		results, err := install.Deploy(t.Context(), cfg, objects, inject.Values{}, nil)
		require.NoError(t, err)
		assert.Equal(t, target.Created, results[len(results)-1].Outcome)
	})

	t.Run("gives the operator the installer's trust policy", func(t *testing.T) {
		s := installed.Settings()
		s.Authorities = []byte("certificates\n")
		objects, err := plan.New(installed.Release(t, "1.0.0", payload.Options{}), s)
		require.NoError(t, err)
		_, err = install.Deploy(t.Context(), cfg, objects, inject.Values{}, nil)
		require.NoError(t, err)
		bundle := &corev1.ConfigMap{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: api.ConfigManagedNamespace, Name: api.TrustedCABundle}, bundle))
		assert.Equal(t, "certificates\n", bundle.Data[api.CABundleKey])
		there, err := install.Look(t.Context(), cfg, api.OperatorNamespace, "version")
		require.NoError(t, err)
		assert.Empty(t, there.TrustWarning(s))

		s.Authorities = []byte("others\n")
		assert.Contains(t, there.TrustWarning(s), "add them to its key ca-bundle.crt")
		objects, err = plan.New(installed.Release(t, "1.0.0", payload.Options{}), s)
		require.NoError(t, err)
		before := bundle.ResourceVersion
		_, err = install.Deploy(t.Context(), cfg, objects, inject.Values{}, nil)
		require.NoError(t, err)
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(bundle), bundle))
		assert.Equal(t, before, bundle.ResourceVersion, "the install keeps another client's ConfigMap")
	})

	t.Run("does not revert a running update", func(t *testing.T) {
		const other = "registry.example/platform/release@sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
		cv.Status = configv1.ClusterVersionStatus{
			ObservedGeneration: cv.Generation, VersionHash: "x",
			Desired: configv1.Release{Version: "1.0.0", Image: installed.ReleaseImage},
			History: []configv1.UpdateHistory{{State: configv1.CompletedUpdate, Version: "1.0.0", Image: installed.ReleaseImage, StartedTime: metav1.Now(), CompletionTime: new(metav1.Now())}},
		}
		require.NoError(t, c.Status().Update(t.Context(), cv))
		refused := func(hint string, done func(target.Result)) []target.Result {
			t.Helper()
			results, err := install.Deploy(t.Context(), cfg, objects, inject.Values{}, done)
			var refusal *target.Refusal
			require.ErrorAs(t, err, &refusal)
			require.ErrorContains(t, err, hint)
			return results
		}
		asked := "requests an update to " + other + ", which an install would revert"
		var before map[string]string
		results := refused(asked, func(r target.Result) {
			if r.Kind == "ClusterVersion" { // an administrator requests an update during the install
				cv.Spec.DesiredUpdate = &configv1.Update{Image: other}
				require.NoError(t, c.Update(t.Context(), cv))
				before = versions(t, c, objects)
			}
		})
		assert.Len(t, results, len(objects.Items)-1, "the Deployment comes last")
		assert.Equal(t, before, versions(t, c, objects))
		nothing := func(hint string) {
			t.Helper()
			assert.Empty(t, refused(hint, nil), "nothing is written")
		}
		nothing(asked)

		cv.Status.ObservedGeneration = cv.Generation
		cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{{Type: api.ReleaseAccepted, Status: configv1.ConditionUnknown, LastTransitionTime: metav1.Now()}}
		require.NoError(t, c.Status().Update(t.Context(), cv))
		nothing("requests an update")
		cv.Status.Conditions[0].Status = configv1.ConditionFalse
		require.NoError(t, c.Status().Update(t.Context(), cv))
		_, err := install.Deploy(t.Context(), cfg, objects, inject.Values{}, nil)
		require.NoError(t, err, "the operator has rejected the update and stays at its release")

		cv.Status.Desired = configv1.Release{Version: "1.1.0", Image: other}
		require.NoError(t, c.Status().Update(t.Context(), cv))
		nothing("the cluster already runs release 1.1.0 (" + other + "), and 'cvo install' does not update it: use 'cvo upgrade --to-image " + installed.ReleaseImage + "'")
	})

	t.Run("does not override values of other writers", func(t *testing.T) {
		trust := &corev1.ConfigMap{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap}, trust))
		trust.Data["trust-policy.yaml"] = "another"
		require.NoError(t, c.Update(t.Context(), trust, client.FieldOwner("kubectl-edit")))
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
		cv.Status.Desired.Image = installed.ReleaseImage
		require.NoError(t, c.Status().Update(t.Context(), cv))
		results, err := install.Deploy(t.Context(), cfg, objects, inject.Values{}, nil)
		assert.Empty(t, results, "nothing is written")
		var refusal *target.Refusal
		require.ErrorAs(t, err, &refusal)
		require.ErrorContains(t, err, "ConfigMap openshift-config/cluster-version-operator-trust")
		require.ErrorContains(t, err, "kubectl-edit")
	})
}

func TestRenderedObjectsMatchTheInstalledObjects(t *testing.T) {
	t.Parallel()
	deployed := env.New(t, env.Options{Audit: env.AuditNone}).Config("install")
	rendered := env.New(t, env.Options{Audit: env.AuditNone}).Config("render")
	objects, err := plan.New(installed.Release(t, "1.0.0", payload.Options{}), installed.Settings())
	require.NoError(t, err)
	_, err = install.Deploy(t.Context(), deployed, objects, inject.Values{}, nil)
	require.NoError(t, err)

	folder := filepath.Join(t.TempDir(), "new", "folder")
	files, err := plan.Render(objects, folder)
	require.NoError(t, err)
	assert.True(t, slices.IsSorted(files))
	assert.Len(t, files, len(objects.Items))
	c := installed.Client(t, rendered)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(data, &object.Object))
		// Establishing a CRD takes a moment.
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			assert.NoError(collect, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner("kubectl")))
		}, installed.StepTimeout, installed.StepTick, file)
	}
	assert.Equal(t, snapshot(t, installed.Client(t, deployed), objects), snapshot(t, c, objects))

	_, err = plan.Render(objects, folder)
	require.ErrorContains(t, err, "is not empty")
}
