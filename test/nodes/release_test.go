//go:build linux

package nodes_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	set "github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/manifests/apicrd"
	"github.com/cluster-version/cvo/pkg/api"
	cvo "github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

// platform is a cluster whose releases contain the stage.
type platform struct {
	*stage
	registry   *fixture.Registry
	signer     *fixture.Signer
	dir, trust string
}

func newPlatform(t *testing.T, nodes ...string) *platform {
	p := &platform{stage: &stage{t: t, env: env.New(t, env.Options{}), hosts: map[string]string{}}, registry: fixture.StartRegistry(t), dir: t.TempDir()}
	scheme, err := cluster.NewScheme()
	require.NoError(t, err)
	p.client, err = client.New(p.env.Config("administrator"), client.Options{Scheme: scheme})
	require.NoError(t, err)
	p.signer, err = fixture.NewSigner("platform", fixture.SignerOptions{})
	require.NoError(t, err)
	trust, err := p.signer.Trust("file://" + filepath.Join(p.dir, "signatures"))
	require.NoError(t, err)
	p.trust = p.file("trust.yaml", trust)
	for _, name := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if strings.HasPrefix(name, "m") {
			n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		}
		require.NoError(t, p.client.Create(t.Context(), n))
		p.hosts[name] = t.TempDir()
	}
	return p
}

// file writes a file below the platform's folder.
func (p *platform) file(name string, data []byte) (path string) {
	p.t.Helper()
	path = filepath.Join(p.dir, name)
	require.NoError(p.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(p.t, os.WriteFile(path, data, 0o600))
	return path
}

// cvo runs a command to completion.
func (p *platform) cvo(args ...string) (stdout string) {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd := cvo.New(command.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	cmd.SetArgs(args)
	require.NoError(p.t, cmd.ExecuteContext(p.t.Context()), errs.String())
	return out.String()
}

// newRelease makes a signed release with the stage, and with a MachineConfig for the control plane unless motd is empty.
func (p *platform) newRelease(version, motd string) (pullspec string) {
	p.t.Helper()
	folder := version + "/machine-config-operator"
	require.NoError(p.t, os.CopyFS(filepath.Join(p.dir, folder), set.Node()))
	definitions, err := apicrd.NodeStage(p.t.Context())
	require.NoError(p.t, err)
	for name, data := range definitions {
		p.file(filepath.Join(folder, name), data)
	}
	if motd != "" {
		p.file(version+"/motd/0000_80_motd_00.yaml", fmt.Appendf(nil, `{apiVersion: machineconfiguration.openshift.io/v1, kind: MachineConfig,
  metadata: {name: 50-motd, labels: {machineconfiguration.openshift.io/role: master}, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}},
  spec: {config: {ignition: {version: 3.5.0}, storage: {files: [{path: /etc/motd, contents: {source: "data:,%s"}}]}}}}`, motd))
	}
	repository := p.registry.Host() + "/platform/release"
	out := p.cvo("release", "new", "--from-dir", filepath.Join(p.dir, version), "--name", version, "--no-operator", "--offline",
		"machine-config-operator="+imageOf(version), "--to-image", repository+":"+version)
	digest, _, _ := strings.Cut(out, " ")
	image := release.Image{Pullspec: repository, Digest: release.Digest(digest)}
	_, err = p.signer.WriteSignature(filepath.Join(p.dir, "signatures"), image)
	require.NoError(p.t, err)
	return image.ByDigest()
}

// deployed waits until the controller's Deployment is of a release. Meanwhile it reports all workloads as observed, as Kubernetes' controllers do.
func (p *platform) deployed(version string) {
	p.t.Helper()
	p.eventually(func(c *assert.CollectT) {
		var sets appsv1.DaemonSetList
		require.NoError(c, p.client.List(p.t.Context(), &sets))
		for i := range sets.Items {
			sets.Items[i].Status.ObservedGeneration = sets.Items[i].Generation
			require.NoError(c, p.client.Status().Update(p.t.Context(), &sets.Items[i]))
		}
		d := &appsv1.Deployment{}
		require.NoError(c, p.client.Get(p.t.Context(), client.ObjectKey{Namespace: api.MachineConfigNamespace, Name: api.MachineConfigController}, d))
		d.Status.ObservedGeneration = d.Generation
		require.NoError(c, p.client.Status().Update(p.t.Context(), d))
		require.NoError(c, p.client.List(p.t.Context(), &mcfgv1.MachineConfigNodeList{}), "the controller exits if discovery lacks the kind; no kubelet restarts it here")
		container := d.Spec.Template.Spec.Containers[0]
		assert.Contains(c, container.Env, corev1.EnvVar{Name: "RELEASE_VERSION", Value: version})
		assert.Contains(c, container.Env, corev1.EnvVar{Name: "OPERATOR_IMAGE", Value: imageOf(version)})
		assert.Equal(c, imageOf(version), container.Image)
	})
}

// completes waits until a release is installed.
func (p *platform) completes(version string) {
	p.t.Helper()
	p.eventually(func(c *assert.CollectT) {
		cv := &configv1.ClusterVersion{}
		require.NoError(c, p.client.Get(p.t.Context(), client.ObjectKey{Name: api.ClusterVersionName}, cv))
		require.NotEmpty(c, cv.Status.History)
		assert.Equal(c, version, cv.Status.History[0].Version)
		assert.Equal(c, configv1.CompletedUpdate, cv.Status.History[0].State, "%v", cv.Status.Conditions)
	})
}

// pods runs the processes of the workloads of a release, until stop is called.
func (p *platform) pods(version string, nodes ...string) (stop func()) {
	stops := []func(){p.runAs(p.env.Kubeconfig, "controller", "--settle", settle.String(), "--release-version", version, "--image", imageOf(version))}
	for _, node := range nodes {
		stops = append(stops, p.runAs(p.env.Kubeconfig, "daemon", "--release-version", version, "--node", node, "--root", p.hosts[node]))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// TestOperatorInstallsAndUpdatesTheNodeStage lets the version operator install a release with the stage, and update it to one with another config of the control
// plane. The test plays Kubernetes' controllers and kubelets.
func TestOperatorInstallsAndUpdatesTheNodeStage(t *testing.T) {
	p := newPlatform(t, "m1", "n2")
	first := p.newRelease("1.0.0", "")
	p.cvo("install", "--no-operator", "--release-image", first, "--trust", p.trust, "--kubeconfig", p.env.Kubeconfig)
	p.launch("cvo", "start", "--release-image", first, "--trust", p.trust, "--payload-cache", filepath.Join(p.dir, "cache"), "--listen", "", "--kubeconfig", p.env.Kubeconfig)
	p.deployed("1.0.0")
	stop := p.pods("1.0.0", "m1", "n2")
	p.completes("1.0.0")
	p.reports("1.0.0", configv1.ConditionFalse, "Cluster version is 1.0.0")
	worker := p.updatedPool(api.WorkerPool, "", 1)

	second := p.newRelease("1.1.0", "hello")
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: api.ClusterVersionName}}
	patch := fmt.Appendf(nil, `{"spec": {"desiredUpdate": {"image": %q}}}`, second)
	require.NoError(t, p.client.Patch(t.Context(), cv, client.RawPatch(types.MergePatchType, patch)))
	p.deployed("1.1.0")
	stop()
	stop = p.pods("1.1.0")
	p.reports("1.0.0", configv1.ConditionTrue, "Working towards 1.1.0: the daemons of these nodes of MachineConfigPool master are not of release 1.1.0 yet: m1")
	require.NoError(t, p.client.Get(t.Context(), client.ObjectKeyFromObject(cv), cv))
	assert.Equal(t, configv1.PartialUpdate, cv.Status.History[0].State)
	assert.NoFileExists(t, filepath.Join(p.hosts["m1"], "etc/motd"))
	stop()
	p.pods("1.1.0", "m1")
	p.completes("1.1.0")

	assert.FileExists(t, filepath.Join(p.hosts["m1"], "etc/motd"))
	assert.Equal(t, worker, p.node("n2").Annotations[api.DesiredConfigAnnotation], "it runs the content of the release already")
}
