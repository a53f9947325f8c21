package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/mirror"
	"github.com/cluster-version/cvo/pkg/oci/mirror/target"
	"github.com/cluster-version/cvo/test/fixture"
)

// Environment variables for the process to kill: the release to mirror and the target.
const (
	mirrorFrom = "CVO_TEST_MIRROR_FROM"
	mirrorTo   = "CVO_TEST_MIRROR_TO"
)

// TestMain also implements the process to kill.
func TestMain(m *testing.M) {
	if from := os.Getenv(mirrorFrom); from != "" {
		fmt.Println("mirroring")
		if err := mirrorOnce(context.Background(), from, os.Getenv(mirrorTo)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func mirrorOnce(ctx context.Context, from, to string) error {
	images, err := image.New(image.Options{Access: access()})
	if err != nil {
		return err
	}
	img, err := images.Resolve(ctx, from)
	if err != nil {
		return err
	}
	r, err := mirror.Read(ctx, images, img, false)
	if err != nil {
		return err
	}
	var destination mirror.Target = target.NewLayout(to)
	if !strings.HasPrefix(to, "/") {
		if destination, err = target.OpenRepository(access(), to); err != nil {
			return err
		}
	}
	list, err := r.Images(ctx, access(), images, images, mirror.Destination{To: destination})
	if err != nil {
		return err
	}
	plan, err := mirror.New(ctx, list, mirror.Options{Width: 3})
	if err != nil {
		return err
	}
	if _, err := plan.Copy(ctx); err != nil {
		return err
	}
	return destination.Close()
}

// killedUntilDone runs the process until it completes. It kills each run slightly later than the previous run, and returns the number of
// kills. Only the time after the process has started copying counts.
func killedUntilDone(t *testing.T, from, to string) (kills int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	for alive := 20 * time.Millisecond; ; alive += max(10*time.Millisecond, alive/10) {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), mirrorFrom+"="+from, mirrorTo+"="+to)
		var out strings.Builder
		cmd.Stderr = &out
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, _ = stdout.Read(make([]byte, 1)) // if the process exits instead, Wait returns the reason
		killer := time.AfterFunc(alive, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		killer.Stop()
		if err == nil {
			return kills
		}
		require.Equal(t, -1, cmd.ProcessState.ExitCode(), "the process failed before it was killed: %s", &out)
		kills++
		require.Less(t, kills, 300, "the process makes no progress: %s", &out)
	}
}

//threat:mirror-interrupted-again
func TestCopyCompletesDespiteKills(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const n = 40
	for _, tt := range []struct {
		name string
		to   func(t *testing.T, destination *fixture.Registry) string
	}{
		{"a registry", func(_ *testing.T, destination *fixture.Registry) string {
			return destination.Host() + "/" + mirrorRepository
		}},
		{"a folder", func(t *testing.T, _ *fixture.Registry) string { return filepath.Join(t.TempDir(), "mirror") }},
	} {
		t.Run("it completes in "+tt.name, func(t *testing.T) {
			source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
			p := publish(t, source, "1.0.0", n)
			source.AddFault(fixture.Fault{Match: fixture.MatchPath("/blobs/"), Delay: 10 * time.Millisecond})
			to := tt.to(t, destination)
			kills := killedUntilDone(t, p.image.Pullspec, to)
			t.Logf("killed %d times, %d downloads of %d blobs", kills, downloads(source), blobs(n))
			assert.Greater(t, kills, 5, "too few kills for a meaningful test")
			// Each run reads the release (its layer and configuration) and loses at most the transfers in flight.
			assert.LessOrEqual(t, downloads(source), blobs(n)+(kills+1)*(3+3), "content was copied twice")
			if filepath.IsAbs(to) {
				requireComplete(t, p, inFolder(to))
				assert.NoDirExists(t, filepath.Join(to, ".partial"))
			} else {
				requireComplete(t, p, inRegistry(destination))
			}
		})
	}
}

func TestUnfinishedFolderIsResumed(t *testing.T) {
	registry := fixture.StartRegistry(t)
	p := publish(t, registry, "1.0.0", 2)
	dir := filepath.Join(t.TempDir(), "mirror")
	to := target.NewLayout(dir)
	plan, _, err := planOf(t, p.image.Pullspec, to, false, mirror.Options{})
	require.NoError(t, err)
	_, err = plan.Copy(t.Context())
	require.NoError(t, err)
	// As on a full disk, the folder can be created, but not the list in it.
	inTheWay := filepath.Join(dir, "index.json", "x")
	require.NoError(t, os.MkdirAll(inTheWay, 0o755))
	require.Error(t, to.Close())
	require.NoError(t, os.RemoveAll(filepath.Dir(inTheWay)))

	registry.Reset()
	result := copied(t, p.image.Pullspec, target.NewLayout(dir), mirror.Options{})
	assert.Zero(t, result.Blobs, "the next attempt resumes")
	requireComplete(t, p, inFolder(dir))
	assert.NoDirExists(t, filepath.Join(dir, ".partial"))
}

// slowToNotice is a target whose first upload fails, but continues to read the content after all uploads have ended.
type slowToNotice struct {
	mirror.Target

	mu   sync.Mutex
	body io.ReadCloser
}

func (s *slowToNotice) Upload(ctx context.Context, desc v1.Descriptor, origin name.Repository, open func() (io.ReadCloser, error)) (bool, error) {
	s.mu.Lock()
	first := s.body == nil
	if first {
		body, err := open()
		s.body = body
		s.mu.Unlock()
		return false, errors.Join(err, io.ErrUnexpectedEOF)
	}
	s.mu.Unlock()
	return s.Target.Upload(ctx, desc, origin, open)
}

func (s *slowToNotice) finish() error {
	_, err := io.Copy(io.Discard, s.body)
	return errors.Join(err, s.body.Close())
}

func TestEndedAttemptsDoNotCountAsProgress(t *testing.T) {
	p := publish(t, fixture.StartRegistry(t), "1.0.0", 1)
	to := &slowToNotice{Target: target.NewLayout(filepath.Join(t.TempDir(), "mirror"))}
	var mu sync.Mutex
	last := map[string]mirror.Event{}
	result := copied(t, p.image.Pullspec, to, mirror.Options{Width: 1, Progress: func(e mirror.Event) {
		mu.Lock()
		defer mu.Unlock()
		last[e.Name] = e
	}})
	require.Equal(t, 1, result.Retries)
	require.NoError(t, to.finish())
	for _, e := range last {
		assert.Equal(t, e.Total, e.Done, "the bytes of %s are counted once", e.Name)
	}
}
