package apply_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// If the server stores an object in a different form than its manifest, each apply changes the object, and the operator writes it repeatedly
// (CVO#862, CVO#870, CVO#993). NS stands for the test's namespace and is part of the names of cluster-scoped objects.
func TestUnusualFormsAreAppliedOnce(t *testing.T) {
	serveClusterOperators(t)
	ns := namespace(t)
	for _, tt := range []struct{ name, manifest string }{
		{"an empty nodeSelector, labels and annotations", deploymentText(`metadata: {labels: {app: a}, annotations: {}, creationTimestamp: null}`, `nodeSelector: {}`)},
		{"empty labels", configMapText("labels: {}, annotations: {}", "data: {}\nbinaryData: {}")},
		{"empty finalizers", configMapText("finalizers: [], ownerReferences: []", "data: {a: b}")},
		{"null fields", configMapText("labels: null, annotations: null", "data: null")},
		{"null values of a map", configMapText("", "data: {c: null}")},
		{"empty text", configMapText(`labels: {a: ""}`, `data: {a: ""}`)},
		{"text with different line breaks", configMapText(``, `data: {a: "x\r\ny\tz \u2028 é \u0001"}`)},
		{"binary data with line breaks", configMapText(``, "binaryData:\n  a: |\n    aGVsbG8g\n    d29ybGQ=\n")},
		{"immutable false", configMapText(``, "immutable: false")},
		{"a secret with stringData", secretText(`stringData: {a: hello}`)},
		{"a secret with stringData over data", secretText(`data: {a: eA==, b: eQ==}` + "\n" + `stringData: {a: hello}`)},
		{"a secret with empty stringData", secretText(`stringData: {}`)},
		{"a secret with empty values", secretText(`data: {a: ""}`)},
		{"a secret with null values", secretText(`data: {a: null}` + "\n" + `stringData: {b: null}`)},
		{"a secret with a type", secretText(`type: Opaque`)},
		{"empty structs of a pod", deploymentText("", `securityContext: {}`+"\naffinity: {}\n"+`volumes: [{name: a, emptyDir: {}}, {name: b}]`)},
		{"empty structs inside affinity", deploymentText("", `affinity: {nodeAffinity: {}, podAffinity: {}, podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}`)},
		{"empty structs of a container", containerText(`resources: {}` + "\nsecurityContext: {capabilities: {}}\nlifecycle: {}")},
		{"empty resources", containerText(`resources: {limits: {}, requests: {}}`)},
		{"empty resources.limits next to requests", containerText(`resources: {limits: {}, requests: {cpu: 1}}`)},
		{"quantities in other forms", containerText(`resources: {limits: {cpu: 1000m, memory: 0.5Gi, ephemeral-storage: 1.5G}, requests: {cpu: 0.10, memory: 1024Ki}}`)},
		{"quantities as numbers", containerText(`resources: {limits: {cpu: 2, memory: 1073741824}, requests: {cpu: 1.5, memory: 1e9}}`)},
		{"quantities finer than the server keeps", containerText(`resources: {limits: {cpu: 0.0001, memory: 100m}}`)},
		{"an emptyDir with a size in another form", deploymentText("", `volumes: [{name: a, emptyDir: {sizeLimit: 0.5Gi, medium: ""}}]`)},
		{"ports as text and number", containerText(`ports: [{name: a, containerPort: 80}]` + "\nlivenessProbe: {httpGet: {port: 80, path: \"\"}}\nreadinessProbe: {tcpSocket: {port: a}}")},
		{"zero values without effect", deploymentText("", `hostNetwork: false`+"\nhostPID: false\nhostname: \"\"\nserviceAccountName: \"\"\npriorityClassName: \"\"\nterminationGracePeriodSeconds: 0")},
		{"zero values of a container", containerText(`tty: false` + "\nstdin: false\nworkingDir: \"\"\nimagePullPolicy: \"\"\nterminationMessagePath: \"\"")},
		{"zero values of a probe", containerText(`livenessProbe: {exec: {command: [a]}, initialDelaySeconds: 0, timeoutSeconds: 0, periodSeconds: 0}`)},
		{"empty values in the environment", containerText(`env: [{name: A, value: ""}, {name: B}, {name: C, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]`)},
		{"null in the environment", containerText(`env: [{name: A, value: null}, {name: B, value: x, valueFrom: null}]`)},
		{"a service account in both fields", deploymentText("", "serviceAccount: a\nserviceAccountName: a")},
		{"only the deprecated service account field", deploymentText("", "serviceAccount: a")},
		{"a topology spread with an empty selector", deploymentText("", `topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]`)},
		{"tolerations in any order", deploymentText("", `tolerations: [{operator: Exists}, {key: b, operator: Exists, effect: ""}, {key: a}]`)},
		{"projected volumes without a mode", deploymentText("", `volumes: [{name: a, projected: {sources: [{configMap: {name: x}}, {secret: {name: z, items: []}}, {downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}]}}, {serviceAccountToken: {path: t}}]}}]`)},
		{"empty projected volumes", deploymentText("", `volumes: [{name: a, projected: {sources: []}}]`)},
		{"a status in the template", deploymentText(`metadata: {labels: {app: a}, creationTimestamp: null, resourceVersion: "1", uid: x, generation: 3}`, "")},
		{"an empty strategy", workloadText("Deployment", "strategy: {}\nminReadySeconds: 0\npaused: false\nstatus: {}")},
		{"a rolling update in another form", workloadText("Deployment", `strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: "25%", maxUnavailable: 0}}`)},
		{"an empty rolling update", workloadText("Deployment", `strategy: {type: RollingUpdate, rollingUpdate: {}}`)},
		{"no replicas", workloadText("Deployment", `replicas: null`)},
		{"a number written as a float", workloadText("Deployment", `replicas: 2.0`)},
		{"an empty update strategy of a DaemonSet", workloadText("DaemonSet", `updateStrategy: {}`)},
		{"a StatefulSet with claims", workloadText("StatefulSet", "serviceName: a\nvolumeClaimTemplates:\n- metadata: {name: a, creationTimestamp: null, labels: {}}\n  spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 0.5Gi}}}\n  status: {}")},
		{"a StatefulSet with full claims", workloadText("StatefulSet", "serviceName: a\nvolumeClaimTemplates:\n- apiVersion: v1\n  kind: PersistentVolumeClaim\n  metadata: {name: a}\n  spec: {accessModes: [ReadWriteOnce], volumeMode: Filesystem, selector: {}, resources: {limits: {}, requests: {storage: 1Gi}}}")},
		{"a selector with empty expressions", workloadText("Deployment", `selector: {matchLabels: {app: a}, matchExpressions: []}`)},
		{"a Job", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: NS, namespace: NS}\nspec: {parallelism: 1, template: {metadata: {creationTimestamp: null}, spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {}}]}}}"},
		{"a CronJob", "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: NS, namespace: NS}\nspec: {schedule: '* * * * *', jobTemplate: {metadata: {labels: {}}, spec: {template: {metadata: {labels: {}}, spec: {nodeSelector: {}, restartPolicy: Never, containers: [{name: c, image: i}]}}}}}\nstatus: {}"},
		{"a Service with empty fields", serviceText("selector: {}\nexternalIPs: []\nports: [{port: 80}]\nsessionAffinity: \"\"\nclusterIP: \"\"\ntype: \"\"")},
		{"a headless Service without ports", serviceText("clusterIP: None\nselector: {a: b}\nports: []")},
		{"a Service with a port as text", serviceText("ports: [{port: 80, name: \"\", targetPort: http, protocol: TCP}]")},
		{"a Service with two ports with the same number", serviceText("ports: [{port: 80, name: a}, {port: 80, name: b, protocol: UDP}]")},
		{"a load balancer with empty status", serviceText("type: LoadBalancer\nports: [{port: 80}]\nloadBalancerSourceRanges: []\nstatus: {loadBalancer: {}}")},
		{"a NetworkPolicy with empty selectors", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: NS, namespace: NS}\nspec: {podSelector: {}, policyTypes: [Ingress], ingress: [{}, {from: []}, {from: [{podSelector: {}}, {namespaceSelector: {}}]}]}"},
		{"a NetworkPolicy with an empty matchLabels", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: NS2, namespace: NS}\nspec: {podSelector: {matchLabels: {}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {}, matchExpressions: []}}], ports: []}]}"},
		{"a PDB", "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: NS, namespace: NS}\nspec: {maxUnavailable: 1, selector: {matchLabels: {}}}\nstatus: {}"},
		{"a PriorityClass", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: NS}\nvalue: 5\nglobalDefault: false\ndescription: \"\""},
		{"an HPA", "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: NS, namespace: NS}\nspec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}, metrics: [], behavior: {}}"},
		{"a ServiceAccount", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: NS, namespace: NS}\nsecrets: []\nimagePullSecrets: []\nautomountServiceAccountToken: false"},
		{"a Role with empty rules", "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: NS, namespace: NS}\nrules: [{apiGroups: [\"\"], resources: [pods], verbs: [get], resourceNames: []}]"},
		{"a ClusterRole with aggregation and rules", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: NS}\naggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}\nrules: []"},
		{"a binding with short subjects", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: NS}\nroleRef: {kind: ClusterRole, name: x}\nsubjects: [{kind: ServiceAccount, name: a, namespace: b}, {kind: Group, name: c}]"},
		{"a binding with the old API group of subjects", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: NS2}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: x}\nsubjects: [{kind: ServiceAccount, name: a, namespace: b, apiGroup: \"\"}]"},
		{"a binding without subjects", "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: NS, namespace: NS}\nroleRef: {kind: ClusterRole, name: x, apiGroup: rbac.authorization.k8s.io}\nsubjects: []"},
		{"a Namespace with empty spec", "apiVersion: v1\nkind: Namespace\nmetadata: {name: NS-odd, labels: {}}\nspec: {}\nstatus: {}"},
		{"a Namespace with empty finalizers", "apiVersion: v1\nkind: Namespace\nmetadata: {name: NS-odd2}\nspec: {finalizers: []}"},
		{"a webhook configuration", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: NS}\nwebhooks: [{name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {caBundle: Cg==, service: {name: a, namespace: NS}}, rules: [], namespaceSelector: {}, objectSelector: {matchLabels: {}}, matchConditions: []}]"},
		{"a webhook configuration with an empty bundle", "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: NS}\nwebhooks: [{name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {caBundle: \"\", service: {name: a, namespace: NS}}}]"},
		{"a webhook configuration without webhooks", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: NS2}\nwebhooks: []"},
		{"an APIService", "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v1.ns-odd.example.com, labels: {}}\nspec: {group: ns-odd.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, caBundle: \"\", service: {name: a, namespace: NS}, insecureSkipTLSVerify: false}\nstatus: {}"},
		{"a CRD with empty fields", crdText("ns-odd1", "names: {kind: Odda, plural: oddas, shortNames: [], categories: []}", "type: object\nrequired: []\nproperties: {spec: {type: object, properties: {}, required: []}, list: {type: array, items: {type: object, required: [], default: {}}}, any: {type: object, additionalProperties: {type: object, properties: {}, enum: []}}, d: {type: array, items: {type: string}, default: []}}")},
		{"a CRD with empty lists in versions", crdText("ns-odd2", "names: {kind: Oddb, plural: oddbs}\npreserveUnknownFields: false\nconversion: {strategy: None}", "type: object\ndescription: \"\"\nx-kubernetes-validations: []")},
		{"a CRD with a null status", crdText("ns-odd3", "names: {kind: Oddc, plural: oddcs, singular: \"\", listKind: \"\"}\nstatus: {conditions: [], storedVersions: [], acceptedNames: {kind: \"\", plural: \"\"}}", "type: object\nmaximum: null\nexample: {a: []}\nproperties: {x: {type: string, nullable: false, minLength: 0, enum: [a, a-b]}, n: {type: number, minimum: 0.50, maximum: 1e3, multipleOf: 1.0}}")},
		{"a ValidatingAdmissionPolicy", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: NS}\nspec: {matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods], resourceNames: []}], namespaceSelector: {}, excludeResourceRules: []}, variables: [], validations: [{expression: 'true', message: \"\"}]}"},
		{"a ValidatingAdmissionPolicyBinding", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: NS}\nspec: {policyName: NS, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {}}}}"},
		{"a StorageClass", "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: NS}\nprovisioner: x\nparameters: {}\nmountOptions: []\nallowedTopologies: []"},
		{"a CSIDriver", "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: NS}\nspec: {attachRequired: false, tokenRequests: [], volumeLifecycleModes: []}"},
		{"an Ingress", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: NS, namespace: NS}\nspec: {tls: [], rules: [{host: a, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}]}"},
		{"a ResourceQuota", "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: NS, namespace: NS}\nspec: {hard: {pods: \"100\", requests.cpu: 1000m}, scopes: []}"},
		{"a LimitRange", "apiVersion: v1\nkind: LimitRange\nmetadata: {name: NS, namespace: NS}\nspec: {limits: [{type: Container, default: {}, defaultRequest: {cpu: 0.5}}]}"},
		{"a PersistentVolumeClaim", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: NS, namespace: NS}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}, storageClassName: \"\", selector: {}}"},
		{"an EndpointSlice", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: NS, namespace: NS}\naddressType: IPv4\nendpoints: []\nports: []"},
		{"a FlowSchema", "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nmetadata: {name: NS}\nspec: {matchingPrecedence: 9000, priorityLevelConfiguration: {name: exempt}, rules: [{nonResourceRules: [], resourceRules: [{apiGroups: ['*'], resources: ['*'], verbs: [get], namespaces: ['*'], clusterScope: false}], subjects: [{kind: User, user: {name: a}}]}]}"},
		{"a PriorityLevelConfiguration", "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: PriorityLevelConfiguration\nmetadata: {name: NS}\nspec: {type: Limited, limited: {nominalConcurrencyShares: 10, limitResponse: {type: Queue, queuing: {}}}}"},
		{"a Lease", "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: NS, namespace: NS}\nspec: {holderIdentity: \"\", acquireTime: \"2026-01-01T00:00:00.000000Z\"}"},
		{"a custom resource with empty fields", "apiVersion: config.openshift.io/v1\nkind: ClusterOperator\nmetadata: {name: NS, labels: {}, annotations: {}, finalizers: [], ownerReferences: [], creationTimestamp: null}\nspec: {}\nstatus: {versions: []}"},
	} {
		t.Run("it applies "+tt.name+" once", func(t *testing.T) {
			m := parse(t, inNamespace(ns, tt.manifest))
			before := m.Object.DeepCopy()
			a, _ := connect(t, owner)
			must(t, a, m)
			assertQuiet(t, a, m)
			assert.Equal(t, before, m.Object, "the manifest must not change")
			require.NoError(t, client.IgnoreNotFound(otherClient(t).Delete(t.Context(), m.Object.DeepCopy())))
		})
	}
}
