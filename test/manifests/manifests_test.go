// Package manifests_test applies the operator's own manifests to a real API server. It checks the pods against the Pod Security Standards
// that their namespace enforces.
package manifests_test

import (
	"io/fs"
	"maps"
	"path"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/golden"
)

const image = "registry.example/release@sha256:0000000000000000000000000000000000000000000000000000000000000000"

var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{}, func(e *env.Env) { controlPlane = e })
}

// objects returns the objects that a cluster gets, in order.
func objects(t *testing.T, ownNetwork bool) (list []*unstructured.Unstructured) {
	t.Helper()
	fsys := fstest.MapFS{
		payload.MetadataFile:   {Data: []byte(`{"kind":"cincinnati-metadata-v0","version":"1.0.0"}`)},
		payload.ReferencesFile: {Data: []byte(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.0.0"}}`)},
	}
	files, err := fs.Glob(manifests.FS(), "*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		data, err := fs.ReadFile(manifests.FS(), file)
		require.NoError(t, err)
		fsys[path.Join(payload.OperatorDir, file)] = &fstest.MapFile{Data: data}
	}
	p, err := payload.Load(fsys, image, payload.Options{TemplateErrors: true, BringYourOwnNetwork: ownNetwork})
	require.NoError(t, err)
	require.Empty(t, p.Warnings)
	for _, m := range p.Manifests {
		list = append(list, m.Object)
	}
	return list
}

func find(t *testing.T, list []*unstructured.Unstructured, kind, name string, into any) {
	t.Helper()
	for _, object := range list {
		if object.GetKind() == kind && object.GetName() == name {
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true))
			return
		}
	}
	require.Failf(t, "not in the manifests", "%s %s", kind, name)
}

func TestRenderedManifestsMatchTheGoldenFiles(t *testing.T) {
	for name, ownNetwork := range map[string]bool{"network-of-the-cluster": false, "network-of-the-release": true} {
		t.Run("matches "+name, func(t *testing.T) {
			var out strings.Builder
			for _, object := range objects(t, ownNetwork) {
				switch object.GetKind() {
				case "Namespace", "Deployment":
					data, err := yaml.Marshal(object.Object)
					require.NoError(t, err)
					out.WriteString("---\n" + string(data))
				}
			}
			golden.Assert(t, name, out.String())
		})
	}
}

func TestRealServerAcceptsTheManifests(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	plain, err := client.New(controlPlane.For(t).Config("manifests-test"), client.Options{Scheme: scheme})
	require.NoError(t, err)
	strict := client.WithFieldValidation(plain, metav1.FieldValidationStrict)
	for name, ownNetwork := range map[string]bool{"network of the cluster": false, "network of the release": true} {
		t.Run("accepts the manifests with the "+name, func(t *testing.T) {
			list := objects(t, ownNetwork)
			// A cluster's configuration namespaces exist before the operator.
			for _, namespace := range []string{api.ConfigNamespace, api.ConfigManagedNamespace} {
				err := plain.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
				require.NoError(t, client.IgnoreAlreadyExists(err))
			}
			for _, object := range list {
				err := strict.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"), client.ForceOwnership)
				require.NoError(t, err, "%s %s", object.GetKind(), object.GetName())
			}
			var deployment appsv1.Deployment
			find(t, list, "Deployment", "cluster-version-operator", &deployment)

			pod := podOf(&deployment, api.OperatorNamespace)
			require.NoError(t, strict.Create(t.Context(), pod, client.DryRunAll), "the namespace admits the pod")

			restricted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "restricted-", Labels: map[string]string{
				"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest",
			}}}
			require.NoError(t, plain.Create(t.Context(), restricted))
			err := strict.Create(t.Context(), podOf(&deployment, restricted.Name), client.DryRunAll)
			if !ownNetwork {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			_, why, found := strings.Cut(err.Error(), `violates PodSecurity "restricted:latest": `)
			require.True(t, found, err.Error())
			why = strings.ReplaceAll(why, "host namespaces (hostNetwork=true)", "")
			why = strings.ReplaceAll(why, "hostPort (container \"cluster-version-operator\" uses hostPort 9199)", "")
			assert.Empty(t, strings.Trim(why, ", "), "only the use of the node's network exceeds the restricted standard")
		})
	}
}

func podOf(deployment *appsv1.Deployment, namespace string) *corev1.Pod {
	template := deployment.Spec.Template.DeepCopy()
	// Without a controller that creates service accounts, the pod would be rejected for a missing account.
	template.Spec.ServiceAccountName = ""
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "cluster-version-operator-", Namespace: namespace, Labels: template.Labels},
		Spec:       template.Spec,
	}
}

// TestManifestsReferToEachOther checks the names with which the objects refer to each other, because nothing else reports a wrong name.
func TestManifestsReferToEachOther(t *testing.T) {
	for _, ownNetwork := range []bool{false, true} {
		list := objects(t, ownNetwork)
		var deployment appsv1.Deployment
		find(t, list, "Deployment", "cluster-version-operator", &deployment)
		pods := labels.Set(deployment.Spec.Template.Labels)

		t.Run("targets the port of the operator with the Service", func(t *testing.T) {
			var service corev1.Service
			find(t, list, "Service", "cluster-version-operator", &service)
			assert.True(t, labels.SelectorFromSet(service.Spec.Selector).Matches(pods))
			container := deployment.Spec.Template.Spec.Containers[0]
			require.Equal(t, container.Ports[0].Name, service.Spec.Ports[0].TargetPort.String())
			port := map[bool]string{false: "9099", true: "9199"}[ownNetwork]
			assert.Contains(t, container.Args, "--listen=:"+port)
			assert.Equal(t, port, strconv.Itoa(int(container.Ports[0].ContainerPort)))
			for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
				assert.Equal(t, container.Ports[0].Name, probe.HTTPGet.Port.String())
			}
		})
		t.Run("leaves one replica during a drain", func(t *testing.T) {
			var budget policyv1.PodDisruptionBudget
			find(t, list, "PodDisruptionBudget", "cluster-version-operator", &budget)
			selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
			require.NoError(t, err)
			assert.True(t, selector.Matches(pods))
			assert.Equal(t, int32(2), *deployment.Spec.Replicas)
			assert.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
		})
		t.Run("spreads the replicas", func(t *testing.T) {
			require.NotEmpty(t, deployment.Spec.Template.Spec.TopologySpreadConstraints)
			for _, constraint := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
				assert.True(t, maps.Equal(deployment.Spec.Selector.MatchLabels, constraint.LabelSelector.MatchLabels))
			}
		})
	}
}
