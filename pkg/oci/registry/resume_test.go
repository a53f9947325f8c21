package registry_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/oci/registry/credentials"
	"github.com/cluster-version/cvo/test/fixture"
)

// local returns access to registries on this machine, with very short pauses between retries.
func local(opts registry.Options) *registry.Access {
	opts.Keychain = &credentials.PullSecret{}
	opts.Backoff = time.Millisecond
	return registry.New(opts)
}

// pushed starts a registry with an image. It returns the registry and the reference of the image.
func pushed(t *testing.T) (*fixture.Registry, name.Digest) {
	t.Helper()
	r := fixture.StartRegistry(t)
	ref := push(t, local(registry.Options{}), r.Host()+"/platform/release:1.0.0")
	r.Reset()
	return r, ref
}

// layerRequest matches downloads of the image's only layer. It excludes the configuration by its smaller size.
func layerRequest(t *testing.T, r *fixture.Registry, ref name.Digest) func(*http.Request) bool {
	t.Helper()
	img, err := remote.Image(ref)
	require.NoError(t, err)
	layers, err := img.Layers()
	require.NoError(t, err)
	digest, err := layers[0].Digest()
	require.NoError(t, err)
	r.Reset()
	return func(req *http.Request) bool {
		return req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/blobs/"+digest.String())
	}
}

// assertRanges waits for the registry to record the requests, because it records a request after responding.
func assertRanges(t *testing.T, want []string, r *fixture.Registry) {
	t.Helper()
	assert.EventuallyWithT(t, func(c *assert.CollectT) { assert.Equal(c, want, ranges(r)) }, time.Minute, time.Millisecond)
}

// ranges returns the ranges of the requests for blobs.
func ranges(r *fixture.Registry) []string {
	var list []string
	for _, req := range r.Requests() {
		if strings.Contains(req.Path, "/blobs/") {
			list = append(list, req.Range)
		}
	}
	return list
}

// silence is the stall limit in tests with a silent registry. A working registry responds sooner, even on a busy machine.
const silence = 3 * time.Second

func from(offset int) string { return fmt.Sprintf("bytes=%d-%d", offset, len(content)-1) }

//threat:broken-answers-cut
func TestDownloadResumes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		faults []fixture.Fault
		opts   registry.Options
		want   []string
	}{
		{"it resumes a download after a broken connection", []fixture.Fault{{Truncate: 1000, Times: 1}}, registry.Options{}, []string{"", from(1000)}},
		{
			"it resumes repeatedly while there is progress",
			[]fixture.Fault{{Truncate: 1000, Times: 1}, {Truncate: 500, Times: 2}},
			registry.Options{},
			[]string{"", from(1000), from(1500), from(2000)},
		},
		{"it resumes a stalled download", []fixture.Fault{{Truncate: 1000, Hang: true, Times: 1}}, registry.Options{Stall: silence}, []string{"", from(1000)}},
		{"it retries until the registry responds again", []fixture.Fault{{Truncate: 1000, Times: 1}, {Status: 503, Times: 2}}, registry.Options{}, []string{"", from(1000), from(1000), from(1000)}},
		{
			"it survives an outage longer than the retries of a single request",
			[]fixture.Fault{{Truncate: 1000, Times: 1}, {Status: 502, Times: 7}},
			registry.Options{},
			append([]string{""}, strings.Split(strings.Repeat(from(1000)+" ", 7)+from(1000), " ")...),
		},
		{
			"it downloads the whole blob if the registry rejects ranges, and skips the known part",
			[]fixture.Fault{{Truncate: 1000, Times: 1}, {Status: 416, Times: 1}},
			registry.Options{},
			[]string{"", from(1000), ""},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, ref := pushed(t)
			match := layerRequest(t, r, ref)
			for _, f := range tt.faults {
				f.Match = match
				defer r.AddFault(f)()
			}
			got, err := pull(t, local(tt.opts), ref)
			require.NoError(t, err)
			assert.Equal(t, content, got)
			assertRanges(t, tt.want, r)
		})
	}
}

// TestHopelessDownloadEnds covers downloads that cannot be completed.
//
//threat:broken-answers-cut it rejects wrong content
func TestHopelessDownloadEnds(t *testing.T) {
	t.Run("it gives up without progress", func(t *testing.T) {
		r, ref := pushed(t)
		match := layerRequest(t, r, ref)
		r.AddFault(fixture.Fault{Match: match, Truncate: 1000, Times: 1})
		r.AddFault(fixture.Fault{Match: match, Truncate: 1})
		_, err := pull(t, local(registry.Options{}), ref)
		require.ErrorContains(t, err, "the connection broke at byte 1005, resumed 5 times: unexpected EOF")
		assertRanges(t, []string{"", from(1000), from(1001), from(1002), from(1003), from(1004)}, r)
	})
	t.Run("it does not retry a missing blob", func(t *testing.T) {
		r, ref := pushed(t)
		match := layerRequest(t, r, ref)
		r.AddFault(fixture.Fault{Match: match, Truncate: 1000, Times: 1})
		r.AddFault(fixture.Fault{Match: match, Status: http.StatusNotFound})
		_, err := pull(t, local(registry.Options{}), ref)
		require.ErrorContains(t, err, "the connection broke at byte 1000, resumed 1 times")
		assert.True(t, failure.IsNotFound(err))
		assertRanges(t, []string{"", from(1000)}, r)
	})
	t.Run("it stops when the context ends", func(t *testing.T) {
		r, ref := pushed(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		match := layerRequest(t, r, ref)
		r.AddFault(fixture.Fault{Match: func(req *http.Request) bool {
			if match(req) && req.Header.Get("Range") != "" {
				cancel()
			}
			return match(req)
		}, Truncate: 1000})
		access := local(registry.Options{})
		named, err := access.Reference(ref.String())
		require.NoError(t, err)
		img, err := remote.Image(named, append(access.Remote(), remote.WithContext(ctx))...)
		require.NoError(t, err)
		_, err = layer(t, img)
		require.ErrorIs(t, err, context.Canceled)
		assert.LessOrEqual(t, len(ranges(r)), 2)
	})
	t.Run("it rejects wrong content", func(t *testing.T) {
		r, ref := pushed(t)
		match := layerRequest(t, r, ref)
		r.AddFault(fixture.Fault{Match: match, Truncate: 1000, Times: 1})
		r.AddFault(fixture.Fault{Match: match, Rewrite: func(body []byte) []byte {
			changed := append([]byte{}, body...)
			changed[0] ^= 1
			return changed
		}})
		_, err := pull(t, local(registry.Options{}), ref)
		require.ErrorContains(t, err, "error verifying sha256 checksum")
	})
}

// TestDownloadResumesWithoutRanges covers a registry that ignores ranges, and a registry that sends a wrong range.
func TestDownloadResumesWithoutRanges(t *testing.T) {
	for _, tt := range []struct {
		name string
		lie  func(http.ResponseWriter, *http.Request)
	}{
		{"it skips the known part if the registry sends the whole blob", func(_ http.ResponseWriter, req *http.Request) { req.Header.Del("Range") }},
		{"it restarts after a wrong range", func(_ http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Range") != "" {
				req.Header.Set("Range", "bytes=0-99")
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNetwork(t)
			store := images()
			n.serve("registry.example", breaking(1, 1000, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				tt.lie(w, req)
				store.ServeHTTP(w, req)
			})))
			access := n.access(registry.Options{})
			got, err := pull(t, access, push(t, access, "registry.example/a:b"))
			require.NoError(t, err)
			assert.Equal(t, content, got)
		})
	}
}

// TestChunkedDownloadResumes covers a registry that does not send the size of a blob.
func TestChunkedDownloadResumes(t *testing.T) {
	n := newNetwork(t)
	store := images()
	n.serve("registry.example", breaking(1, 1000, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.Contains(req.URL.Path, "/blobs/") || req.Method != http.MethodGet {
			store.ServeHTTP(w, req)
			return
		}
		var first int
		if _, err := fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-", &first); err == nil {
			req.Header.Set("Range", "bytes="+strconv.Itoa(first)+"-"+strconv.Itoa(len(content)-1))
		}
		store.ServeHTTP(&chunked{ResponseWriter: w}, req)
	})))
	access := n.access(registry.Options{})
	got, err := pull(t, access, push(t, access, "registry.example/a:b"))
	require.NoError(t, err)
	assert.Equal(t, content, got)
	blobs := n.requests("registry.example", "/blobs/sha256:")
	assert.Equal(t, "bytes=1000-", blobs[len(blobs)-1].ranged)
}

// chunked drops the length of a response.
type chunked struct{ http.ResponseWriter }

func (c *chunked) WriteHeader(status int) {
	c.Header().Del("Content-Length")
	c.ResponseWriter.WriteHeader(status)
}

//threat:slow-silent-registries
func TestStalledTransfersEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Run("it gives up on a registry that does not respond", func(t *testing.T) {
		r, ref := pushed(t)
		r.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/"), Delay: time.Hour})
		_, err := pull(t, local(registry.Options{Stall: 50 * time.Millisecond}), ref)
		require.ErrorIs(t, err, failure.ErrStalled)
		require.ErrorContains(t, err, r.Host()+": no progress for 50ms")
	})
	t.Run("it gives up on a stalled response", func(t *testing.T) {
		r, ref := pushed(t)
		r.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/"), Truncate: 10, Hang: true})
		_, err := pull(t, local(registry.Options{Stall: 50 * time.Millisecond}), ref)
		require.ErrorIs(t, err, failure.ErrStalled)
	})
	t.Run("it gives up on a download that stalls repeatedly", func(t *testing.T) {
		r, ref := pushed(t)
		r.AddFault(fixture.Fault{Match: layerRequest(t, r, ref), Truncate: 10, Hang: true})
		_, err := pull(t, local(registry.Options{Stall: silence}), ref)
		require.ErrorIs(t, err, failure.ErrStalled)
		require.ErrorContains(t, err, "resumed 2 times")
	})
	t.Run("it gives up on an upload that the registry does not read", func(t *testing.T) {
		r := fixture.StartRegistry(t)
		r.AddFault(fixture.Fault{Match: func(req *http.Request) bool { return req.Method == http.MethodPatch }, Delay: time.Hour})
		access := local(registry.Options{Stall: 20 * time.Millisecond})
		ref, err := access.Reference(r.Host() + "/a:b")
		require.NoError(t, err)
		err = remote.Push(ref, image(t), access.Remote()...)
		require.ErrorIs(t, err, failure.ErrStalled)
	})
}

func TestUploadsAreRetried(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault fixture.Fault
	}{
		{"it restarts an upload after a broken connection", fixture.Fault{Match: method(http.MethodPatch), Truncate: 1, Rewrite: func([]byte) []byte { return []byte("xx") }, Times: 1}},
		{"it restarts an upload after a server error", fixture.Fault{Match: method(http.MethodPatch), Status: 502, Times: 2}},
		{"it retries a rejected request", fixture.Fault{Match: method(http.MethodPatch, http.MethodPost, http.MethodPut), Status: 429, RetryAfter: "0", Times: 4}},
		{"it restarts an upload that the registry does not know", fixture.Fault{Match: func(req *http.Request) bool {
			return req.Method == http.MethodPut && strings.Contains(req.URL.Path, "/blobs/uploads/")
		}, Status: 404, Times: 1}},
		{"it retries a manifest", fixture.Fault{Match: func(req *http.Request) bool {
			return req.Method == http.MethodPut && strings.Contains(req.URL.Path, "/manifests/")
		}, Status: 500, Times: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := fixture.StartRegistry(t)
			r.AddFault(tt.fault)
			access := local(registry.Options{})
			got, err := pull(t, access, push(t, access, r.Host()+"/platform/release:1.0.0"))
			require.NoError(t, err)
			assert.Equal(t, content, got)
		})
	}
}

func method(methods ...string) func(*http.Request) bool {
	return func(req *http.Request) bool {
		return slices.Contains(methods, req.Method)
	}
}

//threat:endless-answers
func TestEndlessAnswersAreCut(t *testing.T) {
	n := newNetwork(t)
	n.serve("registry.example", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.Contains(req.URL.Path, "/manifests/") {
			return
		}
		for {
			if _, err := w.Write(content); err != nil {
				return
			}
		}
	}))
	access := n.access(registry.Options{AnswerBytes: 1 << 20})
	ref, err := access.Reference("registry.example/a:b")
	require.NoError(t, err)
	_, err = pull(t, access, ref)
	require.ErrorIs(t, err, failure.ErrLimit)
}
