package clusterversion

import (
	"encoding/json"
	"slices"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/updategraph"
)

// FuzzSpec reads ClusterVersions that anybody may have written, spec and status: what is left of a spec is valid, the
// same target comes out twice, and a target that was asked for as a version is an image that the status names.
func FuzzSpec(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"metadata":{"name":"version"},"spec":{"clusterID":"5f0c1d3e-2b4a-4c6d-8e9f-0a1b2c3d4e5f","desiredUpdate":{"version":"1.1.0"}},"status":{"availableUpdates":[{"version":"1.1.0","image":"a"}]}}`,
		`{"spec":{"desiredUpdate":{"image":"a","force":true}},"status":{"history":[{"state":"Partial","version":"1.1.0","image":"a"},{"state":"Completed","version":"1.0.0","image":"b"}]}}`,
		`{"spec":{"desiredUpdate":{"version":"1.0.0"}},"status":{"conditionalUpdates":[{"release":{"version":"1.0.0","image":"a"}},{"release":{"version":"1.0.0","image":"b"}}]}}`,
		`{"spec":{"upstream":"http://[","clusterID":"x","desiredUpdate":{"architecture":"Multi","image":"a"},"overrides":[{}]}}`,
		`{"spec":{"desiredUpdate":{"architecture":"Multi"}},"status":{"desired":{"version":"1.0.0","image":"a"}}}`,
		`{"spec":{"desiredUpdate":{"architecture":"Multi"}},"status":{"desired":{"version":"1.0.0","image":"a"},"availableUpdates":[{"version":"1.0.0","image":"b","architecture":"Multi"}]}}`,
		`{"spec":{"desiredUpdate":{"acceptRisks":[{"name":"A"}]}},"status":{"conditionalUpdates":[{"release":{"version":"1.0.0","image":"a"},"risks":[{"name":"A","conditions":[{"type":"Applies","reason":"Alert:firing"}]}]}]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cv := &configv1.ClusterVersion{}
		if json.Unmarshal(data, cv) != nil {
			return
		}
		cv.Name = api.ClusterVersionName
		invalid := len(validate(cv)) > 0
		require.Empty(t, validate(cv), "what is wrong is set aside")
		target := chooseTarget(cv, "own", invalid)
		assert.Equal(t, target, chooseTarget(cv, "own", invalid))
		if update := cv.Spec.DesiredUpdate; asksForUpdate(update) && update.Image == "" {
			assert.Len(t, imagesMeant(cv, *update), 1)
		}
		history := recordTarget(cv.Status.History, acceptedRelease("9.9.9"), metav1.NewTime(now))
		assert.LessOrEqual(t, len(prune(history)), max(len(history), 1))
		_ = modeOf(cv, target.Image)
		checkUpdates(t, cv)
	})
}

// checkUpdates takes over what a status tells of updates, as a process does that has just started: each is in one list.
func checkUpdates(t *testing.T, cv *configv1.ClusterVersion) {
	t.Helper()
	restored := restoredUpdates(cv.Status)
	for _, update := range restored.Conditional {
		assert.NotEmpty(t, update.Risks)
		assert.False(t, slices.ContainsFunc(update.Risks, foundInCluster))
	}
	query, problem := questionFor(cv, Updates{})
	assert.Equal(t, query == updategraph.Query{}, problem.status != "")
}
