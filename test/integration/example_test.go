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
	"github.com/cluster-version/cvo/test/nodeimage"
)

// TestExamplePlatformInstallsAndUpdates follows a platform team that uses only commands of cvo: create a key; build, sign and inspect two
// releases, with the node stage; install the first and update to the second. In between, the operator is killed, and a careless user
// damages objects.
//
//threat:clusterversion-deleted-platform prevents an accidental deletion of the ClusterVersion
func TestExamplePlatformInstallsAndUpdates(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	keys := filepath.Join(p.dir, "keys")
	_, err := p.run("release", "keygen", "--out", keys)
	require.NoError(t, err)
	p.trust = filepath.Join(keys, "trust.yaml")
	stage, err := nodeimage.Push(t.Context(), p.registry, "example/node:1")
	require.NoError(t, err)
	images := map[string]string{}
	for _, version := range []string{"1.0.0", "1.1.0"} {
		tag := p.registry.Host() + "/example/release:" + version
		out, err := p.run("release", "new", "--from-dir", filepath.Join("../../examples/platform", version),
			"--from-dir", filepath.Join("../../examples/platform/nodes", version), nodeimage.Component+"="+stage.ByDigest(), "--name", version,
			"--previous", "1.0.0", "--no-operator", "--created", "2026-01-01T00:00:00Z", "--to-image", tag, "--to-dir", filepath.Join(p.dir, version))
		require.NoError(t, err)
		digest, _, _ := strings.Cut(out, " ")
		images[version] = p.registry.Host() + "/example/release@" + digest
		_, err = p.run("release", "sign", tag, "--key", filepath.Join(keys, "private.pem"))
		require.NoError(t, err)
	}

	_, err = p.run("install", "--no-operator", "--release-image", images["1.0.0"], "--trust", p.trust)
	require.NoError(t, err)
	p.start("operators", "--delay", "200ms")
	operator := p.operator(images["1.0.0"])
	cv := p.await("1.0.0 to complete", time.Minute, completed("1.0.0"))
	assert.True(t, cv.Status.History[0].Verified)
	require.NotNil(t, p.object("v1", "Service", "example-dns", "example-dns-legacy"))

	p.awaitRecords("1.0.0", time.Time{})
	operator.kill()
	p.releaseLease()
	begin := time.Now()
	p.operator(images["1.0.0"])
	p.holder(func(name string) bool { return name != "" })
	p.vandalize(filepath.Join(p.dir, "1.0.0"), 60)
	assert.InDelta(t, 60, len(p.appliedSince(begin)), 60/20.0, "the new operator writes only to repair")

	p.update(configv1.Update{Version: "1.1.0", Image: images["1.1.0"]})
	p.await("1.1.0 to complete", time.Minute, completed("1.1.0"))
	assert.Nil(t, p.object("v1", "Service", "example-dns", "example-dns-legacy"), "the tombstone's object still exists")
	co := p.object("config.openshift.io/v1", "ClusterOperator", "", "example-autoscaler")
	require.NotNil(t, co)
	assert.Equal(t, "version", co.GetLabels()[api.OwnedByLabel])

	t.Run("reports its steps as events", p.testEvents)
	t.Run("prevents an accidental deletion of the ClusterVersion", p.testDeletionGuard)
}

// object returns an object, nil if it does not exist.
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
		// The API server compiles the policy in the background and accepts requests until then. Repeat dry runs until it rejects one.
		require.Eventually(t, func() bool {
			err := p.client.Delete(t.Context(), obj, client.DryRunAll)
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "whole platform")
		}, patience, 100*time.Millisecond)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"cvo.cluster-version.github.io/allow-deletion":"true"}}}`))
	require.NoError(t, p.client.Patch(t.Context(), cv, patch))
	require.NoError(t, p.client.Delete(t.Context(), cv, client.DryRunAll))
}

// TestForbiddenOperationsChangeNothing tries forbidden operations and checks that the cluster is unchanged.
//
//threat:no-signature-none
func TestForbiddenOperationsChangeNothing(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	out := filepath.Join(t.TempDir(), "1.0.0")
	_, err := p.run("release", "new", "--from-dir", "../../examples/platform/1.0.0", "--name", "1.0.0", "--no-operator", "--to-dir", out)
	require.NoError(t, err)
	unsigned := p.push(os.DirFS(out), "1.0.0", false)

	_, err = p.run("install", "--no-operator", "--release-image", unsigned.ByDigest(), "--trust", p.trust)
	require.ErrorContains(t, err, "unable to verify "+string(unsigned.Digest))
	require.ErrorContains(t, err, p.store(), "the message names the store")
	require.ErrorContains(t, err, "exit status 3")
	assert.Nil(t, p.object("v1", "Namespace", "", api.OperatorNamespace), "a rejected release creates nothing")
}

// testEvents checks the events of the install and the update in the operator's namespace.
func (p *platform) testEvents(t *testing.T) {
	require.Eventually(t, func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.FromAPIVersionAndKind("v1", "EventList"))
		if err := p.client.List(t.Context(), list, client.InNamespace(api.OperatorNamespace)); err != nil {
			return false
		}
		reported := map[string]bool{}
		for _, e := range list.Items {
			reason, _, _ := unstructured.NestedString(e.Object, "reason")
			message, _, _ := unstructured.NestedString(e.Object, "message")
			reported[reason+": "+message] = true
		}
		return reported["UpdateStarted: Started to install 1.0.0"] && reported["UpdateStarted: Started to update from 1.0.0 to 1.1.0"] &&
			reported["NodesHandedOver: The control plane is at 1.1.0; the nodes are handed over to machine-config"]
	}, patience, 200*time.Millisecond)
}

// TestReleaseRunsFromAFolder runs a release from a folder, as in a pod of the release image. Local files are not pulled and need no trust.
func TestReleaseRunsFromAFolder(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	tag := p.registry.Host() + "/example/release:1.0.0"
	out, err := p.run("release", "new", "--from-dir", "../../examples/platform/1.0.0", "--name", "1.0.0", "--no-operator", "--to-image", tag)
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
	p.keep("cvo", "start", "--release-image", image, "--payload-dir", dir, "--listen", "")
	cv := p.await("1.0.0 to complete", time.Minute, completed("1.0.0"))
	assert.Equal(t, image, cv.Status.Desired.Image)
	assert.False(t, cv.Status.History[0].Verified, "no signature store was contacted")
	assert.Empty(t, p.registry.Requests())
}
