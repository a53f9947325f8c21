package clusterversion

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/releasestatus"
)

// unwritable is a ReleaseStatus that cannot be written.
type unwritable struct{ releasestatus.Object }

func (unwritable) Get(context.Context, string) (*api.ReleaseStatus, error) { return nil, nil }

func (unwritable) Put(context.Context, *api.ReleaseStatus) (*api.ReleaseStatus, error) {
	return nil, apierrors.NewTimeoutError("etcd is slow", 0)
}

// TestFailedRecordIsRetriedWithoutAnEvent requests a release by tag, which is accepted only after it is recorded. When recording fails,
// nothing in the cluster changes, so only the clock triggers the next attempt.
func TestFailedRecordIsRetriedWithoutAnEvent(t *testing.T) {
	s := newScribe(t, func(p *parts) { p.options.Record = unwritable{} })
	s.reconcile(t)
	a := acceptedRelease("1.0.0")
	a.Target.Image = "registry.example/release:latest"
	s.accepts(a)
	for i := range 3 {
		s.at(time.Duration(i+1) * time.Minute)
		result := s.reconcile(t)
		assert.Empty(t, s.get(t).Status.History, "the release is not accepted")
		assert.Positive(t, result.RequeueAfter)
		assert.LessOrEqual(t, result.RequeueAfter, acceptRetry.First)
	}
}
