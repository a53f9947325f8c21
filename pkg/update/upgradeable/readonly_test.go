package upgradeable_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

// TestFindOnlyReads checks that Find does not change objects: all readers of the cache share the ClusterOperators. The order of operators
// and conditions, and the texts, are such that Find changes them in its own copies.
func TestFindOnlyReads(t *testing.T) {
	one, other := refusing("b", "no reason", "many\nlines\x1b[31m"), refusing("a", "A", " spaces ")
	one.Status.Conditions = append([]configv1.ClusterOperatorStatusCondition{{Type: "Progressing", Status: "True"}}, one.Status.Conditions...)
	list := configv1.ClusterOperatorList{Items: []configv1.ClusterOperator{one, other}}
	before := list.DeepCopy()
	found := upgradeable.Find(upgradeable.Input{Cluster: upgradeable.Cluster{Operators: list.Items}, Current: "4.19.0", Installed: true})
	assert.Len(t, found, 2)
	_, reported := upgradeable.Condition(found)
	assert.True(t, reported)
	assert.Equal(t, before, &list)
}
