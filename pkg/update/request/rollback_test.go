package request

import (
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/clusterversions"
)

func TestRollbackRunsTheOperatorsCheck(t *testing.T) {
	cv := clusterversions.Resting()
	require.NoError(t, operatorAllowsRollback(cv, "4.14.0"))
	err := operatorAllowsRollback(cv, "4.13.0")
	require.ErrorContains(t, err, "the only supported rollback is to the cluster's previous version 4.14.0")
	var refusal *Refusal
	require.ErrorAs(t, err, &refusal)
}

func TestRefusedRollbackNamesClearWhileTheOldOperatorRuns(t *testing.T) {
	const before, next = "registry.example/r@sha256:1111", "registry.example/r@sha256:2222"
	const advice = "The operator of 1.2.0 does not run yet, so you can cancel the update: cvo upgrade --clear"
	for _, test := range []struct {
		name     string
		operator string
		change   func(*configv1.ClusterVersion)
		want     bool
	}{
		{"names it", before, func(*configv1.ClusterVersion) {}, true},
		{"omits it once the new operator runs", "mirror.example/r@sha256:2222", func(*configv1.ClusterVersion) {}, false},
		{"omits it if the operator is unknown", "", func(*configv1.ClusterVersion) {}, false},
		{"omits it without a request", before, func(cv *configv1.ClusterVersion) { cv.Spec.DesiredUpdate = nil }, false},
		{"omits it once the update has completed", before, func(cv *configv1.ClusterVersion) { cv.Status.History[0].State = configv1.CompletedUpdate }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			cv := &configv1.ClusterVersion{
				Spec: configv1.ClusterVersionSpec{DesiredUpdate: &configv1.Update{Version: "1.2.0", Image: next}},
				Status: configv1.ClusterVersionStatus{
					Desired: configv1.Release{Version: "1.2.0", Image: next},
					History: []configv1.UpdateHistory{
						{State: configv1.PartialUpdate, Version: "1.2.0", Image: next}, {State: configv1.CompletedUpdate, Version: "1.1.0", Image: before},
					},
				},
			}
			test.change(cv)
			err := (&Rollback{Operator: test.operator}).Plan(cv, &Request{})
			require.ErrorContains(t, err, "LowDesiredVersion")
			assert.Equal(t, test.want, strings.Contains(err.Error(), advice), err)
		})
	}
}
