package collect

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestConfigOperatorIsOpenShiftsOrTheNodeStage(t *testing.T) {
	deployment := func(name string) (d appsv1.Deployment) {
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "proxy", Image: "proxy"}, {Name: name, Image: "image of " + name}}
		return d
	}
	operator, controller := deployment("machine-config-operator"), deployment("machine-config-controller")
	for _, tt := range []struct {
		name        string
		deployments []appsv1.Deployment
		want        *string
	}{
		{"OpenShift", []appsv1.Deployment{controller, operator}, new("image of machine-config-operator")},
		{"the node stage", []appsv1.Deployment{controller}, new("image of machine-config-controller")},
		{"neither", []appsv1.Deployment{deployment("other")}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, configOperatorImage(tt.deployments)) })
	}
}

//threat:dumps-cluster-updates
func FuzzParseObjects(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: config.openshift.io/v1\nkind: ClusterOperator\nmetadata: {name: a}\n",
		"kind: List\nitems:\n- kind: ClusterOperator\n  metadata: {name: a}\n- null\n",
		"kind: ClusterOperatorList\n", "items: {}", "[]", "", "a: &a [*a]", "kind: X\nitems: [&b {metadata: {name: c}}, *b]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		operators, err := ParseObjects[configv1.ClusterOperator](data)
		if err != nil {
			assert.Empty(t, operators)
		}
		_, _ = ParseAlerts(data)
	})
}
