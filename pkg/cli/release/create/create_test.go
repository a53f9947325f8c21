package create

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCreationTimeFlagOverridesTheEnvironment(t *testing.T) {
	got, err := creationTime("", "1700000000")
	require.NoError(t, err)
	assert.Equal(t, int64(1700000000), got.Unix())
	got, err = creationTime("2026-01-01T00:00:00Z", "1700000000")
	require.NoError(t, err)
	assert.Equal(t, 2026, got.Year(), "the flag overrides the environment")
	got, err = creationTime("", "")
	require.NoError(t, err)
	assert.True(t, got.IsZero())
	_, err = creationTime("", "x")
	assert.ErrorContains(t, err, "$SOURCE_DATE_EPOCH")
}
