package retrieve

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func releaseFiles() fstest.MapFS {
	return fstest.MapFS{
		"manifests/a.yaml":                   {Data: []byte("a")},
		"release-manifests/image-references": {Data: []byte("b")},
		"release-manifests/deeper/c.yaml":    {Data: []byte("c")},
		"etc/passwd":                         {Data: []byte("root")},
	}
}

// served starts a server that serves the inbox with limits, like the operator. They are longer than the operator's, for a busy machine.
func served(t testing.TB, inbox *Inbox) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(inbox)
	server.Config.ReadTimeout, server.Config.WriteTimeout = time.Minute, 3*time.Minute
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// client waits for the server's 100 Continue before it sends a body, as the pod does.
func client(server *httptest.Server) *http.Client {
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.ExpectContinueTimeout = time.Minute
	return &http.Client{Transport: transport}
}

func names(t *testing.T, sent io.Reader) (names []string) {
	t.Helper()
	plain, err := gzip.NewReader(sent)
	require.NoError(t, err)
	in := tar.NewReader(plain)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		require.NoError(t, err)
		names = append(names, header.Name)
	}
}

//threat:another-client-sends
func TestInboxReceivesOnce(t *testing.T) {
	var inbox Inbox
	server := served(t, &inbox)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []byte
	token, outcome, end := inbox.expect(ctx, "one", func(_ context.Context, stream io.Reader) (err error) {
		got, err = io.ReadAll(stream)
		return err
	})
	defer end()
	url := server.URL + Path + "one"
	require.NoError(t, Send(t.Context(), client(server), url, token, releaseFiles()))
	require.NoError(t, <-outcome)
	assert.Equal(t, []string{"manifests/a.yaml", "release-manifests/image-references"}, names(t, bytes.NewReader(got)))

	err := Send(t.Context(), client(server), url, token, releaseFiles())
	require.ErrorContains(t, err, "403")
	require.ErrorContains(t, err, "the token may have been used already")
}

//threat:another-client-sends
func TestInboxAcceptsOneSenderOfMany(t *testing.T) {
	var inbox Inbox
	server := served(t, &inbox)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var read, succeeded atomic.Int64
	token, outcome, end := inbox.expect(ctx, "one", func(_ context.Context, stream io.Reader) error {
		read.Add(1)
		_, err := io.Copy(io.Discard, stream)
		return err
	})
	defer end()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if Send(ctx, client(server), server.URL+Path+"one", token, releaseFiles()) == nil {
				succeeded.Add(1)
			}
		})
	}
	all.Wait()
	require.NoError(t, <-outcome)
	assert.Equal(t, int64(1), read.Load())
	assert.Equal(t, int64(1), succeeded.Load())
}

// watchedBody records whether the body was read.
type watchedBody struct {
	io.Reader
	read atomic.Bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	return b.Reader.Read(p)
}

//threat:another-client-sends
func TestInboxRejectsStrangersUnread(t *testing.T) {
	var inbox Inbox
	server := served(t, &inbox)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	token, outcome, end := inbox.expect(ctx, "one", func(_ context.Context, stream io.Reader) error {
		_, err := io.Copy(io.Discard, stream)
		return err
	})
	defer end()
	for name, c := range map[string]struct {
		method, path, authorization string
		want                        int
	}{
		"no token":                       {http.MethodPut, "one", "", http.StatusUnauthorized},
		"another scheme":                 {http.MethodPut, "one", "Basic " + token, http.StatusUnauthorized},
		"another method":                 {http.MethodPost, "one", "Bearer " + token, http.StatusUnauthorized},
		"a wrong token":                  {http.MethodPut, "one", "Bearer " + strings.ToLower(token), http.StatusForbidden},
		"part of the token":              {http.MethodPut, "one", "Bearer " + token[1:], http.StatusForbidden},
		"an empty token":                 {http.MethodPut, "one", "Bearer ", http.StatusUnauthorized},
		"the token for another delivery": {http.MethodPut, "two", "Bearer " + token, http.StatusForbidden},
		"a missing name of the delivery": {http.MethodPut, "", "Bearer " + token, http.StatusForbidden},
	} {
		t.Run("it refuses "+name, func(t *testing.T) {
			body := &watchedBody{Reader: strings.NewReader(strings.Repeat("x", 1<<20))}
			req, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+Path+c.path, body)
			require.NoError(t, err)
			req.Header.Set("Expect", "100-continue")
			if c.authorization != "" {
				req.Header.Set("Authorization", c.authorization)
			}
			resp, err := client(server).Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			assert.Equal(t, c.want, resp.StatusCode)
			assert.False(t, body.read.Load(), "the body was read")
		})
	}
	require.NoError(t, Send(t.Context(), client(server), server.URL+Path+"one", token, releaseFiles()), "rejected requests do not use up the token")
	require.NoError(t, <-outcome)
}

// forever is a slow, endless stream.
type forever struct{ each time.Duration }

func (f forever) Read(p []byte) (int, error) {
	time.Sleep(f.each)
	p[0] = 'x'
	return 1, nil
}

//threat:retrieval-job-sends
func TestInboxEndsLateTransfers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const deadline = "it ends at the deadline"
	for name, give := range map[string]func(cancel func(), end func()){
		deadline:                func(func(), func()) {},
		"it ends when canceled": func(cancel, _ func()) { cancel() },
		"it ends when the receiver stops waiting": func(_, end func()) { end() },
	} {
		t.Run(name, func(t *testing.T) {
			var inbox Inbox
			server := served(t, &inbox)
			limit := time.Hour
			if name == deadline {
				limit = 2 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			begun := make(chan struct{})
			token, outcome, end := inbox.expect(ctx, "one", func(_ context.Context, stream io.Reader) error {
				_, err := stream.Read(make([]byte, 1))
				close(begun)
				if err == nil {
					_, err = io.Copy(io.Discard, stream)
				}
				return err
			})
			defer end()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+Path+"one", forever{time.Millisecond})
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer "+token)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				if resp, err := client(server).Do(req); err == nil {
					_ = resp.Body.Close()
				}
			}()
			select {
			case <-begun:
			case <-sent: // on a busy machine, the deadline comes first
			}
			give(cancel, end)
			require.ErrorIs(t, <-outcome, errLate)
			<-sent
		})
	}
}

func TestSendRetriesConnecting(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	var asked atomic.Int64
	transport := roundTripper(func(req *http.Request) (*http.Response, error) {
		if asked.Add(1) == 1 {
			return nil, errors.New("connection refused")
		}
		_, err := io.Copy(io.Discard, req.Body)
		return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, err
	})
	require.NoError(t, Send(t.Context(), &http.Client{Transport: transport}, "https://operator/", "x", releaseFiles()))
	assert.Equal(t, int64(2), asked.Load())

	asked.Store(0)
	transport = func(req *http.Request) (*http.Response, error) {
		asked.Add(1)
		_, _ = req.Body.Read(make([]byte, 1))
		return nil, errors.New("connection reset")
	}
	require.ErrorContains(t, Send(t.Context(), &http.Client{Transport: transport}, "https://operator/", "x", releaseFiles()), "connection reset")
	assert.Equal(t, int64(1), asked.Load(), "the token is valid only once")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestSendRequiresAReleaseImage(t *testing.T) {
	for name, c := range map[string]struct {
		files fs.FS
		want  string
	}{
		"a missing mount":            {fstest.MapFS{}, "check that the mounted volume is a release image"},
		"an image without a release": {fstest.MapFS{"etc/passwd": {}}, "check that the mounted volume is a release image"},
		"a symbolic link":            {fstest.MapFS{"manifests/a": {Mode: fs.ModeSymlink, Data: []byte("/etc/shadow")}}, "reading the release image"},
		"a device":                   {fstest.MapFS{"manifests/a": {Mode: fs.ModeDevice}}, "not a regular file"},
	} {
		t.Run("it refuses "+name, func(t *testing.T) {
			require.ErrorContains(t, pack(io.Discard, c.files), c.want)
		})
	}
}

// unlimited is a response writer that supports deadlines.
type unlimited struct{ http.ResponseWriter }

func (unlimited) SetReadDeadline(time.Time) error  { return nil }
func (unlimited) SetWriteDeadline(time.Time) error { return nil }

func TestInboxEndsOnlyWhenNothingIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inbox Inbox
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		disk := make(chan struct{})
		token, outcome, end := inbox.expect(ctx, "one", func(ctx context.Context, _ io.Reader) error {
			<-ctx.Done()
			<-disk // a slow disk ignores the context
			return ctx.Err()
		})
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPut, Path+"one", strings.NewReader("x"))
		req.Header.Set("Authorization", "Bearer "+token)
		go inbox.ServeHTTP(unlimited{httptest.NewRecorder()}, req)
		synctest.Wait()
		var ended atomic.Bool
		go func() {
			end()
			ended.Store(true)
		}()
		synctest.Wait()
		assert.False(t, ended.Load(), "expect's end returned while a file was still being written")
		close(disk)
		synctest.Wait()
		assert.True(t, ended.Load())
		require.ErrorIs(t, <-outcome, errLate)
		end()
	})
}

// TestSendMayBeReadAfterItsError detects a data race; run it with the race detector.
func TestSendMayBeReadAfterItsError(t *testing.T) {
	read := make(chan struct{})
	transport := roundTripper(func(req *http.Request) (*http.Response, error) {
		go func() {
			defer close(read)
			_, _ = req.Body.Read(make([]byte, 1))
		}()
		return nil, errors.New("connection reset")
	})
	_, err := send(t.Context(), &http.Client{Transport: transport}, "https://operator/", "x", releaseFiles())
	require.ErrorContains(t, err, "connection reset")
	<-read
}
