package apply_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

const widgetCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
  - {name: v1, served: true, storage: true, schema: &s {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
      byName: {type: object, additionalProperties: {type: object, properties: {known: {type: string}}}}}}}}}}
  - {name: v1alpha1, served: false, storage: false, schema: *s}
`

func widgets(t *testing.T, group string) *manifest.Manifest {
	t.Helper()
	return parse(t, strings.ReplaceAll(widgetCRD, "GROUP", group))
}

// asked counts the reads of discovery.
type asked struct {
	kinds.Discovery
	mu    sync.Mutex
	times int
}

func (a *asked) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	a.mu.Lock()
	a.times++
	a.mu.Unlock()
	return a.Discovery.ServerGroupsAndResourcesWithContext(ctx)
}

// discoveryFunc implements Discovery with a function.
type discoveryFunc func(context.Context) ([]*metav1.APIResourceList, error)

func (f discoveryFunc) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	lists, err := f(ctx)
	return nil, lists, err
}

func TestMapperNeedsNoRequestForCRDsOfTheRelease(t *testing.T) {
	dead := widgets(t, "dead.example.com")
	dead.Object.SetAnnotations(map[string]string{api.DeleteAnnotation: "true"})
	cluster := widgets(t, "wide.example.com")
	cluster.Object.Object["spec"].(map[string]any)["scope"] = "Cluster"
	none := discoveryFunc(func(context.Context) ([]*metav1.APIResourceList, error) { return nil, nil })
	d := &asked{Discovery: none}
	m := kinds.NewMapper(clock.RealClock{}, d, []*manifest.Manifest{
		widgets(t, "ours.example.com"), dead, cluster, configMap(t, "a", "b", "{}", "{}"),
	})

	got, err := m.Mapping(t.Context(), schema.GroupVersionKind{Group: "ours.example.com", Version: "v1", Kind: "Widget"})
	require.NoError(t, err)
	assert.Equal(t, kinds.Mapping{
		Resource: schema.GroupVersionResource{Group: "ours.example.com", Version: "v1", Resource: "widgets"}, Namespaced: true,
	}, got)
	got, err = m.Mapping(t.Context(), schema.GroupVersionKind{Group: "wide.example.com", Version: "v1", Kind: "Widget"})
	require.NoError(t, err)
	assert.False(t, got.Namespaced)
	assert.Zero(t, d.times)

	for _, gvk := range []schema.GroupVersionKind{
		{Group: "ours.example.com", Version: "v1alpha1", Kind: "Widget"}, {Group: "dead.example.com", Version: "v1", Kind: "Widget"},
	} {
		_, err = m.Mapping(t.Context(), gvk)
		assert.ErrorIs(t, err, kinds.ErrNoMatch, "kinds that are not served or are to be deleted have no match")
	}
}

func TestMapperReadsDiscoveryOnce(t *testing.T) {
	d := &asked{Discovery: discoverer(t)}
	m := kinds.NewMapper(clocktesting.NewFakePassiveClock(time.Now()), d, nil)
	for _, tt := range []struct {
		gvk  schema.GroupVersionKind
		want kinds.Mapping
	}{
		{schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, kinds.Mapping{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespaced: true}},
		{schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, kinds.Mapping{Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}}},
		{
			schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
			kinds.Mapping{
				Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Namespaced: true, Replicas: ".spec.replicas",
			},
		},
	} {
		got, err := m.Mapping(t.Context(), tt.gvk)
		require.NoError(t, err)
		assert.Equal(t, tt.want, got)
	}
	_, err := m.Mapping(t.Context(), schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"})
	require.ErrorIs(t, err, kinds.ErrNoMatch, "subresources are not kinds")
	assert.Equal(t, 1, d.times)
}

func TestAnyVersionReturnsThePreferredVersion(t *testing.T) {
	widgets := []metav1.APIResource{{Name: "widgets", Kind: "Widget"}}
	m := kinds.NewMapper(clocktesting.NewFakePassiveClock(time.Now()), discoveryFunc(func(context.Context) ([]*metav1.APIResourceList, error) {
		return []*metav1.APIResourceList{
			{GroupVersion: "example.com/v2", APIResources: widgets},
			{GroupVersion: "example.com/v1", APIResources: widgets},
			{GroupVersion: "other.com/v3", APIResources: widgets},
		}, nil
	}), nil)
	for version, want := range map[string]string{"v0": "v2", "v1": "v1", "v2": "v2", "v3": "v2"} {
		got, err := m.AnyVersion(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Widget"})
		require.NoError(t, err)
		assert.Equal(t, schema.GroupVersionResource{Group: "example.com", Version: want, Resource: "widgets"}, got.Resource, version)
	}
	_, err := m.AnyVersion(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"})
	require.ErrorIs(t, err, kinds.ErrNoMatch)
	_, err = m.Mapping(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v3", Kind: "Widget"})
	require.ErrorIs(t, err, kinds.ErrNoMatch)
	require.EqualError(t, err, `no match for kind "Widget" in example.com/v3, only in v2`)
}

func TestPreferredVersionsOfAFailedAPIAreKept(t *testing.T) {
	for range 20 { // otherwise the order of a map would decide
		clk := clocktesting.NewFakePassiveClock(time.Now())
		var lists []*metav1.APIResourceList
		failed := &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{}}
		for _, version := range []string{"v3", "v2", "v1"} { // the server prefers the first one
			gv := schema.GroupVersion{Group: "example.com", Version: version}
			lists = append(lists, &metav1.APIResourceList{GroupVersion: gv.String(), APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget"}}})
			failed.Groups[gv] = errors.New("no endpoints")
		}
		isDown := false
		m := kinds.NewMapper(clk, discoveryFunc(func(context.Context) ([]*metav1.APIResourceList, error) {
			if isDown {
				return nil, failed
			}
			return lists, nil
		}), nil)
		for _, isDown = range []bool{false, true} {
			clk.SetTime(clk.Now().Add(time.Second))
			got, err := m.AnyVersion(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v0", Kind: "Widget"})
			require.NoError(t, err)
			assert.Equal(t, "v3", got.Resource.Version)
		}
	}
}

func TestCustomResourceOfTheReleaseNeedsNoDiscovery(t *testing.T) {
	crd := widgets(t, "release.example.com")
	serveCRD(t, crd)
	d := &asked{Discovery: discoverer(t)}
	a, _ := connectBy(t, owner, kinds.NewMapper(clock.RealClock{}, d, []*manifest.Manifest{crd}))
	m := parse(t, "apiVersion: release.example.com/v1\nkind: Widget\nmetadata: {name: a, namespace: default}")
	assert.Equal(t, apply.Created, must(t, a, m).Action)
	assert.Zero(t, d.times)
}

func TestMapperFindsKindsThatAppearLater(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now())
	d := &asked{Discovery: discoverer(t)}
	m := kinds.NewMapper(clk, d, nil)
	gvk := schema.GroupVersionKind{Group: "later.example.com", Version: "v1", Kind: "Widget"}
	_, err := m.Mapping(t.Context(), gvk)
	require.ErrorIs(t, err, kinds.ErrNoMatch)

	serveCRD(t, widgets(t, gvk.Group))
	_, err = m.Mapping(t.Context(), gvk)
	require.ErrorIs(t, err, kinds.ErrNoMatch)
	assert.Equal(t, 1, d.times, "a miss must not always cause a read")

	assert.Eventually(t, func() bool { // aggregated discovery lists a CRD shortly after it is established
		clk.SetTime(clk.Now().Add(time.Second))
		mapping, err := m.Mapping(t.Context(), gvk)
		return err == nil && mapping.Resource.Resource == "widgets" && mapping.Namespaced
	}, time.Minute, 20*time.Millisecond)
	times := d.times
	clk.SetTime(clk.Now().Add(time.Hour))
	_, err = m.Mapping(t.Context(), gvk)
	require.NoError(t, err)
	assert.Equal(t, times, d.times, "known kinds must not cause a read")
}

func TestParallelMapperMissesShareOneRead(t *testing.T) {
	d := &asked{Discovery: discoverer(t)}
	m := kinds.NewMapper(clocktesting.NewFakePassiveClock(time.Now()), d, nil)
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			_, known := m.Mapping(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Secret"})
			_, unknown := m.Mapping(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Nothing"})
			assert.True(t, known == nil && errors.Is(unknown, kinds.ErrNoMatch), "%v, %v", known, unknown)
		})
	}
	group.Wait()
	assert.Equal(t, 1, d.times)
}

// TestMapperReadOutlivesACanceledCaller cancels one of two callers while their shared read continues.
func TestMapperReadOutlivesACanceledCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		m := kinds.NewMapper(clock.RealClock{}, discoveryFunc(func(ctx context.Context) ([]*metav1.APIResourceList, error) {
			<-answer
			return coreV1("Pod", "pods"), ctx.Err()
		}), nil)
		gvk := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
		ctx, cancel := withCancel(t)
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { _, err := m.Mapping(ctx, gvk); first <- err }()
		synctest.Wait()
		go func() { _, err := m.Mapping(t.Context(), gvk); second <- err }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
		close(answer)
		require.NoError(t, <-second)
	})
}

func TestMapperGivesUpOnASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := kinds.NewMapper(clock.RealClock{}, discoveryFunc(func(ctx context.Context) ([]*metav1.APIResourceList, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}), nil)
		_, err := m.Mapping(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, kinds.ErrNoMatch)
	})
}

func coreV1(kind, resource string) []*metav1.APIResourceList {
	return []*metav1.APIResourceList{{
		GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: resource, Kind: kind, Namespaced: true}},
	}}
}

func TestMapperUsesPartlyBrokenDiscovery(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now())
	extension := schema.GroupVersion{Group: "ext.example.com", Version: "v1"}
	whole := append(coreV1("Pod", "pods"),
		&metav1.APIResourceList{GroupVersion: extension.String(), APIResources: []metav1.APIResource{
			{Name: "things", Kind: "Thing"},
			{Name: "things/status", Kind: "Thing"},
			{Name: "reviews", Kind: "Review", Group: "other.example.com", Version: "v2"},
		}},
		&metav1.APIResourceList{GroupVersion: "a/b/c", APIResources: []metav1.APIResource{{Name: "bad", Kind: "Bad"}}})
	lists, failed := whole, error(nil)
	m := kinds.NewMapper(clk, discoveryFunc(func(context.Context) ([]*metav1.APIResourceList, error) {
		return lists, failed
	}), nil)
	ask := func(gvk schema.GroupVersionKind) (kinds.Mapping, error) {
		clk.SetTime(clk.Now().Add(time.Second))
		return m.Mapping(t.Context(), gvk)
	}
	got, err := ask(schema.GroupVersionKind{Group: "other.example.com", Version: "v2", Kind: "Review"})
	require.NoError(t, err)
	assert.Equal(t, extension.WithResource("reviews"), got.Resource, "a kind of another group keeps the resource under which it was found")

	lists = coreV1("Secret", "secrets")
	failed = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{extension: errors.New("no endpoints")}}
	_, err = ask(schema.GroupVersionKind{Version: "v1", Kind: "Secret"})
	require.NoError(t, err, "other APIs must stay usable")
	_, err = ask(extension.WithKind("Thing"))
	require.NoError(t, err, "known kinds of the failed API must be kept")
	_, err = ask(extension.WithKind("New"))
	require.ErrorIs(t, err, kinds.ErrUnavailable)
	require.ErrorContains(t, err, "no endpoints")
	_, err = ask(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	require.ErrorIs(t, err, kinds.ErrNoMatch, "a removed kind must not be found")

	lists, failed = nil, errors.New("connection refused")
	_, err = ask(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	require.EqualError(t, err, "reading discovery: connection refused")
	_, err = ask(schema.GroupVersionKind{Version: "v1", Kind: "Secret"})
	require.NoError(t, err, "known kinds must be kept")
}

// TestMapperRetriesAFailedFirstRead checks that a failed read does not count as a server without kinds.
func TestMapperRetriesAFailedFirstRead(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now())
	failed := errors.New("connection refused")
	crd := widgets(t, "first.example.com")
	m := kinds.NewMapper(clk, discoveryFunc(func(context.Context) ([]*metav1.APIResourceList, error) {
		return coreV1("Pod", "pods"), failed
	}), []*manifest.Manifest{crd})
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	_, err := m.Known(t.Context(), gvk)
	require.ErrorIs(t, err, failed)
	mapping, err := m.Mapping(t.Context(), schema.GroupVersionKind{Group: "first.example.com", Version: "v1", Kind: "Widget"})
	require.NoError(t, err)
	assert.False(t, mapping.New, "the kind may be served already")

	clk.SetTime(clk.Now().Add(time.Second))
	failed = nil
	_, err = m.Known(t.Context(), gvk)
	require.NoError(t, err)
}

// TestUnreachableServerIsNotAMissingKind checks that an unreachable server does not count as a server without the kind. Otherwise,
// tombstones would count as settled.
func TestUnreachableServerIsNotAMissingKind(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	config := &rest.Config{Host: closed.URL}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	connection, err := request.Connect(config, closed.Client())
	require.NoError(t, err)
	a := apply.New(connection, kinds.NewMapper(clock.RealClock{}, d, nil), owner)
	for _, annotations := range []string{"", `release.openshift.io/delete: "true"`} {
		_, err := a.Apply(t.Context(), thing(t, annotations), release.Updating)
		var failed *failure.Error
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, api.ReasonClusterDown, failed.Reason, "%v", err)
	}
}

// TestAPIServiceWithoutBackendDoesNotHideOtherKinds uses a real server whose discovery is partly broken.
func TestAPIServiceWithoutBackendDoesNotHideOtherKinds(t *testing.T) {
	a, _ := connect(t, owner)
	service := parse(t, `apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.down.example.com}
spec: {group: down.example.com, version: v1, groupPriorityMinimum: 1, versionPriority: 1, insecureSkipTLSVerify: true,
  service: {namespace: default, name: nobody}}
`)
	must(t, a, service)
	t.Cleanup(func() {
		assert.NoError(t, otherClient(t).Delete(context.WithoutCancel(t.Context()), service.Object.DeepCopy(), client.GracePeriodSeconds(0)))
	})
	gvk := schema.GroupVersionKind{Group: "down.example.com", Version: "v1", Kind: "Thing"}
	clk := clocktesting.NewFakePassiveClock(time.Now())
	m := kinds.NewMapper(clk, discoverer(t), nil)
	require.Eventually(t, func() bool { // until the server notices that the backend is missing
		clk.SetTime(clk.Now().Add(time.Second))
		_, err := m.Mapping(t.Context(), gvk)
		return errors.Is(err, kinds.ErrUnavailable)
	}, time.Minute, 50*time.Millisecond)
	_, err := m.Mapping(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	require.NoError(t, err)

	a, _ = connectBy(t, owner, m)
	tomb := parse(t, "apiVersion: down.example.com/v1\nkind: Thing\nmetadata:\n  name: a\n  annotations: "+tombstone)
	_, err = a.Apply(t.Context(), tomb, release.Updating)
	var failed *failure.Error
	require.ErrorAs(t, err, &failed, "the object may exist")
	assert.Equal(t, api.ReasonResourceTypeMissing, failed.Reason)
	assert.False(t, kinds.IsNoMatch(err))
}
