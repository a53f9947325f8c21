// Package chart_test packs the Helm chart, renders it with Helm, and installs, upgrades and uninstalls it on a real API
// server.
package chart_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/cluster"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/test/env"
)

const (
	root  = "../.."
	image = "registry.example/release@sha256:0000000000000000000000000000000000000000000000000000000000000000"
)

// helm runs the pinned Helm, which `make helm` builds.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	binary, err := filepath.Abs(filepath.Join(root, "bin", "peers", "helm"))
	require.NoError(t, err)
	_, err = os.Stat(binary)
	require.NoError(t, err, "build it with make helm")
	cmd := exec.CommandContext(t.Context(), binary, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CONFIG_HOME="+home, "HELM_CACHE_HOME="+home, "HELM_DATA_HOME="+home)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "helm %s: %s", strings.Join(args, " "), errs.String())
	return string(out)
}

// pack creates the chart as `make chart` does.
func pack(t *testing.T) (file string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join("hack", "chart.sh"))
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "VERSION=v1.2.3", "SOURCE_DATE_EPOCH=1700000000", "CHART_DIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	file = strings.TrimSpace(string(out))
	assert.Equal(t, "cluster-version-operator-1.2.3.tgz", filepath.Base(file))
	return file
}

// rendered returns the objects of the operator's own manifests, as the operator applies them.
func rendered(t *testing.T, ownNetwork bool) (list []*unstructured.Unstructured) {
	t.Helper()
	fsys := fstest.MapFS{
		payload.MetadataFile:   {Data: []byte(`{"kind":"cincinnati-metadata-v0","version":"1.0.0"}`)},
		payload.ReferencesFile: {Data: []byte(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.0.0"}}`)},
	}
	for folder, files := range map[string]fs.FS{payload.OperatorDir: manifests.FS(), payload.ReleaseDir: manifests.Monitoring()} {
		names, err := fs.Glob(files, "*.yaml")
		require.NoError(t, err)
		for _, name := range names {
			data, err := fs.ReadFile(files, name)
			require.NoError(t, err)
			fsys[path.Join(folder, name)] = &fstest.MapFile{Data: data}
		}
	}
	every := inclusion.Filter{FeatureSet: string(configv1.CustomNoUpgrade), Gates: inclusion.CapabilityGates().Insert("ClusterUpdateAcceptRisks")}
	p, err := payload.Load(fsys, image, payload.Options{TemplateErrors: true, BringYourOwnNetwork: ownNetwork, Filter: every})
	require.NoError(t, err)
	for _, m := range p.Manifests {
		if m.GVK().Kind != "CustomResourceDefinition" {
			list = append(list, m.Object)
		}
	}
	return list
}

func identity(o *unstructured.Unstructured) string {
	return o.GroupVersionKind().String() + " " + o.GetNamespace() + "/" + o.GetName()
}

// TestChartMatchesTheManifests compares the chart with the manifests, because the installed operator would undo any difference.
func TestChartMatchesTheManifests(t *testing.T) {
	chart := pack(t)
	for name, ownNetwork := range map[string]bool{"network of the cluster": false, "network of the release": true} {
		t.Run("has the manifests with the "+name, func(t *testing.T) {
			args := []string{"template", "cvo", chart, "--kube-version", "1.36.0", "--set", "monitoring=true", "--set", "releaseImage=" + image}
			if ownNetwork {
				args = append(args, "--set", "bringYourOwnNetwork=true")
			}
			got := map[string]*unstructured.Unstructured{}
			for document := range strings.SplitSeq(helm(t, args...), "\n---\n") {
				object := &unstructured.Unstructured{}
				require.NoError(t, yaml.Unmarshal([]byte(document), &object.Object), document)
				if annotations := object.GetAnnotations(); annotations["helm.sh/resource-policy"] != "" {
					delete(annotations, "helm.sh/resource-policy")
					object.SetAnnotations(annotations)
				}
				got[identity(object)] = object
			}
			for _, want := range rendered(t, ownNetwork) {
				if object := got[identity(want)]; assert.NotNil(t, object, "%s is missing", identity(want)) {
					assert.Equal(t, text(t, want), text(t, object))
				}
			}
		})
	}
}

func TestChartInstallsUpgradesAndUninstalls(t *testing.T) {
	e := env.New(t, env.Options{Audit: env.AuditNone})
	scheme, err := cluster.NewScheme()
	require.NoError(t, err)
	chart := pack(t)
	args := []string{"--kubeconfig", e.Kubeconfig, "--namespace", "kube-system"}
	values := []string{
		chart, "--set", "releaseImage=" + image, "--set-json", `env=[{"name":"CVO_PAYLOAD_RETRIEVAL","value":"job"}]`,
		"--set-file", "trust=" + file(t, "kind: "+policy.Kind), "--set-file", "pullSecret=" + file(t, `{"auths":{}}`), "--set", "clusterAdmin=true",
	}
	helm(t, append(append([]string{"install", "cvo"}, values...), args...)...)
	c, err := client.New(e.Config("chart-test"), client.Options{Scheme: scheme})
	require.NoError(t, err)
	deployment, version := &appsv1.Deployment{}, &configv1.ClusterVersion{}
	operatorKey := client.ObjectKey{Namespace: api.OperatorNamespace, Name: "cluster-version-operator"}

	t.Run("creates the operator and the chosen objects on install", func(t *testing.T) {
		require.NoError(t, c.Get(t.Context(), operatorKey, deployment))
		container := deployment.Spec.Template.Spec.Containers[0]
		assert.Equal(t, image, container.Image)
		assert.Contains(t, container.Env, corev1.EnvVar{Name: "CVO_PAYLOAD_RETRIEVAL", Value: "job"})
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: api.ClusterVersionName}, version))
		trust := &corev1.ConfigMap{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap}, trust))
		assert.Equal(t, map[string]string{policy.DocumentKey: "kind: " + policy.Kind}, trust.Data)
		for _, key := range []client.ObjectKey{{Namespace: api.ConfigNamespace, Name: "pull-secret"}, {Namespace: api.OperatorNamespace, Name: "cluster-version-operator-pull-secret"}} {
			secret := &corev1.Secret{}
			require.NoError(t, c.Get(t.Context(), key, secret))
			assert.JSONEq(t, `{"auths":{}}`, string(secret.Data[corev1.DockerConfigJsonKey]))
		}
	})
	t.Run("does not revert the operator's updates on upgrade", func(t *testing.T) {
		updated := strings.Replace(image, "0000", "1111", 1)
		container := &deployment.Spec.Template.Spec.Containers[0]
		container.Image = updated
		require.NoError(t, c.Update(t.Context(), deployment))
		helm(t, append(append([]string{"upgrade", "cvo"}, values...), args...)...)
		require.NoError(t, c.Get(t.Context(), operatorKey, deployment))
		assert.Equal(t, updated, deployment.Spec.Template.Spec.Containers[0].Image)
		assert.Contains(t, deployment.Spec.Template.Spec.Containers[0].Args, "--release-image="+updated)
		id := version.Spec.ClusterID
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: api.ClusterVersionName}, version))
		assert.Equal(t, id, version.Spec.ClusterID)
	})
	t.Run("keeps the objects that the platform needs on uninstall", func(t *testing.T) {
		helm(t, append([]string{"uninstall", "cvo"}, args...)...)
		assert.True(t, apierrors.IsNotFound(c.Get(t.Context(), operatorKey, deployment)))
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: api.ClusterVersionName}, version))
		assert.Nil(t, version.DeletionTimestamp)
		for _, kept := range []struct{ kind, namespace, name string }{
			{"Namespace", "", api.OperatorNamespace},
			{"Namespace", "", api.ConfigNamespace},
			{"ConfigMap", api.ConfigNamespace, api.TrustConfigMap},
			{"Secret", api.ConfigNamespace, "pull-secret"},
		} {
			object := &unstructured.Unstructured{}
			object.SetAPIVersion("v1")
			object.SetKind(kept.kind)
			require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: kept.namespace, Name: kept.name}, object), kept.name)
			assert.Nil(t, object.GetDeletionTimestamp(), kept.name)
		}
		version.Annotations = nil
		assert.ErrorContains(t, c.Delete(t.Context(), version), "would delete the whole platform", "the guard stays")
	})
}

func text(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	data, err := yaml.Marshal(object.Object)
	require.NoError(t, err)
	return string(data)
}

func file(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}
