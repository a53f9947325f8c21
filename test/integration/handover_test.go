package integration_test

import (
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

// ownPart is the operator's part of a release: its Deployment, and objects before and after it in name order.
const ownPart = `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: openshift-cluster-version, name: before, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
data: {image: "{{.ReleaseImage}}"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: openshift-cluster-version, name: cluster-version-operator, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
spec:
  replicas: 2
  selector: {matchLabels: {k8s-app: cluster-version-operator}}
  template:
    metadata: {labels: {k8s-app: cluster-version-operator}}
    spec:
      containers:
      - {name: cluster-version-operator, image: "{{.ReleaseImage}}"}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: openshift-cluster-version, name: named-after, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
data: {image: "{{.ReleaseImage}}"}
`

// addedPart is an object that a release adds before the operator's Deployment.
const addedPart = `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: openshift-cluster-version, name: added, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
`

// hosted is a cluster that runs its own operator.
type hosted struct {
	*testPlatform
	replicas *replicas
	images   map[string]release.Image
}

// newHosted installs 4.2.0 and runs its operator in two pods, with the flags more.
func newHosted(t *testing.T, versions []string, more ...string) *hosted {
	t.Helper()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	require.NoError(t, corev1.AddToScheme(l.client.Scheme()))
	require.NoError(t, appsv1.AddToScheme(l.client.Scheme()))
	h := &hosted{testPlatform: l, images: map[string]release.Image{}}
	for _, version := range versions {
		h.images[version] = h.push(h.files(version), version, "/cvo")
	}
	own := h.images[versions[0]].ByDigest()
	_, err := l.run("install", "--no-operator", "--release-image", own, "--trust", l.trust)
	require.NoError(t, err)
	l.start("operators", "--ignore", api.OperatorNamespace+"/"+api.OperatorDeployment)
	h.replicas = l.deploy(more...)
	outside := l.operator(own)
	l.await(versions[0]+" to be installed", time.Minute, at(versions[0]))
	h.replicas.settled(own)
	outside.end(t)
	h.replicas.leading()
	return h
}

// files returns the files of a release that contains the operator.
func (h *hosted) files(version string) fs.FS {
	files := fstest.MapFS{"manifests/0000_00_cluster-version-operator_30_deployment.yaml": &fstest.MapFile{Data: []byte(ownPart)}}
	maps.Copy(files, h.tiny.files(version).(fstest.MapFS))
	return files
}

// push pushes a release whose image runs entrypoint.
func (h *hosted) push(files fs.FS, version, entrypoint string) release.Image {
	h.t.Helper()
	image, err := fixture.ReleaseImage(files)
	require.NoError(h.t, err)
	config, err := image.ConfigFile()
	require.NoError(h.t, err)
	config = config.DeepCopy()
	config.Config.Entrypoint = []string{entrypoint}
	image, err = mutate.ConfigFile(image, config)
	require.NoError(h.t, err)
	img, err := fixture.Push(h.t.Context(), h.registry, image, "platform/v"+version+":1")
	require.NoError(h.t, err)
	_, err = h.signer.WriteSignature(h.store(), img)
	require.NoError(h.t, err)
	return img
}

// operatorWrites returns the requests of an image's users that may have changed objects of a release.
func (h *hosted) operatorWrites(since time.Time, users map[string]bool) []env.AuditEvent {
	h.t.Helper()
	var writes []env.AuditEvent
	for _, e := range h.audit(since) {
		shard := e.Object.Resource == "configmaps" && strings.HasPrefix(e.Object.Name, "version-inventory-")
		kept := strings.HasPrefix(e.Object.Resource, "release") || e.Object.Name == "signatures-managed"
		asked := strings.HasSuffix(e.Object.Resource, "reviews") // reviews are not stored
		if users[e.User] && e.Write() && e.Object.Subresource == "" && !isIndependent(e.Object.Resource) && !asked && !shard && !kept {
			writes = append(writes, e)
		}
	}
	return writes
}

func names(events []env.AuditEvent) []string {
	list := make([]string, len(events))
	for i, e := range events {
		list[i] = e.Object.String()
	}
	return list
}

// TestNextOperatorContinuesTheUpdate updates a cluster that runs its own operator. The old release's operator applies only the objects up
// to its own Deployment. The new one continues from there and writes none of these objects again.
func TestNextOperatorContinuesTheUpdate(t *testing.T) {
	t.Parallel() // most of the time the test waits
	h := newHosted(t, []string{"4.2.0", "4.2.1", "4.2.2", "4.2.3"}, "--leader-elect-lease-duration", "10s",
		"--leader-elect-renew-deadline", "8s", "--leader-elect-retry-period", "500ms")
	from := h.images["4.2.0"].ByDigest()
	for _, step := range []struct {
		version     string
		leaderFirst bool
	}{{"4.2.1", true}, {"4.2.2", false}} {
		h.replicas.set(func() { h.replicas.leaderFirst = step.leaderFirst })
		to, began := h.images[step.version].ByDigest(), time.Now()
		h.update(configv1.Update{Image: to})
		h.await(step.version, 2*time.Minute, at(step.version))
		t.Logf("to %s, the leader first: %t: %s", step.version, step.leaderFirst, time.Since(began).Round(time.Millisecond))
		h.replicas.settled(to)
		assert.ElementsMatch(t, []string{
			"configmaps openshift-cluster-version/before", "configmaps openshift-cluster-version/named-after",
			"deployments.apps openshift-cluster-version/cluster-version-operator",
			"customresourcedefinitions.apiextensions.k8s.io clusterversions.config.openshift.io",
			"customresourcedefinitions.apiextensions.k8s.io clusteroperators.config.openshift.io",
		}, append(names(h.operatorWrites(began, h.replicas.users(from))), h.unchanged(began, h.replicas.users(from))...), "the old operator writes exactly these objects")
		for _, object := range names(h.operatorWrites(began, h.replicas.users(to))) {
			assert.NotContains(t, object, "openshift-cluster-version/", "the new operator does not write them again")
			assert.NotContains(t, object, "config.openshift.io", "the new operator does not write them again")
		}
		from = to
	}

	// This release has another operator.
	h.update(configv1.Update{Image: h.push(h.files("4.2.9"), "4.2.9", "/usr/bin/cluster-version-operator").ByDigest()})
	cv := h.await("a release with another operator to be rejected", time.Minute, says(api.ReleaseAccepted, "False|"))
	assert.Contains(t, condition(cv, api.ReleaseAccepted), `runs ["/usr/bin/cluster-version-operator"]: this release does not contain this operator`)

	// This release does not start. The old operator reports the reason and accepts the request to stay.
	broken := h.images["4.2.3"].ByDigest()
	h.replicas.set(func() { h.replicas.broken[broken] = true })
	began := time.Now()
	h.update(configv1.Update{Image: broken})
	h.await("the problem to be reported", time.Minute, func(cv *configv1.ClusterVersion) bool {
		reported := condition(cv, configv1.OperatorProgressing)
		return strings.Contains(reported, "waiting for the operator of release 4.2.3 to take over: pod cluster-version-operator-") &&
			strings.Contains(reported, "cannot pull its image: ImagePullBackOff: not found")
	})
	t.Logf("reported after %s", time.Since(began).Round(time.Millisecond))
	h.await("the problem to count as a failure", 2*time.Minute, func(cv *configv1.ClusterVersion) bool {
		return strings.HasPrefix(condition(cv, api.Failing), "True|"+api.ReasonOperatorNotStarting+"|the operator of release 4.2.3 cannot take over: pod ")
	})
	t.Logf("failing after %s", time.Since(began).Round(time.Millisecond))
	h.update(configv1.Update{Image: from})
	h.await("the rollback", 2*time.Minute, at("4.2.2"))
	h.replicas.settled(from)

	// Even a new leader repairs a manual edit.
	leader, _ := h.replicas.leading()
	h.replicas.set(func() { h.replicas.broken["registry.example/unknown"] = true })
	leader.end()
	patch := []byte(`{"spec": {"template": {"spec": {"containers": [{"name": "cluster-version-operator", "image": "registry.example/unknown"}]}}}}`)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: api.OperatorNamespace, Name: api.OperatorDeployment}}
	require.NoError(t, h.client.Patch(t.Context(), d, client.RawPatch(types.StrategicMergePatchType, patch)))
	require.Eventually(t, func() bool {
		err := h.client.Get(t.Context(), client.ObjectKeyFromObject(d), d)
		return err == nil && d.Spec.Template.Spec.Containers[0].Image == from
	}, time.Minute, 50*time.Millisecond, "waiting for the repair of the Deployment")
}

// TestHandoverSurvivesARevertedDeployment resets the Deployment while its next operator does not start yet. First an install of the earlier
// release does this, with the operator's own field manager, and then an administrator.
func TestHandoverSurvivesARevertedDeployment(t *testing.T) {
	t.Parallel() // most of the time the test waits
	h := newHosted(t, []string{"4.2.0", "4.2.1"}, "--leader-elect-lease-duration", "10s",
		"--leader-elect-renew-deadline", "8s", "--leader-elect-retry-period", "500ms")
	from, to := h.images["4.2.0"].ByDigest(), h.images["4.2.1"].ByDigest()
	h.replicas.set(func() { h.replicas.broken[to] = true })
	h.update(configv1.Update{Image: to})
	h.await("the handover", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return strings.Contains(condition(cv, configv1.OperatorProgressing), "cannot pull its image")
	})

	again := func(what string, generation int64) {
		began, d := time.Now(), h.deployment()
		require.Eventually(t, func() bool {
			d = h.deployment()
			return d.Generation > generation && d.Spec.Template.Spec.Containers[0].Image == to
		}, patience, 20*time.Millisecond, what)
		t.Logf("%s: applied again after %s", what, time.Since(began).Round(time.Millisecond))
	}
	again("by an install", h.setBack(from))

	leader, _ := h.replicas.leading()
	leader.end()
	again("by an install, with a new leader", h.setBack(from))

	patch := []byte(`{"spec": {"template": {"spec": {"containers": [{"name": "cluster-version-operator", "image": "` + from + `"}]}}}}`)
	d := h.deployment()
	require.NoError(t, h.client.Patch(t.Context(), d, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner("kubectl-set")))
	again("by an administrator", d.Generation)

	h.replicas.set(func() {
		delete(h.replicas.broken, to)
		h.replicas.pods = slices.DeleteFunc(h.replicas.pods, func(pod *replica) bool { return pod.proc == nil })
	})
	h.await("4.2.1", 2*time.Minute, at("4.2.1"))
	h.replicas.settled(to)
}

// TestHandoverContinuesWithoutTheInventory makes every save of the inventory fail during a handover. The next operator applies the objects
// again whose records are missing or outdated. It repairs an edit that was made while no operator ran.
//
//threat:inventory-record-makes
func TestHandoverContinuesWithoutTheInventory(t *testing.T) {
	t.Parallel() // most of the time the test waits
	h := newHosted(t, []string{"4.2.0"}, "--leader-elect-lease-duration", "10s",
		"--leader-elect-renew-deadline", "8s", "--leader-elect-retry-period", "500ms")
	files := h.files("4.2.1").(fstest.MapFS)
	files["manifests/0000_00_cluster-version-operator_20_added.yaml"] = &fstest.MapFile{Data: []byte(addedPart)}
	to := h.push(files, "4.2.1", "/cvo").ByDigest()
	admit := h.refuseInventory()
	h.replicas.set(func() { h.replicas.broken[to] = true })
	h.update(configv1.Update{Image: to})
	h.await("the handover", time.Minute, func(cv *configv1.ClusterVersion) bool {
		reported := condition(cv, configv1.OperatorProgressing)
		return strings.Contains(reported, "waiting for the operator of release 4.2.1 to take over (it will apply all objects again, because saving the inventory failed: ") &&
			strings.Contains(reported, "the inventory is refused")
	})

	// The update does not change this object. The inventory has the time before the repair.
	const definition, annotation = "clusteroperators.config.openshift.io", "api.openshift.io/merged-by-featuregates"
	crd := func() *unstructured.Unstructured {
		return h.object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", definition)
	}
	require.Equal(t, "true", crd().GetAnnotations()[annotation])
	edit := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+annotation+`":"edited"}}}`))
	require.NoError(t, h.client.Patch(t.Context(), crd(), edit))
	require.Eventually(t, func() bool { return crd().GetAnnotations()[annotation] == "true" }, time.Minute, 50*time.Millisecond)

	leader, other := h.replicas.leading()
	other.end()
	leader.end()
	before := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: api.OperatorNamespace, Name: "before"}}
	require.NoError(t, h.client.Patch(t.Context(), before, client.RawPatch(types.MergePatchType, []byte(`{"data":{"image":"edited"}}`))))
	added := h.object("v1", "ConfigMap", api.OperatorNamespace, "added")
	defined, deployed := crd(), h.deployment()
	admit()
	began := time.Now()
	h.replicas.set(func() {
		delete(h.replicas.broken, to)
		h.replicas.pods = slices.DeleteFunc(h.replicas.pods, func(pod *replica) bool { return pod.proc == nil })
	})
	h.await("4.2.1", 2*time.Minute, at("4.2.1"))
	h.replicas.settled(to)
	h.awaitRecords("4.2.1", time.Time{})

	writes := map[string][]string{}
	for _, e := range h.operatorWrites(began, h.replicas.users(to)) {
		writes[e.Object.Name] = append(writes[e.Object.Name], e.ResourceVersion)
	}
	assert.Equal(t, []string{added.GetResourceVersion()}, writes["added"], "one apply without a change")
	assert.Equal(t, []string{defined.GetResourceVersion()}, writes[definition], "one apply without a change")
	assert.Len(t, writes[api.OperatorDeployment], 1)
	assert.Equal(t, deployed.Generation, h.deployment().Generation, "one apply without a change")
	assert.Len(t, writes["before"], 1)
	require.NoError(t, h.client.Get(t.Context(), client.ObjectKeyFromObject(before), before))
	assert.Equal(t, to, before.Data["image"], "the edit is repaired")
	for _, pod := range h.replicas.all() {
		data, err := os.ReadFile(pod.proc.log)
		require.NoError(t, err)
		repairs := 0
		if pod == leader {
			repairs = 1
		}
		assert.Equal(t, repairs, strings.Count(string(data), `"msg":"drift repaired"`), "only the earlier operator repairs drift, not %s", pod.pod)
	}
}

// deployment reads the operator's Deployment.
func (h *hosted) deployment() *appsv1.Deployment {
	h.t.Helper()
	d := &appsv1.Deployment{}
	require.NoError(h.t, h.client.Get(h.t.Context(), client.ObjectKey{Namespace: api.OperatorNamespace, Name: api.OperatorDeployment}, d))
	return d
}

// setBack sets the image of the Deployment with an apply that uses the operator's own field manager, and returns the new generation.
func (h *hosted) setBack(image string) int64 {
	h.t.Helper()
	before := h.deployment()
	_, text, found := strings.Cut(ownPart, "apiVersion: apps/v1")
	require.True(h.t, found)
	text, _, _ = strings.Cut("apiVersion: apps/v1"+text, "---")
	object := &unstructured.Unstructured{}
	require.NoError(h.t, yaml.Unmarshal([]byte(strings.ReplaceAll(text, "{{.ReleaseImage}}", image)), &object.Object))
	object.SetLabels(before.Labels)
	object.SetAnnotations(before.Annotations)
	object.SetOwnerReferences(before.OwnerReferences)
	require.NoError(h.t, h.client.Apply(h.t.Context(), client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner(api.FieldManager), client.ForceOwnership))
	require.Equal(h.t, ownership.Ours(before.ManagedFields), ownership.Ours(object.GetManagedFields()), "the field manager owns the same fields")
	require.Greater(h.t, object.GetGeneration(), before.Generation)
	return object.GetGeneration()
}

// unchanged returns the objects before the barrier that were not written because the release did not change them.
func (h *hosted) unchanged(since time.Time, users map[string]bool) []string {
	written := map[string]bool{}
	for _, name := range names(h.operatorWrites(since, users)) {
		written[name] = true
	}
	var out []string
	for _, kind := range []string{"clusterversions", "clusteroperators"} {
		if name := "customresourcedefinitions.apiextensions.k8s.io " + kind + ".config.openshift.io"; !written[name] {
			out = append(out, name)
		}
	}
	return out
}

// TestStandbyReplacesAKilledLeader logs the time without a leader. A leader that ends has a Lease that does not expire during the test, so
// that only its release lets the other replica lead. A killed one has the default settings. TestStandbyAcquiresAFreeLease of package lead
// decides the time until then.
func TestStandbyReplacesAKilledLeader(t *testing.T) {
	t.Parallel() // most of the time the test waits
	h := newHosted(t, []string{"4.2.0"}, "--leader-elect-lease-duration", (2 * patience).String(), "--leader-elect-renew-deadline", patience.String())
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "tiny-a", Name: "settings"}}
	repaired := func() time.Duration {
		began := time.Now()
		require.NoError(t, h.client.Delete(t.Context(), settings))
		require.Eventually(t, func() bool {
			return h.client.Get(t.Context(), client.ObjectKeyFromObject(settings), settings) == nil
		}, patience, 10*time.Millisecond, "waiting for a leader")
		return time.Since(began)
	}
	leader, other := h.replicas.leading()
	leader.proc.end(t)
	t.Logf("after a leader that ended: %s", repaired().Round(time.Millisecond))

	// Restart the processes of both pods, as a kubelet does.
	h.replicas.set(func() { h.replicas.args = nil })
	require.NoError(t, h.startAgain(leader))
	other.proc.end(t)
	require.NoError(t, h.startAgain(other))
	leader, _ = h.replicas.leading()
	leader.end()
	t.Logf("after a leader that was killed: %s", repaired().Round(time.Millisecond))
}

// startAgain restarts the process of a pod.
func (h *hosted) startAgain(pod *replica) (err error) {
	h.replicas.set(func() { pod.proc, err = h.replicas.spawn(pod, h.replicas.kubeconfig(pod.pod)) })
	if err == nil {
		pod.proc.logged(h.t, "Attempting to acquire leader lease")
	}
	return err
}

// TestPausedLeaderWritesNothing suspends the leader for longer than its lease while it has work to do. Another replica acquires the Lease.
// The first one must write nothing when it resumes.
func TestPausedLeaderWritesNothing(t *testing.T) {
	t.Parallel() // most of the time the test waits
	h := newHosted(t, []string{"4.2.0"}, "--leader-elect-lease-duration", "4s", "--leader-elect-renew-deadline", "3s",
		"--leader-elect-retry-period", "500ms")
	leader, other := h.replicas.leading()
	ctx := t.Context()
	vandal := make(chan struct{})
	go func() { // a client that constantly gives the leader work
		defer close(vandal)
		for ctx.Err() == nil {
			for _, name := range []string{"tiny-a", "tiny-b"} {
				_ = h.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "settings"}})
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { <-vandal })
	writes := func(user string) []env.AuditEvent {
		var list []env.AuditEvent
		for _, e := range h.audit(time.Time{}) {
			if e.User == user && e.Write() && e.Object.Resource != "leases" {
				list = append(list, e)
			}
		}
		return list
	}
	require.Eventually(t, func() bool { return len(writes(leader.user)) > 10 }, time.Minute, 50*time.Millisecond, "waiting until the leader is busy")
	resume := leader.stopped(t)
	began := time.Now()
	require.Eventually(t, func() bool { return len(writes(other.user)) > 10 }, time.Minute, 50*time.Millisecond, "waiting until the other replica is busy")
	first := writes(other.user)[0]
	t.Logf("taken over after %s", first.Received.Sub(began).Round(time.Millisecond))
	leader.proc.letEnd()
	resume()
	select {
	case <-leader.proc.exited:
	case <-time.After(patience):
		require.FailNow(t, "the process that lost the lead does not end")
	}
	mine := writes(leader.user)
	require.NotEmpty(t, mine)
	for _, e := range mine {
		assert.True(t, e.Received.Before(first.Received), "%s %s at %s, after the other replica's first write at %s", e.Verb, e.Object, e.Received, first.Received)
		assert.True(t, e.Done.Before(first.Received), "%s %s ended at %s, after the other replica's first write at %s", e.Verb, e.Object, e.Done, first.Received)
	}
}
