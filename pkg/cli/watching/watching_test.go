package watching_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/watching"
)

func TestFollowEndsAtTheFirstError(t *testing.T) {
	mistake := errors.New("no cluster")
	err := watching.Follow(t.Context(), command.Streams{}, func(context.Context) (int, error) { return 0, mistake }, nil)
	assert.ErrorIs(t, err, mistake)
}

func TestFollowSurvivesLaterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var errs bytes.Buffer
		var shown []int
		reads := 0
		read := func(context.Context) (int, error) {
			reads++
			if reads == 2 || reads == 3 {
				return 0, errors.New("the server\nis away")
			}
			return reads, nil
		}
		show := func(n int) error {
			if shown = append(shown, n); n == 5 {
				cancel()
			}
			return nil
		}
		require.NoError(t, watching.Follow(ctx, command.Streams{Err: &errs}, read, show))
		assert.Equal(t, []int{1, 4, 5}, shown)
		assert.Equal(t, "warning: the server is away\n", errs.String())
	})
}
