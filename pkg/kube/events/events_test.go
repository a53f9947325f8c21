package events

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/kube/fence"
	"github.com/cluster-version/cvo/pkg/kube/lead"
)

// TestRejectedEventDoesNotDelayOthers sends an event that the fence rejects. The event is dropped, and the next one is written immediately.
func TestRejectedEventDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &answering{}
		var renewed atomic.Pointer[time.Time]
		renewed.Store(&time.Time{})
		f := fence.New(clock.RealClock{}, lead.DefaultLeaseDuration, func() time.Time { return *renewed.Load() })
		core, err := corev1client.NewForConfig(&rest.Config{Host: "https://server", Transport: f.Wrap(server)})
		require.NoError(t, err)
		broadcaster := newBroadcaster(core)
		recorder := broadcaster.NewRecorder(clientgoscheme.Scheme, corev1.EventSource{Component: "x"})
		about := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "y"}}
		recorder.Event(about, corev1.EventTypeNormal, "Rejected", "the fence is shut")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Empty(t, server.got)
		renewed.Store(new(time.Now()))
		recorder.Event(about, corev1.EventTypeNormal, "Written", "the fence is open")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Len(t, server.got, 1)
		broadcaster.Shutdown()
	})
}

// TestEventsOfOneReasonAreNotCombined emits one event for each runlevel of a release.
func TestEventsOfOneReasonAreNotCombined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &echo{}
		core, err := corev1client.NewForConfig(&rest.Config{Host: "https://server", Transport: server, QPS: -1})
		require.NoError(t, err)
		broadcaster := newBroadcaster(core)
		defer broadcaster.Shutdown()
		recorder := broadcaster.NewRecorder(clientgoscheme.Scheme, corev1.EventSource{Component: "x"})
		about := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "y"}}
		for level := range 30 {
			recorder.Eventf(about, corev1.EventTypeNormal, "RunlevelReached", "Reached runlevel %02d", level)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Len(t, server.got, 30)
		for i, body := range server.got {
			assert.Contains(t, body, fmt.Sprintf("Reached runlevel %02d", i))
			assert.NotContains(t, body, "combined")
		}
	})
}

// echo is an in-memory server that stores what it gets.
type echo struct{ got []string }

func (e *echo) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	e.got = append(e.got, string(body))
	return &http.Response{StatusCode: http.StatusCreated, Header: r.Header, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, err
}

// answering is an in-memory server that records its requests.
type answering struct{ got []*http.Request }

func (a *answering) RoundTrip(r *http.Request) (*http.Response, error) {
	a.got = append(a.got, r)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("ok")), Request: r}, nil
}
