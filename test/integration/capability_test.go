package integration_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/release"
)

// reassigned is a component whose objects the next release assigns to a capability.
const reassigned = `
apiVersion: v1
kind: Namespace
metadata: {name: lab, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: lab, name: x, annotations: {include.release.openshift.io/self-managed-high-availability: "true"$CAPABILITY}}
data: {version: "$VERSION"}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: credentialsrequests.cloudcredential.openshift.io, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
spec:
  group: cloudcredential.openshift.io
  scope: Namespaced
  names: {kind: CredentialsRequest, plural: credentialsrequests, singular: credentialsrequest, listKind: CredentialsRequestList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {namespace: lab, name: creds, annotations: {include.release.openshift.io/self-managed-high-availability: "true"$CAPABILITY}}
spec: {secretRef: {namespace: lab, name: "creds-$VERSION"}}
`

// TestUpdateEnablesCapabilitiesEverywhere updates to a release that assigns an object of the running release to a disabled capability. The
// update enables the capability, so everything that an administrator can look at before must show that.
func TestUpdateEnablesCapabilitiesEverywhere(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	l.create(rolloutDefinition)
	push := func(version, capability string) release.Image {
		text := strings.NewReplacer("$VERSION", version, "$CAPABILITY", capability).Replace(reassigned)
		return l.special(version, fstest.MapFS{"release-manifests/0000_30_lab_01.yaml": {Data: []byte(text)}})
	}
	l.own = push("4.2.0", "")
	next := push("4.2.1", `, capability.openshift.io/name: Console`)
	_, err := l.run("install", "--no-operator", "--release-image", l.own.ByDigest(), "--trust", l.trust)
	require.NoError(t, err)
	l.edit(func(spec *configv1.ClusterVersionSpec) {
		spec.Capabilities = &configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: configv1.ClusterVersionCapabilitySetNone}
	})
	l.start("operators")
	l.succeed()
	l.await("4.2.0 to complete", time.Minute, completed("4.2.0"))
	const text = "The update to 4.2.1 also enables these capabilities, because they now contain objects of the running release: Console"

	out, err := l.run("upgrade", "diff", next.ByDigest(), "--trust", l.trust, "-o", "json")
	require.NoError(t, err)
	var diff preview.Report
	require.NoError(t, json.Unmarshal([]byte(out), &diff))
	assert.Contains(t, diff.Notes, text)
	for _, name := range []string{"x", "creds"} {
		assert.True(t, slices.ContainsFunc(diff.Objects, func(o preview.Object) bool { return o.ID.Name == name && o.Verdict == preview.Modify }), "%v", diff.Objects)
	}
	out, err = l.run("upgrade", "diff", next.ByDigest(), "--trust", l.trust)
	require.NoError(t, err)
	assert.Contains(t, out, text)
	assert.Contains(t, out, ", 0 excluded\n")

	for _, tt := range []struct {
		flags []string
		want  []string
	}{
		{nil, []string{"kind: ConfigMap", "kind: CredentialsRequest"}},
		{[]string{"--credentials-requests"}, []string{"kind: CredentialsRequest"}},
	} {
		dir := filepath.Join(t.TempDir(), "out")
		_, info, err := l.outputs(append([]string{"release", "extract", next.ByDigest(), "--included", "--to", dir}, tt.flags...)...)
		require.NoError(t, err)
		assert.Contains(t, info, text)
		files, err := filepath.Glob(filepath.Join(dir, "*lab*"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		data, err := os.ReadFile(files[0])
		require.NoError(t, err)
		for _, want := range tt.want {
			assert.Contains(t, string(data), want)
		}
	}

	l.preflight(configv1.Update{Image: next.ByDigest()})
	rollout := l.awaitRollout("the preflight", preflightEnded(api.PreflightPassed, "4.2.1"))
	assert.Contains(t, rollout.Status.Preflight.Message, text)

	l.update(configv1.Update{Image: next.ByDigest()})
	cv := l.await("4.2.1 to complete", time.Minute, completed("4.2.1"))
	assert.Contains(t, cv.Status.Capabilities.EnabledCapabilities, configv1.ClusterVersionCapabilityConsole)
	l.awaitEvent(api.EventCapabilityEnabled, text)
	creds := l.object("cloudcredential.openshift.io/v1", "CredentialsRequest", "lab", "creds")
	require.NotNil(t, creds)
	secret, _, _ := unstructured.NestedString(creds.Object, "spec", "secretRef", "name")
	assert.Equal(t, "creds-4.2.1", secret)
}
