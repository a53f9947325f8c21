package errorset_test

import (
	"errors"
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

func TestNoErrorsAreNil(t *testing.T) {
	require.NoError(t, errorset.Join(nil))
	require.NoError(t, errorset.Join([]error{nil, nil}))
}
