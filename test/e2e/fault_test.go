package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/e2e/platform"
	"github.com/cluster-version/cvo/test/env"
)

// changedComponent is the component, besides the operator itself, that an update with a fault changes.
const changedComponent = "example-dns"

// scenario is an update with a fault. The platform is completely installed at its start and its end.
type scenario struct {
	*testPlatform
	name string
	to   configv1.Update
	// requestedAt is the time when the update was requested. startedAt is the time when the fault began, or when the update was requested
	// during the fault.
	requestedAt, startedAt time.Time
	summary                string
	// before are the objects of the platform at the start.
	before map[string]types.UID
}

// newScenario creates a release with few changes, so that an update to it takes only seconds. It does not request the update.
func newScenario(t *testing.T, s *site, name string) *scenario {
	t.Helper()
	l := installed(t, s)
	r := l.small(changedComponent)
	r.Changes = append(r.Changes, platform.With(changedComponent, "0000_30_example-dns_02_release.yaml", `apiVersion: v1
kind: ConfigMap
metadata:
  name: release
  namespace: example-dns
  annotations:
    `+platform.Included+`
data:
  version: "`+r.Version+`"
`))
	return &scenario{testPlatform: l, name: name, to: l.asUpdate(r), summary: "completed", before: l.objects()}
}

// begin requests the update.
func (o *scenario) begin() {
	o.Helper()
	o.requestedAt = time.Now()
	o.startedAt = o.requestedAt
	o.update(o.to)
}

// hold stops the update at the afflicted component until resume: its pods are new, but it does not report the new version.
func (o *scenario) hold() {
	o.Helper()
	require.NoError(o, platform.SetSwitches(o.Context(), o.kube, changedComponent, map[string]string{"slow": "1h@" + o.to.Version}))
	o.Cleanup(func() { _ = platform.SetSwitches(context.WithoutCancel(o.Context()), o.kube, changedComponent, nil) }) // in case the test ends early
}

// resume ends hold. An API server that has just started may not know the administrator's permissions yet.
func (o *scenario) resume() {
	o.Helper()
	require.EventuallyWithT(o, func(c *assert.CollectT) {
		require.NoError(c, platform.SetSwitches(o.Context(), o.kube, changedComponent, nil))
	}, patience, tick)
}

// awaitHalfWay waits until all changes of the update are in the cluster and only the changed component's report is missing.
func (o *scenario) awaitHalfWay() {
	o.Helper()
	operator := &configv1.ClusterOperator{}
	if !awaitObject(o.testPlatform, operator, "", changedComponent, patience, func() bool {
		return slices.ContainsFunc(operator.Status.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool {
			return strings.HasPrefix(c.Message, "Moving to "+o.to.Version+": taking ")
		})
	}) {
		o.explain()
		require.Fail(o, "waiting for the middle of the update")
	}
}

// awaitMessage waits until a condition names the cause with all of these words.
func (o *scenario) awaitMessage(kind string, words ...string) {
	o.Helper()
	var reported configv1.ClusterOperatorStatusCondition
	cv := &configv1.ClusterVersion{}
	if !awaitObject(o.testPlatform, cv, "", api.ClusterVersionName, patience, func() bool {
		reported = condition(cv, kind)
		text := fmt.Sprintf("%s|%s|%s", reported.Status, reported.Reason, reported.Message)
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
	}) {
		o.explain()
		require.Fail(o, fmt.Sprintf("waiting for %s to report %q", kind, words))
	}
	o.summary = fmt.Sprintf("cause reported after %.1f s", time.Since(o.startedAt).Seconds())
	o.Logf("%s: %s=%s %s: %s", o.name, kind, reported.Status, reported.Reason, reported.Message)
}

// over waits for the update to complete after the end of the fault. No object may be lost or written twice. Objects that another client has
// deleted must be recreated.
func (o *scenario) over(since time.Time, deleted ...string) {
	o.Helper()
	o.completed(o.to.Version)
	result := time.Since(since)
	after := o.objects()
	for object, uid := range o.before {
		now, ok := after[object]
		switch {
		case !ok:
			assert.Fail(o, "lost: "+object)
		case slices.ContainsFunc(deleted, func(namespace string) bool { return strings.Contains(object, " "+namespace) }):
		default:
			assert.Equal(o, uid, now, "%s was deleted and recreated", object)
		}
	}
	twice := o.writtenTwice()
	assert.Zero(o, twice, "no object is changed twice for one release")
	o.Logf("fault: %s: %s, done after %.1f s, %d objects written twice", o.name, o.summary, result.Seconds(), twice)
}

// objects returns the objects of the platform with their UIDs, which show whether an object was recreated.
func (l *testPlatform) objects() map[string]types.UID {
	l.Helper()
	found := map[string]types.UID{}
	for version, kinds := range map[schema.GroupVersion][]string{
		{Version: "v1"}:                                     {"Namespace", "ConfigMap", "ServiceAccount", "Service"},
		{Group: "apps", Version: "v1"}:                      {"Deployment", "DaemonSet", "StatefulSet"},
		{Group: "rbac.authorization.k8s.io", Version: "v1"}: {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"},
		{Group: "apiextensions.k8s.io", Version: "v1"}:      {"CustomResourceDefinition"},
		{Group: configv1.GroupName, Version: "v1"}:          {"ClusterOperator"},
	} {
		for _, kind := range kinds {
			maps.Copy(found, l.objectsOf(version.WithKind(kind)))
		}
	}
	require.NotEmpty(l, found, "the platform has objects")
	return found
}

// objectsOf returns the platform's objects of a kind, which are those that the ClusterVersion owns.
func (l *testPlatform) objectsOf(kind schema.GroupVersionKind) map[string]types.UID {
	l.Helper()
	found, list := map[string]types.UID{}, &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	require.NoError(l, l.client.List(l.Context(), list))
	for _, object := range list.Items {
		if slices.ContainsFunc(object.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.Kind == "ClusterVersion" }) {
			found[kind.Kind+" "+strings.TrimPrefix(object.Namespace+"/"+object.Name, "/")] = object.UID
		}
	}
	return found
}

// writtenTwice counts the component objects that the operator has changed more than once since the request.
func (o *scenario) writtenTwice() (twice int) {
	o.Helper()
	counts := map[env.AuditObject]int{}
	for _, e := range o.changes(time.Time{}) {
		ofComponent := strings.HasPrefix(e.Object.Namespace, "example-") || strings.HasPrefix(e.Object.Name, "example-") || o.isOperator(e.Object)
		// The log omits Secrets, so every write of one looks like a change.
		if e.Received.After(o.requestedAt) && ofComponent && e.Object.Subresource == "" && e.Object.Resource != "secrets" &&
			strings.HasPrefix(e.UserAgent, "cluster-version-operator") {
			counts[e.Object]++
		}
	}
	require.NotEmpty(o, counts, "the audit log has the update's writes")
	for object, n := range counts {
		if n > 1 {
			o.Logf("%s was changed %d times", object, n)
			twice++
		}
	}
	return twice
}

func (o *scenario) isOperator(object env.AuditObject) bool {
	return object.Resource == "deployments" && object.Namespace == api.OperatorNamespace
}

// leader waits for a new leader and returns its identity in the Lease. A restarted pod has a new identity.
func (l *testPlatform) leader(before string, limit time.Duration) (holder string) {
	l.Helper()
	require.Eventually(l, func() bool {
		holder = l.leads()
		return holder != "" && holder != before
	}, limit, tick/5, "waiting for a leader other than %q", before)
	return holder
}

// leads returns the current holder of the Lease, empty if unknown.
func (l *testPlatform) leads() string {
	lease, err := l.kube.CoordinationV1().Leases(api.OperatorNamespace).Get(l.Context(), api.ClusterVersionName, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// podOf returns the pod of a Lease holder.
func podOf(holder string) string {
	pod, _, _ := strings.Cut(holder, "_")
	return pod
}

// kill kills the process of a pod's container. It fails if none runs.
func (l *testPlatform) kill(pod *corev1.Pod) error {
	l.Helper()
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Running == nil {
		return fmt.Errorf("killing %s: it does not run", pod.Name)
	}
	_, container, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	_, err := l.Exec(l.Context(), pod.Spec.NodeName, nil, "ctr", "--namespace", "k8s.io", "task", "kill", "--signal", "SIGKILL", container)
	return err
}
