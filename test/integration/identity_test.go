package integration_test

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// tagPlatform is a cluster that requests its releases with a movable tag.
type tagPlatform struct {
	*testPlatform
	// tag is the pullspec with the tag.
	tag string
}

// newTagged installs 4.1.0.
func newTagged(t *testing.T) *tagPlatform {
	t.Helper()
	l := newTagPlatform(t)
	l.install("4.1.0")
	return l
}

// newTagPlatform returns a platform with the definition of ReleaseStatus, and with the tag at 4.1.0.
func newTagPlatform(t *testing.T) *tagPlatform {
	t.Helper()
	l := &tagPlatform{testPlatform: &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}}
	require.NoError(t, corev1.AddToScheme(l.client.Scheme()))
	l.create(statusDefinition)
	l.tag = l.registry.Host() + "/platform/release:stable"
	l.own = l.pushAndMoveTag("4.1.0", true)
	return l
}

// chapter runs an attack as a subtest on the cluster as the previous one left it.
func (l *tagPlatform) chapter(name string, run func(t *testing.T)) {
	passed := l.book.Run(name, func(t *testing.T) {
		l.t = t
		defer func() { l.t = l.book }()
		run(t)
	})
	require.True(l.book, passed, "the next attacks depend on this one")
}

// pushAndMoveTag pushes a release and moves the tag to it.
func (l *tagPlatform) pushAndMoveTag(version string, signed bool) release.Image {
	l.t.Helper()
	return l.push(l.tiny.files(version), "stable", signed)
}

// updated requests an update and waits until the version has completed.
func (l *tagPlatform) updated(version string, update configv1.Update) {
	l.t.Helper()
	l.update(update)
	l.await(version+" to complete", time.Minute, at(version))
}

// assertStays waits until the operator's log shows its decision on the requested release, and checks that the cluster has kept its version.
// Any update fails the test at once.
func (l *tagPlatform) assertStays(version, decided string) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		history := l.get().Status.History
		require.Equal(l.t, version, history[0].Version, "the cluster updated without a request")
		data, err := os.ReadFile(l.cvo.log)
		return err == nil && strings.Contains(string(data), decided)
	}, 90*time.Second, 20*time.Millisecond, "waiting for %q in the log", decided)
	l.edit(func(spec *configv1.ClusterVersionSpec) {
		spec.Channel = "after-" + l.cvo.log[len(l.cvo.log)-8:len(l.cvo.log)-4]
	})
	cv := l.await("the spec to be observed", 30*time.Second, func(cv *configv1.ClusterVersion) bool {
		return cv.Status.ObservedGeneration == cv.Generation
	})
	assert.Equal(l.t, version, cv.Status.History[0].Version)
	assert.Equal(l.t, configv1.CompletedUpdate, cv.Status.History[0].State)
}

const (
	accepted    = `"msg":"release accepted"`
	notAccepted = `"msg":"release not accepted"`
)

// record returns the ReleaseStatus.
func (l *tagPlatform) record() *unstructured.Unstructured {
	l.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(api.ReleaseStatusVersion.WithKind(api.ReleaseStatusKind))
	require.NoError(l.t, l.client.Get(l.t.Context(), client.ObjectKey{Name: "version"}, u))
	return u
}

// recorded waits until the record of the request satisfies a condition.
func (l *tagPlatform) recorded(what string, condition func(request map[string]any) bool) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		request, _, err := unstructured.NestedMap(l.record().Object, "status", "request")
		return err == nil && condition(request)
	}, patience, 20*time.Millisecond, what)
}

// stopped stops the operator during an attack.
func (l *tagPlatform) stopped(attack func()) {
	l.t.Helper()
	l.cvo.end(l.t)
	attack()
	l.succeed()
}

// TestMovedTagIsNotResolvedAgain requests releases with a tag and moves the tag after they were accepted. No process may resolve it again.
//
//threat:tag-moved-release survives a restart
//threat:tag-moved-release survives a failover to a second replica
//threat:same-force-true rejects an unsigned image after force and a restart
//threat:same-force-true rejects an unsigned image after force and a failover
//threat:record-request-deleted survives a deleted record
//threat:record-request-deleted rejects a forged record of another digest
//threat:record-request-deleted survives an upgrade from the version before
//threat:record-request-deleted rejects a text of accepted risks for another digest
//threat:record-request-deleted rejects that text without a record
func TestMovedTagIsNotResolvedAgain(t *testing.T) {
	t.Parallel()
	l := newTagged(t)
	byTag := configv1.Update{Image: l.tag}
	forced := configv1.Update{Image: l.tag, Force: true}

	l.chapter("survives a restart", func(*testing.T) {
		l.pushAndMoveTag("4.2.0", true)
		l.updated("4.2.0", byTag)
		l.pushAndMoveTag("4.3.0", true)
		l.handOver()
		l.assertStays("4.2.0", accepted)
	})
	l.chapter("survives a failover to a second replica", func(*testing.T) {
		l.failOver()
		l.assertStays("4.2.0", accepted)
	})
	l.chapter("resolves the tag again after a new request", func(*testing.T) {
		l.cancel()
		l.await("the spec to be observed", 20*time.Second, at("4.2.0"))
		l.updated("4.3.0", byTag)
		l.handOver()
		l.assertStays("4.3.0", accepted)
	})
	l.chapter("rejects an unsigned image after force and a restart", func(t *testing.T) {
		l.pushAndMoveTag("4.4.0", false)
		l.updated("4.4.0", forced)
		assert.False(t, l.get().Status.History[0].Verified)
		l.pushAndMoveTag("4.5.0", false)
		l.handOver()
		l.assertStays("4.4.0", accepted)
	})
	l.chapter("rejects an unsigned image after force and a failover", func(*testing.T) {
		l.failOver()
		l.assertStays("4.4.0", accepted)
	})
	l.chapter("rejects a forged record of another digest", func(t *testing.T) {
		evil := l.pushAndMoveTag("4.5.0", false)
		l.stopped(func() {
			u := l.record()
			require.NoError(t, unstructured.SetNestedField(u.Object, string(evil.Digest), "status", "request", "digest"))
			releases, _, _ := unstructured.NestedSlice(u.Object, "status", "releases")
			newest := releases[0].(map[string]any)
			newest["image"], newest["forced"], newest["version"] = evil.ByDigest(), "true", "4.5.0"
			require.NoError(t, unstructured.SetNestedSlice(u.Object, releases, "status", "releases"))
			require.NoError(t, l.client.Update(t.Context(), u))
		})
		l.assertStays("4.4.0", notAccepted)
		assert.Contains(t, condition(l.get(), api.ReleaseAccepted), "force does not count")
	})
	l.chapter("accepts force by digest", func(*testing.T) {
		l.updated("4.4.0", configv1.Update{Image: l.get().Status.History[0].Image, Force: true})
		l.handOver()
		l.assertStays("4.4.0", accepted)
	})
	l.chapter("survives a deleted record", func(t *testing.T) {
		l.pushAndMoveTag("4.6.0", true)
		l.updated("4.6.0", forced)
		l.pushAndMoveTag("4.7.0", false)
		l.stopped(func() { require.NoError(t, l.client.Delete(t.Context(), l.record())) })
		l.assertStays("4.6.0", accepted)
		l.recorded("the request to be recorded again", func(request map[string]any) bool { return request["phase"] == "Accepted" })
	})
	l.chapter("restores a record that is deleted or forged while the operator runs", func(t *testing.T) {
		want := l.record().Object["status"].(map[string]any)
		for _, attack := range []func(u *unstructured.Unstructured) error{
			func(u *unstructured.Unstructured) error { return l.client.Delete(t.Context(), u) },
			func(u *unstructured.Unstructured) error {
				require.NoError(t, unstructured.SetNestedField(u.Object, "Seen", "status", "request", "phase"))
				unstructured.RemoveNestedField(u.Object, "status", "forced")
				return l.client.Update(t.Context(), u)
			},
		} {
			require.NoError(t, attack(l.record()))
			require.EventuallyWithT(t, func(collect *assert.CollectT) {
				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(api.ReleaseStatusVersion.WithKind(api.ReleaseStatusKind))
				require.NoError(collect, l.client.Get(t.Context(), client.ObjectKey{Name: "version"}, u))
				status, _ := u.Object["status"].(map[string]any)
				for _, field := range []string{"request", "releases", "forced"} {
					assert.Equal(collect, want[field], status[field])
				}
			}, patience, 20*time.Millisecond)
		}
		l.handOver()
		l.assertStays("4.6.0", accepted)
	})
	l.chapter("drops force after a deleted record and an edited channel", func(t *testing.T) {
		l.stopped(func() {
			require.NoError(t, l.client.Delete(t.Context(), l.record()))
			l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Channel = "edited" })
		})
		l.assertStays("4.6.0", notAccepted)
		assert.Contains(t, condition(l.get(), api.ReleaseAccepted), "force does not count")
	})
	l.chapter("survives an upgrade from the version before", func(*testing.T) {
		l.pushAndMoveTag("4.7.0", false)
		l.cancel()
		l.await("the spec to be observed", 20*time.Second, at("4.6.0"))
		l.updated("4.7.0", forced)
		l.pushAndMoveTag("4.8.0", false)
		l.stopped(l.recordByOldOperator)
		l.assertStays("4.7.0", accepted)
		l.recorded("the request to be recorded", func(request map[string]any) bool { return request["phase"] == "Accepted" })
	})
	l.chapter("rejects a text of accepted risks for another digest", func(t *testing.T) {
		evil := l.pushAndMoveTag("4.8.0", false)
		l.stopped(func() {
			cv := l.get()
			cv.Status.History[0].Image = evil.ByDigest()
			require.NoError(t, l.client.Status().Update(t.Context(), cv))
		})
		l.logged(notAccepted)
		version, _ := l.settings("a")
		assert.Equal(t, "4.7.0", version, "nothing of an unsigned image is applied")
	})
	l.chapter("rejects that text without a record", func(t *testing.T) {
		require.Contains(t, l.get().Status.History[0].AcceptedRisks, "was forced")
		l.stopped(func() { require.NoError(t, l.client.Delete(t.Context(), l.record())) })
		l.logged(notAccepted)
		version, _ := l.settings("a")
		assert.Equal(t, "4.7.0", version, "nothing of an unsigned image is applied")
	})
	l.chapter("reports that nothing is applied without an accepted release", func(t *testing.T) {
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "tiny-a", Name: "settings"}}
		require.NoError(t, l.client.Delete(t.Context(), settings))
		cv := l.await("the operator to report it", time.Minute, says(api.Failing, "True|"+api.ReasonNoAcceptedRelease+"|"))
		assert.Contains(t, condition(cv, api.Failing), "request a release by digest: "+api.RequestByDigest)
		assert.Equal(t, "False|NoAcceptedRelease|Error while reconciling 4.7.0: no release is accepted, so nothing is applied or repaired",
			condition(cv, configv1.OperatorProgressing))
		assert.Equal(t, "True||Done applying 4.7.0", condition(cv, configv1.OperatorAvailable))
		assert.True(t, apierrors.IsNotFound(l.client.Get(t.Context(), client.ObjectKeyFromObject(settings), settings)))

		l.updated("4.8.1", configv1.Update{Image: l.pushAndMoveTag("4.8.1", true).ByDigest()})
		assert.Equal(t, "False||", condition(l.get(), api.Failing))
		version, _ := l.settings("a")
		assert.Equal(t, "4.8.1", version)
	})
}

// recordByOldOperator rewrites the ReleaseStatus as an operator without request records would write it.
func (l *tagPlatform) recordByOldOperator() {
	u := l.record()
	for _, field := range []string{"request", "own", "forced", "forcedOlder"} {
		unstructured.RemoveNestedField(u.Object, "status", field)
	}
	releases, _, _ := unstructured.NestedSlice(u.Object, "status", "releases")
	for _, r := range releases {
		delete(r.(map[string]any), "clusterVersionUID")
		delete(r.(map[string]any), "forcedPast")
	}
	require.NoError(l.t, unstructured.SetNestedSlice(u.Object, releases, "status", "releases"))
	require.NoError(l.t, l.client.Update(l.t.Context(), u))
}

// outliving returns the platform for processes that outlive a chapter.
func (l *tagPlatform) outliving() *platform {
	p := *l.platform
	p.t = l.book
	return &p
}

// TestForceCoversOneDigest forces a tag whose release is broken, and moves the tag before the release is accepted. First the ClusterVersion
// is recreated, so the record of its predecessor, which accepted the tag, does not count.
//
//threat:same-force-true
func TestForceCoversOneDigest(t *testing.T) {
	t.Parallel()
	l := newTagged(t)
	l.update(configv1.Update{Image: l.tag})
	l.recorded("the tag to be accepted", func(request map[string]any) bool { return request["phase"] == "Accepted" })
	broken := l.tiny.files("4.2.0").(fstest.MapFS)
	broken["release-manifests/0000_30_broken.yaml"] = &fstest.MapFile{Data: []byte("kind: [")}
	first := l.push(broken, "stable", false)
	l.recreatedWith(configv1.Update{Image: l.tag})
	assert.Contains(t, l.refused("RetrievePayload", l.tag), "The update cannot be verified")
	l.update(configv1.Update{Image: l.tag, Force: true})
	l.refused("LoadPayload", l.tag)
	l.recorded("the first digest", func(request map[string]any) bool { return request["digest"] == string(first.Digest) })
	second := l.pushAndMoveTag("4.3.0", false)
	for _, restart := range []func(){func() {}, l.handOver} {
		restart()
		message := l.refused("RetrievePayload", string(second.Digest))
		assert.Contains(t, message, string(first.Digest))
		assert.Contains(t, message, "which the force does not cover")
	}
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Channel = "other" })
	l.await("the channel to be observed", 30*time.Second, func(cv *configv1.ClusterVersion) bool { return cv.Status.ObservedGeneration == cv.Generation })
	l.refused("RetrievePayload", string(second.Digest)) // another channel is not a new request
	l.cancel()
	l.await("the spec to be observed", 20*time.Second, at("4.1.0"))
	l.updated("4.3.0", configv1.Update{Image: l.tag, Force: true})
}

// TestOwnTagIsNotResolvedAgain starts the operator with the tag of its own release and moves the tag, during the install and after it.
//
//threat:tag-moved-release
func TestOwnTagIsNotResolvedAgain(t *testing.T) {
	t.Parallel()
	l := newTagPlatform(t)
	restart := func() {
		l.cvo.end(t)
		l.cvo = l.operator(l.tag)
	}
	failOver := func() {
		second := l.operator(l.tag, "--payload-cache", l.dir+"/second")
		l.cvo.end(t)
		l.cvo = second
	}
	_, err := l.run("install", "--no-operator", "--release-image", l.tag, "--trust", l.trust)
	require.NoError(t, err)
	l.cvo = l.operator(l.tag)
	l.await("the install to begin", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return len(cv.Status.History) > 0 && cv.Status.History[0].Version == "4.1.0"
	})
	l.pushAndMoveTag("4.1.1", true)
	for _, takeOver := range []func(){restart, failOver} { // the install waits for the platform's operators
		takeOver()
		l.logged(accepted)
		assert.Equal(t, []string{"4.1.0"}, versions(l.get()))
	}
	l.start("operators")
	l.await("4.1.0 to complete", time.Minute, at("4.1.0"))
	l.pushAndMoveTag("4.1.2", true)
	for _, takeOver := range []func(){restart, failOver} {
		takeOver()
		l.assertStays("4.1.0", accepted)
	}
	cv := l.get()
	require.Len(t, cv.Status.History, 1)
	assert.Equal(t, l.own.ByDigest(), cv.Status.History[0].Image)
	for _, component := range []string{"a", "b"} {
		version, _ := l.settings(component)
		assert.Equal(t, "4.1.0", version, "nothing of another image is applied")
	}
}

// recreatedWith recreates the ClusterVersion with a request. It waits until the installed release has completed again and the request is
// recorded with the new UID.
func (l *tagPlatform) recreatedWith(update configv1.Update) {
	l.t.Helper()
	before := l.deleteVersion()
	l.awaitStop("ClusterVersion version was deleted")
	cv := &configv1.ClusterVersion{
		ObjectMeta: metav1.ObjectMeta{Name: "version"},
		Spec:       configv1.ClusterVersionSpec{ClusterID: "8c1f2a0e-6b0d-4c3b-9a52-3f2f0f0c7d11", DesiredUpdate: &update},
	}
	require.NoError(l.t, l.client.Create(l.t.Context(), cv))
	require.NotEqual(l.t, before, cv.UID)
	l.await("4.1.0 to complete again", 2*time.Minute, at("4.1.0"))
	l.recorded("the new ClusterVersion to be recorded", func(request map[string]any) bool { return request["clusterVersionUID"] == string(cv.UID) })
}

// TestOldDefinitionRequiresRequestsByDigest replaces the definition of ReleaseStatus, after a request by tag was accepted, by one that drops
// the request record, or deletes it. No process may resolve the tag again, and the operator rejects the next request by tag.
//
//threat:record-request-deleted
func TestOldDefinitionRequiresRequestsByDigest(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(*tagPlatform){
		"if fields are dropped": (*tagPlatform).dropRecordFields, "if the kind is missing": (*tagPlatform).deleteDefinition,
	} {
		t.Run(name, func(t *testing.T) {
			l := newTagged(t)
			l.pushAndMoveTag("4.2.0", true)
			l.updated("4.2.0", configv1.Update{Image: l.tag})
			l.pushAndMoveTag("4.3.0", true)
			l.stopped(func() { replace(l) })
			l.assertStays("4.2.0", accepted)
			l.failOver()
			l.assertStays("4.2.0", accepted)

			l.cancel()
			l.await("the spec to be observed", 20*time.Second, at("4.2.0"))
			next := l.pushAndMoveTag("4.3.1", true)
			l.update(configv1.Update{Image: l.tag})
			message := l.refused("RetrievePayload", l.tag)
			assert.Contains(t, message, "request the release by digest")
			assert.Contains(t, message, api.ReleaseStatusDefinition)
			for _, takeOver := range []func(){l.handOver, l.failOver} {
				takeOver()
				l.assertStays("4.2.0", accepted) // without a record, the newest release in the history answers an observed request by tag
			}
			l.updated("4.3.1", configv1.Update{Image: next.ByDigest()})
			l.pushAndMoveTag("4.3.2", true)
			l.handOver()
			l.assertStays("4.3.1", accepted)
		})
	}
}

// failOver starts a second replica and stops the leader.
func (l *tagPlatform) failOver() {
	l.t.Helper()
	second := l.outliving().operator(l.own.ByDigest(), "--payload-cache", l.dir+"/second")
	l.cvo.end(l.t)
	l.cvo = second
}

// definition returns the definition of ReleaseStatus.
func (l *tagPlatform) definition() *unstructured.Unstructured {
	l.t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	require.NoError(l.t, l.client.Get(l.t.Context(), client.ObjectKey{Name: api.ReleaseStatusDefinition}, crd))
	return crd
}

// dropRecordFields replaces the definition of ReleaseStatus by the one from before requests were recorded, and drops the recorded fields.
func (l *tagPlatform) dropRecordFields() {
	crd := l.definition()
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	version := versions[0].(map[string]any)
	path := []string{"schema", "openAPIV3Schema", "properties", "status", "properties"}
	for _, field := range []string{"request", "own", "install", "forced", "forcedOlder"} {
		unstructured.RemoveNestedField(version, append(path, field)...)
	}
	unstructured.RemoveNestedField(version, append(path, "releases", "items", "properties", "clusterVersionUID")...)
	require.NoError(l.t, unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
	require.NoError(l.t, l.client.Update(l.t.Context(), crd))
	require.Eventually(l.t, func() bool { // the API server has loaded the definition
		_, found, _ := unstructured.NestedMap(l.record().Object, "status", "request")
		return !found
	}, patience, 20*time.Millisecond)
	require.NoError(l.t, l.client.Update(l.t.Context(), l.record()))
}

// deleteDefinition deletes the definition of ReleaseStatus, and with it the record.
func (l *tagPlatform) deleteDefinition() {
	crd := l.definition()
	require.NoError(l.t, l.client.Delete(l.t.Context(), crd))
	require.Eventually(l.t, func() bool {
		return apierrors.IsNotFound(l.client.Get(l.t.Context(), client.ObjectKeyFromObject(crd), crd))
	}, patience, 20*time.Millisecond)
}

// TestOwnReleaseHasPreconditions requests the release with which the operator was started after a later one has completed.
//
//threat:operator-own-older
func TestOwnReleaseHasPreconditions(t *testing.T) {
	t.Parallel()
	l := newTagged(t)
	next := l.pushAndMoveTag("4.2.0", true)
	l.updated("4.2.0", configv1.Update{Image: next.ByDigest()})
	l.update(configv1.Update{Image: l.own.ByDigest()})
	message := l.refused("PreconditionChecks", l.own.ByDigest())
	assert.Contains(t, message, "4.1.0 is less than the current target 4.2.0")
}

// recordGuard is the path of the policy that guards ReleaseStatus.
const recordGuard = "../../manifests/0000_00_cluster-version-operator_06_record_guard.yaml"

// TestRecordGuardAdmitsOnlyAccountsWithItsVerb writes ReleaseStatus with several accounts whose roles allow it.
//
//threat:role-allows-update
func TestRecordGuardAdmitsOnlyAccountsWithItsVerb(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	require.NoError(t, rbacv1.AddToScheme(p.client.Scheme()))
	p.create(statusDefinition, recordGuard)
	const account = "system:serviceaccount:openshift-cluster-version:cluster-version-operator"
	group := api.ReleaseStatusVersion.Group
	require.NoError(t, p.client.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "writer"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{group}, Resources: []string{"releasestatuses"}, Verbs: []string{"get", "create", "update", "patch", "delete", "deletecollection"},
		}},
	}))
	for user, role := range map[string]string{"writer": "writer", account: "writer", "administrator": "cluster-admin"} {
		require.NoError(t, p.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "writes-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		}))
	}
	as := func(user string) client.Client {
		config := p.env.Config("integration")
		config.Impersonate.UserName = user
		c, err := client.New(config, client.Options{})
		require.NoError(t, err)
		return c
	}
	status := func() *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
			"releases": []any{}, "inventory": map[string]any{"namespace": "n", "selector": "s"},
		}}}
		u.SetGroupVersionKind(api.ReleaseStatusVersion.WithKind(api.ReleaseStatusKind))
		u.SetName("version")
		return u
	}
	rejected := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "only the version operator writes ReleaseStatus")
	}
	writer := as("writer")
	// The API server compiles the policy in the background and accepts requests until then. Repeat dry runs until it rejects one.
	require.Eventually(t, func() bool { return rejected(writer.Create(t.Context(), status(), client.DryRunAll)) }, patience, 100*time.Millisecond)
	for _, user := range []string{account, "administrator"} {
		mine := status()
		require.NoError(t, as(user).Create(t.Context(), mine), user)
		forged := mine.DeepCopy()
		require.NoError(t, unstructured.SetNestedField(forged.Object, "forged", "status", "inventory", "namespace"))
		assert.True(t, rejected(writer.Update(t.Context(), forged)))
		assert.True(t, rejected(writer.Delete(t.Context(), mine.DeepCopy())))
		assert.True(t, rejected(writer.DeleteAllOf(t.Context(), mine.DeepCopy())))
		require.NoError(t, as(user).Update(t.Context(), forged), user)
		require.NoError(t, as(user).Delete(t.Context(), forged), user)
	}
}
