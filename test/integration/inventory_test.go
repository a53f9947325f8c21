package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/archive"
	"github.com/cluster-version/cvo/pkg/engine/drift"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
)

// build builds a signed release from a folder with components, as a platform team does.
func (p *platform) build(dir, version string, more ...string) release.Image {
	p.t.Helper()
	tag := p.registry.Host() + "/example/release:" + version
	out, err := p.run(append([]string{"release", "new", "--from-dir", dir, "--name", version, "--no-operator", "--to-image", tag}, more...)...)
	require.NoError(p.t, err)
	digest, _, _ := strings.Cut(out, " ")
	img := release.Image{Pullspec: tag, Digest: release.Digest(digest)}
	_, err = p.signer.WriteSignature(p.store(), img)
	require.NoError(p.t, err)
	return img
}

// TestInventoryKeepsDroppedObjects follows the objects of a release across a restart during the install and one after it, neither of which
// applies anything again, and across an update that drops some of them. Dropped objects are listed and kept until the administrator requests their deletion.
func TestInventoryKeepsDroppedObjects(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	first := p.build("../../examples/platform/1.0.0", "1.0.0")
	lean := filepath.Join(t.TempDir(), "1.0.1")
	require.NoError(t, os.CopyFS(lean, os.DirFS("../../examples/platform/1.0.0")))
	require.NoError(t, os.RemoveAll(filepath.Join(lean, "example-backup")))
	second := p.build(lean, "1.0.1", "--previous", "1.0.0")
	_, err := p.run("install", "--no-operator", "--release-image", first.ByDigest(), "--trust", p.trust)
	require.NoError(t, err)
	operator := p.operator(first.ByDigest())
	p.await("the first operator to block the install", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return strings.Contains(condition(cv, configv1.OperatorProgressing), "waiting on example-config")
	})
	operator.end(t) // it saves its records at the end
	applied, begin := p.appliedSince(time.Time{}), time.Now()
	require.NotEmpty(t, applied)
	operator = p.operator(first.ByDigest())
	operator.logged(t, logRollout)
	// Later, a process applies objects whose watch has not started yet.
	confirmed := time.Now().Add(drift.WatchPatience - time.Second)
	p.start("operators")
	p.await("1.0.0 to complete", time.Minute, completed("1.0.0"))
	assert.Empty(t, sets.New(p.appliedUntil(begin, confirmed)...).Intersection(sets.New(applied...)), "the next process applies only what is missing")

	operator.end(t)
	begin = time.Now()
	p.operator(first.ByDigest()).logged(t, logRollout)
	confirmed = time.Now().Add(drift.WatchPatience - time.Second)
	retention := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "example-backup", Name: "retention"}}
	retention.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	deleted := object{"", "configmaps", "example-backup", "retention"}
	require.Eventually(t, func() bool { // it is recreated when the new process knows the cluster
		_ = p.client.Delete(t.Context(), retention.DeepCopy())
		return slices.Contains(p.appliedSince(begin), deleted)
	}, time.Minute, time.Second)
	for _, o := range p.appliedUntil(begin, confirmed) {
		assert.Equal(t, deleted, o, "a restart writes only the deleted object")
	}
	for _, o := range p.repairedSince(begin) {
		assert.Equal(t, deleted, o, "a restart changes only the deleted object")
	}
	require.Eventually(t, func() bool { return p.object("v1", "ConfigMap", "example-backup", "retention") != nil }, time.Minute, 200*time.Millisecond)

	p.update(configv1.Update{Version: "1.0.1", Image: second.ByDigest()})
	p.await("1.0.1 to complete", time.Minute, completed("1.0.1"))
	require.Eventually(t, func() bool { return len(p.orphans()) > 0 }, time.Minute, 200*time.Millisecond)
	listed := p.orphans()
	for _, o := range []string{
		"ConfigMap example-backup/retention", "Role example-backup/example-backup", "ClusterRole /example-backup",
		"Namespace /example-backup",
	} {
		assert.Contains(t, listed, o)
	}
	for o := range listed {
		assert.Contains(t, o, "example-backup", "objects of remaining components are not listed")
	}
	require.NotNil(t, p.object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "example-backup"), "dropped objects stay until their deletion is requested")

	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
	merge := func(patch string) {
		t.Helper()
		require.NoError(t, p.client.Patch(t.Context(), cv, client.RawPatch("application/merge-patch+json", []byte(patch))))
	}
	merge(`{"metadata":{"annotations":{"` + api.PruneAnnotation + `":"true"}},
		"spec":{"overrides":[{"group":"","kind":"ConfigMap","namespace":"example-backup","name":"retention","unmanaged":true}]}}`)
	require.Eventually(t, func() bool {
		return p.object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "example-backup") == nil
	}, time.Minute, 200*time.Millisecond)
	require.NotNil(t, p.object("v1", "ConfigMap", "example-backup", "retention"), "the override keeps it")
	status, err := archive.ReadReleaseStatus(t.Context(), p.client, "version")
	require.NoError(t, err)
	assert.Nil(t, meta.FindStatusCondition(status.Status.Conditions, api.ConditionOverridesMatch), "the override has an effect")
	out, err := p.run("status", "--orphans")
	require.NoError(t, err)
	assert.Regexp(t, `ConfigMap +example-backup +retention +1\.0\.0 +1\.0\.1 +spec\.overrides marks it as unmanaged`, out)
	merge(`{"spec":{"overrides":null}}`)
	require.Eventually(t, func() bool { return p.object("v1", "ConfigMap", "example-backup", "retention") == nil }, time.Minute, 200*time.Millisecond)
	namespace := p.object("v1", "Namespace", "", "example-backup")
	require.NotNil(t, namespace)
	assert.Nil(t, namespace.GetDeletionTimestamp(), "a namespace with content is not deleted")
	require.Eventually(t, func() bool {
		left := p.orphans()
		return left["Namespace /example-backup"] && !left["ClusterRole /example-backup"]
	}, time.Minute, 200*time.Millisecond)
}

// appliedSince lists the objects of the example platform that the operator wrote since a time.
func (p *platform) appliedSince(begin time.Time) []object {
	p.t.Helper()
	return p.appliedUntil(begin, time.Now())
}

// appliedUntil is like appliedSince, but omits applies after a time.
func (p *platform) appliedUntil(begin, end time.Time) []object {
	p.t.Helper()
	var list []object
	for _, e := range p.audit(begin) {
		if e.Write() && isOfPlatform(e) && e.Received.Before(end) {
			list = append(list, objectOf(e))
		}
	}
	return list
}

// repairedSince is like appliedSince, but omits applies without a change.
func (p *platform) repairedSince(begin time.Time) []object {
	p.t.Helper()
	var list []object
	for _, e := range p.changesSince(begin) {
		if isOfPlatform(e) {
			list = append(list, objectOf(e))
		}
	}
	return list
}

// isOfPlatform reports whether a request is the operator's, for an object of the platform.
func isOfPlatform(e env.AuditEvent) bool {
	own := e.Object.Namespace == api.OperatorNamespace || e.Object.Resource == "clusterversions"
	return !own && strings.HasPrefix(e.UserAgent, operatorAgent)
}

// awaitRecords waits until the inventory contains every object that the operator has applied since a time, and all objects of a release as
// reached. Another process then applies none of them without a change.
func (p *platform) awaitRecords(version string, since time.Time) {
	p.t.Helper()
	core, err := corev1client.NewForConfig(p.env.Config("integration"))
	require.NoError(p.t, err)
	missing := "an inventory of release " + version
	defer func() {
		if p.t.Failed() {
			p.t.Log("the inventory lacks " + missing)
		}
	}()
	require.Eventually(p.t, func() bool {
		inv, err := inventory.NewStore(core, api.OperatorNamespace, "version").Load(p.t.Context())
		if err != nil || inv.Release != version || len(inv.Records) == 0 {
			return false
		}
		type key struct{ group, namespace, name string } // the audit log does not contain kinds
		left := map[key]int{}                            // records that belong to no applied object so far
		for id, r := range inv.Records {
			if r.Dropped == "" && (!r.Reached || r.Release != version) {
				missing = "the end of the rollout of " + id.String()
				return false
			}
			left[key{id.Group, id.Namespace, id.Name}]++
		}
		applied := map[object]bool{}
		for _, o := range p.appliedSince(since) {
			if applied[o] {
				continue
			}
			applied[o] = true
			if o.resource == "namespaces" { // the audit log has their name twice
				o.namespace = ""
			}
			k := key{o.group, o.namespace, o.name}
			if left[k]--; !isOwnReport(o) && left[k] < 0 {
				missing = fmt.Sprint("the record of ", o)
				return false
			}
		}
		return true
	}, time.Minute, 200*time.Millisecond)
}

// isOwnReport reports whether an object is the operator's own, and not of a release: an event, a report or the accepted signatures.
func isOwnReport(o object) bool {
	return o.resource == "events" || o.group == api.ReleaseRolloutVersion.Group || o.namespace == api.ConfigManagedNamespace
}

// orphans returns the objects that `cvo status --orphans` lists, as "kind namespace/name".
func (p *platform) orphans() map[string]bool {
	p.t.Helper()
	out, err := p.run("status", "--orphans", "-o", "json")
	require.NoError(p.t, err)
	var list struct {
		Orphans []struct{ Kind, Namespace, Name string }
	}
	require.NoError(p.t, json.Unmarshal([]byte(out), &list), out)
	names := map[string]bool{}
	for _, o := range list.Orphans {
		names[o.Kind+" "+o.Namespace+"/"+o.Name] = true
	}
	return names
}

// awaitRecreated deletes a ConfigMap of the release and waits until the operator has recreated it.
func (p *platform) awaitRecreated(core corev1client.CoreV1Interface) {
	p.t.Helper()
	configMaps := core.ConfigMaps("example-backup")
	before, err := configMaps.Get(p.t.Context(), "retention", metav1.GetOptions{})
	require.NoError(p.t, err)
	require.NoError(p.t, configMaps.Delete(p.t.Context(), "retention", metav1.DeleteOptions{}))
	require.Eventually(p.t, func() bool {
		now, err := configMaps.Get(p.t.Context(), "retention", metav1.GetOptions{})
		return err == nil && now.UID != before.UID
	}, time.Minute, 20*time.Millisecond)
}
