package status

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	applyrequest "github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/orphans"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
)

// orphanCluster is a cluster with releases that one test creates.
type orphanCluster struct {
	*testing.T
	config  *rest.Config
	inv     inventory.Inventory
	pruning inventory.Pruning
}

// applied applies a manifest as the owner's operator does.
func (o *orphanCluster) applied(owner, text string) manifest.ID {
	o.Helper()
	list, err := manifest.Parse("0000_50_x_y.yaml", []byte(text), manifest.Limits{})
	require.NoError(o, err)
	httpClient, err := rest.HTTPClientFor(o.config)
	require.NoError(o, err)
	conn, err := applyrequest.Connect(o.config, httpClient)
	require.NoError(o, err)
	d, err := discovery.NewDiscoveryClientForConfig(o.config)
	require.NoError(o, err)
	applier := apply.New(conn, kinds.NewMapper(clock.RealClock{}, d, nil), body.Owner{Name: owner, UID: "5b5c5d5e-0000-4000-8000-000000000001"})
	_, err = applier.Apply(o.Context(), list[0], release.Updating)
	require.NoError(o, err)
	return list[0].ID()
}

// record records objects as part of a release.
func (o *orphanCluster) record(version string, ids ...manifest.ID) {
	for _, id := range ids {
		o.inv = o.inv.With(inventory.Record{ID: id, Version: "v1", Release: version, Reached: true})
	}
}

func (o *orphanCluster) configMap(name string) manifest.ID {
	o.Helper()
	return o.applied("version", "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: app, name: "+name+"}}")
}

// print returns the output of printOrphans.
func (o *orphanCluster) print(config *rest.Config, output string) (stdout, stderr string) {
	o.Helper()
	var out, errs bytes.Buffer
	require.NoError(o, printOrphans(o.Context(), command.Streams{Out: &out, Err: &errs}, config, orphanOptions{output: output, pruning: o.pruning}))
	return out.String(), errs.String()
}

func TestStatusListsOrphans(t *testing.T) {
	e := env.New(t, env.Options{Audit: env.AuditNone})
	clients, err := kubernetes.NewForConfig(e.Config("tests"))
	require.NoError(t, err)
	o := &orphanCluster{T: t, config: e.Config("orphans")}

	out, warnings := o.print(o.config, "")
	assert.Equal(t, "no release: no orphans\n", out)
	assert.Equal(t, "warning: no inventory of \"version\" in namespace openshift-cluster-version\n", warnings)

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
		Name: "labeled-by-another", Labels: map[string]string{api.OwnedByLabel: "version"},
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
	o.inv = inventory.Plan(o.inv, nil, nil, "1.1.0")
	o.record("1.1.0", living, stripped, deleting, unserved)
	of := &manifest.Manifest{Object: &unstructured.Unstructured{}}
	o.inv = inventory.Plan(o.inv, map[manifest.ID]*manifest.Manifest{living: of, {Kind: "Secret", Namespace: "app", Name: "to-come"}: of}, nil, "1.2.0")
	store := inventory.NewStore(clients.CoreV1(), api.OperatorNamespace, api.ClusterVersionName)
	require.NoError(t, store.Save(t.Context(), o.inv))

	const text = `1.2.0: objects without a manifest (8)

KIND                NAMESPACE  NAME        LAST-IN  DROPPED-BY  NOTE
ConfigMap           app        deleting    1.1.0    1.2.0       being deleted
ConfigMap           app        stripped    1.1.0    1.2.0       it does not have the version operator's label
ConfigMap           app        there       1.0.0    1.1.0
ConfigMap           app        unrecorded  -        -           not recorded
Namespace           -          old         1.0.0    1.1.0       protected: its content would be deleted with it
Secret              app        unrecorded  -        -           not recorded
Service             app        gone        1.0.0    1.1.0       gone
Widget.example.com  -          w           1.1.0    1.2.0       gone
`
	t.Run("prints a table", func(t *testing.T) {
		out, warnings := o.print(o.config, "text")
		assert.Equal(t, text, out)
		assert.Empty(t, warnings)
	})

	t.Run("prints JSON and YAML for scripts", func(t *testing.T) {
		var list, fromYAML orphans.List
		out, _ := o.print(o.config, "json")
		require.NoError(t, json.Unmarshal([]byte(out), &list))
		out, _ = o.print(o.config, "yaml")
		require.NoError(t, yaml.Unmarshal([]byte(out), &fromYAML))
		assert.Equal(t, list, fromYAML)
		assert.Equal(t, "1.2.0", list.Release)
		require.Len(t, list.Orphans, 8)
		assert.Equal(t, orphans.Orphan{
			ID: oldNamespace, LastRelease: "1.0.0", DroppedBy: "1.1.0", Exists: new(true),
			Protected: "its content would be deleted with it", Note: "protected: its content would be deleted with it",
		}, list.Orphans[4])
		assert.Equal(t, orphans.Orphan{ID: gone, LastRelease: "1.0.0", DroppedBy: "1.1.0", Exists: new(false), Note: "gone"}, list.Orphans[6])
		assert.Contains(t, out, "- droppedBy: 1.1.0\n  exists: false\n  kind: Service\n")
	})

	t.Run("names the override that keeps an orphan", func(t *testing.T) {
		cv := &configv1.ClusterVersion{}
		cv.Spec.Overrides = []configv1.ComponentOverride{{Kind: "ConfigMap", Namespace: "app", Name: "there", Unmanaged: true}, {Kind: "Namespace", Name: "old", Unmanaged: true}}
		overridden := *o
		overridden.pruning = inventory.PruningOf(cv)
		out, _ := overridden.print(o.config, "text")
		assert.Contains(t, out, "\nConfigMap           app        there       1.0.0    1.1.0       spec.overrides marks it as unmanaged\n")
		assert.Contains(t, out, "\nNamespace           -          old         1.0.0    1.1.0       spec.overrides marks it as unmanaged\n", "it would stay even without protection")
	})

	t.Run("rejects other outputs", func(t *testing.T) {
		var usage *command.UsageError
		require.ErrorAs(t, printOrphans(t.Context(), command.Streams{}, o.config, orphanOptions{output: "dot"}), &usage)
	})
}

// TestOrphansAreWrittenWithoutControlCharacters checks that object names cannot control a terminal.
//
//threat:control-characters-rewrite
func TestOrphansAreWrittenWithoutControlCharacters(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, writeOrphans(&out, orphans.List{Release: "1\x1b", Orphans: []orphans.Orphan{{
		ID: manifest.ID{Group: "g\x1b", Kind: "K\x1b", Namespace: "n\x1b", Name: "a\x1b"}, LastRelease: "\x1b", DroppedBy: "\x1b", Note: "\x1b\n",
	}}}))
	assert.NotContains(t, out.String(), "\x1b")
	assert.Equal(t, 4, strings.Count(out.String(), "\n"))
}
