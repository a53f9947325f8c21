package apply_test

import "testing"

func TestRBACRulesAreOwnedAsAWhole(t *testing.T) {
	runKindTests(t, []kindTest{
		{
			name: "removes rules that other writers add to a Role",
			first: `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: NS, namespace: NS}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}, {apiGroups: [""], resources: [secrets], verbs: [get]}]`,
			foreign:  `{metadata: {labels: {x: "1"}}}`,
			tamper:   `{rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]}`,
			repaired: `{metadata: {labels: {x: "1"}}, rules: [{resources: [pods]}, {resources: [secrets]}]}`,
			second: `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: NS, namespace: NS}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]`,
			updated: `{metadata: {labels: {x: "1"}}, rules: [{resources: [pods], verbs: [get, list]}]}`,
		},
		{
			name: "removes all rules from a Role without rules",
			first: `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: NS, namespace: NS}
rules: []`,
			foreign:  `{metadata: {labels: {x: "1"}}}`,
			tamper:   `{rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]}`,
			repaired: `{metadata: {labels: {x: "1"}}, rules: null}`,
			second: `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: NS, namespace: NS}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]`,
			updated: `{rules: [{resources: [pods]}]}`,
		},
		{
			// CVO#993: a controller aggregates the rules and reverts rules in a manifest.
			name: "keeps the rules that the controller aggregates in a ClusterRole",
			first: `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NS, labels: {a: "1"}}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}
rules: []`,
			foreign:  `{rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`,
			tamper:   `{aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: c}}]}}`,
			repaired: `{aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}, rules: [{resources: [pods]}]}`,
			second: `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NS}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}, {matchLabels: {c: d}}]}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get]}]`,
			updated: `
metadata: {labels: {a: null}}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}, {matchLabels: {c: d}}]}
rules: [{resources: [pods]}]`,
		},
		{
			name: "removes subjects that other writers add to a RoleBinding",
			first: `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: NS, namespace: NS}
roleRef: {kind: Role, name: a}
subjects: [{kind: ServiceAccount, name: a, namespace: NS}, {kind: User, name: b}]`,
			foreign:  `{metadata: {annotations: {x: "1"}}}`,
			tamper:   `{subjects: [{kind: User, name: intruder, apiGroup: rbac.authorization.k8s.io}]}`,
			repaired: `{metadata: {annotations: {x: "1"}}, roleRef: {apiGroup: rbac.authorization.k8s.io}, subjects: [{name: a}, {name: b, apiGroup: rbac.authorization.k8s.io}]}`,
			second: `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: NS, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: a}
subjects: [{kind: Group, name: c}]`,
			updated: `{subjects: [{kind: Group, name: c}]}`,
		},
		{
			name: "removes all subjects from a ClusterRoleBinding without subjects",
			first: `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: a}
subjects: []`,
			foreign:  `{metadata: {annotations: {x: "1"}}}`,
			tamper:   `{subjects: [{kind: User, name: intruder, apiGroup: rbac.authorization.k8s.io}]}`,
			repaired: `{subjects: null}`,
			second: `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: a}
subjects: [{kind: ServiceAccount, name: a, namespace: NS}]`,
			updated: `{subjects: [{kind: ServiceAccount, name: a}]}`,
		},
	})
}
