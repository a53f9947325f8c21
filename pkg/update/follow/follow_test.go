package follow

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/clusterversions"
)

func keptObjects() cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{})
}

// listedNow is an informer whose first list arrives during HasSynced.
type listedNow struct {
	cache.SharedIndexInformer
	object *unstructured.Unstructured
}

func (i listedNow) HasSynced() bool { return i.GetStore().Add(i.object) == nil }

func TestFollowerDistinguishesFirstListFromDeletion(t *testing.T) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(configv1.GroupVersion.WithKind("ClusterVersion"))
	object.SetName("version")
	cv, err := (&Follower{Name: "version"}).version(listedNow{keptObjects(), object})
	require.NoError(t, err)
	require.NotNil(t, cv)
}

func TestFollowerKeepsTheLastAnswer(t *testing.T) {
	said := []*report.Snapshot{{Progress: report.Progress{
		Release: release.Release{Version: "1.1.0"}, Runlevels: []report.Runlevel{{Runlevel: 10, Total: 1, Done: 1}},
	}}}
	f := &Follower{Name: "version", Progress: func(context.Context) (*report.Snapshot, error) {
		if len(said) == 0 {
			return nil, nil // nothing has changed
		}
		defer func() { said = said[1:] }()
		return said[0], nil
	}}
	rollouts, object := keptObjects(), clusterversions.Rollout()
	object.SetName("version")
	require.NoError(t, rollouts.GetStore().Add(object))
	for range 2 {
		f.readLevels(t.Context(), Goal{runlevel: 10}, rollouts)
		assert.Equal(t, "1.1.0", f.levels.version)
		assert.True(t, f.levels.upTo(10))
	}

	// Runlevels from the ReleaseRollout take precedence. It may report a pause before any runlevels.
	paused := []any{map[string]any{"type": api.RolloutPaused, "status": string(metav1.ConditionTrue), "message": "Held back."}}
	require.NoError(t, unstructured.SetNestedSlice(object.Object, paused, "status", "conditions"))
	f.readLevels(t.Context(), Goal{runlevel: 10}, rollouts)
	assert.True(t, f.levels.upTo(10))
	assert.Equal(t, "Held back.", f.levels.paused)
	require.NoError(t, unstructured.SetNestedMap(object.Object, map[string]any{
		"to": "1.2.0", "runlevels": []any{map[string]any{"runlevel": int64(10)}},
	}, "status", "current"))
	f.readLevels(t.Context(), Goal{runlevel: 10}, rollouts)
	assert.Equal(t, "1.2.0", f.levels.version)
	assert.False(t, f.levels.upTo(10))
}

func TestFollowerReadsRunlevelsOnlyIfItsGoalNeedsThem(t *testing.T) {
	f := &Follower{Progress: func(context.Context) (*report.Snapshot, error) {
		return &report.Snapshot{Progress: report.Progress{Release: release.Release{Version: "1.1.0"}, Runlevels: []report.Runlevel{{Runlevel: 10, Total: 1, Done: 1}}}}, nil
	}}
	f.readLevels(t.Context(), Goal{Completed: true}, nil)
	assert.Empty(t, f.levels.done, "the goal completed needs no runlevels")
	f.readLevels(t.Context(), Goal{runlevel: 10}, nil)
	assert.True(t, f.levels.upTo(10))

	var printed []string
	f = &Follower{Print: func(line string) { printed = append(printed, line) }, Progress: func(context.Context) (*report.Snapshot, error) { return nil, io.ErrUnexpectedEOF }}
	f.readLevels(t.Context(), Goal{runlevel: 10}, nil)
	f.readLevels(t.Context(), Goal{runlevel: 10}, nil)
	assert.Equal(t, []string{"warning: cannot read the runlevels: unexpected EOF"}, printed, "a repeated line is not printed")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func response(t *testing.T, code int, object any) *http.Response {
	t.Helper()
	content, err := json.Marshal(object)
	require.NoError(t, err)
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(content))}
}

// A restarting API server answers 403 until it has read the roles, and a credential plugin may have to renew a token after a 401.
func TestFollowerToleratesTransientRejections(t *testing.T) {
	for _, test := range []struct {
		name string
		code int
		// rejected reports whether the server rejects the n-th request. Request 1 is the first list, and request 2 the watch after it.
		rejected func(n int) bool
		// completed is the number of the request from which on the update is complete; 0 if the follower ends with an error.
		completed int
		// gaveUpAfter is the minimum duration until the error.
		gaveUpAfter time.Duration
	}{
		{name: "it repeats forbidden requests", code: http.StatusForbidden, rejected: func(n int) bool { return n >= 2 && n <= 4 }, completed: 5},
		{name: "it repeats requests with an expired token", code: http.StatusUnauthorized, rejected: func(n int) bool { return n == 2 }, completed: 3},
		{name: "it repeats requests after each restart", code: http.StatusForbidden, rejected: func(n int) bool { return n == 2 || n == 5 }, completed: 6},
		{name: "it ends if permissions stay missing", code: http.StatusForbidden, rejected: func(n int) bool { return n >= 2 }, gaveUpAfter: permissionPatience},
		{name: "it ends without permissions", code: http.StatusForbidden, rejected: func(int) bool { return true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests := 0
				transport := roundTripper(func(r *http.Request) (*http.Response, error) {
					query := r.URL.Query()
					if !strings.HasSuffix(r.URL.Path, "/clusterversions") || query.Has("sendInitialEvents") {
						return response(t, http.StatusNotFound, metav1.Status{}), nil
					}
					requests++
					if test.rejected(requests) {
						return response(t, test.code, metav1.Status{}), nil
					}
					if query.Has("watch") {
						body, end := io.Pipe()
						time.AfterFunc(time.Hour, func() { _ = end.Close() })
						return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
					}
					state := configv1.PartialUpdate
					if test.completed > 0 && requests >= test.completed {
						state = configv1.CompletedUpdate
					}
					cv := awaited("1.1.0", "1.1.0", state)
					cv.SetGroupVersionKind(configv1.GroupVersion.WithKind("ClusterVersion"))
					list := configv1.ClusterVersionList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []configv1.ClusterVersion{*cv}}
					list.SetGroupVersionKind(configv1.GroupVersion.WithKind("ClusterVersionList"))
					return response(t, http.StatusOK, list), nil
				})
				f := &Follower{
					Clock: clock.RealClock{}, Patience: time.Hour, Name: "version", Print: func(string) {},
					Config: &rest.Config{Host: "http://api.example", Transport: transport, QPS: -1},
				}
				start := time.Now()
				verdict, err := f.Wait(t.Context(), Goal{Completed: true})
				if test.completed > 0 {
					require.NoError(t, err)
					assert.Equal(t, Reached, verdict.State)
					return
				}
				require.ErrorContains(t, err, "you need permission to list and watch them")
				assert.GreaterOrEqual(t, time.Since(start), test.gaveUpAfter)
				assert.Less(t, time.Since(start), test.gaveUpAfter+time.Minute+time.Second)
			})
		})
	}
}
