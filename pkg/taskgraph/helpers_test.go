package taskgraph_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/graph/simple"
	"gonum.org/v1/gonum/graph/topo"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/taskgraph"
)

// object makes a manifest from a place such as "50/dns/02" and an object such as "v1 ConfigMap ns/name".
func object(place, text string, edit ...func(*manifest.Manifest)) *manifest.Manifest {
	var level int
	parts := strings.Split(place, "/")
	if _, err := fmt.Sscanf(parts[0], "%d", &level); err != nil {
		panic(err)
	}
	words := strings.Fields(text)
	namespace, name, namespaced := strings.Cut(words[2], "/")
	if !namespaced {
		namespace, name = "", words[2]
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": words[0], "kind": words[1]}}
	o.SetName(name)
	if namespaced {
		o.SetNamespace(namespace)
	}
	m := &manifest.Manifest{
		File: fmt.Sprintf("0000_%02d_%s_%s.yaml", level, parts[1], parts[2]), Document: 1,
		Runlevel: level, Component: parts[1], Object: o,
	}
	for _, f := range edit {
		f(m)
	}
	return m
}

func tombstone(m *manifest.Manifest) {
	m.Object.SetAnnotations(map[string]string{api.DeleteAnnotation: "true"})
}

// defines makes a CRD one of a kind such as "Widget.example.com".
func defines(kind string) func(*manifest.Manifest) {
	return func(m *manifest.Manifest) {
		name, group, _ := strings.Cut(kind, ".")
		m.Object.Object["spec"] = map[string]any{"group": group, "names": map[string]any{"kind": name}}
	}
}

func crd(place, kind string) *manifest.Manifest {
	name, group, _ := strings.Cut(kind, ".")
	text := "apiextensions.k8s.io/v1 CustomResourceDefinition " + strings.ToLower(name) + "s." + group
	return object(place, text, defines(kind))
}

func build(t testing.TB, mode release.Mode, manifests ...*manifest.Manifest) *taskgraph.Graph {
	t.Helper()
	g, err := taskgraph.Build(manifests, mode)
	require.NoError(t, err)
	return g
}

// platform is a small payload in which every rule has a case.
func platform() []*manifest.Manifest {
	return []*manifest.Manifest{
		object("90/operator/00_alerts", "monitoring.example.com/v1 Rule operator/alerts"),
		object("00/operator/00_namespace", "v1 Namespace operator"),
		object("00/operator/01_config", "v1 ConfigMap operator/config"),
		object("00/operator/30_deployment", "apps/v1 Deployment operator/operator"),
		object("05/config/00_cluster", "config.example.com/v1 Cluster cluster"),
		object("05/config/01_cluster", "config.example.com/v1 Proxy cluster"),
		crd("10/config/00_clusters", "Cluster.config.example.com"),
		crd("10/config/00_proxies", "Proxy.config.example.com"),
		object("10/config/10_operator", "config.openshift.io/v1 ClusterOperator config"),
		object("20/store/00_role", "rbac.authorization.k8s.io/v1 Role store/reader"),
		object("20/store/01_namespace", "v1 Namespace store"),
		object("20/store/02_deployment", "apps/v1 Deployment store/store"),
		object("20/store/03_operator", "config.openshift.io/v1 ClusterOperator store"),
		object("20/gateway/00_config", "v1 ConfigMap store/gateway"),
		object("20/gateway/01_widget", "example.com/v1 Widget gateway"),
		crd("20/widgets/00_crd", "Widget.example.com"),
		object("20/widgets/01_deployment", "apps/v1 Deployment widgets/widgets"),
		object("50/migrate/00_config", "v1 ConfigMap store/migration"),
		object("50/migrate/01_job", "batch/v1 Job store/migrate"),
		object("50/monitoring/00_namespace", "v1 Namespace monitoring"),
		crd("50/monitoring/01_rules", "Rule.monitoring.example.com"),
		object("50/monitoring/02_deployment", "apps/v1 Deployment monitoring/monitoring"),
		object("50/dns/00_rule", "monitoring.example.com/v1 Rule store/dns"),
		object("50/dns/01_old", "batch/v1 Job store/old", tombstone),
		object("80/nodes/00_daemon", "apps/v1 DaemonSet nodes/daemon"),
	}
}

// links describes each task's predecessors by name, barriers by what is before them.
func links(g *taskgraph.Graph) map[string][]string {
	all := map[string][]string{}
	names := func(n *taskgraph.Node) []string {
		var list []string
		for _, p := range g.Predecessors(n) {
			if p.Barrier() {
				list = append(list, "|")
			} else {
				list = append(list, p.Label())
			}
		}
		return list
	}
	for _, n := range g.Tasks() {
		all[n.Label()] = names(n)
	}
	return all
}

// reaches computes by index what a node must wait for, directly or not.
func reaches(g *taskgraph.Graph) []map[int]bool {
	before := make([]map[int]bool, len(g.Nodes()))
	for _, n := range g.Nodes() {
		before[n.Index] = map[int]bool{}
		for _, p := range g.Predecessors(n) {
			before[n.Index][p.Index] = true
			for i := range before[p.Index] {
				before[n.Index][i] = true
			}
		}
	}
	return before
}

// requireSound checks what holds for every graph: indexes, symmetry of edges, no cycle, every manifest once.
func requireSound(t testing.TB, g *taskgraph.Graph, manifests []*manifest.Manifest) {
	t.Helper()
	directed := simple.NewDirectedGraph()
	edges := 0
	for i, n := range g.Nodes() {
		require.Equal(t, i, n.Index)
		directed.AddNode(simple.Node(i))
	}
	for _, n := range g.Nodes() {
		for _, s := range g.Successors(n) {
			require.Less(t, n.Index, s.Index, "%s to %s", n.Label(), s.Label())
			require.Contains(t, g.Predecessors(s), n)
			require.False(t, directed.HasEdgeFromTo(int64(n.Index), int64(s.Index)), "edge twice")
			directed.SetEdge(directed.NewEdge(simple.Node(n.Index), simple.Node(s.Index)))
			edges++
		}
	}
	require.Equal(t, edges, g.Edges())
	_, err := topo.Sort(directed)
	require.NoError(t, err)
	seen := map[*manifest.Manifest]bool{}
	for _, n := range g.Tasks() {
		require.False(t, seen[n.Manifest])
		seen[n.Manifest] = true
	}
	require.Len(t, seen, len(manifests))
}

// random makes a payload of n manifests in which everything that can contradict does.
func random(r *rand.Rand, n int) []*manifest.Manifest {
	manifests := make([]*manifest.Manifest, 0, n)
	for range n {
		place := fmt.Sprintf("%d/%c/%02d", r.IntN(6)*10, 'a'+rune(r.IntN(4)), r.IntN(30))
		space, kind := r.IntN(6), r.IntN(6)
		var m *manifest.Manifest
		switch r.IntN(12) {
		case 0:
			m = object(place, fmt.Sprintf("v1 Namespace ns%d/ns%d", r.IntN(6), space)) // with a stray namespace
		case 1:
			m = crd(place, fmt.Sprintf("Kind%d.example.com", kind))
		case 2:
			if r.IntN(4) == 0 {
				m = object(place, fmt.Sprintf("batch/v1 Job ns%d/job", space))
				break
			}
			if r.IntN(4) == 0 {
				m = object(place, "apps/v1 Deployment openshift-cluster-version/cluster-version-operator")
				break
			}
			m = crd(place, "CustomResourceDefinition.apiextensions.k8s.io") // claims to define CRDs
		case 3, 4, 5:
			m = object(place, fmt.Sprintf("example.com/v1 Kind%d ns%d/object", kind, space))
		case 6:
			m = object(place, fmt.Sprintf("example.com/v1 Kind%d object", kind))
		default:
			m = object(place, fmt.Sprintf("v1 ConfigMap ns%d/config", space))
		}
		if r.IntN(8) == 0 {
			tombstone(m)
		}
		manifests = append(manifests, m)
	}
	return manifests
}
