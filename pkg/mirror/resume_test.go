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

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/mirror"
	"github.com/cluster-version/cvo/test/fixture"
)

// What the process that is killed is told: the release to mirror, and where to.
const (
	mirrorFrom = "CVO_TEST_MIRROR_FROM"
	mirrorTo   = "CVO_TEST_MIRROR_TO"
)

// TestMain is also the process that gets killed.
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
	var target mirror.Target = mirror.NewLayout(to)
	if !strings.HasPrefix(to, "/") {
		if target, err = mirror.OpenRepository(access(), to); err != nil {
			return err
		}
	}
	list, err := r.Images(ctx, access(), images, images, mirror.Destination{To: target})
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
	return target.Close()
}

// killedUntilDone runs the process again and again, killing it each time a little later, and returns how often it was
// killed. How long the process takes to come to life, where nothing is at stake, does not count.
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
		_, _ = stdout.Read(make([]byte, 1)) // if it ends instead, Wait tells why
		killer := time.AfterFunc(alive, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		killer.Stop()
		if err == nil {
			return kills
		}
		require.Equal(t, -1, cmd.ProcessState.ExitCode(), "it was killed, and did not fail by itself: %s", &out)
		kills++
		require.Less(t, kills, 300, "it gets no further: %s", &out)
	}
}

func TestKilledAgainAndAgain(t *testing.T) {
	const n = 40
	for _, tt := range []struct {
		name string
		to   func(t *testing.T, target *fixture.Registry) string
	}{
		{"a registry", func(_ *testing.T, target *fixture.Registry) string { return target.Host() + "/" + mirrorRepository }},
		{"a folder", func(t *testing.T, _ *fixture.Registry) string { return filepath.Join(t.TempDir(), "mirror") }},
	} {
		t.Run("it completes in "+tt.name, func(t *testing.T) {
			source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
			p := publish(t, source, "1.0.0", n)
			source.AddFault(fixture.Fault{Match: fixture.MatchPath("/blobs/"), Delay: 10 * time.Millisecond})
			to := tt.to(t, target)
			kills := killedUntilDone(t, p.image.Pullspec, to)
			t.Logf("killed %d times, %d downloads of %d blobs", kills, downloads(source), blobs(n))
			assert.Greater(t, kills, 5, "or nothing was tried")
			// Each run reads the release (its layer and configuration), and loses at most what was on its way.
			assert.LessOrEqual(t, downloads(source), blobs(n)+(kills+1)*(3+3), "what was copied is not copied again")
			if filepath.IsAbs(to) {
				requireComplete(t, p, inFolder(to))
				assert.NoDirExists(t, filepath.Join(to, ".partial"))
			} else {
				requireComplete(t, p, inRegistry(target))
			}
		})
	}
}

func TestFolderThatCouldNotBeFinished(t *testing.T) {
	registry := fixture.StartRegistry(t)
	p := publish(t, registry, "1.0.0", 2)
	dir := filepath.Join(t.TempDir(), "mirror")
	to := mirror.NewLayout(dir)
	plan, _, err := planOf(t, p.image.Pullspec, to, false, mirror.Options{})
	require.NoError(t, err)
	_, err = plan.Copy(t.Context())
	require.NoError(t, err)
	// A disk that is full leaves room for the folder, and not for the list in it.
	inTheWay := filepath.Join(dir, "index.json", "x")
	require.NoError(t, os.MkdirAll(inTheWay, 0o755))
	require.Error(t, to.Close())
	require.NoError(t, os.RemoveAll(filepath.Dir(inTheWay)))

	registry.Reset()
	result := copied(t, p.image.Pullspec, mirror.NewLayout(dir), mirror.Options{})
	assert.Zero(t, result.Blobs, "the next attempt goes on where that one was")
	requireComplete(t, p, inFolder(dir))
	assert.NoDirExists(t, filepath.Join(dir, ".partial"))
}

// slowToNotice is a target whose first upload fails, and that reads on for it when all uploads are over.
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

func TestProgressOfAnAttemptThatIsOver(t *testing.T) {
	p := publish(t, fixture.StartRegistry(t), "1.0.0", 1)
	to := &slowToNotice{Target: mirror.NewLayout(filepath.Join(t.TempDir(), "mirror"))}
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
		assert.Equal(t, e.Total, e.Done, "it counts %s once", e.Name)
	}
}
