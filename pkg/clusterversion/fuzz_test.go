package clusterversion

import (
	"encoding/json"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/history"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
)

// FuzzSpec reads arbitrary ClusterVersions with spec and status. The validated spec is valid, choosing the target twice gives the same
// result, and a target requested by version is an image that the status names.
//
//threat:clusterversion-holds-nonsense
//threat:clusterversion
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
		invalid := len(request.Validate(cv)) > 0
		require.Empty(t, request.Validate(cv), "invalid fields are cleared")
		target := request.Choose(cv, "own", invalid)
		assert.Equal(t, target, request.Choose(cv, "own", invalid))
		entries := history.Record(cv.Status.History, acceptedRelease("9.9.9").HistoryEntry(), nil, metav1.NewTime(now))
		assert.LessOrEqual(t, len(entries), max(len(cv.Status.History)+1, 100))
		_ = history.Mode(cv, target.Image)
	})
}
