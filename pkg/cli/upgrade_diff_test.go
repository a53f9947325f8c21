package cli_test

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/install"
	"github.com/cluster-version/cvo/pkg/install/plan"
	installtarget "github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

func TestUpgradeDiffRejectsWrongArguments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, tt := range []struct {
		name string
		args []string
		says string
	}{
		{"it needs a release", []string{"upgrade", "diff"}, "accepts 1 arg(s)"},
		{"it rejects an unknown output", []string{"upgrade", "diff", "x", "-o", "xml"}, `unknown output "xml": use text, json or yaml`},
		{"it rejects further arguments", []string{"upgrade", "1.1.0"}, "unknown command"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := runCvo(t, tt.args...)
			require.ErrorContains(t, err, tt.says)
			assert.Equal(t, command.ExitUsage, command.ExitCode(err))
		})
	}
	out, _, err := runCvo(t, "upgrade", "diff", "--help")
	require.NoError(t, err)
	assert.Contains(t, out, "cvo upgrade diff ./release --full")
}

// diffed is a cluster that runs a release, and the registry with that release.
type diffed struct {
	registry *fixture.Registry
	signer   *fixture.Signer
	dir      string
	client   client.Client
	env      *env.Env
}

// tree returns a release with the CRDs of the operator's set and the given manifests. It contains its signing keys.
func (d *diffed) tree(t *testing.T, version string, manifests map[string]string) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{
		"release-manifests/release-metadata": {Data: []byte(`{"kind": "cincinnati-metadata-v0", "version": "` + version + `"}`)},
		"release-manifests/image-references": {Data: []byte(`{"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": {"name": "` + version + `"}}`)},
	}
	set := operatorSet(t)
	entries, err := os.ReadDir(set)
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.Contains(e.Name(), "crd") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(set, e.Name()))
		require.NoError(t, err)
		files["manifests/"+e.Name()] = &fstest.MapFile{Data: data}
	}
	key, err := d.signer.PublicKey()
	require.NoError(t, err)
	data, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": "release-verification", "namespace": "openshift-config-managed",
			"annotations": map[string]string{
				"release.openshift.io/verification-config-map": "", "include.release.openshift.io/self-managed-high-availability": "true",
			},
		},
		"data": map[string]string{"verifier-public-key-test": string(key), "store-test": "file://" + d.store()},
	})
	require.NoError(t, err)
	files["release-manifests/0000_10_a_keys.json"] = &fstest.MapFile{Data: data}
	for name, text := range manifests {
		files["release-manifests/"+name] = &fstest.MapFile{Data: []byte(strings.Replace(text, "metadata: {",
			"metadata: {annotations: {include.release.openshift.io/self-managed-high-availability: 'true'}, ", 1))}
	}
	return files
}

func (d *diffed) store() string { return filepath.Join(d.dir, "signatures") }

func (d *diffed) push(t *testing.T, files fs.FS, tag string, signed bool) release.Image {
	t.Helper()
	img, err := fixture.PushRelease(t.Context(), d.registry, files, "platform/release:"+tag)
	require.NoError(t, err)
	if signed {
		_, err = d.signer.WriteSignature(d.store(), img)
		require.NoError(t, err)
	}
	return img
}

func (d *diffed) trust(t *testing.T, signer *fixture.Signer) string {
	t.Helper()
	data, err := signer.Trust("file://" + d.store())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "trust.yaml")
	require.NoError(t, os.WriteFile(file, data, 0o600))
	return file
}

func newDiffed(t *testing.T) (*diffed, release.Image) {
	t.Helper()
	d := &diffed{registry: fixture.StartRegistry(t), dir: t.TempDir(), env: env.New(t, env.Options{})}
	var err error
	d.signer, err = fixture.NewSigner("platform", fixture.SignerOptions{})
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, configv1.Install(scheme))
	d.client, err = client.New(d.env.Config("test"), client.Options{Scheme: scheme})
	require.NoError(t, err)

	files := d.tree(t, "1.0.0", nil)
	running := d.push(t, files, "1.0.0", true)
	p, err := payload.Load(files, running.ByDigest(), payload.Options{})
	require.NoError(t, err)
	objects, err := plan.NewPreparation(p, plan.Settings{})
	require.NoError(t, err)
	_, err = install.Deploy(t.Context(), d.env.Config("install"), objects, inject.Values{}, nil)
	require.NoError(t, err)
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
	require.NoError(t, d.client.Get(t.Context(), client.ObjectKeyFromObject(cv), cv))
	cv.Status = configv1.ClusterVersionStatus{
		Desired: configv1.Release{Version: "1.0.0", Image: running.ByDigest()},
		History: []configv1.UpdateHistory{{
			State: configv1.CompletedUpdate, Version: "1.0.0", Image: running.ByDigest(), StartedTime: metav1.Now(),
			CompletionTime: &metav1.Time{Time: time.Now()},
		}},
		VersionHash: "x",
	}
	require.NoError(t, d.client.Status().Update(t.Context(), cv))
	return d, running
}

func TestUpgradeDiffPreviewsARelease(t *testing.T) {
	d, running := newDiffed(t)
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\ndata: {a: b}\n"
	files := d.tree(t, "1.1.0", map[string]string{"0000_20_a_config.yaml": config})
	target := d.push(t, files, "1.1.0", true)
	unsigned := d.push(t, d.tree(t, "1.2.0", map[string]string{"0000_20_a_config.yaml": config}), "1.2.0", false)
	stranger, err := fixture.NewSigner("stranger", fixture.SignerOptions{})
	require.NoError(t, err)
	diff := func(args ...string) (string, string, error) {
		return runCvo(t, append([]string{"upgrade", "diff", "--kubeconfig", d.env.Kubeconfig}, args...)...)
	}

	t.Run("it trusts the keys of the running release", func(t *testing.T) {
		out, errs, err := diff(target.Pullspec)
		require.NoError(t, err, errs)
		assert.Contains(t, out, "What an update to 1.1.0 ("+target.ByDigest()+") would do")
		assert.Contains(t, out, "ConfigMap default/a  0000_20_a_config.yaml\n  created\n")
		assert.Regexp(t, `\n3 created, 3 changed \(\d+ fields\), 0 deleted, 0 recreated, 0 refused, 0 unchanged, \d+ excluded\n$`, out)
		assert.Contains(t, out, "the cluster has no inventory in namespace openshift-cluster-version")
		assert.Contains(t, errs, "is signed by openpgp key "+d.signer.KeyID())
		assert.NotContains(t, errs, "manifests", "progress is printed only on terminals")
	})
	t.Run("it trusts an administrator's keys", func(t *testing.T) {
		_, errs, err := diff(target.ByDigest(), "--trust", d.trust(t, d.signer))
		require.NoError(t, err, errs)
		_, _, err = diff(target.ByDigest(), "--trust", d.trust(t, stranger))
		assert.Equal(t, command.ExitRefused, command.ExitCode(err), "%v", err)
	})
	t.Run("it examines an unsigned release only if forced", func(t *testing.T) {
		out, _, err := diff(unsigned.Pullspec)
		require.Error(t, err)
		assert.Equal(t, command.ExitRefused, command.ExitCode(err), "%v", err)
		assert.Empty(t, out)
		out, errs, err := diff(unsigned.Pullspec, "--force-unverified")
		require.NoError(t, err)
		assert.Contains(t, out, "What an update to 1.2.0")
		assert.Contains(t, errs, "without verification because of --force-unverified")
	})
	t.Run("it finds the image of a version that the cluster knows", func(t *testing.T) {
		out, errs, err := diff("1.0.0")
		require.NoError(t, err, errs)
		assert.Contains(t, out, "What an update to 1.0.0 ("+running.ByDigest()+") would do")
		_, _, err = diff("7.7.7")
		require.ErrorContains(t, err, `the semantic version "7.7.7" is not present in the cluster version status, cannot be resolved: the cluster lists "1.0.0"; name the image instead`)
	})
	t.Run("it accepts a folder, with or without a scheme, and prints YAML for scripts", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, files))
		out, errs, err := diff(dir, "-o", "json")
		require.NoError(t, err, errs)
		var report preview.Report
		require.NoError(t, json.Unmarshal([]byte(out), &report))
		assert.Equal(t, "1.1.0", report.Version)
		assert.Equal(t, 3, report.Totals.Created)
		yaml, _, err := diff("file://"+dir, "-o", "yaml")
		require.NoError(t, err)
		assert.Contains(t, yaml, "\n  verdict: created\n")
	})
	t.Run("it sets the exit code if objects are rejected", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, d.tree(t, "1.1.0", map[string]string{"0000_20_a_config.yaml": strings.Replace(config, "name: a", "name: NOT_A_NAME", 1)})))
		out, _, err := diff(dir)
		require.EqualError(t, err, "the cluster would reject 1 manifest of release 1.1.0")
		assert.Equal(t, command.ExitRefused, command.ExitCode(err))
		assert.Contains(t, out, "ConfigMap default/NOT_A_NAME  0000_20_a_config.yaml\n  refused: ")
	})
	t.Run("it sets the exit code if a result is unknown", func(t *testing.T) {
		version := func(name, storage string) string {
			return "{name: " + name + ", served: true, storage: " + storage +
				", schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}"
		}
		crd := func(versions string) string {
			return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.example.com}\n" +
				"spec: {group: example.com, scope: Cluster, names: {kind: Widget, plural: widgets}, versions: [" + versions + "]}\n"
		}
		installed := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(crd(version("v1", "true"))), &installed.Object))
		require.NoError(t, d.client.Create(t.Context(), installed))
		widget := func(size, conversion string) (string, error) {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, d.tree(t, "1.1.0", map[string]string{
				"0000_20_a_crd.yaml":    strings.Replace(crd(version("v1", "true")+", "+version("v2", "false")), "scope: Cluster", "scope: Cluster"+conversion, 1),
				"0000_20_a_widget.yaml": "apiVersion: example.com/v2\nkind: Widget\nmetadata: {name: a}\nspec: {size: " + size + "}\n",
			})))
			out, _, err := diff(dir)
			return out, err
		}
		out, err := widget("1", "")
		require.NoError(t, err)
		assert.Contains(t, out, "Widget.example.com a  0000_20_a_widget.yaml\n  created, once its CRD serves example.com/v2")
		out, err = widget("1", ", conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: 'https://127.0.0.1:1'}}}")
		require.NoError(t, err, "no one can check it before the update")
		assert.Contains(t, out, "Widget.example.com a  0000_20_a_widget.yaml\n  unknown: the cluster does not serve example.com/v2 until")
		out, err = widget("big", "")
		assert.Equal(t, command.ExitRefused, command.ExitCode(err), "%v", err)
		assert.Contains(t, out, "  refused: the object breaks the schema of the release's CRD: spec.size: must be of type integer\n")
	})
	t.Run("it renders manifests as the operator in the cluster does", func(t *testing.T) {
		dir := t.TempDir()
		files := d.tree(t, "1.1.0", nil)
		const file = "0000_00_cluster-version-operator_99_network.yaml"
		files["manifests/"+file] = &fstest.MapFile{Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  namespace: default\n" +
			"  name: {{if .BringYourOwnNetwork}}own{{else}}given{{end}}-network\n  annotations: {include.release.openshift.io/self-managed-high-availability: 'true', include.release.openshift.io/edge: 'true'}\n")}
		files["release-manifests/0000_20_a_edge.yaml"] = &fstest.MapFile{Data: []byte(
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: edge, namespace: default, annotations: {include.release.openshift.io/edge: 'true'}}\n")}
		require.NoError(t, os.CopyFS(dir, files))
		shows := func(want string, edge bool, args ...string) {
			t.Helper()
			out, errs, err := diff(append(args, dir)...)
			require.NoError(t, err, errs)
			assert.Contains(t, out, "ConfigMap default/"+want+"  "+file+"\n  created\n")
			assert.Equal(t, edge, strings.Contains(out, "ConfigMap default/edge  0000_20_a_edge.yaml\n  created\n"), out)
		}
		shows("given-network", false)
		shows("own-network", false, "--bring-your-own-network")

		labels := map[string]string{"app": "operator"}
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: api.OperatorNamespace, Name: installtarget.Operator},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{
						Name: installtarget.Operator, Image: "registry.example/a",
						Env: []corev1.EnvVar{{Name: "CVO_BRING_YOUR_OWN_NETWORK", Value: "true"}, {Name: "CLUSTER_PROFILE", Value: "edge"}},
					}}},
				},
			},
		}
		clients, err := kubernetes.NewForConfig(d.env.Config("test"))
		require.NoError(t, err)
		_, err = clients.AppsV1().Deployments(deployment.Namespace).Create(t.Context(), deployment, metav1.CreateOptions{})
		require.NoError(t, err)
		defer func() {
			assert.NoError(t, clients.AppsV1().Deployments(deployment.Namespace).Delete(t.Context(), deployment.Name, metav1.DeleteOptions{}))
		}()
		shows("own-network", true)
		shows("own-network", false, "--profile", api.DefaultProfile)
	})
	t.Run("it follows the overrides of the cluster", func(t *testing.T) {
		cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
		require.NoError(t, d.client.Get(t.Context(), client.ObjectKeyFromObject(cv), cv))
		patch := client.MergeFrom(cv.DeepCopy())
		cv.Spec.Overrides = []configv1.ComponentOverride{{Kind: "ConfigMap", Namespace: "default", Name: "a", Unmanaged: true}}
		require.NoError(t, d.client.Patch(t.Context(), cv, patch))
		out, _, err := diff(target.Pullspec)
		require.NoError(t, err)
		assert.Contains(t, out, "\n2 created, ")
	})
	t.Run("it accepts a context", func(t *testing.T) {
		kubeconfig, err := clientcmd.LoadFromFile(d.env.Kubeconfig)
		require.NoError(t, err)
		kubeconfig.Contexts["other"] = kubeconfig.Contexts[kubeconfig.CurrentContext]
		kubeconfig.CurrentContext = "none"
		file := filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, clientcmd.WriteToFile(*kubeconfig, file))
		_, _, err = runCvo(t, "upgrade", "diff", target.Pullspec, "--kubeconfig", file, "--context", "other")
		require.NoError(t, err)
		_, _, err = runCvo(t, "upgrade", "diff", target.Pullspec, "--kubeconfig", file, "--context", "missing")
		require.ErrorContains(t, err, "kubectl config get-contexts")
	})
	t.Run("it rejects a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		_, _, err := diff(file)
		assert.Equal(t, command.ExitUsage, command.ExitCode(err), "%v", err)
		_, _, err = diff("file://" + file + "/nowhere")
		var missing *fs.PathError
		require.ErrorAs(t, err, &missing)
	})
	t.Run("it rejects a mistyped folder", func(t *testing.T) {
		_, _, err := diff("relase")
		require.ErrorContains(t, err, `"relase" does not exist and names no registry`)
		assert.Equal(t, command.ExitUsage, command.ExitCode(err))
		_, _, err = diff("127.0.0.1:1/platform/release:1.1.0")
		require.ErrorContains(t, err, "registry 127.0.0.1:1 cannot be reached")
		assert.NotContains(t, err.Error(), "folder")
	})
	t.Run("it looks up no images if asked not to", func(t *testing.T) {
		dir := t.TempDir()
		uses := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: default}\ndata: {image: '" +
			d.registry.Host() + "/platform/new@sha256:" + strings.Repeat("0", 64) + "'}\n"
		require.NoError(t, os.CopyFS(dir, d.tree(t, "1.1.0", map[string]string{"0000_20_a_config.yaml": uses})))
		_, _, err := diff(dir)
		require.EqualError(t, err, "nodes cannot pull 1 image of release 1.1.0")
		lookups := d.registry.Count(http.MethodHead, "/platform/new/")
		require.NotZero(t, lookups)
		_, errs, err := diff(dir, "--skip-images")
		require.NoError(t, err, errs)
		assert.Equal(t, lookups, d.registry.Count(http.MethodHead, "/platform/new/"))
	})
	t.Run("it looks up no images without the running release", func(t *testing.T) {
		cv := &configv1.ClusterVersion{}
		require.NoError(t, d.client.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
		cv.Status.Desired.Image = strings.Split(running.ByDigest(), "@")[0] + "@sha256:" + strings.Repeat("0", 64)
		require.NoError(t, d.client.Status().Update(t.Context(), cv))
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, files))
		const note = "The images of the update are not looked up: "
		out, errs, err := diff(dir)
		require.NoError(t, err, errs)
		assert.Contains(t, out, note)
		out, errs, err = diff(dir, "--skip-images")
		require.NoError(t, err, errs)
		assert.NotContains(t, out, note)
	})
	t.Run("it requires a running release", func(t *testing.T) {
		_, _, err := diff(running.Pullspec, "--name", "another")
		require.ErrorContains(t, err, `this cluster has no ClusterVersion "another"`)
	})
	t.Run("it names the trust of the operator if the running release is unreadable", func(t *testing.T) {
		cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
		require.NoError(t, d.client.Get(t.Context(), client.ObjectKeyFromObject(cv), cv))
		cv.Status.Desired.Image = "127.0.0.1:1/platform/release@" + string(running.Digest)
		require.NoError(t, d.client.Status().Update(t.Context(), cv))
		_, _, err := diff(target.ByDigest())
		require.ErrorContains(t, err, "reading the keys of the running release: ")
		require.ErrorContains(t, err, "registry 127.0.0.1:1 cannot be reached")
		require.ErrorContains(t, err, ": if the operator was started with --trust, use the same file here: with another, the result differs from the operator's")
		assert.Equal(t, command.ExitFailed, command.ExitCode(err))
	})
}
