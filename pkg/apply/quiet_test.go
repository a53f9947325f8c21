package apply_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// If the server stores an object in a different form than sent, each apply would change the object.
func TestApplyingAgainWritesNothing(t *testing.T) {
	serveClusterOperators(t)
	ns := namespace(t)
	tests := []struct {
		name string
		m    *manifest.Manifest
	}{
		{"network policy with empty lists of rules", parse(t, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: `+ns+`, name: deny}
spec: {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [], egress: []}
`)},
		{"deployment with empty lists deep inside", parse(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: `+ns+`, name: quiet, finalizers: []}
spec:
  selector: {matchLabels: {a: b}, matchExpressions: []}
  template:
    metadata: {labels: {a: b}}
    spec:
      tolerations: []
      containers:
      - {name: c, image: example.com/c, env: [], args: [], resources: {claims: []}}
`)},
		{"role without rules", parse(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: `+ns+`, name: quiet}
rules: []
`)},
		{"ClusterOperator with fields in its spec", parse(t, `
apiVersion: config.openshift.io/v1
kind: ClusterOperator
metadata: {name: quiet}
spec: {managementState: Managed}
`)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, _ := connect(t, owner)
			first, second := must(t, a, tt.m), must(t, a, tt.m)
			assert.Equal(t, first.ResourceVersion, second.ResourceVersion)
			assert.LessOrEqual(t, second.Generation, int64(1))
		})
	}
}

func TestEmptyRulesStayOurs(t *testing.T) {
	m := parse(t, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: `+namespace(t)+`, name: deny}
spec: {podSelector: {}, policyTypes: [Ingress], ingress: []}
`)
	a, _ := connect(t, owner)
	must(t, a, m)
	merge(t, m, `{"spec": {"ingress": [{}]}}`)
	must(t, a, m)
	spec, ok := live(t, m).Object["spec"].(map[string]any)
	require.True(t, ok)
	assert.NotContains(t, spec, "ingress", "a rule added by another client must be removed")
}
