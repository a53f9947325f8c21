package failure_test

import (
	"errors"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/failure"
)

// readError counts how often its text is read.
type readError struct{ reads int }

func (e *readError) Error() string {
	e.reads++
	return "no route"
}

func TestAttemptsAreExplainedOnce(t *testing.T) {
	cause := &readError{}
	var attempts []failure.Attempt
	for _, host := range []string{"a.example.com", "b.example.com"} {
		ref, err := name.ParseReference(host + "/r:1")
		require.NoError(t, err)
		attempts = append(attempts, failure.Attempt{Ref: ref, Err: cause})
	}
	err := failure.ExplainAttempts("reading", attempts[0].Ref, attempts)
	_ = err.Error()
	before := cause.reads
	require.NotErrorIs(t, err, failure.ErrNotFound)
	require.NotErrorIs(t, err, failure.ErrIntegrity)
	require.ErrorIs(t, err, cause)
	_, found := errors.AsType[*readError](err)
	assert.True(t, found)
	assert.Equal(t, before, cause.reads)
}
