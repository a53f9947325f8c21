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

func TestLocationsWithoutTimeAreNamed(t *testing.T) {
	mirror, err := name.ParseReference("mirror.example.com/copy:1")
	require.NoError(t, err)
	source, err := name.ParseReference("a.example.com/r:1")
	require.NoError(t, err)
	err = failure.ExplainAttempts("reading", source, []failure.Attempt{{Ref: mirror, Err: failure.ErrNotFound}, {Ref: source}})
	require.EqualError(t, err, "reading a.example.com/r:1: mirror.example.com/copy: not found; no time was left for a.example.com/r")
	require.NotErrorIs(t, err, failure.ErrNotFound, "the source may have it")
}
