package health_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/node/health"
)

func newNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"example.com/gpu": "ready"}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"example.com/gpu": resource.MustParse("4")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

//threat:health-expression-endless
func TestExpressionsAreEvaluatedOverTheNode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		expression string
		want       bool
		// err is a part of the error; empty if there is none.
		err string
	}{
		{"true", true, ""},
		{"node.metadata.name == 'n1'", true, ""},
		{"node.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", true, ""},
		{"node.status.conditions.exists(c, c.type == 'GPU' && c.status == 'True')", false, ""},
		{"node.metadata.labels['example.com/gpu'] == 'failed'", false, ""},
		{"'example.com/other' in node.metadata.labels", false, ""},
		{"int(node.status.allocatable['example.com/gpu']) >= 4", true, ""},
		{"has(node.spec.unschedulable) && node.spec.unschedulable", false, ""},
		{"node.metadata.annotations['a'] == 'b'", false, "no such key: annotations"},
		{"node.metadata.name", false, "its result is of type string instead of bool"},
		{"node.metadata.name > 3", false, "no such overload"},
		{"[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, a+b+c+d+e > 0)))))", false, "cost limit exceeded"},
	} {
		check, err := health.Compile(tt.expression)
		require.NoError(t, err, tt.expression)
		is, err := check.IsHealthy(newNode())
		if tt.err != "" {
			require.ErrorContains(t, err, tt.err, tt.expression)
		} else {
			require.NoError(t, err, tt.expression)
		}
		assert.Equal(t, tt.want, is, tt.expression)
	}
}

func TestInvalidExpressionsAreRejected(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"":                       "line 1, column 0: Syntax error",
		"node.metadata.name ==":  "line 1, column 22: ",
		"true &&\n machine == 1": "line 2, column 2: undeclared reference to 'machine'",
		"'ready'":                "its result is of type string instead of bool",
		"1 == 'a'":               "line 1, column 3: found no matching overload",
	} {
		_, err := health.Compile(expression)
		require.ErrorContains(t, err, want, expression)
	}
}

// FuzzCompile compiles arbitrary expressions and evaluates those that are valid.
//
//threat:health-expressions
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		"node.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", "has(node.a) || dyn(1)", "[node].map(n, n.metadata)[0].name.matches('(a*)*$')",
		"1/0 == 2", "timestamp('2026-11-28T00:00:00Z') > timestamp(node.metadata.creationTimestamp)", "{}.a", "\x00", strings.Repeat("(", 300),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		check, err := health.Compile(expression)
		if err != nil {
			return
		}
		if is, err := check.IsHealthy(newNode()); err != nil {
			assert.False(t, is)
		}
	})
}
