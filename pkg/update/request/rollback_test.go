package request

import (
	"testing"

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
