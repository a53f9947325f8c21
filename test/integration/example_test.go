package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// TestExamplePlatform goes the way of a platform team with the commands of cvo alone: make a key, build, sign and look
// at two releases, install the first and update to the second.
func TestExamplePlatform(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	keys := filepath.Join(p.dir, "keys")
	_, err := p.run("release", "keygen", "--out", keys)
	require.NoError(t, err)
	p.trust = filepath.Join(keys, "trust.yaml")
	images := map[string]string{}
	for _, version := range []string{"1.0.0", "1.1.0"} {
		tag := p.registry.Host() + "/example/release:" + version
		out, err := p.run("release", "new", "--from-dir", filepath.Join("../../examples/platform", version), "--name", version,
			"--previous", "1.0.0", "--created", "2026-01-01T00:00:00Z", "--to-image", tag)
		require.NoError(t, err)
		digest, _, _ := strings.Cut(out, " ")
		images[version] = p.registry.Host() + "/example/release@" + digest
		_, err = p.run("release", "sign", tag, "--key", filepath.Join(keys, "private.pem"))
		require.NoError(t, err)
	}

	_, err = p.run("install", "--no-operator", "--release-image", images["1.0.0"], "--trust", p.trust)
	require.NoError(t, err)
	p.start("operators", "--delay", "200ms")
	p.operator(images["1.0.0"])
	cv := p.await("1.0.0 to complete", time.Minute, completed("1.0.0"))
	assert.True(t, cv.Status.History[0].Verified)
	require.NotNil(t, p.object("v1", "Service", "example-dns", "example-dns-legacy"))

	p.update(configv1.Update{Version: "1.1.0", Image: images["1.1.0"]})
	p.await("1.1.0 to complete", time.Minute, completed("1.1.0"))
	assert.Nil(t, p.object("v1", "Service", "example-dns", "example-dns-legacy"), "the tombstone's object is still there")
	co := p.object("config.openshift.io/v1", "ClusterOperator", "", "example-autoscaler")
	require.NotNil(t, co)
	assert.Equal(t, "version", co.GetLabels()[api.OwnedByLabel])

	t.Run("tells its story by events", p.testEvents)
	t.Run("keeps the ClusterVersion from being deleted by accident", p.testDeletionGuard)
}

// object reads an object, nil if it is not there.
func (p *platform) object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	p.t.Helper()
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	err := p.client.Get(p.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, obj)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(p.t, err)
	return obj
}

func (p *platform) testDeletionGuard(t *testing.T) {
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
	crd := p.object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "clusterversions.config.openshift.io")
	for _, obj := range []client.Object{cv, crd} {
		// The policy is compiled in the background by the API server; until then requests pass, so try without effect.
		require.Eventually(t, func() bool {
			err := p.client.Delete(t.Context(), obj, client.DryRunAll)
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "whole platform")
		}, 30*time.Second, 100*time.Millisecond)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"cvo.cluster-version.github.io/allow-deletion":"true"}}}`))
	require.NoError(t, p.client.Patch(t.Context(), cv, patch))
	require.NoError(t, p.client.Delete(t.Context(), cv, client.DryRunAll))
}

// TestRefusals tries what must not work, and that the cluster is as it was after it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	out := filepath.Join(t.TempDir(), "1.0.0")
	_, err := p.run("release", "new", "--from-dir", "../../examples/platform/1.0.0", "--name", "1.0.0", "--to-dir", out)
	require.NoError(t, err)
	unsigned := p.push(os.DirFS(out), "1.0.0", false)

	_, err = p.run("install", "--no-operator", "--release-image", unsigned.ByDigest(), "--trust", p.trust)
	require.ErrorContains(t, err, "unable to verify "+string(unsigned.Digest))
	require.ErrorContains(t, err, p.store(), "the message says where it looked")
	require.ErrorContains(t, err, "exit status 3")
	assert.Nil(t, p.object("v1", "Namespace", "", api.OperatorNamespace), "a refused release left something behind")
}

// testEvents reads the story of install and update from the events in the operator's namespace.
func (p *platform) testEvents(t *testing.T) {
	require.Eventually(t, func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.FromAPIVersionAndKind("v1", "EventList"))
		if err := p.client.List(t.Context(), list, client.InNamespace(api.OperatorNamespace)); err != nil {
			return false
		}
		told := map[string]bool{}
		for _, e := range list.Items {
			reason, _, _ := unstructured.NestedString(e.Object, "reason")
			message, _, _ := unstructured.NestedString(e.Object, "message")
			told[reason+": "+message] = true
		}
		return told["UpdateStarted: Started to install 1.0.0"] && told["UpdateStarted: Started to update from 1.0.0 to 1.1.0"] &&
			told["NodesHandedOver: The control plane is at 1.1.0; the nodes are handed over to machine-config"]
	}, 30*time.Second, 200*time.Millisecond)
}

// TestPayloadDir runs a release from a folder, as a pod that runs the release image has it: nothing is pulled, and
// nobody has to be trusted for what is there already.
func TestPayloadDir(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	tag := p.registry.Host() + "/example/release:1.0.0"
	out, err := p.run("release", "new", "--from-dir", "../../examples/platform/1.0.0", "--name", "1.0.0", "--to-image", tag)
	require.NoError(t, err)
	digest, _, _ := strings.Cut(out, " ")
	image := p.registry.Host() + "/example/release@" + digest
	signed, err := p.signer.WriteSignature(p.store(), release.Image{Pullspec: tag, Digest: release.Digest(digest)})
	require.NoError(t, err)
	require.NotEmpty(t, signed)
	_, err = p.run("install", "--no-operator", "--release-image", image, "--trust", p.trust)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "release")
	_, err = p.run("release", "extract", tag, "--layout", "image", "--to", dir)
	require.NoError(t, err)

	p.registry.Reset()
	p.start("operators")
	p.start("cvo", "start", "--release-image", image, "--payload-dir", dir, "--listen", "")
	cv := p.await("1.0.0 to complete", time.Minute, completed("1.0.0"))
	assert.Equal(t, image, cv.Status.Desired.Image)
	assert.False(t, cv.Status.History[0].Verified, "nobody was asked who signed it")
	assert.Empty(t, p.registry.Requests())
}
