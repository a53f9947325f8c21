package apply_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/manifest"
)

func onceWidget(t *testing.T, group, value string) *manifest.Manifest {
	t.Helper()
	return parse(t, `
apiVersion: `+group+`/v1
kind: Widget
metadata: {namespace: default, name: once, annotations: {release.openshift.io/create-only: "true"}}
spec: {byName: {a: {known: `+value+`}}}
`)
}

func known(t *testing.T, m *manifest.Manifest) string {
	t.Helper()
	value, _, err := unstructured.NestedString(live(t, m).Object, "spec", "byName", "a", "known")
	require.NoError(t, err)
	return value
}

// newKind returns a mapper that read discovery before the CRD existed.
func newKind(t *testing.T, crd *manifest.Manifest) apply.Mapper {
	t.Helper()
	mapper := kinds.NewMapper(clock.RealClock{}, discoverer(t), []*manifest.Manifest{crd})
	require.NoError(t, mapper.Load(t.Context()))
	return mapper
}

// TestCreateOnlyCustomResourceNeedsNoWait applies right after the CRD is established, when the server would delay a POST.
func TestCreateOnlyCustomResourceNeedsNoWait(t *testing.T) {
	crd := widgets(t, "once.example.com")
	mapper := newKind(t, crd)
	serveCRD(t, crd)
	a, record := connectBy(t, owner, mapper)
	m := onceWidget(t, "once.example.com", "ours")
	assert.Equal(t, apply.Created, must(t, a, m).Action)
	requests := record.drain()
	require.Len(t, requests, 2)
	assert.Equal(t, http.MethodGet, requests[0].method)
	assert.Equal(t, http.MethodPatch, requests[1].method)

	merge(t, m, `{"spec": {"byName": {"a": {"known": "theirs"}}}}`)
	before := live(t, m)
	later := kinds.NewMapper(clock.RealClock{}, discoverer(t), []*manifest.Manifest{crd})
	a, record = connectBy(t, owner, later)
	assert.Equal(t, apply.Change{Action: apply.Kept}, must(t, a, m))
	assert.Equal(t, before, live(t, m))
	requests = record.drain()
	require.Len(t, requests, 1, "objects of an older kind are not read first")
	assert.Equal(t, http.MethodPost, requests[0].method)
}

// TestCreateOnlyKeepsAForeignObjectOfANewKind lets another client be the first to use a kind that the last discovery lacked. Its values do
// not contradict the manifest, so an apply would take ownership of the object without a conflict.
func TestCreateOnlyKeepsAForeignObjectOfANewKind(t *testing.T) {
	crd := widgets(t, "early.example.com")
	mapper := newKind(t, crd)
	serveCRD(t, crd)
	a, _ := connectBy(t, owner, mapper)
	m := onceWidget(t, "early.example.com", "ours")
	require.NoError(t, otherClient(t).Create(t.Context(), parse(t, `
apiVersion: early.example.com/v1
kind: Widget
metadata: {namespace: default, name: once}
spec: {byName: {b: {known: theirs}}}
`).Object))
	before := live(t, m)
	assert.Equal(t, apply.Change{Action: apply.Kept}, must(t, a, m))
	assert.Equal(t, before, live(t, m))
}

func TestCreateOnlyKeepsAnObjectCreatedMeanwhile(t *testing.T) {
	crd := widgets(t, "race.example.com")
	mapper := newKind(t, crd)
	serveCRD(t, crd)
	a, record := connectBy(t, owner, mapper)
	m := onceWidget(t, "race.example.com", "ours")
	record.before = func(r *http.Request) {
		if r.Method == http.MethodPatch {
			assert.NoError(t, otherClient(t).Create(t.Context(), onceWidget(t, "race.example.com", "theirs").Object))
		}
	}
	assert.Equal(t, apply.Change{Action: apply.Kept}, must(t, a, m))
	assert.Equal(t, "theirs", known(t, m))
}

// TestPruneKeepsCreateOnlyObjects drops the manifests of an object that was posted and of one that was applied, because its kind was new.
func TestPruneKeepsCreateOnlyObjects(t *testing.T) {
	crd := widgets(t, "pruned.example.com")
	mapper := newKind(t, crd)
	serveCRD(t, crd)
	a, _ := connectBy(t, owner, mapper)
	posted := configMap(t, namespace(t), "once", `{release.openshift.io/create-only: "True"}`, "{k: v}")
	for m, applied := range map[*manifest.Manifest]bool{posted: false, onceWidget(t, "pruned.example.com", "ours"): true} {
		created := must(t, a, m)
		require.Equal(t, apply.Created, created.Action)
		require.Equal(t, applied, ownership.Applied(live(t, m).GetManagedFields()))
		change, err := a.Prune(t.Context(), m.GVK(), m.Object.GetNamespace(), "once", created.UID)
		require.NoError(t, err)
		assert.Equal(t, apply.Change{Action: apply.Skipped, Message: "it is create-only, so it belongs to other clients"}, change)
		assert.Nil(t, live(t, m).GetDeletionTimestamp())
	}
}

func TestKindCountsAsNewForAWhile(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now())
	crd := widgets(t, "young.example.com")
	mapper := kinds.NewMapper(clk, discoverer(t), []*manifest.Manifest{crd})
	gvk := onceWidget(t, "young.example.com", "x").GVK()
	require.NoError(t, mapper.Load(t.Context()))
	for _, tt := range []struct {
		age time.Duration
		new bool
	}{{0, true}, {9 * time.Second, true}, {10 * time.Second, false}} {
		start := clk.Now()
		clk.SetTime(start.Add(tt.age))
		mapping, err := mapper.Mapping(t.Context(), gvk)
		require.NoError(t, err)
		assert.Equal(t, tt.new, mapping.New, tt.age)
		clk.SetTime(start)
	}
}
