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

// newKind is a mapper that knew the API server before the CRD was there.
func newKind(t *testing.T, crd *manifest.Manifest) apply.Mapper {
	t.Helper()
	mapper := apply.NewDiscoveryMapper(clock.RealClock{}, discoverer(t), []*manifest.Manifest{crd})
	require.False(t, mapper.Served(t.Context(), crd.GVK().GroupKind().WithVersion("v0")))
	return mapper
}

// TestCreateOnlyCustomResource applies without having waited since the CRD was established: a POST would be held then.
func TestCreateOnlyCustomResource(t *testing.T) {
	crd := widgets(t, "once.example.com")
	mapper := newKind(t, crd)
	serveCRD(t, crd)
	a, record := connectBy(t, owner, mapper)
	m := onceWidget(t, "once.example.com", "ours")
	assert.Equal(t, apply.Created, must(t, a, m).Action)
	requests := record.take()
	require.Len(t, requests, 2)
	assert.Equal(t, http.MethodGet, requests[0].method)
	assert.Equal(t, http.MethodPatch, requests[1].method)

	merge(t, m, `{"spec": {"byName": {"a": {"known": "theirs"}}}}`)
	before := live(t, m)
	later := apply.NewDiscoveryMapper(clock.RealClock{}, discoverer(t), []*manifest.Manifest{crd})
	a, record = connectBy(t, owner, later)
	assert.Equal(t, apply.Change{Action: apply.Kept}, must(t, a, m))
	assert.Equal(t, before, live(t, m))
	requests = record.take()
	require.Len(t, requests, 1, "of a kind that was there before, nothing is read either")
	assert.Equal(t, http.MethodPost, requests[0].method)
}

// TestCreateOnlyLeavesAnObjectOfANewKind has somebody else be the first to use a kind that discovery did not have when it
// was read. Nothing that they say contradicts the manifest, so no conflict would keep an apply from making it ours.
func TestCreateOnlyLeavesAnObjectOfANewKind(t *testing.T) {
	crd := widgets(t, "early.example.com")
	mapper := newKind(t, crd)
	serveCRD(t, crd)
	a, _ := connectBy(t, owner, mapper)
	m := onceWidget(t, "early.example.com", "ours")
	require.NoError(t, somebody(t).Create(t.Context(), parse(t, `
apiVersion: early.example.com/v1
kind: Widget
metadata: {namespace: default, name: once}
spec: {byName: {b: {known: theirs}}}
`).Object))
	before := live(t, m)
	assert.Equal(t, apply.Change{Action: apply.Kept}, must(t, a, m))
	assert.Equal(t, before, live(t, m))
}

func TestCreateOnlyLeavesAnObjectThatAppearsMeanwhile(t *testing.T) {
	crd := widgets(t, "race.example.com")
	mapper := newKind(t, crd)
	serveCRD(t, crd)
	a, record := connectBy(t, owner, mapper)
	m := onceWidget(t, "race.example.com", "ours")
	record.before = func(r *http.Request) {
		if r.Method == http.MethodPatch {
			assert.NoError(t, somebody(t).Create(t.Context(), onceWidget(t, "race.example.com", "theirs").Object))
		}
	}
	assert.Equal(t, apply.Change{Action: apply.Kept}, must(t, a, m))
	assert.Equal(t, "theirs", known(t, m))
}

func TestNewKindsGrowUp(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now())
	crd := widgets(t, "young.example.com")
	mapper := apply.NewDiscoveryMapper(clk, discoverer(t), []*manifest.Manifest{crd})
	gvk := onceWidget(t, "young.example.com", "x").GVK()
	require.False(t, mapper.Served(t.Context(), gvk))
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
