package apply_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/manifest"
)

func TestNetworkKindsKeepForeignFields(t *testing.T) {
	runKindTests(t, []kindTest{
		{
			name: "keeps the addresses and node ports that the server assigns to a Service",
			first: `
apiVersion: v1
kind: Service
metadata: {name: NS, namespace: NS, annotations: {service.alpha.openshift.io/serving-cert-secret-name: cert}}
spec:
  type: NodePort
  selector: {app: a, tier: b}
  ports: [{name: web, port: 80, targetPort: http}, {name: metrics, port: 9090}]`,
			foreign: `
metadata: {annotations: {service.alpha.openshift.io/serving-cert-signed-by: ca}}
spec: {sessionAffinity: ClientIP, externalTrafficPolicy: Local, ports: [{name: mesh, port: 15000}]}`,
			tamper: `{spec: {type: ClusterIP, externalTrafficPolicy: null, ports: [{port: 80, targetPort: other}, {port: 9090, $patch: delete}]}}`,
			repaired: `
metadata: {annotations: {service.alpha.openshift.io/serving-cert-signed-by: ca}}
spec:
  type: NodePort
  sessionAffinity: ClientIP
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  selector: {app: a, tier: b}
  ports: [{name: mesh}, {name: web, targetPort: http, protocol: TCP}, {name: metrics, targetPort: 9090}]`,
			second: `
apiVersion: v1
kind: Service
metadata: {name: NS, namespace: NS}
spec:
  selector: {app: a}
  ports: [{name: web, port: 80, targetPort: https}, {name: new, port: 443}]`,
			updated: `
metadata: {annotations: {service.alpha.openshift.io/serving-cert-signed-by: ca, service.alpha.openshift.io/serving-cert-secret-name: null}}
spec:
  type: ClusterIP
  sessionAffinity: ClientIP
  ipFamilies: [IPv4]
  selector: {app: a}
  ports: [{name: mesh}, {name: web, targetPort: https}, {name: new, targetPort: 443}]`,
		},
		{
			name: "owns the rules of a NetworkPolicy as a whole",
			first: `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: NS, namespace: NS}
spec: {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [], egress: [{ports: [{port: 53, protocol: UDP}]}]}`,
			foreign:  `{metadata: {labels: {x: "1"}}}`,
			tamper:   `{spec: {podSelector: {matchLabels: {a: b}}, ingress: [{}], egress: [{}]}}`,
			repaired: `{metadata: {labels: {x: "1"}}, spec: {podSelector: {matchLabels: null}, ingress: null, policyTypes: [Ingress, Egress], egress: [{ports: [{port: 53, protocol: UDP}]}]}}`,
			second: `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: NS, namespace: NS}
spec: {podSelector: {matchLabels: {a: b}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]}`,
			updated: `{spec: {podSelector: {matchLabels: {a: b}}, policyTypes: [Ingress], egress: null, ingress: [{from: [{podSelector: {}}]}]}}`,
		},
	})
}

func TestServiceKeepsItsAddresses(t *testing.T) {
	ns := namespace(t)
	manifestOf := func(spec string) *manifest.Manifest {
		return parse(t, inNamespace(ns, serviceText("type: NodePort\nselector: {a: b}\n"+spec)))
	}
	a, _ := connect(t, owner)
	first := manifestOf("ports: [{name: web, port: 80}, {name: old, port: 81}]")
	must(t, a, first)
	before := live(t, first)
	assert.NotEmpty(t, field(t, before, "spec", "clusterIP"))
	nodePort := field(t, before, "spec", "ports").([]any)[0].(map[string]any)["nodePort"]
	require.NotZero(t, nodePort)

	second := manifestOf("ports: [{name: web, port: 80, targetPort: 8080}]")
	must(t, a, second)
	after := live(t, second)
	assert.Equal(t, field(t, before, "spec", "clusterIP"), field(t, after, "spec", "clusterIP"))
	assert.Equal(t, field(t, before, "spec", "clusterIPs"), field(t, after, "spec", "clusterIPs"))
	assertMatches(t, "spec: {ports: [{name: web, targetPort: 8080}]}", after.Object)
	assert.Equal(t, nodePort, field(t, after, "spec", "ports").([]any)[0].(map[string]any)["nodePort"])
}

// To the server, a port with another number is a new entry with the same name.
func TestServicePortKeepsItsNameWithANewNumber(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	must(t, a, parse(t, inNamespace(ns, serviceText("ports: [{name: web, port: 80}, {name: b, port: 81}]"))))
	m := parse(t, inNamespace(ns, serviceText("ports: [{name: web, port: 8080}, {name: b, port: 81}]")))
	must(t, a, m)
	assertMatches(t, "spec: {ports: [{name: web, port: 8080, targetPort: 8080}, {name: b}]}", live(t, m).Object)
}

// TestNetworkPolicyGetsTheTypesOfItsRules adds rules to a policy whose types the server set by default for an earlier release.
func TestNetworkPolicyGetsTheTypesOfItsRules(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	policy := func(rules string) *manifest.Manifest {
		return parse(t, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: a, namespace: `+ns+`}
spec: {podSelector: {}, `+rules+`}`)
	}
	for _, tt := range []struct {
		rules string
		want  []any
	}{
		{`ingress: [{from: [{podSelector: {}}]}]`, []any{"Ingress"}},
		{`ingress: [{from: [{podSelector: {}}]}], egress: [{to: [{podSelector: {}}]}]`, []any{"Ingress", "Egress"}},
		{`policyTypes: [Egress]`, []any{"Egress"}},
		{`ingress: []`, []any{"Ingress"}},
	} {
		m := policy(tt.rules)
		must(t, a, m)
		types, _, err := unstructured.NestedSlice(live(t, m).Object, "spec", "policyTypes")
		require.NoError(t, err)
		assert.Equal(t, tt.want, types, tt.rules)
		assertQuiet(t, a, m)
	}
}
