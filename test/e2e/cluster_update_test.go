package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/e2e/platform"
	"github.com/cluster-version/cvo/test/env"
)

// testUpdate edits the ClusterVersion. The operator of the new release takes over during the update.
func testUpdate(t *testing.T, s *site) {
	l := installed(t, s)
	to := l.asUpdate(l.next())
	from, err := l.operators()
	require.NoError(t, err)
	old := map[string]bool{}
	for _, pod := range from {
		old[pod.Name] = true
	}
	holders := l.watchLease()
	began := time.Now()
	l.update(to)
	l.completed(to.Version)
	t.Logf("updated from %s to %s in %s", from[0].Spec.Containers[0].Image, to.Version, since(began))
	now := map[string]bool{}
	for _, pod := range l.settled(to.Image) {
		now[pod.Name] = true
	}

	t.Run("both releases lead one after the other", func(t *testing.T) {
		led := slices.DeleteFunc(holders(), func(holder string) bool { return holder == "" })
		t.Logf("held the Lease: %v", led)
		changed := slices.IndexFunc(led, func(holder string) bool { return !old[holder] })
		require.Positive(t, changed, "none of %v belongs to the new release", led)
		for _, holder := range led[changed:] {
			assert.True(t, now[holder], "%s led after the operator had been replaced: %v", holder, led)
		}
	})
	t.Run("the old leader writes nothing after the new one has started", func(t *testing.T) {
		events := l.in(t).operatorWrites(began)
		first := time.Time{}
		count := map[bool]int{}
		for _, e := range events {
			count[old[e.Pod]]++
			if now[e.Pod] && (first.IsZero() || e.Received.Before(first)) {
				first = e.Received
			}
		}
		t.Logf("the old leader wrote %d objects of the release, the new one %d", count[true], count[false])
		require.NotZero(t, count[true])
		require.NotZero(t, count[false])
		for _, e := range events {
			assert.False(t, old[e.Pod] && e.Done.After(first), "%s by %s at %s, after %s", e.Object, e.Pod, e.Done, first)
		}
	})
	t.Run("no object is written twice", func(t *testing.T) {
		twice := map[env.AuditObject][]env.AuditEvent{}
		for _, e := range l.in(t).operatorWrites(began) {
			twice[e.Object] = append(twice[e.Object], e)
		}
		for object, writes := range twice {
			for i, e := range writes[1:] {
				if writes[i].Verb == "create" && object.Resource == "clusteroperators" {
					continue // an object of a new component is created early to count as pending
				}
				assert.Fail(t, "written twice", "%s: %s by %s, %s by %s", object, writes[i].URI, writes[i].Pod, e.URI, e.Pod)
			}
		}
	})
}

// operatorWrites returns the operator's writes of objects in releases, without its own records.
func (l *testPlatform) operatorWrites(since time.Time) []env.AuditEvent {
	l.Helper()
	events, err := l.Audit(l.Context(), since)
	require.NoError(l, err)
	return slices.DeleteFunc(events, func(e env.AuditEvent) bool {
		o := e.Object
		own := o.Resource == "leases" || o.Resource == "events" || strings.HasSuffix(o.Resource, "reviews") || o.Subresource != "" ||
			o.Resource == "clusterversions" || strings.HasPrefix(o.Resource, "release") ||
			o.Resource == "configmaps" && strings.HasPrefix(o.Name, "version-inventory-") || o.Name == "signatures-managed" ||
			strings.HasSuffix(o.Name, "cluster-version-operator-update") // permissions that it grants itself during an update
		return own || !e.Write() || !strings.HasPrefix(e.Pod, "cluster-version-operator-")
	})
}

// watchLease records the holders of the Lease until the returned function is called, which returns them in order, with an empty one for each
// time at which the Lease was released.
func (l *testPlatform) watchLease() func() []string {
	l.Helper()
	ctx, cancel := context.WithCancel(l.Context())
	leases := l.kube.CoordinationV1().Leases(api.OperatorNamespace)
	events, err := leases.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, api.ClusterVersionName).String()})
	require.NoError(l, err)
	held := make(chan []string, 1)
	go func() {
		var holders []string
		for event := range events.ResultChan() {
			lease, ok := event.Object.(*coordinationv1.Lease)
			if !ok {
				continue
			}
			if holder := host(lease); len(holders) == 0 || holders[len(holders)-1] != holder {
				holders = append(holders, holder)
			}
		}
		held <- holders
	}()
	return func() []string {
		cancel()
		return <-held
	}
}

// host returns the pod that holds a Lease, empty if none does.
func host(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return pod
}

// testMisbehavior updates to a release while components have problems. The operator must report each problem by name and must not touch
// later components. The update must complete after the problems end.
func testMisbehavior(t *testing.T, s *site) {
	l := installed(t, s)
	to := l.asUpdate(l.small("example-network", "example-dns", "example-storage"))
	set := func(component string, switches map[string]string) {
		require.NoError(t, platform.SetSwitches(t.Context(), l.kube, component, switches))
	}
	said := func(operator *configv1.ClusterOperator, kind configv1.ClusterStatusConditionType) string {
		for _, c := range operator.Status.Conditions {
			if c.Type == kind {
				return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
			}
		}
		return ""
	}
	troubles := []struct {
		component, key, value string
		// shows reports whether the component itself reports the problem.
		shows func(*configv1.ClusterOperator) bool
		// after is a component of a later runlevel.
		after string
	}{
		{"example-network", "slow", "10m", func(o *configv1.ClusterOperator) bool {
			return strings.HasPrefix(said(o, configv1.OperatorProgressing), "True ")
		}, "example-storage"},
		{"example-dns", "crashLoop", "true", func(*configv1.ClusterOperator) bool { return l.crashes("example-dns") }, "example-storage"},
		{"example-storage", "degraded", "true", func(o *configv1.ClusterOperator) bool {
			return strings.HasPrefix(said(o, configv1.OperatorDegraded), "True SetBySwitch")
		}, ""},
	}
	before := map[string]string{}
	for _, trouble := range troubles {
		before[trouble.component], _ = l.reported(trouble.component)
		set(trouble.component, map[string]string{trouble.key: trouble.value + "@" + to.Version})
		t.Cleanup(func() { _ = platform.SetSwitches(context.WithoutCancel(t.Context()), l.kube, trouble.component, nil) })
	}
	began := time.Now()
	l.update(to)
	for _, trouble := range troubles {
		operator := &configv1.ClusterOperator{}
		require.True(t, awaitObject(l, operator, "", trouble.component, patience, func() bool { return trouble.shows(operator) }),
			"%s: waiting for %s: %+v", trouble.component, trouble.key, operator.Status)
		cv := l.await(trouble.component+" to be reported", func(cv *configv1.ClusterVersion) bool {
			return waitsOn(cv, trouble.component)
		})
		t.Logf("after %s, because of %s: %s", since(began), trouble.key, condition(cv, "Progressing").Message)
		assert.Equal(t, configv1.PartialUpdate, cv.Status.History[0].State)
		if trouble.after != "" {
			version, _ := l.reported(trouble.after)
			assert.Equal(t, before[trouble.after], version, "%s belongs to a later runlevel", trouble.after)
		}
		set(trouble.component, nil)
	}
	l.completed(to.Version)
	t.Logf("completed after %s", since(began))
}

// waitsOn reports whether the operator reports that it waits for a component, with or without a duration.
func waitsOn(cv *configv1.ClusterVersion, component string) bool {
	_, waited, _ := strings.Cut(condition(cv, "Progressing").Message, ", waiting ")
	_, components, _ := strings.Cut(waited, "on ")
	return slices.Contains(strings.Split(components, ", "), component)
}

// crashes reports whether a container of a component's operator ended with an error.
func (l *testPlatform) crashes(component string) bool {
	pods, err := l.kube.CoreV1().Pods(component).List(l.Context(), metav1.ListOptions{LabelSelector: "app=" + component + "-operator"})
	if err != nil {
		return false
	}
	return slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
		return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			ended := c.LastTerminationState.Terminated
			return ended != nil && ended.ExitCode != 0
		})
	})
}

// testFailover logs the time without a leader. A leader that ends releases the Lease; the tests of package lead decide the times.
func testFailover(t *testing.T, s *site) {
	l := installed(t, s)
	l.settled(l.image())
	for _, end := range []struct {
		name     string
		do       func(leader string)
		releases bool
	}{
		{"recovers when the leader's container is killed", func(leader string) {
			pod, err := l.kube.CoreV1().Pods(api.OperatorNamespace).Get(t.Context(), leader, metav1.GetOptions{})
			require.NoError(t, err)
			require.NoError(t, l.kill(pod))
		}, false},
		{"recovers when the leader's pod is deleted", func(leader string) {
			require.NoError(t, l.kube.CoreV1().Pods(api.OperatorNamespace).Delete(t.Context(), leader, metav1.DeleteOptions{}))
		}, true},
	} {
		t.Run(end.name, func(t *testing.T) {
			l := l.in(t)
			before := *l.lease().Spec.HolderIdentity
			leader := host(l.lease())
			holders := l.watchLease()
			began := time.Now()
			end.do(leader)
			next := l.leader(before, patience)
			t.Logf("%s leads instead of %s after %s", podOf(next), leader, since(began))
			assert.Equal(t, end.releases, slices.Contains(holders(), ""), "a leader that ends releases the Lease")
			l.settled(l.image())
		})
	}
}

// image returns the image of the operator's Deployment.
func (l *testPlatform) image() string {
	l.Helper()
	d, err := l.kube.AppsV1().Deployments(api.OperatorNamespace).Get(l.Context(), api.OperatorDeployment, metav1.GetOptions{})
	require.NoError(l, err)
	return d.Spec.Template.Spec.Containers[0].Image
}
