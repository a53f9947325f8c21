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
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// The registry of a kind cluster has one name for the host, which pullspecs use, and another one for nodes and pods. It speaks plain HTTP.
const (
	hostName = "localhost:5001"
	nodeName = "kind-registry:5000"
)

// TestLocalRegistryWithoutTLS installs from a registry that the operator reaches only under the name that 'cvo install' was given, and
// only without TLS. A proxy plays the name server.
//
//threat:insecure-registry
func TestLocalRegistryWithoutTLS(t *testing.T) {
	t.Parallel()
	l := newLocalRegistry(t)
	own := l.local("4.2.0", l.signer)
	_, err := l.run("install", "--no-operator", "--release-image", own.ByDigest(), "--trust", l.trust, "--insecure-registry", nodeName, "--idms-file", l.mirrors)
	require.NoError(t, err)
	l.start("operators")
	address := freeAddress(t)
	l.cvo = l.operator(own.ByDigest(), "--listen", address)
	l.await("4.2.0", time.Minute, at("4.2.0"))

	t.Run("reports the registry", func(t *testing.T) {
		assert.Eventually(t, func() bool {
			list := &corev1.EventList{}
			require.NoError(t, l.client.List(t.Context(), list, client.InNamespace(api.OperatorNamespace)))
			for _, e := range list.Items {
				if e.Reason == api.EventInsecureRegistries && e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, nodeName) {
					return true
				}
			}
			return false
		}, patience, 50*time.Millisecond)
		out, err := l.run("status", "--server", "https://"+address)
		require.NoError(t, err)
		assert.Contains(t, out, "Registries without TLS, or with unchecked certificates: "+nodeName+"\n")
	})
	t.Run("requires signatures", func(t *testing.T) {
		unsigned := l.local("4.2.1", nil)
		l.update(configv1.Update{Image: unsigned.ByDigest()})
		assert.Contains(t, l.refused("RetrievePayload", unsigned.ByDigest()), "The update cannot be verified")
	})
	t.Run("force needs a confirmation", func(t *testing.T) {
		unsigned := l.local("4.2.2", nil)
		request := []string{"upgrade", "--to-image", unsigned.ByDigest(), "--force", "--allow-explicit-upgrade"}
		_, err := l.run(request...)
		assert.Equal(t, command.ExitRefused, exitCode(t, err))
		require.ErrorContains(t, err, "refusing to skip the signature check although the cluster contacts these registries without TLS, or without checking their certificates: "+nodeName+
			" without confirmation: add --yes")
		_, err = l.run(append(request, "--dry-run")...)
		require.NoError(t, err, "a dry run changes nothing")
		_, err = l.run(append(request, "--yes")...)
		require.NoError(t, err)
		l.await("4.2.2", time.Minute, at("4.2.2"))
	})
	t.Run("retries when the administrator adds the registry", func(t *testing.T) {
		l.setInsecure("")
		next := l.local("4.2.3", l.signer)
		l.update(configv1.Update{Image: next.ByDigest()})
		assert.Contains(t, l.refused("RetrievePayload", next.ByDigest()), nodeName)
		l.setInsecure(nodeName)
		l.await("4.2.3", time.Minute, at("4.2.3"))
	})
}

// localRegistry is a platform whose registry has two names, none of which the machine can resolve.
type localRegistry struct {
	*testPlatform
	mirrors string
}

func newLocalRegistry(t *testing.T) *localRegistry {
	t.Helper()
	l := &localRegistry{testPlatform: &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}}
	require.NoError(t, corev1.AddToScheme(l.client.Scheme()))
	proxy := fixture.StartProxy(t, func(hostPort string) (string, bool) { return l.registry.Host(), hostPort == nodeName })
	l.environment = []string{"HTTP_PROXY=" + proxy.URL, "HTTPS_PROXY=" + proxy.URL}
	l.mirrors = filepath.Join(l.dir, "mirrors.yaml")
	require.NoError(t, os.WriteFile(l.mirrors, []byte(`apiVersion: config.openshift.io/v1
kind: ImageDigestMirrorSet
metadata:
  name: kind
spec:
  imageDigestMirrors:
  - source: `+hostName+`
    mirrors: [`+nodeName+`]
    mirrorSourcePolicy: NeverContactSource
`), 0o600))
	return l
}

// setInsecure edits the list of registries as an administrator does.
func (l *localRegistry) setInsecure(hosts string) {
	l.t.Helper()
	cm := &corev1.ConfigMap{}
	require.NoError(l.t, l.client.Get(l.t.Context(), client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.RegistriesConfigMap}, cm))
	before := cm.DeepCopy()
	cm.Data["insecure-registries"] = hosts
	require.NoError(l.t, l.client.Patch(l.t.Context(), cm, client.MergeFrom(before)))
}

// local pushes a release and returns it under its name on the host.
func (l *localRegistry) local(version string, signer *fixture.Signer) release.Image {
	l.t.Helper()
	img := l.release(version, signer)
	img.Pullspec = strings.Replace(img.Pullspec, l.registry.Host(), hostName, 1)
	return img
}
