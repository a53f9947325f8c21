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

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/mirror"
	"github.com/cluster-version/cvo/pkg/oci/mirror/target"
	"github.com/cluster-version/cvo/test/fixture"
)

// documents and blobs return the number of distinct documents and blobs in a published release with n components.
func documents(n int) int { return n + 1 }
func blobs(n int) int     { return 1 + 2 + n + n + 3 } // the layers of all images, of half of them and of one; configurations; release

func TestCopyToARegistryIsComplete(t *testing.T) {
	const n = 12
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", n)

	result := copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{})
	assert.Equal(t, documents(n), result.Documents)
	assert.Equal(t, blobs(n), result.Blobs+result.Spared)
	assert.Zero(t, result.Retries)
	assert.Equal(t, result.Blobs, downloads(source), "each blob is fetched only once, even if it is read and copied")
	for _, request := range source.Requests() {
		assert.Less(t, request.Status, 500)
	}
	source.Reset()
	requireComplete(t, p, inRegistry(destination))
	assert.Empty(t, source.Requests())

	destination.Reset()
	again := copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{})
	assert.Equal(t, documents(n), again.There)
	assert.Zero(t, again.Blobs)
	assert.Zero(t, uploads(destination), "nothing is sent to a finished mirror")
	assert.Equal(t, documents(n), destination.Count("HEAD", "."), "one request for each manifest")
	assert.LessOrEqual(t, downloads(source), 2, "only the required parts of the release")
}

func TestCopyWithinRegistryMounts(t *testing.T) {
	r := fixture.StartRegistry(t)
	p := publish(t, r, "1.0.0", 5)
	result := copied(t, p.image.Pullspec, targetAt(t, r), mirror.Options{})
	assert.Zero(t, result.Blobs)
	assert.Zero(t, r.Count("PATCH", "."), "nothing is uploaded")
	assert.LessOrEqual(t, downloads(r), 2, "only the required parts of the release")
	requireComplete(t, p, inRegistry(r))
}

func TestCopySurvivesFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	blob := fixture.MatchPath(`/blobs/`)
	manifest := fixture.MatchPath(`/manifests/`)
	put := func(r *http.Request) bool { return r.Method == http.MethodPut || r.Method == http.MethodPatch }
	for _, tt := range []struct {
		name                string
		source, destination *fixture.Fault
	}{
		{"resumes broken downloads", &fixture.Fault{Match: blob, Truncate: 7_000, Times: 5}, nil},
		{"retries if the source is overloaded", &fixture.Fault{Match: fixture.MatchPath(`/components/blobs/`), Status: http.StatusTooManyRequests, RetryAfter: "0", Times: 6}, nil},
		{"retries if the source fails", &fixture.Fault{Match: manifest, Status: http.StatusInternalServerError, Times: 4}, nil},
		{"retries if the target is overloaded", nil, &fixture.Fault{Status: http.StatusTooManyRequests, RetryAfter: "0", Times: 10}},
		{"retries if the target fails", nil, &fixture.Fault{Match: put, Status: http.StatusServiceUnavailable, Times: 10}},
		{"waits for a slow target", nil, &fixture.Fault{Delay: 20 * time.Millisecond}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			t.Parallel()
			source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
			p := publish(t, source, "1.0.0", 6)
			if tt.source != nil {
				source.AddFault(*tt.source)
			}
			if tt.destination != nil {
				destination.AddFault(*tt.destination)
			}
			copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{Width: 4})
			requireComplete(t, p, inRegistry(destination))
		})
	}
}

//threat:mirror-interrupted-again
func TestReleaseIsWrittenLast(t *testing.T) {
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 4)
	lost := p.components["component-002"]
	remove := destination.AddFault(fixture.Fault{
		Match: func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "component-002")
		},
		Status: http.StatusForbidden,
	})
	plan, _, err := planOf(t, p.image.Pullspec, targetAt(t, destination), false, mirror.Options{Attempts: 1})
	require.NoError(t, err)
	_, err = plan.Copy(t.Context())
	require.ErrorIs(t, err, failure.ErrUnauthorized)
	require.ErrorContains(t, err, string(lost.Digest))
	assert.Zero(t, destination.Count("PUT", `/manifests/1\.0\.0-x86_64$`), "the release is written before it is complete")

	remove()
	result := copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{})
	assert.Equal(t, 1, destination.Count("PUT", `/manifests/1\.0\.0-x86_64$`))
	assert.Positive(t, result.There+result.Spared, "existing content is not copied again")
	requireComplete(t, p, inRegistry(destination))
}

func TestFailuresAreReportedTogether(t *testing.T) {
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 4)
	destination.AddFault(fixture.Fault{
		Match: func(r *http.Request) bool {
			return r.Method == http.MethodPut && (strings.Contains(r.URL.Path, "component-001") || strings.Contains(r.URL.Path, "component-003"))
		},
		Status: http.StatusBadRequest,
	})
	plan, _, err := planOf(t, p.image.Pullspec, targetAt(t, destination), false, mirror.Options{})
	require.NoError(t, err)
	_, err = plan.Copy(t.Context())
	require.ErrorContains(t, err, "3 of 5 manifests are missing", "two components and the release")
	require.ErrorContains(t, err, "component-001")
	require.ErrorContains(t, err, "component-003")
	assert.Equal(t, 2, destination.Count("PUT", `/manifests/1.0.0-x86_64-component-00[02]$`), "all other components are copied")
}

//threat:content-changes-way
func TestChangedContentIsRejected(t *testing.T) {
	for _, tt := range []struct{ name, path string }{
		{"rejects a changed manifest", `/upstream/components/manifests/`},
		{"rejects a changed layer", `/upstream/components/blobs/`},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			t.Parallel()
			source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
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
			list, err := r.Images(t.Context(), access(), images, images, mirror.Destination{To: targetAt(t, destination)})
			if err == nil {
				var plan *mirror.Plan
				if plan, err = mirror.New(t.Context(), list, mirror.Options{Attempts: 2}); err == nil {
					_, err = plan.Copy(t.Context())
				}
			}
			require.Error(t, err)
			assert.Zero(t, destination.Count("PUT", "/manifests/"))
		})
	}
}

func TestLayoutCarriesAReleaseToARegistry(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const n = 6
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", n)
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")

	copied(t, p.image.Pullspec, target.NewLayout(first), mirror.Options{})
	assert.NoDirExists(t, filepath.Join(first, ".partial"))
	require.NoError(t, source.Close())
	requireComplete(t, p, inFolder(first))

	found, err := mirror.Releases(t.Context(), reader(t), first)
	require.NoError(t, err)
	require.Equal(t, []string{"1.0.0-x86_64"}, found)
	copied(t, first+":"+found[0], targetAt(t, destination), mirror.Options{})
	requireComplete(t, p, inRegistry(destination))

	copied(t, destination.Host()+"/"+mirrorRepository+":1.0.0-x86_64", target.NewLayout(second), mirror.Options{})
	assert.Equal(t, files(t, first), files(t, second), "the folders are identical")

	again := copied(t, first+":"+found[0], targetAt(t, destination), mirror.Options{})
	assert.Equal(t, documents(n), again.There)
}

// files returns the names and contents of all files in a folder.
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

// TestMirrorCanBeMirrored reads components from the mirror, although the release names their original repository.
func TestMirrorCanBeMirrored(t *testing.T) {
	source, first, second := fixture.StartRegistry(t), fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 3)
	copied(t, p.image.Pullspec, targetAt(t, first), mirror.Options{})
	source.Reset()
	source.AddFault(fixture.Fault{Match: fixture.MatchPath("/manifests/"), Status: http.StatusForbidden})
	copied(t, first.Host()+"/"+mirrorRepository+":1.0.0-x86_64", targetAt(t, second), mirror.Options{})
	requireComplete(t, p, inRegistry(second))
	assert.Equal(t, 1, source.Count("GET", "/manifests/"), "the original repository is contacted once, not for each component")
}

//threat:content-changes-way
func TestDamagedLayoutIsRejected(t *testing.T) {
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 2)
	dir := t.TempDir()
	copied(t, p.image.Pullspec, target.NewLayout(dir), mirror.Options{})
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
	plan, _, err := planOf(t, dir+":1.0.0-x86_64", targetAt(t, destination), false, mirror.Options{})
	require.NoError(t, err)
	_, err = plan.Copy(t.Context())
	require.ErrorIs(t, err, failure.ErrIntegrity, "content on disk is verified when it is copied")

	require.NoError(t, os.WriteFile(largest, whole[:1000], 0o644))
	result := copied(t, p.image.Pullspec, target.NewLayout(dir), mirror.Options{})
	assert.Equal(t, 1, result.Blobs, "a truncated file is copied again")
	requireComplete(t, p, inFolder(dir))
}

func TestLayoutRejectsOtherFolders(t *testing.T) {
	source := fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 1)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "diary.txt"), []byte("dear diary"), 0o644))
	plan, _, err := planOf(t, p.image.Pullspec, target.NewLayout(dir), false, mirror.Options{})
	require.NoError(t, err)
	_, err = plan.Copy(t.Context())
	require.ErrorContains(t, err, "neither empty nor an OCI layout")
}

func TestLayoutIsForOneProcess(t *testing.T) {
	source := fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 1)
	dir := t.TempDir()
	first := target.NewLayout(dir)
	plan, _, err := planOf(t, p.image.Pullspec, first, false, mirror.Options{})
	require.NoError(t, err)
	_, err = plan.Copy(t.Context())
	require.NoError(t, err)
	second, _, err := planOf(t, p.image.Pullspec, target.NewLayout(dir), false, mirror.Options{})
	require.NoError(t, err)
	_, err = second.Copy(t.Context())
	require.ErrorContains(t, err, "another process")
	require.NoError(t, first.Close())
}

func TestSinceOmitsImagesOfTheEarlierRelease(t *testing.T) {
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	older, newer := publish(t, source, "1.0.0", 3), publish(t, source, "1.1.0", 5)
	whole, difference := t.TempDir(), t.TempDir()
	copied(t, older.image.Pullspec, target.NewLayout(whole), mirror.Options{})
	oldPlan, _, err := planOf(t, older.image.Pullspec, targetAt(t, destination), false, mirror.Options{})
	require.NoError(t, err)
	result := copied(t, newer.image.Pullspec, target.NewLayout(difference), mirror.Options{Without: oldPlan.Blobs()})
	assert.Equal(t, 2*2+2, result.Blobs, "two new components, and the release's layer and configuration")

	named, err := mirror.Releases(t.Context(), reader(t), difference)
	require.NoError(t, err, "configurations of unchanged images are missing")
	assert.Equal(t, []string{"1.1.0-x86_64"}, named)
	plan, _, err := planOf(t, difference+":1.1.0-x86_64", targetAt(t, destination), false, mirror.Options{})
	require.NoError(t, err)
	_, err = plan.Copy(t.Context())
	require.Error(t, err, "the earlier release is missing")

	copied(t, whole+":1.0.0-x86_64", targetAt(t, destination), mirror.Options{})
	copied(t, difference+":1.1.0-x86_64", targetAt(t, destination), mirror.Options{})
	requireComplete(t, newer, inRegistry(destination))
}

func TestProgressReportsEveryImage(t *testing.T) {
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 5)
	var mu sync.Mutex
	last := map[string]mirror.Event{}
	copied(t, p.image.Pullspec, targetAt(t, destination), mirror.Options{Progress: func(e mirror.Event) {
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

func TestCopyStopsWithItsContext(t *testing.T) {
	source, destination := fixture.StartRegistry(t), fixture.StartRegistry(t)
	p := publish(t, source, "1.0.0", 3)
	plan, _, err := planOf(t, p.image.Pullspec, targetAt(t, destination), false, mirror.Options{})
	require.NoError(t, err)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	destination.AddFault(fixture.Fault{Delay: time.Hour, Match: func(r *http.Request) bool {
		uploads := strings.Contains(r.URL.Path, "/uploads/")
		if uploads {
			cancel(why)
		}
		return uploads
	}})
	_, err = plan.Copy(ctx)
	require.ErrorIs(t, err, why)
	assert.ErrorContains(t, err, "run the command again")
}
