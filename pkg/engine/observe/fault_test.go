package observe_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/test/env"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

func TestEndedWatchIsResumed(t *testing.T) {
	for name, err := range map[string]error{
		"resumes after the server ends it":    io.EOF,
		"resumes after a broken connection":   io.ErrUnexpectedEOF,
		"resumes after a connection reset":    errReset,
		"resumes after an HTTP framing error": http.ErrBodyNotAllowed,
		"resumes after an oversized event":    http.ErrHandlerTimeout,
	} {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t)
			us := as(t, controlPlane.For(t), api.FieldManager)
			l, config := connect(t, controlPlane.For(t))
			w := start(t, config, owned(t), testLog(t))
			scope := observe.Scope{Resource: configMaps}
			us.apply(t, configMaps, configMap(t, ns, "a", "k: v"))
			us.apply(t, configMaps, configMap(t, ns, "b", "k: v"))
			w.until(t, scope, ns, "b", there)
			require.Len(t, l.asked(all), 1)

			down := make(chan struct{})
			l.meddleWith(func(*http.Request) *http.Response { <-down; return nil })
			l.cut(err)
			require.Eventually(t, func() bool { return len(l.asked(all)) == 2 }, patience, time.Millisecond)
			us.delete(t, configMaps, ns, "a")
			b := us.apply(t, configMaps, configMap(t, ns, "b", "k: w"))
			us.apply(t, configMaps, configMap(t, ns, "c", "k: v"))
			assert.True(t, there(w.Look(scope, ns, "a")), "the earlier state still counts")
			close(down)

			w.until(t, scope, ns, "c", there)
			assert.True(t, gone(w.Look(scope, ns, "a")))
			assert.True(t, at(b.GetResourceVersion())(w.Look(scope, ns, "b")))
		})
	}
}

func TestWatchResumesWithoutAList(t *testing.T) {
	ns := namespace(t)
	us := as(t, controlPlane.For(t), api.FieldManager)
	l, config := connect(t, controlPlane.For(t))
	w := start(t, config, owned(t), testLog(t))
	scope := observe.Scope{Resource: configMaps}
	w.synced(t, scope)
	us.apply(t, configMaps, configMap(t, ns, "a", "k: v")) // a watch without any event would be restarted
	w.until(t, scope, ns, "a", there)

	l.cut(io.ErrUnexpectedEOF)
	us.apply(t, configMaps, configMap(t, ns, "b", "k: v"))
	w.until(t, scope, ns, "b", there)
	requests := l.asked(all)
	require.Len(t, requests, 2)
	assert.True(t, requests[0].initial)
	assert.False(t, requests[1].initial, "known states are not requested again")
}

// TestExpiredWatchListsAgain makes the API server reject the resume version as too old: the server has no state from before the CRD
// existed.
func TestExpiredWatchListsAgain(t *testing.T) {
	us := as(t, controlPlane.For(t), api.FieldManager)
	l, config := connect(t, controlPlane.For(t))
	w := start(t, config, owned(t), testLog(t))
	relics := schema.GroupVersionResource{Group: "observe.example.com", Version: "v1", Resource: "relics"}
	scope := observe.Scope{Resource: relics}
	us.apply(t, definitions, object(t, fmt.Sprintf(thingDefinition, "relic", "Relic")))
	w.synced(t, scope)
	us.apply(t, relics, object(t, "{apiVersion: observe.example.com/v1, kind: Relic, metadata: {name: a, labels: {"+api.OwnedByLabel+": "+testName(t)+"}}}"))
	w.until(t, scope, "", "a", there)

	l.meddleWith(func(r *http.Request) *http.Response {
		if query := r.URL.Query(); to("relics")(request{path: r.URL.Path}) && query.Get("sendInitialEvents") == "" {
			query.Set("resourceVersion", "1")
			r.URL.RawQuery = query.Encode()
			us.delete(t, relics, "", "a") // only the missing object shows the deletion
		}
		return nil
	})
	before, changes := len(l.asked(to("relics"))), w.changes.Load()
	l.cut(io.EOF)
	w.until(t, scope, "", "a", gone)
	w.callsAfter(t, changes)
	requests := l.asked(to("relics"))[before:]
	require.Len(t, requests, 2)
	assert.False(t, requests[0].initial)
	assert.True(t, requests[1].initial)
}

// TestServersWithoutWatchListAreListed covers servers that cannot start a watch with the initial state.
func TestServersWithoutWatchListAreListed(t *testing.T) {
	ns := namespace(t)
	us := as(t, controlPlane.For(t), api.FieldManager)
	l, config := connect(t, controlPlane.For(t))
	l.meddleWith(func(r *http.Request) *http.Response {
		if r.URL.Query().Get("sendInitialEvents") == "" {
			return nil
		}
		answer, err := refusing(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)(r).respond(r)
		assert.NoError(t, err)
		return answer
	})
	us.apply(t, configMaps, configMap(t, ns, "a", "k: v"))
	w := start(t, config, owned(t), testLog(t))
	scope := observe.Scope{Resource: configMaps}
	w.until(t, scope, ns, "a", there)
	us.apply(t, configMaps, configMap(t, ns, "b", "k: v"))
	w.until(t, scope, ns, "b", there)
	requests := l.asked(all)
	require.Len(t, requests, 3)
	assert.True(t, requests[1].list)
	assert.NotEmpty(t, requests[1].query, "only our objects are listed")
}

func TestWatchSurvivesARestartOfTheServer(t *testing.T) {
	env.NeedControlPlane(t)
	dir := t.TempDir()
	first, err := env.Start(env.Options{Dir: dir, Audit: env.AuditNone})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, first.Stop()) })
	l, config := connect(t, first)
	w := start(t, config, owned(t), testLog(t))
	us := as(t, first, api.FieldManager)
	const scopes = 30
	us.apply(t, configMaps, configMap(t, "default", "a", "k: v"))
	us.apply(t, configMaps, configMap(t, "default", "b", "k: v"))
	scope := func(i int) observe.Scope {
		if i == 0 {
			return observe.Scope{Resource: configMaps}
		}
		return observe.Scope{Resource: configMaps, Namespace: "default", Name: fmt.Sprint("n", i)}
	}
	for i := range scopes {
		w.synced(t, scope(i))
	}
	w.until(t, scope(0), "default", "b", there)

	require.NoError(t, first.Stop())
	down := time.Now()
	second := env.New(t, env.Options{Dir: dir, Audit: env.AuditNone})
	us = as(t, second, api.FieldManager)
	us.delete(t, configMaps, "default", "a")
	l.lead(t, second)
	up := time.Now()
	for i := range scopes {
		assert.True(t, w.Look(scope(i), "default", "b").Synced, "the watch is resuming")
	}
	w.until(t, scope(0), "default", "a", gone)
	b := us.apply(t, configMaps, configMap(t, "default", "b", "k: w"))
	w.until(t, scope(0), "default", "b", at(b.GetResourceVersion()))
	require.Eventually(t, func() bool { return l.watches() == scopes }, patience, time.Millisecond)
	t.Logf("down for %s, all watches back after %s, %d requests", up.Sub(down), time.Since(up), len(l.asked(all)))
	assert.Less(t, len(l.asked(all)), scopes*12, "the delays increase")
	w.stop() // otherwise the server would wait for the Watcher
}

const thingDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.observe.example.com}
spec:
  group: observe.example.com
  scope: Cluster
  names: {plural: %[1]ss, singular: %[1]s, kind: %[2]s, listKind: %[2]sList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

func TestWatchFollowsItsCRD(t *testing.T) {
	us := as(t, controlPlane.For(t), api.FieldManager)
	l, config := connect(t, controlPlane.For(t))
	w := start(t, config, owned(t), testLog(t))
	widgets := schema.GroupVersionResource{Group: "observe.example.com", Version: "v1", Resource: "widgets"}
	scope := observe.Scope{Resource: widgets}
	definition := object(t, fmt.Sprintf(thingDefinition, "widget", "Widget"))
	widget := object(t, "{apiVersion: observe.example.com/v1, kind: Widget, metadata: {name: a, labels: {"+api.OwnedByLabel+": "+testName(t)+"}}}")

	// The resource is not served at first.
	begin := time.Now()
	w.Look(scope, "", "a")
	require.Eventually(t, func() bool { return len(l.asked(to("widgets"))) >= 4 }, patience, time.Millisecond)
	assert.Greater(t, time.Since(begin), 600*time.Millisecond, "delays of at least 200 and 400 ms")
	assert.False(t, w.Look(scope, "", "a").Synced)

	for range 2 {
		us.apply(t, definitions, definition)
		written := time.Now()
		require.Eventually(t, func() bool {
			_, err := us.on(widgets, "").List(t.Context(), metav1.ListOptions{})
			return err == nil
		}, patience, 2*time.Millisecond)
		served := time.Now()
		w.synced(t, scope)
		t.Logf("served %s after the write of the CRD, watched %s later", served.Sub(written), time.Since(served))
		require.Eventually(t, func() bool {
			_, err := us.on(widgets, "").Apply(t.Context(), "a", widget, metav1.ApplyOptions{FieldManager: api.FieldManager})
			return err == nil
		}, patience, 10*time.Millisecond)
		assert.NotZero(t, w.until(t, scope, "", "a", there).State.Generation)

		changes := w.changes.Load()
		us.delete(t, definitions, "", definition.GetName())
		w.until(t, scope, "", "a", func(l observe.Look) bool { return l.State == nil })
		w.until(t, scope, "", "a", func(l observe.Look) bool { return l.Unserved })
		w.callsAfter(t, changes)
		before := len(l.asked(to("widgets")))
		require.Eventually(t, func() bool { return len(l.asked(to("widgets"))) >= before+3 }, patience, time.Millisecond)
	}
	for _, r := range l.asked(to("widgets")) {
		assert.False(t, r.list, "resources without watches are not listed either")
	}
}

func TestWatchWaitsForItsAPIService(t *testing.T) {
	ns := namespace(t)
	us := as(t, controlPlane.For(t), api.FieldManager)
	us.apply(t, apiServices, object(t, `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.down.example.com}
spec: {group: down.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true,
  service: {namespace: default, name: nobody}}`))
	t.Cleanup(func() {
		_ = us.on(apiServices, "").Delete(t.Context(), "v1.down.example.com", metav1.DeleteOptions{})
	})
	gadgets := schema.GroupVersionResource{Group: "down.example.com", Version: "v1", Resource: "gadgets"}
	l, config := connect(t, controlPlane.For(t))
	w := start(t, config, owned(t), testLog(t))
	down, up := observe.Scope{Resource: gadgets}, observe.Scope{Resource: configMaps}
	w.Look(down, "", "a")
	require.Eventually(t, func() bool {
		asked := l.asked(to("gadgets"))
		return len(asked) > 2 && asked[2].code == http.StatusServiceUnavailable
	}, patience, time.Millisecond)
	w.synced(t, up)
	us.apply(t, configMaps, configMap(t, ns, "a", "k: v"))
	w.until(t, up, ns, "a", there)
	assert.False(t, w.Look(down, "", "a").Synced)

	// An administrator deletes the APIService and creates a CRD in the same group.
	us.delete(t, apiServices, "", "v1.down.example.com")
	definition := object(t, fmt.Sprintf(thingDefinition, "gadget", "Gadget"))
	definition.SetName("gadgets.down.example.com")
	set(t, definition.Object, "down.example.com", "spec", "group")
	us.apply(t, definitions, definition)
	served := time.Now()
	w.synced(t, down)
	t.Logf("watched %s after the write of the CRD", time.Since(served))
	us.delete(t, definitions, "", definition.GetName())
}
