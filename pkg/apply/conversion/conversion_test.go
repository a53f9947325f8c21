package conversion_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/apply/conversion"
	"github.com/cluster-version/cvo/pkg/apply/request"
)

func TestDefinitionIsReadOncePerInterval(t *testing.T) {
	var reads atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads.Add(1)
		assert.Equal(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", r.URL.Path)
		assert.Equal(t, "metadata.name=widgets.example.com", r.URL.Query().Get("fieldSelector"))
		_, _ = io.WriteString(w, `{"items":[{"spec":{"conversion":{"strategy":"None"}}}]}`)
	}))
	defer server.Close()
	client, err := request.Connect(&rest.Config{Host: server.URL}, server.Client())
	require.NoError(t, err)
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	clk := clocktesting.NewFakePassiveClock(time.Now())
	cache := conversion.NewCache(clk)

	var callers errgroup.Group
	for range 20 {
		callers.Go(func() error {
			crd, err := cache.Definition(t.Context(), client, widgets)
			assert.True(t, crd.OnlyRenames)
			return err
		})
	}
	require.NoError(t, callers.Wait())
	assert.EqualValues(t, 1, reads.Load(), "concurrent callers share one read")

	clk.SetTime(clk.Now().Add(time.Minute))
	_, err = cache.Definition(t.Context(), client, widgets)
	require.NoError(t, err)
	assert.EqualValues(t, 2, reads.Load())
}

// TestForbiddenDefinitionCountsAsOneThatConverts has an operator that may not list definitions: the object is applied as it is.
func TestForbiddenDefinitionCountsAsOneThatConverts(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
	}))
	defer server.Close()
	client, err := request.Connect(&rest.Config{Host: server.URL}, server.Client())
	require.NoError(t, err)
	crd, err := conversion.NewCache(clocktesting.NewFakePassiveClock(time.Now())).Definition(t.Context(), client, schema.GroupResource{Group: "example.com", Resource: "widgets"})
	require.NoError(t, err)
	assert.Empty(t, crd)
}
