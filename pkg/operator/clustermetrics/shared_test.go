package clustermetrics

import (
	"sync"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
)

// TestMetricsDoNotChangeTheCache checks that the metrics and the transition counter change nothing in the cache of ClusterOperators, which
// returns objects without copying them.
func TestMetricsDoNotChangeTheCache(t *testing.T) {
	cached := exampleCluster()
	list := configv1.ClusterOperatorList{Items: cached.operators}
	before, cv := list.DeepCopy(), cached.clusterVersion.DeepCopy()
	assert.NotEmpty(t, cached.metrics())
	counter := newTransitions().handler()
	for i := range list.Items {
		was, is := &list.Items[i], &list.Items[(i+1)%len(list.Items)]
		counter.OnAdd(is, true)
		counter.OnUpdate(was, is)
		counter.OnDelete(is)
	}
	assert.Equal(t, before, &list)
	assert.Equal(t, cv, cached.clusterVersion)
}

// TestTransitionsAreCountedDuringScrapes counts in watches while scrapes read. A scrape gets its own copy, because concurrent access to a
// shared map would crash the process.
func TestTransitionsAreCountedDuringScrapes(t *testing.T) {
	const operators, events = 8, 500
	counter := newTransitions()
	handler := counter.handler()
	state := func(name, status string) *configv1.ClusterOperator {
		co := &configv1.ClusterOperator{}
		co.Name, co.Status.Conditions = name, []configv1.ClusterOperatorStatusCondition{clusterCondition("Available", status, "", 1)}
		return co
	}
	var all sync.WaitGroup
	for i := range operators {
		name := string(rune('a' + i))
		all.Go(func() {
			for range events {
				handler.OnUpdate(state(name, "True"), state(name, "False"))
				o := observation{transitions: counter.counts()}
				assert.NotEmpty(t, o.metrics())
			}
		})
	}
	all.Wait()
	counts := counter.counts()
	assert.Len(t, counts, operators)
	for key, n := range counts {
		assert.Equal(t, events, n, key)
	}
	handler.OnDelete(state("a", "True"))
	assert.Len(t, counts, operators, "the scrape has its own copy")
}
