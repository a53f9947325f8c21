package taskgraph_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestBuildOrdersAnUpdate(t *testing.T) {
	for _, tt := range []struct {
		name      string
		manifests []*manifest.Manifest
		want      map[string][]string
	}{
		{
			"chains the manifests of a component but not other components",
			[]*manifest.Manifest{
				object("50/b/01", "v1 Service b"), object("50/a/02", "v1 Service a2"), object("50/a/01", "v1 Service a1"),
			},
			map[string][]string{"Service a1": nil, "Service a2": {"Service a1"}, "Service b": nil},
		}, {
			"orders runlevels regardless of the input order",
			[]*manifest.Manifest{
				object("90/a/01", "v1 Service a90"), object("50/b/01", "v1 Service b"), object("50/a/01", "v1 Service a"),
				object("90/b/01", "v1 Service b90"), object("03/a/01", "v1 Service first"),
			},
			map[string][]string{
				"Service first": nil, "Service a": {"Service first"}, "Service b": {"Service first"},
				"Service a90": {"|"}, "Service b90": {"|"},
			},
		}, {
			"splits a runlevel at a Job but not at the tombstone of a Job",
			[]*manifest.Manifest{
				object("50/a/01", "v1 Service a"), object("50/b/01", "v1 Service b1"), object("50/b/02", "batch/v1 Job job"),
				object("50/b/03", "v1 Service b3"), object("50/c/01", "batch/v1 Job old", tombstone),
			},
			map[string][]string{
				"Service a": nil, "Service b1": nil, "Job.batch job": {"Service a", "Service b1"},
				"Service b3": {"Job.batch job"}, "Job.batch old": {"Job.batch job"},
			},
		}, {
			"puts the operator's Deployment at the end of its runlevel",
			[]*manifest.Manifest{
				object("00/a/30", "apps/v1 Deployment openshift-cluster-version/cluster-version-operator"),
				object("00/a/40", "v1 Service a"), object("00/a/01", "v1 ServiceAccount a"), object("00/b/01", "v1 Service b"),
				object("05/a/01", "v1 Service next"),
			},
			map[string][]string{
				"ServiceAccount a": nil, "Service a": {"ServiceAccount a"}, "Service b": nil,
				"Deployment.apps openshift-cluster-version/cluster-version-operator": {"Service a", "Service b"},
				"Service next": {"Deployment.apps openshift-cluster-version/cluster-version-operator"},
			},
		}, {
			"draws a CRD forward to an earlier runlevel",
			[]*manifest.Manifest{
				object("03/a/01", "v1 Service a"), object("03/b/01", "v1 Service b"),
				object("05/a/01", "example.com/v1 Widget w1"), object("05/a/02", "example.com/v1 Widget w2"),
				object("10/a/00", "v1 Service before"), crd("10/a/01", "Widget.example.com"), object("10/a/02", "v1 Service after"),
			},
			map[string][]string{
				"Service a": nil, "Service b": nil,
				"CustomResourceDefinition.apiextensions.k8s.io widgets.example.com": {"|"},
				"Widget.example.com w1": {"CustomResourceDefinition.apiextensions.k8s.io widgets.example.com"},
				"Widget.example.com w2": {"CustomResourceDefinition.apiextensions.k8s.io widgets.example.com", "Widget.example.com w1"},
				"Service before":        {"Widget.example.com w2"}, "Service after": {"Service before"},
			},
		}, {
			"draws a Namespace forward to a Job that needs it",
			[]*manifest.Manifest{
				object("03/a/01", "v1 Service a"), object("03/b/01", "v1 Service b"),
				object("03/c/01", "batch/v1 Job x/job"), object("03/d/01", "v1 Namespace x"),
			},
			map[string][]string{
				"Service a": nil, "Service b": nil, "Namespace x": {"|"}, "Job.batch x/job": {"Namespace x"},
			},
		}, {
			"loosens a Namespace that an earlier component needs",
			[]*manifest.Manifest{
				object("50/a/01", "v1 Service x/a"), object("50/b/01", "v1 Service b1"), object("50/b/02", "v1 Namespace x"),
				object("50/b/03", "v1 Service x/b3"),
			},
			map[string][]string{
				"Namespace x": nil, "Service x/a": {"Namespace x"}, "Service b1": nil, "Service x/b3": {"Namespace x", "Service b1"},
			},
		}, {
			"loosens a Namespace that comes after its first user in a chain",
			[]*manifest.Manifest{
				object("50/a/01", "v1 Service x/a1"), object("50/a/02", "v1 Namespace x"), object("50/a/03", "v1 Service x/a3"),
			},
			map[string][]string{
				"Namespace x": nil, "Service x/a1": {"Namespace x"}, "Service x/a3": {"Namespace x", "Service x/a1"},
			},
		}, {
			"keeps a Namespace in its chain if only later components need it",
			[]*manifest.Manifest{
				object("50/a/01", "v1 Service a"), object("50/a/02", "v1 Namespace x"), object("50/b/01", "v1 Service x/b"),
			},
			map[string][]string{"Service a": nil, "Namespace x": {"Service a"}, "Service x/b": {"Namespace x"}},
		}, {
			"neither waits for a tombstone nor draws a node forward for it",
			[]*manifest.Manifest{
				object("05/a/01", "v1 Service gone/a"), object("05/b/01", "v1 Service x/old", tombstone),
				object("10/a/01", "v1 Namespace gone", tombstone), object("10/b/01", "v1 Namespace x"),
				object("10/c/01", "v1 Secret x/old", tombstone),
			},
			map[string][]string{
				"Service gone/a": nil, "Service x/old": nil, "Namespace gone": {"|"}, "Namespace x": {"|"}, "Secret x/old": {"Namespace x"},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := build(t, release.Updating, tt.manifests...)
			requireSound(t, g, tt.manifests)
			assert.Equal(t, tt.want, links(g))
		})
	}
}

func TestBuildOrdersAnInstallByDependency(t *testing.T) {
	manifests := []*manifest.Manifest{
		object("05/a/01", "example.com/v1 Widget x/w"), object("05/a/02", "v1 Service s"),
		crd("10/a/01", "Widget.example.com"), object("90/a/01", "v1 Namespace x"),
	}
	want := map[string][]string{
		"CustomResourceDefinition.apiextensions.k8s.io widgets.example.com": nil, "Namespace x": nil, "Service s": nil,
		"Widget.example.com x/w": {"CustomResourceDefinition.apiextensions.k8s.io widgets.example.com", "Namespace x"},
	}
	for _, mode := range []release.Mode{release.Initializing, release.Reconciling} {
		t.Run(string(mode), func(t *testing.T) {
			g := build(t, mode, manifests...)
			requireSound(t, g, manifests)
			assert.Equal(t, want, links(g))
			for _, n := range g.Tasks() {
				assert.False(t, n.Drawn, n.Label())
			}
		})
	}
}

// TestBuildUsesJobsAsBarriersInTheirComponent checks the predecessors and successors of Jobs in modes without runlevels.
func TestBuildUsesJobsAsBarriersInTheirComponent(t *testing.T) {
	manifests := []*manifest.Manifest{
		object("05/a/01", "example.com/v1 Widget x/w"), object("05/b/01", "v1 Service b05"),
		object("07/a/01", "batch/v1 Job x/first"), object("07/a/02", "v1 Service a07"),
		crd("10/a/01", "Widget.example.com"), object("10/b/01", "v1 Service b10"), object("20/a/01", "batch/v1 Job x/old", tombstone),
		object("20/a/02", "batch/v1 Job x/second"), object("50/a/01", "v1 Service a50"), object("90/a/01", "v1 Namespace x"),
		object("90/a/02", "batch/v1 Job x/third"),
	}
	for _, mode := range []release.Mode{release.Initializing, release.Reconciling} {
		t.Run(string(mode), func(t *testing.T) {
			g := build(t, mode, manifests...)
			requireSound(t, g, manifests)
			assert.Equal(t, map[string][]string{
				"Service b05": nil, "Service b10": nil,
				"CustomResourceDefinition.apiextensions.k8s.io widgets.example.com": nil, "Namespace x": nil,
				"Widget.example.com x/w": {"CustomResourceDefinition.apiextensions.k8s.io widgets.example.com", "Namespace x"},
				"Job.batch x/first":      {"Namespace x", "Widget.example.com x/w"},
				"Service a07":            {"Job.batch x/first"}, "Job.batch x/old": {"Namespace x", "Job.batch x/first"},
				"Job.batch x/second": {"CustomResourceDefinition.apiextensions.k8s.io widgets.example.com", "Namespace x", "Job.batch x/first", "Service a07", "Job.batch x/old"},
				"Service a50":        {"Job.batch x/second"},
				"Job.batch x/third":  {"Namespace x", "Job.batch x/second", "Service a50"},
			}, links(g))
		})
	}
}

func TestBuildAcceptsAnEmptyRelease(t *testing.T) {
	for _, mode := range release.Modes() {
		g := build(t, mode)
		assert.Empty(t, g.Nodes())
		assert.Empty(t, g.CriticalPath())
		assert.Empty(t, g.Runlevels())
	}
}

func TestBuildRejectsInvalidInput(t *testing.T) {
	_, err := taskgraph.Build(nil, "Sideways")
	require.ErrorContains(t, err, `unknown mode "Sideways"`)
	_, err = taskgraph.Build([]*manifest.Manifest{object("00/a/00", "v1 Service a"), {}}, release.Updating)
	require.ErrorContains(t, err, "manifest 2 of 2 has no object")
}

// TestBuildOrdersRandomPayloads builds graphs of random payloads. It compares all predecessors of each node with the rules, applied to each
// pair of manifests.
func TestBuildOrdersRandomPayloads(t *testing.T) {
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 1))
		manifests := random(r, 1+r.IntN(40))
		for _, mode := range release.Modes() {
			g := build(t, mode, manifests...)
			requireSound(t, g, manifests)
			got := reaches(g)
			line, want := reference(manifests, mode)
			node := map[*manifest.Manifest]*taskgraph.Node{}
			for _, n := range g.Tasks() {
				node[n.Manifest] = n
			}
			for i, a := range line {
				for j, b := range line {
					require.Equal(t, want[i][j], got[node[b].Index][node[a].Index], "seed %d, %s: %s before %s", seed, mode, a, b)
				}
			}
		}
	}
}

// reference applies the rules to every pair, in cubic time. It returns the line and, by place, which place precedes which.
func reference(manifests []*manifest.Manifest, mode release.Mode) ([]*manifest.Manifest, [][]bool) {
	line := slices.Clone(manifests)
	slices.SortStableFunc(line, func(a, b *manifest.Manifest) int {
		last := cmp.Compare(b2i(mode == release.Updating && isOperator(a)), b2i(mode == release.Updating && isOperator(b)))
		return cmp.Or(a.Runlevel-b.Runlevel, last, cmp.Compare(a.Component, b.Component), cmp.Compare(a.File, b.File))
	})
	n := len(line)
	job := func(i int) bool { return line[i].Is("batch", "Job") && !line[i].Tombstone() }
	alone := func(i int) bool { return mode == release.Updating && (job(i) || isOperator(line[i])) }
	segment, drawn, loose := make([]int, n), make([]bool, n), make([]bool, n)
	for i := 1; i < n; i++ {
		segment[i] = segment[i-1]
		if alone(i) || alone(i-1) || mode == release.Updating && line[i].Runlevel != line[i-1].Runlevel {
			segment[i]++
		}
	}
	needs := make([][]bool, n) // needs[i][j] is true if j needs i
	for i := range line {
		needs[i] = make([]bool, n)
		for j := range line {
			needs[i][j] = firstProvider(line, j, i)
		}
	}
	for i := range line {
		for j := n - 1; j >= 0; j-- { // the first user decides
			if needs[i][j] && !line[j].Tombstone() && j < i {
				loose[i] = true
				drawn[i] = drawn[i] || segment[j] < segment[i]
				segment[i] = min(segment[i], segment[j])
			}
		}
	}
	before := make([][]bool, n)
	for i := range line {
		before[i] = make([]bool, n)
		for j := range line {
			chained := line[i].Component == line[j].Component && i < j && !loose[j] && !drawn[i] && (mode == release.Updating || job(i) || job(j))
			needed := needs[i][j] && (!line[j].Tombstone() || loose[i] || i < j)
			before[i][j] = segment[i] < segment[j] || segment[i] == segment[j] && (chained || needed)
		}
	}
	for k := range line {
		for i := range line {
			for j := range line {
				before[i][j] = before[i][j] || before[i][k] && before[k][j]
			}
		}
	}
	return line, before
}

// isOperator reports whether a manifest is the operator's own Deployment.
func isOperator(m *manifest.Manifest) bool {
	return m.ID() == manifest.ID{Group: "apps", Kind: "Deployment", Namespace: "openshift-cluster-version", Name: "cluster-version-operator"} && !m.Tombstone()
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// firstProvider reports whether place i is the first to define the kind or the namespace of place j.
func firstProvider(line []*manifest.Manifest, j, i int) bool {
	if line[j].Is("", "Namespace") || line[j].Is("apiextensions.k8s.io", "CustomResourceDefinition") {
		return false
	}
	id := line[j].ID()
	provides := []func(m *manifest.Manifest) bool{
		func(m *manifest.Manifest) bool { return m.Is("", "Namespace") && m.ID().Name == id.Namespace },
		func(m *manifest.Manifest) bool {
			spec, _ := m.Object.Object["spec"].(map[string]any)
			return m.Is("apiextensions.k8s.io", "CustomResourceDefinition") && spec["group"] == id.Group &&
				spec["names"].(map[string]any)["kind"] == id.Kind
		},
	}
	for _, f := range provides {
		first := slices.IndexFunc(line, func(m *manifest.Manifest) bool { return !m.Tombstone() && f(m) })
		if first == i {
			return true
		}
	}
	return false
}

func TestGraphListsRunlevelsAndComponents(t *testing.T) {
	g := build(t, release.Updating, platform()...)
	assert.Equal(t, []int{0, 5, 10, 20, 50, 80, 90}, g.Runlevels())
	assert.Equal(t, []string{"config", "dns", "gateway", "migrate", "monitoring", "nodes", "operator", "store", "widgets"}, g.Components())
	path := g.CriticalPath()
	before := reaches(g)
	for i := range path[1:] {
		assert.True(t, before[path[i+1].Index][path[i].Index])
	}
	assert.Len(t, path, 19)
}

func TestBackwardFollowsTheCriticalPath(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for range 50 {
		g := build(t, release.Updating, random(r, 1+r.IntN(40))...)
		steps := g.Backward()
		assert.Len(t, steps, len(g.CriticalPath()))
		step := map[*taskgraph.Node]int{}
		for i, nodes := range steps {
			assert.NotEmpty(t, nodes)
			for _, n := range nodes {
				step[n] = i
			}
		}
		require.Len(t, step, len(g.Tasks()))
		for i, before := range reaches(g) {
			for j := range before {
				if a, b := g.Nodes()[i], g.Nodes()[j]; !a.Barrier() && !b.Barrier() {
					require.Less(t, step[a], step[b], "%s precedes %s", a.Label(), b.Label())
				}
			}
		}
	}
	assert.Empty(t, build(t, release.Updating).Backward())
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{1_300, 10_000} {
		manifests := random(rand.New(rand.NewPCG(1, 1)), n)
		for _, mode := range release.Modes() {
			b.Run(fmt.Sprintf("%s/%d", mode, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, err := taskgraph.Build(manifests, mode)
					require.NoError(b, err)
				}
			})
		}
	}
}
