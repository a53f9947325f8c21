package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/test/env"
)

// controlPlane is the control plane of all tests in this package.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// rolesFile has the operator's own ClusterRole as its first object.
const rolesFile = "../../../manifests/0000_00_cluster-version-operator_03_roles.yaml"

// restricted returns an account with the operator's own ClusterRole and the extra rules for a release that contains ConfigMaps.
func restricted(t *testing.T) *rest.Config {
	t.Helper()
	data, err := os.ReadFile(rolesFile)
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(data), "\n---")
	role := &rbacv1.ClusterRole{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(first), role))
	require.Equal(t, "cluster-version-operator", role.Name)
	role.ObjectMeta = metav1.ObjectMeta{Name: "causes-restricted"}
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}})
	admin := kubernetes.NewForConfigOrDie(controlPlane.For(t).Config("test")).RbacV1()
	_, err = admin.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role.Name}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	config, err := controlPlane.For(t).User(role.Name)
	require.NoError(t, err)
	return config
}

// watchCount counts the open watches.
type watchCount struct {
	next http.RoundTripper
	open *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c watchCount) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "" {
		c.open.Add(1)
		resp.Body = closing{resp.Body, sync.OnceFunc(func() { c.open.Add(-1) })}
	}
	return resp, err
}

type closing struct {
	io.ReadCloser
	closed func()
}

func (c closing) Close() error {
	defer c.closed()
	return c.ReadCloser.Close()
}

// TestCausesObserveRepairs checks that Causes watches the objects that may repair a failed apply, only while the error persists, and with
// the operator's own permissions. Package rollout retries when the stamp changes.
func TestCausesObserveRepairs(t *testing.T) {
	t.Parallel()
	admin := dynamic.NewForConfigOrDie(controlPlane.For(t).Config("test"))
	config := restricted(t)
	endpoints := schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	for _, tt := range []struct {
		name, manifest, err string
		// resource and object are the repair of the cause.
		resource          schema.GroupVersionResource
		namespace, object string
	}{
		{
			name:     "a new CRD",
			manifest: `{apiVersion: causes.example.com/v1, kind: Widget, metadata: {name: x, namespace: default}}`,
			err:      `no matches for kind "Widget" in version "causes.example.com/v1"`,
			resource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
			object: `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.causes.example.com}, spec: {
				group: causes.example.com, scope: Namespaced, names: {plural: widgets, kind: Widget}, versions: [{name: v1, served: true, storage: true,
				schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`,
		},
		{
			name:     "a new APIService",
			manifest: `{apiVersion: served.causes.example.com/v1, kind: Gadget, metadata: {name: x, namespace: default}}`,
			err:      `the server could not find the requested resource`,
			resource: schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
			object: `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.served.causes.example.com}, spec: {
				group: served.causes.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, insecureSkipTLSVerify: true,
				service: {namespace: default, name: causes-none}}}`,
		},
		{
			name:     "the object itself",
			manifest: `{apiVersion: v1, kind: ConfigMap, metadata: {name: causes-itself, namespace: default}}`,
			err:      `ConfigMap "causes-itself" is invalid: data: Forbidden: field is immutable when ` + "`immutable`" + ` is set`,
			resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, namespace: "default",
			object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: causes-itself, namespace: default}}`,
		},
		{
			name:     "its namespace",
			manifest: `{apiVersion: v1, kind: ConfigMap, metadata: {name: causes-z, namespace: causes-later}}`,
			err:      `namespaces "causes-later" not found`,
			resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
			object:   `{apiVersion: v1, kind: Namespace, metadata: {name: causes-later}}`,
		},
		{
			name:     "the bindings of a policy",
			manifest: `{apiVersion: v1, kind: ConfigMap, metadata: {name: causes-p, namespace: default}}`,
			err:      `configmaps "causes-p" is forbidden: ValidatingAdmissionPolicy 'strict' with binding 'all' denied request: no`,
			resource: schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
			object: `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: causes-all},
				spec: {policyName: causes-none, validationActions: [Audit]}}`,
		},
		{
			name:     "the endpoints of an admission webhook",
			manifest: `{apiVersion: v1, kind: ConfigMap, metadata: {name: causes-x, namespace: default}}`,
			err:      `failed calling webhook "x.example.com": failed to call webhook: Post "https://causes-hook.default.svc:443/x?timeout=1s": no endpoints available for service "causes-hook"`,
			resource: endpoints, namespace: "default",
			object: `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, endpoints: [],
				metadata: {name: causes-hook-1, namespace: default, labels: {kubernetes.io/service-name: causes-hook}}}`,
		},
		{
			name:     "the endpoints of a conversion webhook",
			manifest: `{apiVersion: v1, kind: ConfigMap, metadata: {name: causes-y, namespace: default}}`,
			err:      `conversion webhook for x.example.com/v1, Kind=X failed: Post "https://causes-convert.default.svc:443/convert?timeout=30s": no endpoints available for service "causes-convert"`,
			resource: endpoints, namespace: "default",
			object: `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, endpoints: [],
				metadata: {name: causes-convert-1, namespace: default, labels: {kubernetes.io/service-name: causes-convert}}}`,
		},
	} {
		t.Run("it observes "+tt.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			c, open := watchedCauses(t, config)
			list, err := manifest.Parse("0000_10_x.yaml", []byte(tt.manifest), manifest.Limits{})
			require.NoError(t, err)
			failure := errors.New(tt.err)
			complete := func(s rollout.Stamp) bool { return len(s) == len(c.of(ctx, list[0], failure)) }
			require.Eventually(t, func() bool { return complete(c.Stamp(ctx, list[0], failure)) }, time.Minute, 10*time.Millisecond, "the watches start")
			before := c.Stamp(ctx, list[0], failure)
			require.Positive(t, open.Load())

			object := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(tt.object), &object.Object))
			client := dynamic.ResourceInterface(admin.Resource(tt.resource))
			if tt.namespace != "" {
				client = admin.Resource(tt.resource).Namespace(tt.namespace)
			}
			_, err = client.Create(ctx, object, metav1.CreateOptions{})
			require.NoError(t, err)
			t.Cleanup(func() {
				err := client.Delete(context.Background(), object.GetName(), metav1.DeleteOptions{}) //nolint:usetesting // the test's context has ended
				require.True(t, err == nil || apierrors.IsNotFound(err))
			})
			require.Eventually(t, func() bool { return before.Changed(c.Stamp(ctx, list[0], failure)) }, time.Minute, 10*time.Millisecond, "the stamp changes with the repair")

			c.Stamp(ctx, list[0], nil)
			require.Eventually(t, func() bool { return open.Load() == 0 }, time.Minute, 10*time.Millisecond, "the watches end with the error")
		})
	}
}

// TestManyFailedObjectsDoNotHideACause has more objects in each of two missing namespaces than may have watches of their own.
func TestManyFailedObjectsDoNotHideACause(t *testing.T) {
	t.Parallel()
	config := controlPlane.For(t).Config("test")
	c, open := watchedCauses(t, config)
	stamps := func(namespace string) []rollout.Stamp {
		var documents strings.Builder
		for i := range maxObjects + 5 {
			fmt.Fprintf(&documents, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: x%d, namespace: %s}}\n", i, namespace)
		}
		list, err := manifest.Parse("0000_10_x.yaml", []byte(documents.String()), manifest.Limits{})
		require.NoError(t, err)
		var stamps []rollout.Stamp
		for _, m := range list {
			stamp := c.Stamp(t.Context(), m, fmt.Errorf("namespaces %q not found", namespace))
			if len(stamp) < len(c.watched[m.ID()]) {
				stamp = nil // some states are unknown
			}
			stamps = append(stamps, stamp)
		}
		return stamps
	}
	const first, second = "causes-first", "causes-second"
	unknown := func(s rollout.Stamp) bool { return s == nil }
	require.Eventually(t, func() bool { return !slices.ContainsFunc(slices.Concat(stamps(first), stamps(second)), unknown) },
		time.Minute, 10*time.Millisecond, "the watches start")
	assert.EqualValues(t, maxObjects, open.Load(), "both namespaces, and some of the objects")
	namespaces := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces()
	for _, name := range []string{second, first} {
		before := stamps(name)
		_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			for i, after := range stamps(name) {
				if !before[i].Changed(after) {
					return false
				}
			}
			return true
		}, time.Minute, 10*time.Millisecond, "the repair changes every stamp")
	}
}

// watchedCauses returns causes whose watches run until the test ends, and the number of open watches.
func watchedCauses(t *testing.T, config *rest.Config) (*Causes, *atomic.Int64) {
	t.Helper()
	var open atomic.Int64
	counted := rest.CopyConfig(config)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper { return watchCount{next, &open} })
	watcher := observe.New(metadata.NewForConfigOrDie(counted), labels.SelectorFromSet(labels.Set{api.OwnedByLabel: "version"}), logr.Discard(), func() {})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watcher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	mapper := kinds.NewMapper(clock.RealClock{}, discovery.NewDiscoveryClientForConfigOrDie(config), nil)
	return newCauses(watcher, mapper, func(observe.Scope) bool { return false }), &open
}
