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

// toldWithin is how long the operator may take, after a fault or what asks for the update into it, to tell its exact
// cause. slower is what a busy machine gets beside it.
const (
	toldWithin = 30 * time.Second
	slower     = 30 * time.Second
)

// afflicted is the component that updates with a fault in them change, beside the operator itself.
const afflicted = "example-dns"

// ordeal is one update with a fault in it. It begins and ends with a platform that is completely installed.
type ordeal struct {
	*life
	name string
	to   configv1.Update
	// asked is when the update was asked for, begun when the fault was, or the edit that asks for the update into it.
	asked, begun time.Time
	told         string
	// before are the objects of the platform.
	before map[string]types.UID
}

// newOrdeal makes a release in which little is new, so that an update to it takes seconds, and asks for nothing yet.
func newOrdeal(t *testing.T, s *site, name string) *ordeal {
	t.Helper()
	l := installed(t, s)
	r := l.small(afflicted)
	r.Changes = append(r.Changes, platform.With(afflicted, "0000_30_example-dns_02_release.yaml", `apiVersion: v1
kind: ConfigMap
metadata:
  name: release
  namespace: example-dns
  annotations:
    `+platform.Included+`
data:
  version: "`+r.Version+`"
`))
	return &ordeal{life: l, name: name, to: l.asUpdate(r), told: "nothing to tell", before: l.objects()}
}

// begin asks for the update.
func (o *ordeal) begin() {
	o.Helper()
	o.asked = time.Now()
	o.begun = o.asked
	o.update(o.to)
}

// hold has the update stop at the component that is afflicted, until it is released: its pods are new, but it does not
// say so.
func (o *ordeal) hold() {
	o.Helper()
	require.NoError(o, platform.SetSwitches(o.Context(), o.kube, afflicted, map[string]string{"slow": "1h@" + o.to.Version}))
	o.Cleanup(func() { _ = platform.SetSwitches(context.WithoutCancel(o.Context()), o.kube, afflicted, nil) }) // if the test ends early
}

// goOn ends what hold has begun. An API server that was just started may not know yet what an administrator may do.
func (o *ordeal) goOn() {
	o.Helper()
	require.EventuallyWithT(o, func(c *assert.CollectT) {
		require.NoError(c, platform.SetSwitches(o.Context(), o.kube, afflicted, nil))
	}, patience, tick)
}

// halfWay waits until everything that the update changes is there, and all that is missing is the word of the component
// that is afflicted.
func (o *ordeal) halfWay() {
	o.Helper()
	operator := &configv1.ClusterOperator{}
	if !awaitObject(o.life, operator, "", afflicted, patience, func() bool {
		return slices.ContainsFunc(operator.Status.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool {
			return strings.HasPrefix(c.Message, "Moving to "+o.to.Version+": taking ")
		})
	}) {
		o.explain()
		require.Fail(o, "waiting for the middle of the update")
	}
}

// tells waits until a condition tells the cause in all of these words.
func (o *ordeal) tells(kind string, words ...string) {
	o.Helper()
	var told configv1.ClusterOperatorStatusCondition
	cv := &configv1.ClusterVersion{}
	if !awaitObject(o.life, cv, "", api.ClusterVersionName, toldWithin+slower, func() bool {
		told = condition(cv, kind)
		text := fmt.Sprintf("%s|%s|%s", told.Status, told.Reason, told.Message)
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
	}) {
		o.explain()
		require.Fail(o, fmt.Sprintf("waiting for %s to tell %q", kind, words))
	}
	o.told = fmt.Sprintf("cause told after %.1f s", time.Since(o.begun).Seconds())
	o.Logf("%s: %s=%s %s: %s", o.name, kind, told.Status, told.Reason, told.Message)
}

// over waits for the update to complete since the fault has ended. Nothing may be lost, nor be written twice. What
// somebody else has deleted was made again.
func (o *ordeal) over(since time.Time, deleted ...string) {
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
			assert.Equal(o, uid, now, "%s was deleted and made again", object)
		}
	}
	twice := o.writtenTwice()
	assert.Zero(o, twice, "objects that were changed twice for one release")
	o.Logf("fault: %s: %s, done after %.1f s, %d writes twice", o.name, o.told, result.Seconds(), twice)
}

// objects are those that the platform consists of, with what tells an object from one that was made again.
func (l *life) objects() map[string]types.UID {
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
	require.NotEmpty(l, found, "objects of the platform")
	return found
}

// objectsOf are those of a kind; the ClusterVersion owns what is the platform's.
func (l *life) objectsOf(kind schema.GroupVersionKind) map[string]types.UID {
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

// writtenTwice counts the objects of components that the operator changed more than once since the update was asked for.
func (o *ordeal) writtenTwice() (twice int) {
	o.Helper()
	counts := map[env.AuditObject]int{}
	for _, e := range o.changes(time.Time{}) {
		ofComponent := strings.HasPrefix(e.Object.Namespace, "example-") || strings.HasPrefix(e.Object.Name, "example-") || o.isOperator(e.Object)
		// Of Secrets the log keeps nothing, so that every write seems to be a change.
		if e.Received.After(o.asked) && ofComponent && e.Object.Subresource == "" && e.Object.Resource != "secrets" &&
			strings.HasPrefix(e.UserAgent, "cluster-version-operator") {
			counts[e.Object]++
		}
	}
	require.NotEmpty(o, counts, "the audit log tells of the update")
	for object, n := range counts {
		if n > 1 {
			o.Logf("%s was changed %d times", object, n)
			twice++
		}
	}
	return twice
}

func (o *ordeal) isOperator(object env.AuditObject) bool {
	return object.Resource == "deployments" && object.Namespace == api.OperatorNamespace
}

// leader waits until somebody leads who has not before, and returns what the Lease calls them: a pod that is started
// again is somebody else.
func (l *life) leader(before string, limit time.Duration) (holder string) {
	l.Helper()
	require.Eventually(l, func() bool {
		holder = l.leads()
		return holder != "" && holder != before
	}, limit, tick/5, "another leader than %q", before)
	return holder
}

// leads is who holds the Lease, as far as that can be found out now.
func (l *life) leads() string {
	lease, err := l.kube.CoordinationV1().Leases(api.OperatorNamespace).Get(l.Context(), api.ClusterVersionName, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// podOf is the pod of a holder of the Lease.
func podOf(holder string) string {
	pod, _, _ := strings.Cut(holder, "_")
	return pod
}

// kill ends the process of a pod's container without a word; it is an error if there is none.
func (l *life) kill(pod *corev1.Pod) error {
	l.Helper()
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Running == nil {
		return fmt.Errorf("killing %s: it does not run", pod.Name)
	}
	_, container, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	_, err := l.Exec(l.Context(), pod.Spec.NodeName, nil, "ctr", "--namespace", "k8s.io", "task", "kill", "--signal", "SIGKILL", container)
	return err
}
