package errorset_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/internal/errorset"
)

func TestErrorsAreSortedAndDistinct(t *testing.T) {
	errs := []error{errors.New("b"), nil, fs.ErrNotExist, errors.New("a"), errors.New("b")}
	given := slices.Clone(errs)
	err := errorset.Join(errs)
	require.EqualError(t, err, "a\nb\nfile does not exist")
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.Equal(t, given, errs, "the given errors keep their order")
}

func TestSplitReturnsTheJoinedErrors(t *testing.T) {
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	wrapped := fmt.Errorf("c: %w", c)
	joined := errors.Join(fmt.Errorf("reading: %w", errorset.Join([]error{b, a})), wrapped)

	assert.Equal(t, []error{a, b, wrapped}, errorset.Split(fmt.Errorf("folder: %w", joined)))
	assert.Equal(t, []error{wrapped}, errorset.Split(wrapped))
	assert.Empty(t, errorset.Split(nil))
}

func TestNoErrorsAreNil(t *testing.T) {
	require.NoError(t, errorset.Join(nil))
	require.NoError(t, errorset.Join([]error{nil, nil}))
}
