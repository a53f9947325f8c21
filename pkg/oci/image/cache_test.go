package image_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// fillerEnv makes this test binary read images into a cache folder until it is killed.
const fillerEnv = "CVO_TEST_FILL_CACHE"

func TestMain(m *testing.M) {
	for env, run := range map[string]func(context.Context, string) error{fillerEnv: fillCache, readerEnv: readImage} {
		if work := os.Getenv(env); work != "" {
			if err := run(context.Background(), work); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// filling is the task of a filler process.
type filling struct {
	Dir    string
	Images []release.Image
	Rounds int // 0 means endless
	Limit  int64
}

func fillCache(ctx context.Context, work string) error {
	var f filling
	if err := json.Unmarshal([]byte(work), &f); err != nil {
		return err
	}
	for round := 0; f.Rounds == 0 || round < f.Rounds; round++ {
		r, err := image.New(image.Options{CacheDir: f.Dir, CacheLimitBytes: f.Limit})
		if err != nil {
			return err
		}
		for _, img := range f.Images {
			if _, err := r.Manifests(ctx, img); err != nil {
				return err
			}
			fmt.Println("read", img.Digest)
			if f.Limit > 0 {
				if _, err := r.Prune(ctx); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// filler starts a filler process. It is killed at the end of the test at the latest.
func filler(t *testing.T, f filling) (process *exec.Cmd, output *bufio.Scanner) {
	t.Helper()
	work, err := json.Marshal(f)
	require.NoError(t, err)
	process = exec.CommandContext(t.Context(), os.Args[0])
	process.Env = append(os.Environ(), fillerEnv+"="+string(work))
	process.Stderr = os.Stderr
	out, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	return process, bufio.NewScanner(out)
}

// checkCache checks that every blob has the digest in its name and that index.json is valid.
func checkCache(t *testing.T, dir string) (blobs int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	require.NoError(t, err)
	for _, path := range paths {
		f, err := os.Open(path)
		if os.IsNotExist(err) {
			continue // pruned in the meantime
		}
		require.NoError(t, err)
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.Equal(t, filepath.Base(path), hex.EncodeToString(sum.Sum(nil)))
	}
	if data, err := os.ReadFile(filepath.Join(dir, "index.json")); err == nil {
		var index v1.IndexManifest
		require.NoError(t, json.Unmarshal(data, &index))
	}
	return len(paths)
}

// distinct pushes n images that share no content.
func distinct(t testing.TB, registry *fixture.Registry, n int) []release.Image {
	t.Helper()
	images := make([]release.Image, n)
	for i := range images {
		built := build(t, []entry{{"usr/x", fmt.Sprint("x", i), 0}}, []entry{{fmt.Sprintf("manifests/%d.yaml", i), fmt.Sprint(i), 0}})
		pushed, err := fixture.Push(t.Context(), registry, built, fmt.Sprintf("platform/release:%d", i))
		require.NoError(t, err)
		images[i] = pushed
	}
	registry.Reset()
	return images
}

//threat:half-written-content
func TestCacheSurvivesAKilledProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	registry := fixture.StartRegistry(t)
	images := distinct(t, registry, 6)
	dir := filepath.Join(t.TempDir(), "some", "cache")
	random := rand.New(rand.NewPCG(1, 2))
	seen, killed := 0, 0
	for range 40 {
		process, output := filler(t, filling{Dir: dir, Images: images, Limit: 2000})
		for range random.IntN(3) {
			require.True(t, output.Scan())
		}
		time.AfterFunc(time.Duration(random.IntN(40_000))*time.Microsecond, func() { _ = process.Process.Kill() })
		for output.Scan() { // until the process is killed
		}
		require.ErrorContains(t, process.Wait(), "signal: killed")
		killed++
		seen += checkCache(t, dir)
		r := open(t, image.Options{CacheDir: dir})
		for i, img := range images {
			fsys, err := r.Manifests(t.Context(), img)
			require.NoError(t, err)
			require.Equal(t, map[string]string{fmt.Sprintf("manifests/%d.yaml", i): fmt.Sprint(i)}, contents(t, fsys))
		}
	}
	assert.Equal(t, 40, killed)
	assert.NotZero(t, seen)
	registry.Reset()
	r := open(t, image.Options{CacheDir: dir})
	for _, img := range images {
		_, err := r.Manifests(t.Context(), img)
		require.NoError(t, err)
	}
	assert.Empty(t, registry.Requests(), "written content survives the process")
}

//threat:several-processes-pruning
func TestCacheIsSharedByProcesses(t *testing.T) {
	registry := fixture.StartRegistry(t)
	images := distinct(t, registry, 6)
	dir := t.TempDir()
	var processes []*exec.Cmd
	for range 3 {
		process, output := filler(t, filling{Dir: dir, Images: images, Rounds: 10, Limit: 2000})
		go func() {
			for output.Scan() {
			}
		}()
		processes = append(processes, process)
	}
	for _, process := range processes {
		require.NoError(t, process.Wait())
	}
	checkCache(t, dir)
}

//threat:several-processes-pruning keeps content in use
func TestPruneRemovesUnusedImages(t *testing.T) {
	// Each image is used one hour after the previous image.
	start := func(t *testing.T, opts image.Options) (*image.Reader, []release.Image, func() []bool) {
		registry := fixture.StartRegistry(t)
		images := distinct(t, registry, 3)
		clock := clocktesting.NewFakePassiveClock(time.Now())
		opts.CacheDir, opts.Clock = t.TempDir(), clock
		r := open(t, opts)
		for _, img := range images {
			_, err := r.Manifests(t.Context(), img)
			require.NoError(t, err)
			clock.SetTime(clock.Now().Add(time.Hour))
		}
		cached := func() []bool {
			there := make([]bool, len(images))
			for i, img := range images {
				_, err := os.Stat(filepath.Join(opts.CacheDir, "blobs", "sha256", img.Digest.Hex()))
				there[i] = err == nil
			}
			return there
		}
		return r, images, cached
	}
	size := func(t *testing.T) int64 {
		r, _, _ := start(t, image.Options{})
		p, err := r.Prune(t.Context())
		require.NoError(t, err)
		assert.Zero(t, p.Files, "without limits, nothing is removed")
		return p.Left
	}(t)

	t.Run("removes the least recently used images first", func(t *testing.T) {
		r, _, cached := start(t, image.Options{CacheLimitBytes: size * 3 / 4})
		p, err := r.Prune(t.Context())
		require.NoError(t, err)
		assert.LessOrEqual(t, p.Left, size*3/4)
		assert.Equal(t, size, p.Left+p.Bytes)
		assert.Equal(t, []bool{false, true, true}, cached())
	})
	t.Run("treats reading as use", func(t *testing.T) {
		r, images, cached := start(t, image.Options{CacheLimitBytes: size * 3 / 4})
		_, err := r.Manifests(t.Context(), images[0])
		require.NoError(t, err)
		_, err = r.Prune(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []bool{true, false, true}, cached())
	})
	t.Run("keeps the given images", func(t *testing.T) {
		r, images, cached := start(t, image.Options{CacheLimitBytes: 1})
		p, err := r.Prune(t.Context(), images[0].Digest, images[2].Digest)
		require.NoError(t, err)
		assert.Equal(t, 3, p.Files)
		assert.Equal(t, []bool{true, false, true}, cached())
		for _, i := range []int{0, 2} {
			_, err := r.Manifests(t.Context(), images[i])
			require.NoError(t, err)
		}
	})
	t.Run("keeps content in use", func(t *testing.T) {
		r, images, _ := start(t, image.Options{CacheLimitBytes: 1})
		repository, err := r.Repository(images[0])
		require.NoError(t, err)
		doc, err := repository.Document(t.Context(), images[0].Digest)
		require.NoError(t, err)
		blob, err := repository.Blob(t.Context(), doc.Layers[0])
		require.NoError(t, err)
		p, err := r.Prune(t.Context())
		require.NoError(t, err)
		assert.Equal(t, doc.Layers[0].Size, p.Left)
		_, err = io.Copy(io.Discard, blob)
		require.NoError(t, err)
		require.NoError(t, blob.Close())
		p, err = r.Prune(t.Context())
		require.NoError(t, err)
		assert.Zero(t, p.Left)
	})
	t.Run("drops removed images from index.json", func(t *testing.T) {
		registry, dir := fixture.StartRegistry(t), t.TempDir()
		images := distinct(t, registry, 3)
		r := open(t, image.Options{CacheDir: dir, CacheLimitBytes: 1})
		for _, img := range images {
			_, err := r.Manifests(t.Context(), img)
			require.NoError(t, err)
		}
		_, err := r.Prune(t.Context(), images[1].Digest)
		require.NoError(t, err)
		img, err := r.Resolve(t.Context(), dir)
		require.NoError(t, err, "the layout lists only this image")
		assert.Equal(t, images[1].Digest, img.Digest)
	})
	t.Run("does nothing without a cache folder", func(t *testing.T) {
		p, err := open(t, image.Options{CacheLimitBytes: 1}).Prune(t.Context())
		require.NoError(t, err)
		assert.Zero(t, p)
	})
}

func TestCacheKeepsIndexesWhole(t *testing.T) {
	registry := fixture.StartRegistry(t)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: build(t, []entry{{"manifests/a.yaml", "a", 0}}), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}},
	})
	ref, err := name.NewTag(registry.Host() + "/platform/release:multi")
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(ref, index, remote.WithContext(t.Context())))
	r := open(t, image.Options{CacheDir: t.TempDir(), CacheLimitBytes: 1})
	img, err := r.Resolve(t.Context(), ref.String())
	require.NoError(t, err)
	_, err = r.Manifests(t.Context(), img)
	require.NoError(t, err)
	p, err := r.Prune(t.Context(), img.Digest)
	require.NoError(t, err)
	assert.Zero(t, p.Files)
	registry.Reset()
	_, err = r.Manifests(t.Context(), img)
	require.NoError(t, err)
	assert.Zero(t, registry.Count(http.MethodGet, "/platform/"))
}
