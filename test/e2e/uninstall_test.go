package e2e

import (
	"bufio"
	"bytes"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/env"
)

// testUninstall is the last test. It removes the operator from a cluster, reinstalls it, and removes everything. The cluster's own garbage
// collector runs all the time.
func testUninstall(t *testing.T, s *site) {
	l := installed(t, s)
	release := l.image()

	t.Run("prevents an accidental deletion of the ClusterVersion", func(t *testing.T) {
		l := l.in(t)
		cv, err := l.clusterVersion()
		require.NoError(t, err)
		err = l.client.Delete(t.Context(), cv)
		require.Error(t, err)
		assert.True(t, apierrors.IsInvalid(err) || apierrors.IsForbidden(err), "%v", err)
		assert.ErrorContains(t, err, "allow-deletion")
	})

	l.atRest()
	before := l.everything()
	require.Greater(t, len(before), 100)
	t.Run("keeps the platform without the operator", func(t *testing.T) {
		l, began := l.in(t), time.Now()
		l.uninstall(nil, "--timeout=3m")
		t.Logf("removed the operator in %s", since(began))
		_, err := l.clusterVersion()
		assert.True(t, apierrors.IsNotFound(err) || meta.IsNoMatchError(err), "%v", err)
		l.garbageCollected()
		l.untouched(before)
	})
	t.Run("adopts the unchanged platform in another install", func(t *testing.T) {
		l, began := l.in(t), time.Now()
		l.install(release, "--wait")
		t.Logf("reinstalled in %s", since(began))
		after := l.everything()
		for name, object := range before {
			assert.Equal(t, object.UID, after[name].UID, name)
			assert.Equal(t, object.Generation, after[name].Generation, name)
		}
	})
	t.Run("deletes the platform in reverse order and waits for a foreign finalizer", func(t *testing.T) { l.in(t).uninstallPlatform() })
}

// uninstallPlatform holds an object with another client's finalizer and removes the finalizer when cvo names it.
func (l *testPlatform) uninstallPlatform() {
	l.Helper()
	const finalizer = "example.com/somebody-else"
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "example-dns", Name: "example-dns"}}
	setFinalizers := func(finalizers string) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))
		require.NoError(l, l.client.Patch(l.Context(), held, patch))
	}
	setFinalizers(`["` + finalizer + `"]`)

	reported := false
	began := time.Now()
	out := l.uninstall(func(line string) {
		if reported || !strings.Contains(line, finalizer) {
			return
		}
		reported = true
		assert.Contains(l, line, "ConfigMap example-dns/example-dns (finalizers "+finalizer+")")
		require.NoError(l, l.client.Get(l.Context(), client.ObjectKeyFromObject(held), held), "objects with a finalizer are kept")
		assert.NotNil(l, held.DeletionTimestamp)
		namespace, err := l.kube.CoreV1().Namespaces().Get(l.Context(), held.Namespace, metav1.GetOptions{})
		require.NoError(l, err)
		assert.Nil(l, namespace.DeletionTimestamp, "the namespace is not deleted yet")
		setFinalizers("null")
	}, "--with-platform", "--timeout=5m")
	require.True(l, reported, "cvo names the finalizer")
	l.Logf("removed the platform in %s", since(began))

	l.reverse(began)
	for name, object := range l.everything() {
		kind, _, _ := strings.Cut(name, ".")
		assert.Contains(l, out, kind+" "+strings.TrimPrefix(object.Namespace+"/"+object.Name, "/")+" kept", "remaining objects are listed")
	}
}

// uninstall runs cvo uninstall, logs its progress, passes every line to seen and returns its output.
func (l *testPlatform) uninstall(seen func(string), flags ...string) string {
	l.Helper()
	began := time.Now()
	command := exec.CommandContext(l.Context(), l.CVO, append([]string{"uninstall", "--yes"}, flags...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig)
	var out bytes.Buffer
	command.Stdout = &out
	progress, err := command.StderrPipe()
	require.NoError(l, err)
	require.NoError(l, command.Start())
	for lines := bufio.NewScanner(progress); lines.Scan(); {
		l.Logf("%5.1f s  %s", time.Since(began).Seconds(), lines.Text())
		if seen != nil {
			seen(lines.Text())
		}
	}
	require.NoError(l, command.Wait())
	return out.String()
}

// reverse checks that the platform was removed in the reverse order of its installation: custom resources first, while their controllers
// run; then the runlevels one by one; and the operator last.
func (l *testPlatform) reverse(since time.Time) {
	l.Helper()
	events, err := l.Audit(l.Context(), since)
	require.NoError(l, err)
	runlevels := map[string]int{
		"example-ingress": 50, "example-console": 50, "example-storage": 50,
		"example-identity": 40, "example-dns": 30, "example-network": 30, "example-backup": 20,
	}
	const first, last = 100, -1
	level := func(o env.AuditObject) (int, bool) {
		namespace := o.Namespace
		if o.Resource == "namespaces" {
			namespace = o.Name
		}
		n, ok := runlevels[namespace]
		switch {
		case o.Group != configv1.GroupName && strings.HasSuffix(o.Group, "example.com"):
			return first, true
		case strings.Contains(o.Name, "cluster-version") || strings.HasSuffix(o.Name, ".cvo.cluster-version.github.io"):
			return last, true
		}
		return n, ok
	}
	deleted := map[int][]env.AuditEvent{}
	for _, e := range events {
		n, known := level(e.Object)
		if e.Object.Group == "batch" {
			continue // the Job of an earlier release has no place in this one
		}
		if known && e.Write() && e.Verb == "delete" && strings.HasPrefix(e.UserAgent, "cvo-uninstall") && e.Object.Resource != "clusterversions" {
			deleted[n] = append(deleted[n], e) // the ClusterVersion goes first, so that no operator recreates deleted objects
		}
	}
	levels := slices.Sorted(maps.Keys(deleted))
	require.Equal(l, []int{last, 20, 30, 40, 50, first}, levels, "each runlevel has at least one deletion")
	for i, n := range levels[1:] {
		for _, later := range deleted[levels[i]] {
			for _, earlier := range deleted[n] {
				assert.True(l, earlier.Done.Before(later.Received), "%s (%d) was deleted after %s (%d)", earlier.Object, n, later.Object, levels[i])
			}
		}
	}
}

// atRest waits until no pod of the platform is being deleted, because pods may have just been replaced.
func (l *testPlatform) atRest() {
	l.Helper()
	require.EventuallyWithT(l, func(c *assert.CollectT) {
		pods, err := l.kube.CoreV1().Pods("").List(l.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		for _, pod := range pods.Items {
			assert.Nil(c, pod.DeletionTimestamp, "%s/%s", pod.Namespace, pod.Name)
		}
	}, patience, tick)
}

// everything returns the objects of the platform of all kinds, including those that its workloads created. It omits the operator's own
// objects and short-lived ones.
func (l *testPlatform) everything() map[string]metav1.PartialObjectMetadata {
	l.Helper()
	lists, err := l.kube.Discovery().ServerPreferredResources()
	require.NoError(l, err)
	found := map[string]metav1.PartialObjectMetadata{}
	for _, served := range lists {
		gv, err := schema.ParseGroupVersion(served.GroupVersion)
		require.NoError(l, err)
		for _, resource := range served.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Kind == "Event" || resource.Kind == "Lease" {
				continue
			}
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(gv.WithKind(resource.Kind + "List"))
			require.NoError(l, l.client.List(l.Context(), list))
			for _, object := range list.Items {
				if strings.HasPrefix(object.Namespace, "example-") || object.Namespace == "" && isReleaseObject(object) {
					found[strings.TrimPrefix(resource.Kind+"."+gv.Group+" "+object.Namespace+"/"+object.Name, "/")] = object
				}
			}
		}
	}
	return found
}

// isReleaseObject reports whether an object belongs to a release and is not one of the operator's own.
func isReleaseObject(object metav1.PartialObjectMetadata) bool {
	_, ok := object.Labels[api.OwnedByLabel]
	return ok && !strings.Contains(object.Name, "cluster-version") && object.Name != api.OperatorNamespace &&
		!strings.HasSuffix(object.Name, ".cvo.cluster-version.github.io") && !strings.HasPrefix(object.Name, "clusterversions.")
}

// untouched checks that all objects of the platform still exist and that none has a deleted owner.
func (l *testPlatform) untouched(before map[string]metav1.PartialObjectMetadata) {
	l.Helper()
	now := l.everything()
	l.Logf("the platform had %d objects and has %d now", len(before), len(now))
	for name, object := range before {
		assert.Equal(l, object.UID, now[name].UID, name)
		for _, owner := range now[name].OwnerReferences {
			assert.NotEqual(l, "ClusterVersion", owner.Kind, name)
		}
	}
}

// garbageCollected waits until the cluster's garbage collector has deleted an object whose owner was just deleted. By then it has seen all
// earlier events.
func (l *testPlatform) garbageCollected() {
	l.Helper()
	namespace := newNamespace(l.T, l.kube)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"}}
	require.NoError(l, l.client.Create(l.Context(), owner))
	canary := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "canary", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}
	require.NoError(l, l.client.Create(l.Context(), canary))
	require.NoError(l, l.client.Delete(l.Context(), owner, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	require.Eventually(l, func() bool {
		return apierrors.IsNotFound(l.client.Get(l.Context(), client.ObjectKeyFromObject(canary), canary))
	}, patience, tick/5, "waiting for the garbage collector")
}
