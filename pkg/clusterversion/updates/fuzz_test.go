package updates

import (
	"encoding/json"
	"slices"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
)

// FuzzRestore restores the updates of an arbitrary status, as a process does at its start. Each update is in exactly one list. There is
// either a query or the problem that prevents it.
//
//threat:clusterversion
func FuzzRestore(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"spec":{"clusterID":"5f0c1d3e-2b4a-4c6d-8e9f-0a1b2c3d4e5f","channel":"stable"},"status":{"availableUpdates":[{"version":"1.1.0","image":"a"}]}}`,
		`{"status":{"conditionalUpdates":[{"release":{"version":"1.0.0","image":"a"}},{"release":{"version":"1.0.0","image":"b"}}]}}`,
		`{"spec":{"upstream":"http://[","clusterID":"x","desiredUpdate":{"architecture":"Multi","image":"a"}}}`,
		`{"spec":{"desiredUpdate":{"architecture":"Multi"}},"status":{"desired":{"version":"1.0.0","image":"a"},"availableUpdates":[{"version":"1.0.0","image":"b","architecture":"Multi"}]}}`,
		`{"status":{"conditionalUpdates":[{"release":{"version":"1.0.0","image":"a"},"risks":[{"name":"A","conditions":[{"type":"Applies","reason":"Alert:firing"}]}]}]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cv := &configv1.ClusterVersion{}
		if json.Unmarshal(data, cv) != nil {
			return
		}
		for _, update := range restoredUpdates(cv.Status).Conditional {
			assert.NotEmpty(t, update.Risks)
			assert.False(t, slices.ContainsFunc(update.Risks, foundInCluster))
		}
		query, problem := questionFor(cv, Options{})
		assert.Equal(t, query == updategraph.Query{}, problem.Status != "")
	})
}
