package gate_test

import (
	"encoding/json"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/release"
)

// FuzzCheck calls every gate with objects of arbitrary status. A gate must return the same verdict each time and give a reason for waiting.
// An object never counts as settled while it is being deleted or is not the applied one.
//
//threat:status-objects-lies
//threat:status-objects
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"metadata":{"uid":"u","generation":2},"status":{"observedGeneration":2,"replicas":1,"updatedReplicas":1,"availableReplicas":1}}`,
		`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["a"]}}`,
		`{"status":{"conditions":[{"type":"Available","status":"True"},{"type":"Degraded","status":"Maybe"},{"type":"Available","status":"False"}],"versions":[{"name":"operator","version":"1"},{"name":"operator"}]}}`,
		`{"spec":{"completions":-1,"replicas":-5,"selector":null,"strategy":{"rollingUpdate":{"maxUnavailable":"x%"}}},"status":{"succeeded":-1,"conditions":[{"type":"Failed","status":"True"},{"type":"Complete","status":"True"}]}}`,
		`{"status":{"conditions":[{"type":"Established","status":"True","lastTransitionTime":null},{"type":"NamesAccepted","status":"False"}]}}`,
	} {
		for kind := range 7 {
			f.Add([]byte(seed), uint8(kind), true)
			f.Add([]byte(seed), uint8(kind), false)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, kind uint8, alone bool) {
		kinds := []struct {
			apiVersion, kind string
			object           gate.Object
		}{
			{"config.openshift.io/v1", "ClusterOperator", &configv1.ClusterOperator{}},
			{"apiextensions.k8s.io/v1", "CustomResourceDefinition", &gate.CRD{}},
			{"apiregistration.k8s.io/v1", "APIService", &gate.APIService{}},
			{"apps/v1", "Deployment", &appsv1.Deployment{}},
			{"apps/v1", "DaemonSet", &appsv1.DaemonSet{}},
			{"apps/v1", "StatefulSet", &appsv1.StatefulSet{}},
			{"batch/v1", "Job", &batchv1.Job{}},
		}
		k := kinds[int(kind)%len(kinds)]
		if json.Unmarshal(data, k.object) != nil {
			return
		}
		for _, mode := range release.Modes() {
			want := gate.Want{Manifest: of(k.apiVersion, k.kind, "a", "b"), Mode: mode, UID: "u", Generation: 2, Alone: alone}
			require.True(t, gate.Gated(want.Manifest))
			verdict := gate.Check(k.object, want)
			require.Equal(t, verdict, gate.Check(k.object, want))
			if verdict.State != gate.Settled {
				assert.NotEmpty(t, verdict.Reason)
				assert.NotEmpty(t, verdict.Message)
				continue
			}
			if lenient := k.kind != "ClusterOperator" && k.kind != "CustomResourceDefinition" && k.kind != "Job"; mode != release.Initializing || !lenient {
				assert.Equal(t, "u", string(k.object.GetUID()))
				assert.GreaterOrEqual(t, k.object.GetGeneration(), int64(2))
				assert.Nil(t, k.object.GetDeletionTimestamp())
			}
		}
	})
}
