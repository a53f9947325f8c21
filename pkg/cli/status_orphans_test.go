package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
)

// orphanage is a cluster with releases in it that one test makes.
type orphanage struct {
	*testing.T
	config  *rest.Config
	clients *kubernetes.Clientset
	inv     inventory.Inventory
}

// applied applies a manifest as the operator does, for that owner.
func (o *orphanage) applied(owner, text string) manifest.ID {
	o.Helper()
	list, err := manifest.Parse("0000_50_x_y.yaml", []byte(text), manifest.Limits{})
	require.NoError(o, err)
	httpClient, err := rest.HTTPClientFor(o.config)
	require.NoError(o, err)
	conn, err := apply.Connect(o.config, httpClient)
	require.NoError(o, err)
	d, err := discovery.NewDiscoveryClientForConfig(o.config)
	require.NoError(o, err)
	applier := apply.New(conn, apply.NewDiscoveryMapper(clock.RealClock{}, d, nil), apply.Owner{Name: owner, UID: "5b5c5d5e-0000-4000-8000-000000000001"})
	_, err = applier.Apply(o.Context(), list[0], release.Updating)
	require.NoError(o, err)
	return list[0].ID()
}

// record records objects as those of a release.
func (o *orphanage) record(version string, ids ...manifest.ID) {
	for _, id := range ids {
		o.inv = o.inv.With(inventory.Record{ID: id, Version: "v1", Release: version, Reached: true})
	}
}

func (o *orphanage) configMap(name string) manifest.ID {
	o.Helper()
	return o.applied("version", "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: app, name: "+name+"}}")
}

// print returns what printOrphans prints.
func (o *orphanage) print(config *rest.Config, output string) (stdout, stderr string) {
	o.Helper()
	var out, errs bytes.Buffer
	require.NoError(o, printOrphans(o.Context(), Streams{Out: &out, Err: &errs}, config, orphanOptions{output: output}))
	return out.String(), errs.String()
}

func TestOrphans(t *testing.T) {
	e := env.New(t, env.Options{Audit: env.AuditNone})
	clients, err := kubernetes.NewForConfig(e.Config("tests"))
	require.NoError(t, err)
	o := &orphanage{T: t, config: e.Config("orphans"), clients: clients}

	out, warnings := o.print(o.config, "")
	assert.Equal(t, "no release: no orphans\n", out)
	assert.Equal(t, "warning: there is no inventory of \"version\" in namespace openshift-cluster-version\n", warnings)

	o.applied("", "{apiVersion: v1, kind: Namespace, metadata: {name: openshift-cluster-version}}")
	o.applied("", "{apiVersion: v1, kind: Namespace, metadata: {name: app}}")
	living := o.configMap("living")
	there := o.configMap("there")
	stripped := o.configMap("stripped")
	deleting := o.applied("version", "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: app, name: deleting, finalizers: [example.com/x]}}")
	oldNamespace := o.applied("version", "{apiVersion: v1, kind: Namespace, metadata: {name: old}}")
	o.configMap("unrecorded")
	o.applied("version", "{apiVersion: v1, kind: Secret, metadata: {namespace: app, name: unrecorded}}")
	o.applied("other", "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: app, name: of-another-owner}}")
	configMaps := clients.CoreV1().ConfigMaps("app")
	_, err = configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "labelled-by-another", Labels: map[string]string{api.OwnedByLabel: "version"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, configMaps.Delete(t.Context(), "deleting", metav1.DeleteOptions{}))
	cm, err := configMaps.Get(t.Context(), "stripped", metav1.GetOptions{})
	require.NoError(t, err)
	delete(cm.Labels, api.OwnedByLabel)
	_, err = configMaps.Update(t.Context(), cm, metav1.UpdateOptions{})
	require.NoError(t, err)

	gone := manifest.ID{Kind: "Service", Namespace: "app", Name: "gone"}
	unserved := manifest.ID{Group: "example.com", Kind: "Widget", Name: "w"}
	o.record("1.0.0", there, oldNamespace, gone)
	o.inv = inventory.Plan(o.inv, map[manifest.ID]bool{}, "1.1.0")
	o.record("1.1.0", living, stripped, deleting, unserved)
	o.inv = inventory.Plan(o.inv, map[manifest.ID]bool{living: true, {Kind: "Secret", Namespace: "app", Name: "to-come"}: true}, "1.2.0")
	store := inventory.NewStore(clients.CoreV1(), api.OperatorNamespace, api.ClusterVersionName)
	require.NoError(t, store.Save(t.Context(), o.inv))

	const text = `1.2.0: no manifest names these (8)

KIND                NAMESPACE  NAME        LAST-IN  DROPPED-BY  NOTE
ConfigMap           app        deleting    1.1.0    1.2.0       being deleted
ConfigMap           app        stripped    1.1.0    1.2.0       lacks our label
ConfigMap           app        there       1.0.0    1.1.0
ConfigMap           app        unrecorded  -        -           in no record
Namespace           -          old         1.0.0    1.1.0       protected: all that is in it would go with it
Secret              app        unrecorded  -        -           in no record
Service             app        gone        1.0.0    1.1.0       gone
Widget.example.com  -          w           1.1.0    1.2.0       gone
`
	t.Run("it prints a table", func(t *testing.T) {
		out, warnings := o.print(o.config, "text")
		assert.Equal(t, text, out)
		assert.Empty(t, warnings)
	})

	t.Run("it prints for scripts", func(t *testing.T) {
		var list, fromYAML orphanList
		out, _ := o.print(o.config, "json")
		require.NoError(t, json.Unmarshal([]byte(out), &list))
		out, _ = o.print(o.config, "yaml")
		require.NoError(t, yaml.Unmarshal([]byte(out), &fromYAML))
		assert.Equal(t, list, fromYAML)
		assert.Equal(t, "1.2.0", list.Release)
		require.Len(t, list.Orphans, 8)
		assert.Equal(t, orphan{
			ID: oldNamespace, LastRelease: "1.0.0", DroppedBy: "1.1.0", Exists: new(true),
			Protected: "all that is in it would go with it", Note: "protected: all that is in it would go with it",
		}, list.Orphans[4])
		assert.Equal(t, orphan{ID: gone, LastRelease: "1.0.0", DroppedBy: "1.1.0", Exists: new(false), Note: "gone"}, list.Orphans[6])
		assert.Contains(t, out, "- droppedBy: 1.1.0\n  exists: false\n  kind: Service\n")
	})

	t.Run("it refuses other outputs", func(t *testing.T) {
		var usage *UsageError
		require.ErrorAs(t, printOrphans(t.Context(), Streams{}, o.config, orphanOptions{output: "dot"}), &usage)
	})

	t.Run("it lists each kind once and writes nothing", func(t *testing.T) {
		config := rest.CopyConfig(o.config)
		requests := map[string]int{}
		var mu sync.Mutex
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				requests[req.Method+" "+req.URL.Path]++
				return next.RoundTrip(req)
			})
		})
		_, _ = o.print(config, "text")
		assert.Equal(t, map[string]int{
			"GET /api": 1, "GET /apis": 1,
			"GET /api/v1/namespaces/openshift-cluster-version/configmaps": 2, // once more for what is in no record
			"GET /api/v1/configmaps":                         1,
			"GET /api/v1/namespaces":                         1,
			"GET /api/v1/secrets":                            1,
			"GET /api/v1/services":                           1,
			"GET /api/v1/namespaces/app/configmaps/stripped": 1,
			"GET /api/v1/namespaces/app/services/gone":       1,
		}, requests)
	})

	t.Run("it says what one may not see", func(t *testing.T) {
		user, err := e.User("reader")
		require.NoError(t, err)
		err = printOrphans(t.Context(), Streams{}, user, orphanOptions{})
		require.ErrorContains(t, err, `reading the inventory: configmaps is forbidden: User "reader"`)

		role := &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "reader"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
		}
		_, err = clients.RbacV1().Roles(api.OperatorNamespace).Create(t.Context(), role, metav1.CreateOptions{})
		require.NoError(t, err)
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "reader"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
			Subjects:   []rbacv1.Subject{{Kind: "User", Name: "reader", APIGroup: rbacv1.GroupName}},
		}
		_, err = clients.RbacV1().RoleBindings(api.OperatorNamespace).Create(t.Context(), binding, metav1.CreateOptions{})
		require.NoError(t, err)
		var out, warnings bytes.Buffer
		require.Eventually(t, func() bool { // the authorizer learns of the binding by a watch
			out.Reset()
			warnings.Reset()
			return printOrphans(t.Context(), Streams{Out: &out, Err: &warnings}, user, orphanOptions{output: "json"}) == nil
		}, 30*time.Second, 20*time.Millisecond)
		var list orphanList
		require.NoError(t, json.Unmarshal(out.Bytes(), &list))
		require.Len(t, list.Orphans, 6, "what is recorded")
		for _, o := range list.Orphans {
			if o.ID == unserved {
				assert.Equal(t, new(false), o.Exists)
				continue
			}
			assert.Nil(t, o.Exists, "%s", o.ID)
			assert.Contains(t, o.Note, "cannot be seen: ")
		}
		assert.Contains(t, warnings.String(), "warning: objects of kind Secret cannot be listed: secrets is forbidden")
	})

	t.Run("it goes on without an extension API server", func(t *testing.T) {
		services, err := dynamic.NewForConfig(o.config)
		require.NoError(t, err)
		resource := services.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
		_, err = resource.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.down.example.com"},
			"spec": map[string]any{
				"group": "down.example.com", "version": "v1", "groupPriorityMinimum": int64(1), "versionPriority": int64(1),
				"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "app", "name": "nothing"},
			},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
		down := manifest.ID{Group: "down.example.com", Kind: "Thing", Namespace: "app", Name: "x"}
		inv := o.inv.With(inventory.Record{ID: down, Version: "v1", Release: "1.1.0", Dropped: "1.2.0"})
		require.NoError(t, store.Save(t.Context(), inv))
		var out, warnings string
		require.Eventually(t, func() bool {
			out, warnings = o.print(o.config, "text")
			return warnings != ""
		}, 30*time.Second, 20*time.Millisecond)
		assert.Contains(t, warnings, "warning: the kinds of down.example.com/v1 are not known: ")
		assert.Regexp(t, `(?m)^Thing.down.example.com +app +x +1.1.0 +1.2.0 +cannot be seen: `, out)
		assert.Regexp(t, `(?m)^ConfigMap +app +there +1.0.0 +1.1.0$`, out)
	})

	t.Run("it finds what we applied without an inventory", func(t *testing.T) {
		shard, err := clients.CoreV1().ConfigMaps(api.OperatorNamespace).Get(t.Context(), "version-inventory-0", metav1.GetOptions{})
		require.NoError(t, err)
		shard.BinaryData = nil
		_, err = clients.CoreV1().ConfigMaps(api.OperatorNamespace).Update(t.Context(), shard, metav1.UpdateOptions{})
		require.NoError(t, err)
		out, warnings := o.print(o.config, "text")
		assert.Contains(t, warnings, "warning: parts of the inventory are lost: ConfigMap version-inventory-0: it has no records.jsonl.gz\n")
		for _, id := range []manifest.ID{living, there, oldNamespace} {
			assert.Regexp(t, fmt.Sprintf(`(?m)^%s +\S+ +%s +- +- +in no record`, id.Kind, id.Name), out)
		}
	})
}

// A terminal obeys no name that somebody gave an object.
func TestWriteOrphansIsPrintable(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, writeOrphans(&out, orphanList{Release: "1\x1b", Orphans: []orphan{{
		ID: manifest.ID{Group: "g\x1b", Kind: "K\x1b", Namespace: "n\x1b", Name: "a\x1b"}, LastRelease: "\x1b", DroppedBy: "\x1b", Note: "\x1b\n",
	}}}))
	assert.NotContains(t, out.String(), "\x1b")
	assert.Equal(t, 4, strings.Count(out.String(), "\n"))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
