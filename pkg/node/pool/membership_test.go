package pool_test

import (
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

const rolePrefix = "node-role.kubernetes.io/"

func poolOf(role string) *mcfgv1.MachineConfigPool {
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: role}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{rolePrefix + role: ""}}
	return p
}

func nodeWith(name, roles string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{}, Annotations: map[string]string{api.NodeStateAnnotation: api.NodeDone},
	}}
	for role := range strings.FieldsSeq(roles) {
		n.Labels[rolePrefix+role] = ""
	}
	return n
}

func TestNodesGetOnePool(t *testing.T) {
	for _, tt := range []struct {
		name, roles, pools string
		want               string
		contested          []string
	}{
		{"it lists a node that no pool selects", "", "master worker", "", nil},
		{"it assigns a control-plane node", "master", "master worker", "master", nil},
		{"it assigns a worker", "worker", "master worker", "worker", nil},
		{"it prefers the control-plane pool to the worker pool", "master worker", "master worker", "master", nil},
		{"it prefers a custom pool to the worker pool", "worker infra", "master worker infra", "infra", nil},
		{"it assigns a node that only a custom pool selects", "infra", "master worker infra", "infra", nil},
		{"it prefers the control-plane pool to a custom pool", "master infra", "master worker infra", "master", nil},
		{"it assigns no pool if two custom pools select the node", "worker infra infra2", "master worker infra infra2", "", []string{"infra", "infra2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var pools []*mcfgv1.MachineConfigPool
			for role := range strings.FieldsSeq(tt.pools) {
				pools = append(pools, poolOf(role))
			}
			other := nodeWith("other", "worker")
			m := pool.Assign(pools, []*corev1.Node{other, nodeWith("node", tt.roles)})

			for _, p := range pools {
				want := ""
				if p.Name == tt.want {
					want = "node"
				}
				if p.Name == api.WorkerPool {
					want = strings.TrimSpace(want + " other")
				}
				assert.Equal(t, want, namesOf(m.Nodes[p.Name]), p.Name)
			}
			assert.Equal(t, tt.contested, m.Contested["node"])
			assert.Equal(t, tt.want == "" && tt.contested == nil, len(m.Poolless) == 1)
		})
	}
}

// TestInvalidSelectorKeepsContestedNodesOutOfPools has a control-plane node that two custom pools may select.
func TestInvalidSelectorKeepsContestedNodesOutOfPools(t *testing.T) {
	invalid := poolOf("infra2")
	invalid.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Bogus"}}
	pools := []*mcfgv1.MachineConfigPool{poolOf("master"), poolOf("worker"), poolOf("infra"), invalid}

	m := pool.Assign(pools, []*corev1.Node{nodeWith("a", "master infra infra2"), nodeWith("b", "master"), nodeWith("c", "infra infra2")})

	assert.Equal(t, "b", namesOf(m.Nodes["master"]), "the control-plane pool has precedence over one custom pool")
	assert.Equal(t, "c", namesOf(m.Nodes["infra"]), "no node of the pool starts")
	assert.NotEmpty(t, m.Doubt("infra"))
	assert.Equal(t, map[string][]string{"a": {"infra", "infra2"}}, m.Contested)

	pools[0].Spec.NodeSelector = invalid.Spec.NodeSelector
	m = pool.Assign(pools, nil)
	assert.True(t, strings.HasSuffix(m.Invalid["infra2"], "until then, no node outside pool master starts its update"))
	assert.True(t, strings.HasSuffix(m.Invalid["master"], "until then, no node starts its update"))
}

func TestAssignOmitsWindowsReleasedAndSilentNodes(t *testing.T) {
	windows := nodeWith("windows", "worker")
	windows.Labels[corev1.LabelOSStable] = "windows"
	silent := nodeWith("silent", "worker")
	delete(silent.Annotations, api.NodeStateAnnotation)
	released, contested := nodeWith("released", "worker"), nodeWith("leaving", "other")
	for _, n := range []*corev1.Node{released, contested} {
		n.Annotations[api.NodeReleasedAnnotation] = ""
	}
	ended := nodeWith("ended", "worker") // its daemon has not noticed that it is taken back
	ended.Annotations[api.NodeStateAnnotation] = api.NodeReleased
	all := poolOf("all")
	all.Spec.NodeSelector = &metav1.LabelSelector{}
	none := poolOf("none")
	none.Spec.NodeSelector = nil

	m := pool.Assign([]*mcfgv1.MachineConfigPool{poolOf("worker"), all, none}, []*corev1.Node{windows, silent, released, contested, ended, nodeWith("a", "worker")})

	assert.Equal(t, "a", namesOf(m.Nodes["worker"]))
	assert.Len(t, m.Nodes, 1)
	assert.Equal(t, []string{"ended", "silent"}, m.Silent)
	assert.Equal(t, []string{"leaving", "released"}, m.Released)
	assert.Empty(t, m.Poolless)
	assert.Equal(t, []string{"all"}, m.SelectAll)
}

func TestBuiltInPoolsSelectTheNodesOfTheDistribution(t *testing.T) {
	for _, tt := range []struct {
		name  string
		nodes map[string]string
		want  map[string]string
	}{
		{"it selects by the roles of OpenShift", map[string]string{"m": "master control-plane", "w": "worker"}, map[string]string{"m": "master", "w": "worker"}},
		{"it selects by the roles of older OpenShift", map[string]string{"m": "master", "w": "worker"}, map[string]string{"m": "master", "w": "worker"}},
		{"it selects by the roles of kubeadm", map[string]string{"m": "control-plane", "w": ""}, map[string]string{"m": "master", "w": "worker"}},
		{"it leaves an arbiter to a pool of its own", map[string]string{"m": "control-plane", "a": "arbiter", "w": ""}, map[string]string{"m": "master", "w": "worker"}},
		{"it selects a single node as control plane", map[string]string{"m": "control-plane"}, map[string]string{"m": "master"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var nodes []*corev1.Node
			for name, roles := range tt.nodes {
				nodes = append(nodes, nodeWith(name, roles))
			}
			controlPlane, worker := pool.BuiltIn(nodes)
			m := pool.Assign([]*mcfgv1.MachineConfigPool{controlPlane, worker}, nodes)

			got := map[string]string{}
			for name, members := range m.Nodes {
				for _, n := range members {
					got[n.Name] = name
				}
			}
			assert.Equal(t, tt.want, got)
			assert.Contains(t, controlPlane.Labels, api.RequiredPoolLabel)
			assert.NotContains(t, worker.Labels, api.RequiredPoolLabel)
			selector, err := metav1.LabelSelectorAsSelector(worker.Spec.MachineConfigSelector)
			require.NoError(t, err)
			assert.True(t, selector.Matches(labels.Set{api.MachineConfigRoleLabel: "worker"}))
		})
	}
}
