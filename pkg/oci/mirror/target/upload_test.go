package target

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// source is a body that records whether it was closed.
type source struct {
	io.Reader
	closed atomic.Bool
}

func (s *source) Close() error {
	s.closed.Store(true)
	return nil
}

func uploadOf(t *testing.T, size int64, do roundTripper) *upload {
	t.Helper()
	repo, err := name.NewRepository("registry.example/mirror")
	require.NoError(t, err)
	return &upload{client: &http.Client{Transport: do}, repo: repo, desc: v1.Descriptor{Size: size}}
}

func TestUploadClosesAnEmptyBlob(t *testing.T) {
	u := uploadOf(t, 0, func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody, Request: req}, nil
	})
	body := &source{Reader: strings.NewReader("")}
	require.NoError(t, u.send(t.Context(), "https://registry.example/upload", func() (io.ReadCloser, error) { return body, nil }))
	assert.True(t, body.closed.Load(), "the body must be closed to make its connection reusable")
}

// TestUploadMayBeReadAfterItsAnswer detects a data race; run it with the race detector.
func TestUploadMayBeReadAfterItsAnswer(t *testing.T) {
	read := make(chan struct{})
	u := uploadOf(t, 1, func(req *http.Request) (*http.Response, error) {
		go func() {
			defer close(read)
			_, _ = req.Body.Read(make([]byte, 1))
		}()
		return nil, errors.New("connection reset")
	})
	body := &source{Reader: io.MultiReader(failing{})}
	require.Error(t, u.send(t.Context(), "https://registry.example/upload", func() (io.ReadCloser, error) { return body, nil }))
	if cause := u.cause(); cause != nil {
		require.ErrorIs(t, cause, io.ErrClosedPipe)
	}
	<-read
	require.ErrorIs(t, u.cause(), io.ErrClosedPipe)
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }
