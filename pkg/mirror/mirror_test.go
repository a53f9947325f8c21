package mirror_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/mirror"
	"github.com/cluster-version/cvo/test/fixture"
)

// Of a release with n components that publish makes: documents, and blobs that are not the same.
func documents(n int) int { return n + 1 }
func blobs(n int) int     { return 1 + 2 + n + n + 3 } // shared by all, by halves, own layers, configurations, release

func TestCopyToRegistry(t *testing.T) {
	const n = 12
	source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", n)

	result := copied(t, p.image.Pullspec, repository(t, target), mirror.Options{})
	assert.Equal(t, documents(n), result.Documents)
	assert.Equal(t, blobs(n), result.Blobs+result.Spared)
	assert.Zero(t, result.Retries)
	assert.Equal(t, result.Blobs, downloads(source), "no blob is fetched twice, be it to read the release or to copy it")
	for _, request := range source.Requests() {
		assert.Less(t, request.Status, 500)
	}
	source.Reset()
	requireComplete(t, p, inRegistry(target))
	assert.Empty(t, source.Requests())

	target.Reset()
	again := copied(t, p.image.Pullspec, repository(t, target), mirror.Options{})
	assert.Equal(t, documents(n), again.There)
	assert.Zero(t, again.Blobs)
	assert.Zero(t, uploads(target), "a finished mirror is sent nothing")
	assert.Equal(t, documents(n), target.Count("HEAD", "."), "one question for each manifest")
	assert.LessOrEqual(t, downloads(source), 2, "only what has to be read of the release")
}

func TestCopyWithinRegistryMounts(t *testing.T) {
	r := fixture.StartRegistry(t)
	p := publish(t, r, "1.0.0", 5)
	result := copied(t, p.image.Pullspec, repository(t, r), mirror.Options{})
	assert.Zero(t, result.Blobs)
	assert.Zero(t, r.Count("PATCH", "."), "nothing is uploaded")
	assert.LessOrEqual(t, downloads(r), 2, "only what has to be read of the release")
	requireComplete(t, p, inRegistry(r))
}

func TestCopyThroughFaults(t *testing.T) {
	blob := fixture.MatchPath(`/blobs/`)
	manifest := fixture.MatchPath(`/manifests/`)
	put := func(r *http.Request) bool { return r.Method == http.MethodPut || r.Method == http.MethodPatch }
	for _, tt := range []struct {
		name           string
		source, target *fixture.Fault
	}{
		{"goes on after broken downloads", &fixture.Fault{Match: blob, Truncate: 7_000, Times: 5}, nil},
		{"goes on when the source is overloaded", &fixture.Fault{Match: fixture.MatchPath(`/components/blobs/`), Status: http.StatusTooManyRequests, RetryAfter: "0", Times: 6}, nil},
		{"goes on when the source fails", &fixture.Fault{Match: manifest, Status: http.StatusInternalServerError, Times: 4}, nil},
		{"goes on when the target is overloaded", nil, &fixture.Fault{Status: http.StatusTooManyRequests, RetryAfter: "0", Times: 10}},
		{"goes on when the target fails", nil, &fixture.Fault{Match: put, Status: http.StatusServiceUnavailable, Times: 10}},
		{"goes on when the target is slow", nil, &fixture.Fault{Delay: 20 * time.Millisecond}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			t.Parallel()
			source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
			p := publish(t, source, "1.0.0", 6)
			if tt.source != nil {
				source.AddFault(*tt.source)
			}
			if tt.target != nil {
				target.AddFault(*tt.target)
			}
			copied(t, p.image.Pullspec, repository(t, target), mirror.Options{Width: 4})
			requireComplete(t, p, inRegistry(target))
		})
	}
}

func TestReleaseIsPutLast(t *testing.T) {
	source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 4)
	lost := p.components["component-002"]
	remove := target.AddFault(fixture.Fault{
		Match: func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "component-002")
		},
		Status: http.StatusForbidden,
	})
	plan, _, err := planOf(t, p.image.Pullspec, repository(t, target), false, mirror.Options{Attempts: 1})
	require.NoError(t, err)
	_, err = plan.Copy(t.Context())
	require.ErrorIs(t, err, image.ErrUnauthorized)
	require.ErrorContains(t, err, string(lost.Digest))
	assert.Zero(t, target.Count("PUT", `/manifests/1\.0\.0-x86_64$`), "who finds the release finds all of it")

	remove()
	result := copied(t, p.image.Pullspec, repository(t, target), mirror.Options{})
	assert.Equal(t, 1, target.Count("PUT", `/manifests/1\.0\.0-x86_64$`))
	assert.Positive(t, result.There+result.Spared, "what was there is not copied again")
	requireComplete(t, p, inRegistry(target))
}

func TestFailuresAreReportedTogether(t *testing.T) {
	source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 4)
	target.AddFault(fixture.Fault{
		Match: func(r *http.Request) bool {
			return r.Method == http.MethodPut && (strings.Contains(r.URL.Path, "component-001") || strings.Contains(r.URL.Path, "component-003"))
		},
		Status: http.StatusBadRequest,
	})
	plan, _, err := planOf(t, p.image.Pullspec, repository(t, target), false, mirror.Options{})
	require.NoError(t, err)
	_, err = plan.Copy(t.Context())
	require.ErrorContains(t, err, "3 of 5 manifests are not there", "two components and the release")
	require.ErrorContains(t, err, "component-001")
	require.ErrorContains(t, err, "component-003")
	assert.Equal(t, 2, target.Count("PUT", `/manifests/1.0.0-x86_64-component-00[02]$`), "the others are copied nevertheless")
}

func TestChangedContentIsRefused(t *testing.T) {
	for _, tt := range []struct{ name, path string }{
		{"refuses a changed manifest", `/upstream/components/manifests/`},
		{"refuses a changed layer", `/upstream/components/blobs/`},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			t.Parallel()
			source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
			p := publish(t, source, "1.0.0", 2)
			source.AddFault(fixture.Fault{Match: fixture.MatchPath(tt.path), Rewrite: func(b []byte) []byte {
				changed := append([]byte{}, b...)
				changed[len(changed)/2] ^= 1
				return changed
			}})
			images := reader(t)
			img, err := images.Resolve(t.Context(), p.image.Pullspec)
			require.NoError(t, err)
			r, err := mirror.Read(t.Context(), images, img, false)
			require.NoError(t, err)
			list, err := r.Images(t.Context(), access(), images, images, mirror.Destination{To: repository(t, target)})
			if err == nil {
				var plan *mirror.Plan
				if plan, err = mirror.New(t.Context(), list, mirror.Options{Attempts: 2}); err == nil {
					_, err = plan.Copy(t.Context())
				}
			}
			require.Error(t, err)
			assert.Zero(t, target.Count("PUT", "/manifests/"))
		})
	}
}

func TestLayoutRoundTrip(t *testing.T) {
	const n = 6
	source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", n)
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")

	copied(t, p.image.Pullspec, mirror.NewLayout(first), mirror.Options{})
	assert.NoDirExists(t, filepath.Join(first, ".partial"))
	require.NoError(t, source.Close())
	requireComplete(t, p, inFolder(first))

	found, err := mirror.Releases(t.Context(), reader(t), first)
	require.NoError(t, err)
	require.Equal(t, []string{"1.0.0-x86_64"}, found)
	copied(t, first+":"+found[0], repository(t, target), mirror.Options{})
	requireComplete(t, p, inRegistry(target))

	copied(t, target.Host()+"/"+mirrorRepository+":1.0.0-x86_64", mirror.NewLayout(second), mirror.Options{})
	assert.Equal(t, files(t, first), files(t, second), "the folders are equal, byte for byte")

	again := copied(t, first+":"+found[0], repository(t, target), mirror.Options{})
	assert.Equal(t, documents(n), again.There)
}

// files are the names and contents of a folder.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir)] = string(data)
		return err
	}))
	return out
}

// A mirror's components are found in the mirror, though the release names their original repository.
func TestMirrorOfMirror(t *testing.T) {
	source, first, second := fixture.StartRegistry(t), fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 3)
	copied(t, p.image.Pullspec, repository(t, first), mirror.Options{})
	source.Reset()
	source.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/"), Status: http.StatusForbidden})
	copied(t, first.Host()+"/"+mirrorRepository+":1.0.0-x86_64", repository(t, second), mirror.Options{})
	requireComplete(t, p, inRegistry(second))
	assert.Equal(t, 1, source.Count("GET", "/manifests/"), "asked once, not for every component")
}

func TestDamagedLayout(t *testing.T) {
	source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 2)
	dir := t.TempDir()
	copied(t, p.image.Pullspec, mirror.NewLayout(dir), mirror.Options{})
	var largest string
	for name, data := range files(t, dir) {
		if strings.Contains(name, "/blobs/") && len(data) >= 40_000 {
			largest = filepath.Join(dir, name)
		}
	}
	whole, err := os.ReadFile(largest)
	require.NoError(t, err)

	changed := append([]byte{}, whole...)
	changed[100] ^= 1
	require.NoError(t, os.WriteFile(largest, changed, 0o644))
	plan, _, err := planOf(t, dir+":1.0.0-x86_64", repository(t, target), false, mirror.Options{})
	require.NoError(t, err)
	_, err = plan.Copy(t.Context())
	require.ErrorIs(t, err, image.ErrIntegrity, "what lies on a disk is checked when it is copied on")

	require.NoError(t, os.WriteFile(largest, whole[:1000], 0o644))
	result := copied(t, p.image.Pullspec, mirror.NewLayout(dir), mirror.Options{})
	assert.Equal(t, 1, result.Blobs, "a cut file is copied again")
	requireComplete(t, p, inFolder(dir))
}

func TestLayoutRefusesOtherFolders(t *testing.T) {
	source := fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 1)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "diary.txt"), []byte("dear diary"), 0o644))
	plan, _, err := planOf(t, p.image.Pullspec, mirror.NewLayout(dir), false, mirror.Options{})
	require.NoError(t, err)
	_, err = plan.Copy(t.Context())
	require.ErrorContains(t, err, "neither empty nor an OCI layout")
}

func TestLayoutIsForOneProcess(t *testing.T) {
	source := fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 1)
	dir := t.TempDir()
	first := mirror.NewLayout(dir)
	plan, _, err := planOf(t, p.image.Pullspec, first, false, mirror.Options{})
	require.NoError(t, err)
	_, err = plan.Copy(t.Context())
	require.NoError(t, err)
	second, _, err := planOf(t, p.image.Pullspec, mirror.NewLayout(dir), false, mirror.Options{})
	require.NoError(t, err)
	_, err = second.Copy(t.Context())
	require.ErrorContains(t, err, "another process")
	require.NoError(t, first.Close())
}

func TestSince(t *testing.T) {
	source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
	older, newer := publish(t, source, "1.0.0", 3), publish(t, source, "1.1.0", 5)
	whole, difference := t.TempDir(), t.TempDir()
	copied(t, older.image.Pullspec, mirror.NewLayout(whole), mirror.Options{})
	oldPlan, _, err := planOf(t, older.image.Pullspec, repository(t, target), false, mirror.Options{})
	require.NoError(t, err)
	result := copied(t, newer.image.Pullspec, mirror.NewLayout(difference), mirror.Options{Without: oldPlan.Blobs()})
	assert.Equal(t, 2*2+2, result.Blobs, "two new components, and the release's layer and configuration")

	named, err := mirror.Releases(t.Context(), reader(t), difference)
	require.NoError(t, err, "the configurations of images that did not change are not there")
	assert.Equal(t, []string{"1.1.0-x86_64"}, named)
	plan, _, err := planOf(t, difference+":1.1.0-x86_64", repository(t, target), false, mirror.Options{})
	require.NoError(t, err)
	_, err = plan.Copy(t.Context())
	require.Error(t, err, "the older release is not there yet")

	copied(t, whole+":1.0.0-x86_64", repository(t, target), mirror.Options{})
	copied(t, difference+":1.1.0-x86_64", repository(t, target), mirror.Options{})
	requireComplete(t, newer, inRegistry(target))
}

func TestProgressTellsOfEveryImage(t *testing.T) {
	source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 5)
	var mu sync.Mutex
	last := map[string]mirror.Event{}
	copied(t, p.image.Pullspec, repository(t, target), mirror.Options{Progress: func(e mirror.Event) {
		mu.Lock()
		defer mu.Unlock()
		last[e.Name] = e
	}})
	require.Len(t, last, 6)
	for name, e := range last {
		assert.True(t, e.Ended, name)
		assert.False(t, e.There, name)
		assert.Equal(t, e.Total, e.Done, name)
	}
}

func TestCopyStopsWhenAskedTo(t *testing.T) {
	source, target := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 3)
	plan, _, err := planOf(t, p.image.Pullspec, repository(t, target), false, mirror.Options{})
	require.NoError(t, err)
	target.AddFault(fixture.Fault{Match: fixture.MatchPath("/uploads/"), Delay: time.Hour})
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(200*time.Millisecond, func() { cancel(why) })
	_, err = plan.Copy(ctx)
	require.ErrorIs(t, err, why)
	assert.ErrorContains(t, err, "run it again")
}
