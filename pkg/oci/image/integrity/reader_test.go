package integrity_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image/integrity"
)

func TestReaderEndsOnlyIfContentMatches(t *testing.T) {
	const content = "the content of a layer"
	broken := errors.New("connection reset")
	for _, tt := range []struct {
		name   string
		stream io.Reader
		want   string
		err    error
	}{
		{"it returns the content", strings.NewReader(content), "", nil},
		{"it returns content from a reader that returns io.EOF with data", iotest.DataErrReader(strings.NewReader(content)), "", nil},
		{"it rejects other content of the same size", strings.NewReader(strings.ToUpper(content)), "it was changed in transit", failure.ErrIntegrity},
		{"it rejects longer content", strings.NewReader(content + "!"), "more than the 22 bytes", failure.ErrIntegrity},
		{"it rejects shorter content", strings.NewReader(content[:10]), "ends after 10 of 22 bytes", failure.ErrIntegrity},
		{"it reports a broken connection", io.MultiReader(strings.NewReader(content[:10]), iotest.ErrReader(io.ErrUnexpectedEOF)), "connection closed after 10 of 22 bytes", io.ErrUnexpectedEOF},
		{"it reports other errors", iotest.ErrReader(broken), "connection reset", broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var read int64
			digest := document.DigestOf([]byte(content))
			got, err := io.ReadAll(integrity.NewReader(t.Context(), tt.stream, digest, int64(len(content)), func(n int64) { read = n }))
			if tt.err == nil {
				require.NoError(t, err)
				assert.Equal(t, content, string(got))
				assert.Equal(t, int64(len(content)), read)
				return
			}
			require.ErrorIs(t, err, tt.err)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, errors.Is(tt.err, failure.ErrIntegrity), errors.Is(err, failure.ErrIntegrity))
		})
	}
}

func TestReaderStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	checked := integrity.NewReader(ctx, bytes.NewReader(nil), document.DigestOf(nil), 0, nil)
	require.ErrorIs(t, checked.Finish(), context.Canceled)
}
