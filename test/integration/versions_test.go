package integration_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/archive"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// statusDefinition is the path of the definition of ReleaseStatus.
const statusDefinition = "../../manifests/0000_00_cluster-version-operator_02_releasestatuses.crd.yaml"

// stamped builds cvo with another version next to the other binaries and returns its name.
func stamped(t *testing.T, version string) string {
	t.Helper()
	name := "cvo-" + version
	build := exec.Command("go", "build", "-ldflags=-s -w -X github.com/cluster-version/cvo/pkg/cli.version="+version, "-o", filepath.Join(binaries, name), "../../cmd/cvo")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return name
}

// define creates a definition of a later version, which keeps fields that this version does not know.
func (p *platform) define(file string) {
	p.t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(p.t, err)
	crd := &unstructured.Unstructured{}
	require.NoError(p.t, yaml.Unmarshal(data, &crd.Object))
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, version := range versions {
		openUp(version.(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"])
	}
	require.NoError(p.t, unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
	require.NoError(p.t, p.client.Create(p.t.Context(), crd))
}

// openUp makes every object of a schema preserve unknown fields.
func openUp(node any) {
	schema, _ := node.(map[string]any)
	if schema["type"] == "object" {
		schema["x-kubernetes-preserve-unknown-fields"] = true
	}
	if properties, _ := schema["properties"].(map[string]any); properties != nil {
		for _, property := range properties {
			openUp(property)
		}
	}
	if schema["items"] != nil {
		openUp(schema["items"])
	}
}

// later is a field that no version defines.
const later = "ofALaterVersion"

// inject adds the unknown field to each object in a value.
func inject(value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, inner := range v {
			inject(inner)
		}
		v[later] = map[string]any{"some": "thing"}
	case []any:
		for _, inner := range v {
			inject(inner)
		}
	}
}

// fromLater changes everything that the operator stores to what a later version would store. edit changes each line of the inventory.
func (l *testPlatform) fromLater(edit func(n int, line map[string]any)) {
	l.t.Helper()
	ctx := l.t.Context()
	shards := &corev1.ConfigMapList{}
	require.NoError(l.t, l.client.List(ctx, shards, client.InNamespace(api.OperatorNamespace), client.HasLabels{api.InventoryLabel}))
	require.NotEmpty(l.t, shards.Items)
	for i := range shards.Items {
		shard := &shards.Items[i]
		for key, data := range shard.BinaryData {
			shard.BinaryData[key] = rewrite(l.t, data, edit)
		}
		shard.Annotations[later] = "x"
		require.NoError(l.t, l.client.Update(ctx, shard))
	}
	for _, gvk := range []schema.GroupVersionKind{
		api.ReleaseStatusVersion.WithKind(api.ReleaseStatusKind), api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind),
	} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		require.NoError(l.t, l.client.Get(ctx, client.ObjectKey{Name: "version"}, u), gvk.Kind)
		inject(u.Object["status"])
		if gvk.Kind == api.ReleaseRolloutKind {
			require.NoError(l.t, unstructured.SetNestedField(u.Object, "x", "spec", later))
			status := u.DeepCopy()
			require.NoError(l.t, l.client.Update(ctx, u))
			status.SetResourceVersion(u.GetResourceVersion())
			require.NoError(l.t, l.client.Status().Update(ctx, status))
			continue
		}
		require.NoError(l.t, l.client.Update(ctx, u))
	}
	lease := &coordinationv1.Lease{}
	require.NoError(l.t, l.client.Get(ctx, client.ObjectKey{Namespace: api.OperatorNamespace, Name: "version"}, lease))
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new("host_of_a_later_format_with_more"), ptr.To[int32](1)
	require.NoError(l.t, l.client.Update(ctx, lease))
	managed := &corev1.ConfigMap{}
	require.NoError(l.t, l.client.Get(ctx, client.ObjectKey{Namespace: api.ConfigManagedNamespace, Name: "signatures-managed"}, managed))
	managed.BinaryData[later] = []byte("x")
	require.NoError(l.t, l.client.Update(ctx, managed))

	index := filepath.Join(l.dir, "cache", "index.json")
	data, err := os.ReadFile(index)
	require.NoError(l.t, err)
	var content map[string]any
	require.NoError(l.t, json.Unmarshal(data, &content))
	inject(content)
	data, err = json.Marshal(content)
	require.NoError(l.t, err)
	require.NoError(l.t, os.WriteFile(index, data, 0o600))
	require.NoError(l.t, os.MkdirAll(filepath.Join(l.dir, "cache", later), 0o750))
}

// rewrite changes each line of a shard of the inventory.
func rewrite(t *testing.T, data []byte, edit func(n int, line map[string]any)) []byte {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	plain, err := io.ReadAll(zip)
	require.NoError(t, err)
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	n := 0
	for line := range strings.Lines(string(plain)) {
		var content map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &content))
		inject(content)
		edit(n, content)
		require.NoError(t, json.NewEncoder(packed).Encode(content))
		n++
	}
	require.NoError(t, packed.Close())
	return out.Bytes()
}

// versions returns the resource versions of the objects that releases applied.
func (l *testPlatform) versions() map[string]string {
	l.t.Helper()
	out := map[string]string{}
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Namespace"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		require.NoError(l.t, l.client.List(l.t.Context(), list, client.MatchingLabels{api.OwnedByLabel: "version"}))
		for _, item := range list.Items {
			out[gvk.Kind+" "+item.Namespace+"/"+item.Name] = item.ResourceVersion
		}
	}
	return out
}

// accepted returns the versions in the ReleaseStatus, newest first. It checks that each has evidence of a signature, except the release
// with which the operator was started.
func (l *testPlatform) accepted() []string {
	l.t.Helper()
	status, err := archive.ReadReleaseStatus(l.t.Context(), l.client, "version")
	require.NoError(l.t, err)
	require.NotNil(l.t, status)
	var out []string
	for _, r := range status.Status.Releases {
		if r.Image != l.own.ByDigest() { // the operator was started with this release
			assert.NotEmpty(l.t, r.Evidence, "evidence of %s", r.Version)
		}
		out = append(out, r.Version)
	}
	return out
}

// TestOlderAndNewerOperatorsAlternate runs an older and a newer operator alternately in a cluster. Each must read the other's objects
// correctly, even with unknown fields, and must not write settled objects again.
func TestOlderAndNewerOperatorsAlternate(t *testing.T) {
	t.Parallel() // most of the time the test waits
	older, newer := stamped(t, "1.0.0"), stamped(t, "1.1.0")
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	require.NoError(t, corev1.AddToScheme(l.client.Scheme()))
	require.NoError(t, coordinationv1.AddToScheme(l.client.Scheme()))
	l.define(rolloutDefinition)
	l.define(statusDefinition)
	l.own = l.release("4.2.0", l.signer)
	first, second := l.release("4.2.1", l.signer), l.without("b", "4.2.2")
	_, err := l.run("install", "--no-operator", "--release-image", l.own.ByDigest(), "--trust", l.trust)
	require.NoError(t, err)
	l.start("operators")
	run := func(binary string) time.Time {
		began := time.Now()
		l.cvo = l.keep(binary, "start", "--release-image", l.own.ByDigest(), "--trust", l.trust,
			"--payload-cache", filepath.Join(l.dir, "cache"), "--listen", "")
		l.logged("rollout started")
		return began
	}
	began := run(older)
	recorded := func(version string, to ...string) {
		l.awaitRecords(version, began)
		l.awaitRollout("the history", func(r *api.ReleaseRollout) bool { return len(r.Status.History) == len(to) })
		for i, entry := range l.rollout().Status.History {
			assert.Equal(t, to[i], entry.To)
			assert.NotEmpty(t, entry.Runlevels)
		}
	}

	l.await("4.2.0", time.Minute, at("4.2.0"))
	l.awaitRecords("4.2.0", began)
	l.cvo.end(t)
	began = run(newer)
	l.await("4.2.0", time.Minute, at("4.2.0"))
	l.drift("a", "4.2.0") // after a pass and a second one
	l.onlyDrift(began, "written by another version")
	l.update(configv1.Update{Image: first.ByDigest()})
	l.await("4.2.1", time.Minute, at("4.2.1"))
	recorded("4.2.1", "4.2.1")
	l.cvo.end(t)

	// The older operator runs again after a newer one that writes unknown fields.
	l.fromLater(func(int, map[string]any) {})
	began = run(older)
	l.await("4.2.1 with the older operator", time.Minute, at("4.2.1"))
	l.drift("a", "4.2.1")
	l.onlyDrift(began, "written by the older operator")
	assert.Equal(t, []string{"4.2.1", "4.2.0"}, l.accepted())
	l.update(configv1.Update{Image: second.ByDigest()})
	l.await("4.2.2 with the older operator", time.Minute, at("4.2.2"))
	recorded("4.2.2", "4.2.2", "4.2.1")
	assert.Equal(t, []string{"4.2.2", "4.2.1", "4.2.0"}, l.accepted())
	orphans := l.orphans()
	assert.Contains(t, orphans, "ConfigMap tiny-b/settings")
	l.cvo.end(t)

	// After an operator whose inventory it cannot read, the operator applies everything once, which changes nothing, and records it.
	l.fromLater(func(n int, line map[string]any) {
		if n == 0 {
			line["format"] = 2
		}
	})
	written := l.versions()
	began = run(older)
	l.logged("inventory incomplete")
	l.await("4.2.2 after an unknown inventory format", time.Minute, at("4.2.2"))
	l.awaitRecords("4.2.2", began)
	assert.Equal(t, written, l.versions(), "settled objects are not changed")
	times := map[object]int{}
	for _, o := range l.appliedSince(began) {
		if times[o]++; o.namespace == "tiny-a" || o.namespace == "tiny-b" {
			assert.Equal(t, 1, times[o], "%s is applied once", o)
		}
	}
	assert.Equal(t, orphans, l.orphans(), "dropped objects are found by their label")
	assert.True(t, l.settled("b"), "no object is deleted")
	l.cvo.end(t)

	// The newer operator finds the objects of the older one.
	began = run(newer)
	l.await("4.2.2 with the newer operator", time.Minute, at("4.2.2"))
	l.drift("a", "4.2.2")
	l.onlyDrift(began, "written by the newer operator")
	recorded("4.2.2", "4.2.2", "4.2.1")
	assert.Equal(t, []string{"4.2.2", "4.2.1", "4.2.0"}, l.accepted())
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind))
	require.NoError(t, l.client.Get(t.Context(), client.ObjectKey{Name: "version"}, u))
	kept, _, _ := unstructured.NestedString(u.Object, "spec", later)
	assert.Equal(t, "x", kept, "the field of a later version stays")
	managed := &corev1.ConfigMap{}
	require.NoError(t, l.client.Get(t.Context(), client.ObjectKey{Namespace: api.ConfigManagedNamespace, Name: "signatures-managed"}, managed))
	assert.Contains(t, managed.BinaryData, later)
	out, err := exec.Command(filepath.Join(binaries, newer), "--version").CombinedOutput()
	require.NoError(t, err)
	assert.Contains(t, string(out), "1.1.0")
}

// onlyDrift checks that an operator has repaired the drift and written no other settled object.
func (l *testPlatform) onlyDrift(since time.Time, by string) {
	l.t.Helper()
	own := 0
	for _, o := range l.appliedSince(since) {
		if o.group == api.ReleaseRolloutVersion.Group { // the operator's own report
			own++
			continue
		}
		assert.Equal(l.t, object{"", "configmaps", "tiny-a", "settings"}, o, by)
	}
	assert.LessOrEqual(l.t, own, 2, "the operator's report does not change constantly")
}

// settled reports whether the settings of a component exist.
func (l *testPlatform) settled(component string) bool {
	l.t.Helper()
	version, _ := l.settings(component)
	return version != ""
}

// without pushes a release that no longer has a component.
func (l *testPlatform) without(component, version string) release.Image {
	l.t.Helper()
	files := maps.Clone(l.tiny.files(version).(fstest.MapFS))
	maps.DeleteFunc(files, func(name string, _ *fstest.MapFile) bool { return strings.Contains(name, "_tiny-"+component+"_") })
	img, err := fixture.PushRelease(l.t.Context(), l.registry, fs.FS(files), "platform/v"+version+":1")
	require.NoError(l.t, err)
	_, err = l.signer.WriteSignature(l.store(), img)
	require.NoError(l.t, err)
	return img
}
