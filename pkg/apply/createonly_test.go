package apply_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

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

// TestCreateOnlyCustomResource applies without having waited since the CRD was established: a POST would be held then.
func TestCreateOnlyCustomResource(t *testing.T) {
	crd := widgets(t, "once.example.com")
	serveCRD(t, crd)
	a, record := connectBy(t, owner, apply.NewDiscoveryMapper(clock.RealClock{}, discoverer(t), []*manifest.Manifest{crd}))
	m := onceWidget(t, "once.example.com", "ours")
	assert.Equal(t, apply.Created, must(t, a, m).Action)
	for _, r := range record.take() {
		assert.NotEqual(t, http.MethodPost, r.method)
	}

	merge(t, m, `{"spec": {"byName": {"a": {"known": "theirs"}}}}`)
	before := live(t, m)
	assert.Equal(t, apply.Change{Action: apply.Kept}, must(t, a, m))
	assert.Equal(t, before, live(t, m))
}

func TestCreateOnlyLeavesAnObjectThatAppearsMeanwhile(t *testing.T) {
	crd := widgets(t, "race.example.com")
	serveCRD(t, crd)
	a, record := connectBy(t, owner, apply.NewDiscoveryMapper(clock.RealClock{}, discoverer(t), []*manifest.Manifest{crd}))
	m := onceWidget(t, "race.example.com", "ours")
	record.before = func(r *http.Request) {
		if r.Method == http.MethodPatch {
			assert.NoError(t, somebody(t).Create(t.Context(), onceWidget(t, "race.example.com", "theirs").Object))
		}
	}
	assert.Equal(t, apply.Change{Action: apply.Kept}, must(t, a, m))
	assert.Equal(t, "theirs", known(t, m))
}
