package apply_test

import "testing"

func TestCoreKindsKeepForeignFields(t *testing.T) {
	runKindTests(t, []kindTest{
		{
			// In OpenShift's operator, entries that a release drops stay forever, because its merges only add
			// (https://github.com/openshift/machine-api-operator/pull/1159).
			name: "owns keys, labels and annotations of a ConfigMap one by one",
			first: `
apiVersion: v1
kind: ConfigMap
metadata: {name: NS, namespace: NS, labels: {a: "1", b: "1"}, annotations: {a: "1", b: "1"}}
data: {a: "1", b: "1"}
binaryData: {c: aGVsbG8=}`,
			foreign: `{metadata: {labels: {x: "1"}, annotations: {x: "1"}}, data: {x: "1"}, binaryData: {y: aGVsbG8=}}`,
			tamper:  `{metadata: {labels: {a: "2"}, annotations: {a: null}}, data: {a: null, b: "2"}, binaryData: {c: eA==}}`,
			repaired: `
metadata: {labels: {a: "1", b: "1", x: "1"}, annotations: {a: "1", b: "1", x: "1"}}
data: {a: "1", b: "1", x: "1"}
binaryData: {c: aGVsbG8=, y: aGVsbG8=}`,
			second: `
apiVersion: v1
kind: ConfigMap
metadata: {name: NS, namespace: NS, labels: {a: "2", n: "1"}, annotations: {a: "2", n: "1"}}
data: {a: "2", n: "1"}
immutable: true`,
			updated: `
metadata: {labels: {a: "2", n: "1", x: "1", b: null}, annotations: {a: "2", n: "1", x: "1", b: null}}
data: {a: "2", n: "1", x: "1", b: null}
binaryData: {y: aGVsbG8=, c: null}
immutable: true`,
		},
		{
			name: "owns keys of a Secret, given as data or as stringData",
			first: `
apiVersion: v1
kind: Secret
metadata: {name: NS, namespace: NS}
data: {a: MQ==, b: MQ==}
stringData: {b: "2", c: "1"}`,
			foreign:  `{data: {x: MQ==}}`,
			tamper:   `{data: {a: Mg==, c: null}}`,
			repaired: `{type: Opaque, data: {a: MQ==, b: Mg==, c: MQ==, x: MQ==}, stringData: null}`,
			second: `
apiVersion: v1
kind: Secret
metadata: {name: NS, namespace: NS}
stringData: {a: "2", n: "1"}`,
			updated: `{data: {a: Mg==, n: MQ==, x: MQ==, b: null, c: null}}`,
		},
		{
			name: "keeps a CA bundle injected into a ConfigMap",
			first: `
apiVersion: v1
kind: ConfigMap
metadata:
  name: NS
  namespace: NS
  annotations: {service.beta.openshift.io/inject-cabundle: "true"}
  labels: {config.openshift.io/inject-trusted-cabundle: "true"}
data: {service-ca.crt: "", ca-bundle.crt: "", a: "1"}`,
			foreign:  `{data: {service-ca.crt: injected, ca-bundle.crt: injected too}}`,
			tamper:   `{data: {a: "2"}}`,
			repaired: `{data: {service-ca.crt: injected, ca-bundle.crt: injected too, a: "1"}}`,
			second: `
apiVersion: v1
kind: ConfigMap
metadata:
  name: NS
  namespace: NS
  annotations: {service.beta.openshift.io/inject-cabundle: "true"}
  labels: {config.openshift.io/inject-trusted-cabundle: "true"}`,
			updated: `{data: {service-ca.crt: injected, ca-bundle.crt: injected too, a: null}}`,
		},
		{
			name: "keeps a label syncer's labels on a Namespace and restores its own",
			first: `
apiVersion: v1
kind: Namespace
metadata:
  name: NS-psa
  labels: {pod-security.kubernetes.io/enforce: privileged, pod-security.kubernetes.io/audit: privileged}
  annotations: {openshift.io/node-selector: "", workload.openshift.io/allowed: management}`,
			foreign: `{metadata: {labels: {pod-security.kubernetes.io/warn: baseline, security.openshift.io/scc.podSecurityLabelSync: "true"}, annotations: {openshift.io/sa.scc.mcs: "s0:c1"}}}`,
			tamper:  `{metadata: {labels: {pod-security.kubernetes.io/enforce: restricted}, annotations: {workload.openshift.io/allowed: null}}}`,
			repaired: `
metadata:
  labels: {pod-security.kubernetes.io/enforce: privileged, pod-security.kubernetes.io/warn: baseline}
  annotations: {openshift.io/node-selector: "", workload.openshift.io/allowed: management, openshift.io/sa.scc.mcs: "s0:c1"}`,
			second: `
apiVersion: v1
kind: Namespace
metadata: {name: NS-psa, labels: {openshift.io/cluster-monitoring: "true"}, annotations: {openshift.io/node-selector: ""}}`,
			updated: `
metadata:
  labels:
    pod-security.kubernetes.io/enforce: null
    pod-security.kubernetes.io/audit: null
    pod-security.kubernetes.io/warn: baseline
    openshift.io/cluster-monitoring: "true"
  annotations: {openshift.io/node-selector: "", workload.openshift.io/allowed: null, openshift.io/sa.scc.mcs: "s0:c1"}`,
		},
		{
			name: "keeps secrets that controllers add to a ServiceAccount",
			first: `
apiVersion: v1
kind: ServiceAccount
metadata: {name: NS, namespace: NS}
automountServiceAccountToken: false
secrets: [{name: ours}, {name: old}]`,
			foreign:  `{secrets: [{name: token}], imagePullSecrets: [{name: dockercfg}]}`,
			tamper:   `{automountServiceAccountToken: true, secrets: [{name: ours, $patch: delete}]}`,
			repaired: `{automountServiceAccountToken: false, secrets: [{name: token}, {name: ours}, {name: old}], imagePullSecrets: [{name: dockercfg}]}`,
			second: `
apiVersion: v1
kind: ServiceAccount
metadata: {name: NS, namespace: NS}
secrets: [{name: ours}]`,
			updated: `{automountServiceAccountToken: null, secrets: [{name: token}, {name: ours}], imagePullSecrets: [{name: dockercfg}]}`,
		},
		{
			// The server keeps pull secrets as one value, unlike those of a pod.
			name: "owns the pull secrets of a ServiceAccount as a whole if its manifest lists any",
			first: `
apiVersion: v1
kind: ServiceAccount
metadata: {name: NS, namespace: NS}
imagePullSecrets: [{name: ours}]`,
			foreign:  `{metadata: {labels: {x: "1"}}}`,
			tamper:   `{imagePullSecrets: [{name: ours}, {name: theirs}]}`,
			repaired: `{imagePullSecrets: [{name: ours}]}`,
			second: `
apiVersion: v1
kind: ServiceAccount
metadata: {name: NS, namespace: NS}`,
			updated: `{metadata: {labels: {x: "1"}}, imagePullSecrets: null}`,
		},
		{
			name: "owns the mutable fields of a PriorityClass",
			first: `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: NS}
value: 100
description: one`,
			foreign:  `{metadata: {labels: {x: "1"}}}`,
			tamper:   `{description: other}`,
			repaired: `{description: one, value: 100, metadata: {labels: {x: "1"}}}`,
			second: `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: NS}
value: 100
globalDefault: false`,
			updated: `{description: null, value: 100, metadata: {labels: {x: "1"}}}`,
		},
	})
}
