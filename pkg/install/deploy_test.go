package install_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/manifests/apicrd"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/install"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/env"
)

const releaseImage = "registry.example/platform/release@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// ownRelease is a release of the operator and nothing else, made of its own manifests.
func ownRelease(t *testing.T, version string, options payload.Options) *payload.Payload {
	t.Helper()
	files := fstest.MapFS{
		"release-manifests/release-metadata": {Data: []byte(`{"kind":"cincinnati-metadata-v0","version":"` + version + `"}`)},
		"release-manifests/image-references": {Data: []byte(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"` + version + `"}}`)},
	}
	crds := t.TempDir()
	_, err := apicrd.Copy(t.Context(), crds)
	require.NoError(t, err)
	for _, folder := range []fs.FS{manifests.FS(), os.DirFS(crds)} {
		names, err := fs.Glob(folder, "*.yaml")
		require.NoError(t, err)
		for _, name := range names {
			data, err := fs.ReadFile(folder, name)
			require.NoError(t, err)
			files["manifests/"+name] = &fstest.MapFile{Data: data}
		}
	}
	p, err := payload.Load(files, releaseImage, options)
	require.NoError(t, err)
	return p
}

func newClient(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, configv1.Install(scheme))
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

func settings() install.Settings {
	return install.Settings{
		Trust:      map[string]string{"trust-policy.yaml": "kind: TrustPolicy"},
		PullSecret: []byte(`{"auths":{"registry.example":{"auth":"dXNlcjpwYXNz"}}}`),
		Retrieval:  "job", Channel: "stable", ClusterAdmin: true, ClusterID: "6f7a3c52-2c6c-4f7e-9e38-0c9d4ba2f2d1",
	}
}

// snapshot reads all objects of a plan, without what no two clusters have in common.
func snapshot(t *testing.T, c client.Client, plan install.Plan) map[string]map[string]any {
	t.Helper()
	objects := map[string]map[string]any{}
	for _, item := range plan.Items {
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

// versions are the resource versions of all objects of a plan.
func versions(t *testing.T, c client.Client, plan install.Plan) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, item := range plan.Items {
		live := &metav1.PartialObjectMetadata{}
		live.SetGroupVersionKind(item.GVK())
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(item.Object), live), item.ID())
		all[item.ID().String()] = live.ResourceVersion
	}
	return all
}

// settled waits until the CRDs of a plan are established, which is the last that the API server itself writes to them.
func settled(t *testing.T, c client.Client, plan install.Plan) {
	t.Helper()
	for _, item := range plan.Items {
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
		}, stepTimeout, stepTick, item.ID())
	}
}

func TestDeploy(t *testing.T) {
	t.Parallel()
	cfg := env.New(t, env.Options{Audit: env.AuditNone}).Config("install")
	c := newClient(t, cfg)
	plan, err := install.NewPlan(ownRelease(t, "1.0.0", payload.Options{}), settings())
	require.NoError(t, err)
	results, err := install.Deploy(t.Context(), cfg, plan, apply.Injection{}, nil)
	require.NoError(t, err)
	var kinds []string
	for _, r := range results {
		assert.Equal(t, install.Created, r.Outcome, r.String())
		kinds = append(kinds, r.Kind)
	}
	first := func(kind string) int { return slices.Index(kinds, kind) }
	order := []string{"Namespace", "ConfigMap", "CustomResourceDefinition", "ValidatingAdmissionPolicy", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Service", "ClusterVersion", "Deployment"}
	assert.True(t, slices.IsSortedFunc(order, func(a, b string) int { return first(a) - first(b) }), kinds)
	assert.Equal(t, "Deployment", kinds[len(kinds)-1])

	deployment := &appsv1.Deployment{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: api.OperatorNamespace, Name: install.Operator}, deployment))
	assert.Equal(t, releaseImage, deployment.Spec.Template.Spec.Containers[0].Image)
	assert.Contains(t, deployment.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "CVO_PAYLOAD_RETRIEVAL", Value: "job"})
	assert.EqualValues(t, 1, deployment.Generation, "no pod is started without the choices")
	secret := &corev1.Secret{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: api.OperatorNamespace, Name: api.PullSecretCopy}, secret))
	assert.Equal(t, settings().PullSecret, secret.Data[corev1.DockerConfigJsonKey])
	cv := &configv1.ClusterVersion{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
	assert.Equal(t, "stable", cv.Spec.Channel)

	t.Run("changes nothing when it is done again", func(t *testing.T) {
		settled(t, c, plan)
		before := versions(t, c, plan)
		results, err := install.Deploy(t.Context(), cfg, plan, apply.Injection{}, nil)
		require.NoError(t, err)
		for _, r := range results {
			assert.Equal(t, install.Unchanged, r.Outcome, r.String())
		}
		assert.Equal(t, before, versions(t, c, plan))
	})

	t.Run("leaves choices alone that it is not told of", func(t *testing.T) {
		s := settings()
		s.Retrieval = ""
		plan, err := install.NewPlan(ownRelease(t, "1.0.0", payload.Options{}), s)
		require.NoError(t, err)
		before := versions(t, c, plan)
		_, err = install.Deploy(t.Context(), cfg, plan, apply.Injection{}, nil)
		require.NoError(t, err)
		assert.Equal(t, before, versions(t, c, plan))
	})

	t.Run("keeps the mark of the ClusterVersion", func(t *testing.T) {
		service := &corev1.Service{}
		key := client.ObjectKey{Namespace: api.OperatorNamespace, Name: install.Operator}
		require.NoError(t, c.Get(t.Context(), key, service))
		marked := &unstructured.Unstructured{}
		for _, item := range plan.Items {
			if item.Is("", "Service") {
				marked = item.Object.DeepCopy()
			}
		}
		marked.SetLabels(map[string]string{"k8s-app": install.Operator, api.OwnedByLabel: "version"})
		controller := true
		marked.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: configv1.GroupVersion.String(), Kind: "ClusterVersion", Name: "version", UID: cv.UID, Controller: &controller}})
		require.NoError(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(marked), client.FieldOwner(api.FieldManager), client.ForceOwnership))
		_, err := install.Deploy(t.Context(), cfg, plan, apply.Injection{}, nil)
		require.NoError(t, err)
		require.NoError(t, c.Get(t.Context(), key, service))
		assert.Equal(t, "version", service.Labels[api.OwnedByLabel])
		assert.Len(t, service.OwnerReferences, 1)
	})

	t.Run("repairs what is missing", func(t *testing.T) {
		require.NoError(t, c.Delete(t.Context(), deployment))
		results, err := install.Deploy(t.Context(), cfg, plan, apply.Injection{}, nil)
		require.NoError(t, err)
		assert.Equal(t, install.Created, results[len(results)-1].Outcome)
	})

	t.Run("has the operator trust what the install trusts", func(t *testing.T) {
		s := settings()
		s.Authorities = []byte("certificates\n")
		plan, err := install.NewPlan(ownRelease(t, "1.0.0", payload.Options{}), s)
		require.NoError(t, err)
		_, err = install.Deploy(t.Context(), cfg, plan, apply.Injection{}, nil)
		require.NoError(t, err)
		bundle := &corev1.ConfigMap{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: api.ConfigManagedNamespace, Name: api.TrustedCABundle}, bundle))
		assert.Equal(t, "certificates\n", bundle.Data[api.CABundleKey])
		there, err := install.Look(t.Context(), cfg, api.OperatorNamespace, "version")
		require.NoError(t, err)
		assert.Empty(t, there.Distrusts(s))

		s.Authorities = []byte("others\n")
		assert.Contains(t, there.Distrusts(s), "add them to its key ca-bundle.crt")
		plan, err = install.NewPlan(ownRelease(t, "1.0.0", payload.Options{}), s)
		require.NoError(t, err)
		before := bundle.ResourceVersion
		_, err = install.Deploy(t.Context(), cfg, plan, apply.Injection{}, nil)
		require.NoError(t, err)
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(bundle), bundle))
		assert.Equal(t, before, bundle.ResourceVersion, "what is there is somebody's")
	})

	t.Run("does not set back an update that has begun", func(t *testing.T) {
		const other = "registry.example/platform/release@sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
		cv.Status = configv1.ClusterVersionStatus{
			ObservedGeneration: cv.Generation, VersionHash: "x",
			Desired: configv1.Release{Version: "1.0.0", Image: releaseImage},
			History: []configv1.UpdateHistory{{State: configv1.CompletedUpdate, Version: "1.0.0", Image: releaseImage, StartedTime: metav1.Now(), CompletionTime: new(metav1.Now())}},
		}
		require.NoError(t, c.Status().Update(t.Context(), cv))
		refused := func(hint string, done func(install.Result)) []install.Result {
			t.Helper()
			results, err := install.Deploy(t.Context(), cfg, plan, apply.Injection{}, done)
			var refusal *install.Refusal
			require.ErrorAs(t, err, &refusal)
			require.ErrorContains(t, err, hint)
			return results
		}
		asked := "was asked to update to " + other + ": an install would set it back"
		var before map[string]string
		results := refused(asked, func(r install.Result) {
			if r.Kind == "ClusterVersion" { // somebody asks while the install is at work
				cv.Spec.DesiredUpdate = &configv1.Update{Image: other}
				require.NoError(t, c.Update(t.Context(), cv))
				before = versions(t, c, plan)
			}
		})
		assert.Len(t, results, len(plan.Items)-1, "the Deployment is the last")
		assert.Equal(t, before, versions(t, c, plan))
		nothing := func(hint string) {
			t.Helper()
			assert.Empty(t, refused(hint, nil), "nothing is written")
		}
		nothing(asked)

		cv.Status.ObservedGeneration = cv.Generation
		cv.Status.Conditions = []configv1.ClusterOperatorStatusCondition{{Type: api.ReleaseAccepted, Status: configv1.ConditionUnknown, LastTransitionTime: metav1.Now()}}
		require.NoError(t, c.Status().Update(t.Context(), cv))
		nothing("was asked to update")
		cv.Status.Conditions[0].Status = configv1.ConditionFalse
		require.NoError(t, c.Status().Update(t.Context(), cv))
		_, err := install.Deploy(t.Context(), cfg, plan, apply.Injection{}, nil)
		require.NoError(t, err, "the operator has refused the update, and stays")

		cv.Status.Desired = configv1.Release{Version: "1.1.0", Image: other}
		require.NoError(t, c.Status().Update(t.Context(), cv))
		nothing("the cluster is at release 1.1.0 (" + other + ") already: an install does not update; use 'cvo upgrade --to-image " + releaseImage + "'")
	})

	t.Run("does not go over what others have set", func(t *testing.T) {
		trust := &corev1.ConfigMap{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap}, trust))
		trust.Data["trust-policy.yaml"] = "another"
		require.NoError(t, c.Update(t.Context(), trust, client.FieldOwner("kubectl-edit")))
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
		cv.Status.Desired.Image = releaseImage
		require.NoError(t, c.Status().Update(t.Context(), cv))
		results, err := install.Deploy(t.Context(), cfg, plan, apply.Injection{}, nil)
		assert.Empty(t, results, "nothing is written")
		var refusal *install.Refusal
		require.ErrorAs(t, err, &refusal)
		require.ErrorContains(t, err, "ConfigMap openshift-config/cluster-version-operator-trust")
		require.ErrorContains(t, err, "kubectl-edit")
	})
}

func TestRenderIsTheSame(t *testing.T) {
	t.Parallel()
	deployed := env.New(t, env.Options{Audit: env.AuditNone}).Config("install")
	rendered := env.New(t, env.Options{Audit: env.AuditNone}).Config("render")
	plan, err := install.NewPlan(ownRelease(t, "1.0.0", payload.Options{}), settings())
	require.NoError(t, err)
	_, err = install.Deploy(t.Context(), deployed, plan, apply.Injection{}, nil)
	require.NoError(t, err)

	folder := filepath.Join(t.TempDir(), "new", "folder")
	files, err := install.Render(plan, folder)
	require.NoError(t, err)
	assert.True(t, slices.IsSorted(files))
	assert.Len(t, files, len(plan.Items))
	c := newClient(t, rendered)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(data, &object.Object))
		// A CRD takes a moment until it is established.
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			assert.NoError(collect, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner("kubectl")))
		}, stepTimeout, stepTick, file)
	}
	assert.Equal(t, snapshot(t, newClient(t, deployed), plan), snapshot(t, c, plan))

	_, err = install.Render(plan, folder)
	require.ErrorContains(t, err, "is not empty")
}
