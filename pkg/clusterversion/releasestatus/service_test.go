package releasestatus

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
)

func TestOperatorReportsThatItHasNoUpdateService(t *testing.T) {
	object := &heldRecord{status: &api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{Name: "version"}}}
	start := func(at time.Time, named bool) (keep func(), clock *clocktesting.FakePassiveClock) {
		clock = clocktesting.NewFakePassiveClock(at)
		r := New(clock, object, "version", "ns")
		r.Read(Found{Object: object.status})
		return func() {
			_, err := r.Keep(t.Context(), Content{Identity: oneRelease(), NamesService: named})
			require.NoError(t, err)
		}, clock
	}
	condition := func() *metav1.Condition {
		return meta.FindStatusCondition(object.status.Status.Conditions, api.ConditionOperatorUpdateService)
	}

	keep, _ := start(now, true)
	keep()
	assert.Nil(t, condition(), "an operator that always had a service reports nothing")

	keep, clock := start(now.Add(time.Hour), false)
	keep()
	require.NotNil(t, condition())
	assert.Equal(t, metav1.ConditionFalse, condition().Status)
	assert.True(t, now.Add(time.Hour).Equal(condition().LastTransitionTime.Time), condition().LastTransitionTime)
	puts := object.puts
	clock.SetTime(now.Add(2 * time.Hour))
	keep()
	keep, _ = start(now.Add(3*time.Hour), false)
	keep()
	assert.Equal(t, puts, object.puts, "the same state is written once")

	keep, _ = start(now.Add(4*time.Hour), true)
	keep()
	assert.Equal(t, metav1.ConditionTrue, condition().Status)
}
