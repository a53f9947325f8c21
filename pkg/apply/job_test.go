package apply_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

func job(t *testing.T, namespace, annotations, image string) *manifest.Manifest {
	t.Helper()
	return parse(t, "apiVersion: batch/v1\nkind: Job\nmetadata: {namespace: "+namespace+", name: a, annotations: {"+annotations+"}}\n"+
		strings.Replace(jobSpec, "image: i", "image: "+image, 1))
}

// conclude writes a Job's status as the job controller does.
func conclude(t *testing.T, m *manifest.Manifest, conditions ...string) {
	t.Helper()
	concludeAt(t, m, time.Now(), conditions...)
}

func concludeAt(t *testing.T, m *manifest.Manifest, at time.Time, conditions ...string) {
	t.Helper()
	now := at.UTC().Format(time.RFC3339)
	var list []string
	for _, c := range conditions {
		list = append(list, `{"type":"`+c+`","status":"True","lastTransitionTime":"`+now+`"}`)
	}
	done := ""
	if conditions[len(conditions)-1] == "Complete" {
		done = `"completionTime":"` + now + `","succeeded":1,`
	}
	patch := `{"status":{"startTime":"` + now + `",` + done + `"conditions":[` + strings.Join(list, ",") + `]}}`
	require.NoError(t, otherClient(t).Status().Patch(t.Context(), live(t, m), client.RawPatch(types.MergePatchType, []byte(patch)),
		client.FieldOwner("kube-controller-manager")))
}

func TestFailedJobsRunAgainWhenTheirManifestChanges(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	first := job(t, ns, "", "i")
	uid := must(t, a, first).UID
	conclude(t, first, "FailureTarget", "Failed")
	assert.Equal(t, apply.Applied, must(t, a, first).Action, "a failed Job must not rerun without a change")
	record.drain()

	next := job(t, ns, "", "j")
	got := must(t, a, next)
	assert.Equal(t, apply.Deleting, got.Action)
	assert.Contains(t, got.Message, "foregroundDeletion (kube-controller-manager removes it); then it will be recreated, because it failed and spec.template cannot be changed")
	assert.Equal(t, []string{"PATCH apply-patch", "GET", "POST", "PUT", "PUT", "DELETE"}, methods(record.drain()))
	collectGarbage(t, next)
	got = must(t, a, next)
	assert.Equal(t, apply.Created, got.Action)
	assert.NotEqual(t, uid, got.UID)
}

// TestFailedJobsRunAgainEvenIfTheChangeIsMutable changes a failed Job's labels and deadline. They are mutable, but changing them has no
// effect on a failed Job.
func TestFailedJobsRunAgainEvenIfTheChangeIsMutable(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	first := job(t, ns, "note: x", "i")
	next := job(t, ns, "note: x", "i")
	require.NoError(t, unstructured.SetNestedField(next.Object.Object, int64(600), "spec", "activeDeadlineSeconds"))
	uid := must(t, a, first).UID
	a = a.With(apply.Options{UID: uid, Changed: true})
	must(t, a, first)
	assert.Len(t, record.drain(), 2, "a Job that never changed is not read")

	concluded := time.Now().Add(-time.Hour)
	concludeAt(t, first, concluded, "FailureTarget", "Failed")
	must(t, a, first)
	assert.Len(t, record.drain(), 1, "it must not rerun without another change")
	require.Eventually(t, func() bool { return time.Since(live(t, first).GetCreationTimestamp().Time) > time.Second }, eventually, tick)

	predicted, err := a.Predict(t.Context(), next, release.Updating)
	require.NoError(t, err)
	assert.Equal(t, apply.Recreated, predicted.Action)
	record.drain()
	got := must(t, a, next)
	assert.Equal(t, apply.Deleting, got.Action)
	assert.Contains(t, got.Message, "then it will be recreated, because it failed and has been changed since")
	assert.Equal(t, []string{"PATCH apply-patch", "GET", "POST", "DELETE"}, methods(record.drain()))
	again := must(t, a, next)
	assert.True(t, again.Deleting)
	collectGarbage(t, next)
	got = must(t, a, next)
	assert.Equal(t, apply.Created, got.Action)
	assert.NotEqual(t, uid, got.UID)
	assert.Equal(t, apply.Applied, must(t, a, next).Action)
}

// TestFailedJobsDoNotRunAgainWithoutAChange repairs a failed Job, and applies one of another operator for the first time.
func TestFailedJobsDoNotRunAgainWithoutAChange(t *testing.T) {
	ns := namespace(t)
	m := job(t, ns, "note: x", "i")
	require.NoError(t, otherClient(t).Create(t.Context(), m.Object.DeepCopy(), client.FieldOwner(api.FieldManager)))
	concludeAt(t, m, time.Now().Add(-time.Hour), "FailureTarget", "Failed")
	require.Eventually(t, func() bool { return time.Since(live(t, m).GetCreationTimestamp().Time) > time.Second }, eventually, tick)
	a, _ := connect(t, owner)
	got := must(t, a, m)
	assert.Equal(t, apply.Applied, got.Action, "of another operator: %s", got.Message)

	as(t, "kubectl", m, types.MergePatchType, `{"metadata":{"annotations":{"note":"y"}}}`)
	a = a.With(apply.Options{UID: got.UID})
	predicted, err := a.Predict(t.Context(), m, release.Updating)
	require.NoError(t, err)
	assert.Equal(t, apply.Applied, predicted.Action)
	got = must(t, a, m)
	assert.Equal(t, apply.Applied, got.Action, "repaired: %s", got.Message)
	assert.Equal(t, "x", live(t, m).GetAnnotations()["note"])
}

// TestRunningJobsAreChanged changes a Job that has not failed, which the server accepts.
func TestRunningJobsAreChanged(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	first := job(t, ns, "note: x", "i")
	uid := must(t, a, first).UID
	a = a.With(apply.Options{UID: uid, Changed: true})
	require.Eventually(t, func() bool { return time.Since(live(t, first).GetCreationTimestamp().Time) > time.Second }, eventually, tick)
	record.drain()
	next := job(t, ns, "note: z", "i")
	for range 2 {
		got := must(t, a, next)
		assert.Equal(t, apply.Applied, got.Action)
		assert.Equal(t, uid, got.UID)
		assert.Equal(t, []string{"PATCH apply-patch", "GET"}, methods(record.drain()))
	}
	concludeAt(t, first, time.Now().Add(time.Minute), "FailureTarget", "Failed")
	assert.Equal(t, uid, must(t, a, next).UID, "the change came before the failure")
}

func TestOtherJobsRunAgainOnlyByAnnotation(t *testing.T) {
	ns := namespace(t)
	for _, tt := range []struct {
		name       string
		conditions []string
	}{
		{"running", nil},
		{"complete", []string{"SuccessCriteriaMet", "Complete"}},
		{"about to fail", []string{"FailureTarget"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, _ := connect(t, owner)
			first := job(t, ns, "", "i")
			first.Object.SetName(slug(tt.name))
			uid := must(t, a, first).UID
			if tt.conditions != nil {
				conclude(t, first, tt.conditions...)
			}
			next := job(t, ns, "", "j")
			next.Object.SetName(slug(tt.name))
			_, err := a.Apply(t.Context(), next, release.Updating)
			var failed *failure.Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, api.ReasonResourceInvalid, failed.Reason)
			assert.Equal(t, []string{"spec.template"}, failed.Fields)
			assert.Contains(t, failed.Remedy, "give the Job a new name")
			assert.Equal(t, uid, live(t, next).GetUID())

			allowed := job(t, ns, recreateAnnotation, "j")
			allowed.Object.SetName(slug(tt.name))
			assert.Equal(t, apply.Deleting, must(t, a, allowed).Action)
			collectGarbage(t, allowed)
			assert.Equal(t, apply.Created, must(t, a, allowed).Action)
		})
	}
}

// TestSelectorsOfJobsAreDropped uses selectors that made OpenShift's operator panic.
func TestSelectorsOfJobsAreDropped(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	text := "apiVersion: batch/v1\nkind: Job\nmetadata: {namespace: " + ns + ", name: a}\n"
	m := parse(t, text+strings.Replace(jobSpec, "spec: {", "spec: {selector: {matchLabels: {app: a}}, ", 1))
	before := m.Object.DeepCopy()
	got := must(t, a, m)
	assert.Equal(t, apply.Created, got.Action)
	assert.Equal(t, []string{".spec.selector"}, got.Dropped, "the server sets the selector and rejects any other")
	assert.Equal(t, before, m.Object, "the manifest must not change")
	assert.Equal(t, got.ResourceVersion, must(t, a, m).ResourceVersion)
	assert.Len(t, record.drain(), 2)

	once := parse(t, text+strings.Replace(jobSpec, "spec: {", "spec: {selector: {matchLabels: {app: a}}, ", 1))
	once.Object.SetName("once")
	once.Object.SetAnnotations(map[string]string{api.CreateOnlyAnnotation: "true"})
	got = must(t, a, once)
	assert.Equal(t, apply.Created, got.Action)
	assert.Equal(t, []string{".spec.selector"}, got.Dropped)

	manual := parse(t, text+strings.Replace(jobSpec, "spec: {", "spec: {manualSelector: true, selector: {matchLabels: {app: a}}, ", 1))
	manual.Object.SetName("manual")
	got = must(t, a, manual)
	assert.Equal(t, apply.Created, got.Action)
	assert.Empty(t, got.Dropped)
	assert.Equal(t, map[string]any{"app": "a"}, at(live(t, manual).Object, "spec.selector.matchLabels"))
	assert.Equal(t, got.ResourceVersion, must(t, a, manual).ResourceVersion)
}

// TestJobDeletedMeanwhileIsCreated deletes the rejected Job before it is read.
func TestJobDeletedMeanwhileIsCreated(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	first := job(t, ns, "", "i")
	must(t, a, first)
	gone := false
	record.before = func(r *http.Request) {
		if r.Method == http.MethodGet && !gone {
			gone = true
			assert.NoError(t, otherClient(t).Delete(t.Context(), live(t, first), client.PropagationPolicy(metav1.DeletePropagationBackground)))
		}
	}
	got := must(t, a, job(t, ns, "", "j"))
	assert.Contains(t, []apply.Action{apply.Recreated, apply.Created}, got.Action)
}

func TestUnreadableJobIsReported(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	must(t, a, job(t, ns, "", "i"))
	through := record.next
	record.next = roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return reply(r, http.StatusForbidden, nil, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`), nil
		}
		return through.RoundTrip(r)
	})
	_, err := a.Apply(t.Context(), job(t, ns, "", "j"), release.Updating)
	var failed *failure.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, api.ReasonResourceForbidden, failed.Reason)
}
