package apply_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/release"
)

// workload returns the spec of a workload with additional text in the spec, the container and the pod.
func workload(spec, container, pod string) string {
	return "spec: {" + spec + "selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {" + pod +
		"containers: [{" + container + "name: c, image: i}]}}}"
}

func cronJob(pod string) string {
	return "spec: {schedule: '* * * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, " + pod + "containers: [{name: c, image: i}]}}}}}"
}

// member is a union member that replaces another one: old in text is replaced with next. Afterwards, the field at gone must not exist, and
// the field at there must exist.
type member struct {
	name, apiVersion, kind, text, old, next string
	unowned                                 bool // the blocking value has no owner
	gone, there                             string
}

var unions = append(append(append([]member{
	{"Deployment strategy by default", "apps/v1", "Deployment", workload("", "", ""), "spec: {", "spec: {strategy: {type: Recreate}, ", true, "spec.strategy.rollingUpdate", "spec.strategy.type"},
	{"Deployment strategy by name", "apps/v1", "Deployment", workload("strategy: {type: RollingUpdate}, ", "", ""), "RollingUpdate", "Recreate", true, "spec.strategy.rollingUpdate", "spec.strategy.type"},
	{"Deployment strategy with parameters", "apps/v1", "Deployment", workload("strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0}}, ", "", ""), "RollingUpdate, rollingUpdate: {maxSurge: 0}", "Recreate", false, "spec.strategy.rollingUpdate", "spec.strategy.type"},
	{"DaemonSet strategy", "apps/v1", "DaemonSet", workload("", "", ""), "spec: {", "spec: {updateStrategy: {type: OnDelete}, ", false, "spec.updateStrategy.nothing", "spec.updateStrategy.type"},
	{"DaemonSet strategy with parameters", "apps/v1", "DaemonSet", workload("updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 10%}}, ", "", ""), "RollingUpdate, rollingUpdate: {maxUnavailable: 10%}", "OnDelete", false, "spec.updateStrategy.rollingUpdate", "spec.updateStrategy.type"},
	{"DaemonSet surge", "apps/v1", "DaemonSet", workload("", "", ""), "spec: {", "spec: {updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}, ", false, "spec.nothing", "spec.updateStrategy.rollingUpdate.maxSurge"},
	{"StatefulSet strategy", "apps/v1", "StatefulSet", workload("serviceName: s, ", "", ""), "spec: {", "spec: {updateStrategy: {type: OnDelete}, ", true, "spec.updateStrategy.rollingUpdate", "spec.updateStrategy.type"},
	{"Service without affinity", "v1", "Service", "spec: {sessionAffinity: ClientIP, ports: [{port: 80}]}", "ClientIP", "None", false, "spec.sessionAffinityConfig", "spec.sessionAffinity"},
	{"Service without a class", "v1", "Service", "spec: {type: LoadBalancer, loadBalancerClass: a/b, ports: [{port: 80}]}", "LoadBalancer, loadBalancerClass: a/b", "ClusterIP", false, "spec.loadBalancerClass", "spec.type"},
	{"Service with its own traffic policy", "v1", "Service", "spec: {type: LoadBalancer, externalTrafficPolicy: Local, ports: [{port: 80}]}", "LoadBalancer, externalTrafficPolicy: Local", "ClusterIP", false, "spec.healthCheckNodePort", "spec.type"},
	{"Service that leaves its traffic policy", "v1", "Service", "spec: {type: LoadBalancer, externalTrafficPolicy: Local, ports: [{port: 80}]}", "externalTrafficPolicy: Local", "externalTrafficPolicy: Cluster", false, "spec.healthCheckNodePort", "spec.type"},
	{"Service from a name", "v1", "Service", "spec: {type: ExternalName, externalName: a.example.com}", "type: ExternalName, externalName: a.example.com", "type: ClusterIP, ports: [{port: 80}]", false, "spec.externalName", "spec.clusterIP"},
	{"ConfigMap volume from one by default", "apps/v1", "Deployment", workload("", "", "volumes: [{name: u, secret: {secretName: s}}, {name: v}], "), "{name: v}", "{name: v, configMap: {name: m}}", true, "spec.template.spec.volumes.1.emptyDir", "spec.template.spec.volumes.1.configMap"},
	{"Secret volume from one by default", "apps/v1", "DaemonSet", workload("", "", "volumes: [{name: v}], "), "{name: v}", "{name: v, secret: {secretName: m}}", true, "spec.template.spec.volumes.0.emptyDir", "spec.template.spec.volumes.0.secret"},
	{"volume of a CronJob", "batch/v1", "CronJob", cronJob("volumes: [{name: v}], "), "{name: v}", "{name: v, configMap: {name: m}}", true, "spec.jobTemplate.spec.template.spec.volumes.0.emptyDir", "spec.jobTemplate.spec.template.spec.volumes.0.configMap"},
	{"Indexed CronJob", "batch/v1", "CronJob", cronJob(""), "jobTemplate: {spec: {", "jobTemplate: {spec: {completionMode: Indexed, completions: 2, backoffLimitPerIndex: 2, ", false, "spec.nothing", "spec.jobTemplate.spec.completionMode"},
	{"CronJob with a failed policy", "batch/v1", "CronJob", cronJob(""), "jobTemplate: {spec: {", "jobTemplate: {spec: {podFailurePolicy: {rules: [{action: Ignore, onExitCodes: {operator: In, values: [1]}}]}, ", false, "spec.nothing", "spec.jobTemplate.spec.podFailurePolicy"},
	{"Ingress backend", "networking.k8s.io/v1", "Ingress", "spec: {defaultBackend: {service: {name: a, port: {number: 80}}}}", "service: {name: a, port: {number: 80}}", "resource: {apiGroup: a.b, kind: K, name: r}", false, "spec.defaultBackend.service", "spec.defaultBackend.resource"},
	{"Ingress port", "networking.k8s.io/v1", "Ingress", "spec: {defaultBackend: {service: {name: a, port: {number: 80}}}}", "number: 80", "name: http", false, "spec.defaultBackend.service.port.number", "spec.defaultBackend.service.port.name"},
	{"NetworkPolicy peer", "networking.k8s.io/v1", "NetworkPolicy", "spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}", "{podSelector: {}}]", "{ipBlock: {cidr: 10.0.0.0/8}}]", false, "spec.ingress.0.from.0.podSelector", "spec.ingress.0.from.0.ipBlock"},
	{"NetworkPolicy direction", "networking.k8s.io/v1", "NetworkPolicy", "spec: {podSelector: {}, ingress: [{}]}", "ingress: [{}]", "egress: [{}]", false, "spec.ingress", "spec.egress"},
	{"PodDisruptionBudget", "policy/v1", "PodDisruptionBudget", "spec: {maxUnavailable: 1, selector: {matchLabels: {a: b}}}", "maxUnavailable", "minAvailable", false, "spec.maxUnavailable", "spec.minAvailable"},
	{"HPA metrics by default", "autoscaling/v2", "HorizontalPodAutoscaler", "spec: {maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}", "maxReplicas: 5", "maxReplicas: 5, metrics: [{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: 5}}}]", false, "spec.metrics.0.resource", "spec.metrics.0.pods"},
	{"HPA target", "autoscaling/v2", "HorizontalPodAutoscaler", "spec: {maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}", "Utilization, averageUtilization: 50", "AverageValue, averageValue: 5", false, "spec.metrics.0.resource.target.averageUtilization", "spec.metrics.0.resource.target.averageValue"},
	{"APIService of this server", "apiregistration.k8s.io/v1", "APIService", "spec: {group: union.example.com, version: v1, groupPriorityMinimum: 5, versionPriority: 5, insecureSkipTLSVerify: true, service: {name: a, namespace: b}}", ", insecureSkipTLSVerify: true, service: {name: a, namespace: b}", "", false, "spec.service", "spec.group"},
	{"seccomp profile", "apps/v1", "Deployment", workload("", "securityContext: {seccompProfile: {type: Localhost, localhostProfile: x}}, ", ""), "Localhost, localhostProfile: x", "RuntimeDefault", false, "spec.template.spec.containers.0.securityContext.seccompProfile.localhostProfile", "spec.template.spec.containers.0.securityContext.seccompProfile.type"},
	{"DNS configuration", "apps/v1", "Deployment", workload("", "", "dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1]}, "), "dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1]}, ", "", false, "spec.template.spec.dnsConfig", "spec.template.spec.dnsPolicy"},
	{"env from a field", "apps/v1", "Deployment", workload("", "env: [{name: A, value: x}], ", ""), "value: x", "valueFrom: {fieldRef: {fieldPath: metadata.name}}", false, "spec.template.spec.containers.0.env.0.value", "spec.template.spec.containers.0.env.0.valueFrom.fieldRef"},
	{"env from another source", "apps/v1", "Deployment", workload("", "env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}], ", ""), "fieldRef: {fieldPath: metadata.name}", "configMapKeyRef: {name: m, key: k}", false, "spec.template.spec.containers.0.env.0.valueFrom.fieldRef", "spec.template.spec.containers.0.env.0.valueFrom.configMapKeyRef"},
	{"env with a value", "apps/v1", "Deployment", workload("", "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}], ", ""), "valueFrom: {resourceFieldRef: {resource: limits.cpu}}", "value: x", false, "spec.template.spec.containers.0.env.0.valueFrom", "spec.template.spec.containers.0.env.0.value"},
	{"CRD conversion off", "apiextensions.k8s.io/v1", "CustomResourceDefinition", conversionCRD("unionoff", "conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: a, namespace: b}}}}, "), "strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: a, namespace: b}}}", "strategy: None", false, "spec.conversion.webhook", "spec.conversion.strategy"},
	{"CRD conversion left out", "apiextensions.k8s.io/v1", "CustomResourceDefinition", conversionCRD("unionout", "conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: a, namespace: b}}}}, "), "conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: a, namespace: b}}}}, ", "", false, "spec.conversion.webhook", "spec.conversion.strategy"},
	{"CRD conversion by URL", "apiextensions.k8s.io/v1", "CustomResourceDefinition", conversionCRD("unionurl", "conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: a, namespace: b}}}}, "), "service: {name: a, namespace: b}", "url: 'https://a.example.com/c'", false, "spec.conversion.webhook.clientConfig.service", "spec.conversion.webhook.clientConfig.url"},
	{"ValidatingWebhook by URL", "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", webhook("service: {name: a, namespace: b}"), "service: {name: a, namespace: b}", "url: 'https://a.example.com/c'", false, "webhooks.0.clientConfig.service", "webhooks.0.clientConfig.url"},
	{"MutatingWebhook by service", "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", webhook("url: 'https://a.example.com/c'"), "url: 'https://a.example.com/c'", "service: {name: a, namespace: b}", false, "webhooks.0.clientConfig.url", "webhooks.0.clientConfig.service"},
	{"FlowSchema subject", "flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "spec: {priorityLevelConfiguration: {name: a}, rules: [{subjects: [{kind: User, user: {name: a}}], resourceRules: [{apiGroups: [a], resources: [a], verbs: [get], clusterScope: true}]}]}", "{kind: User, user: {name: a}}", "{kind: Group, group: {name: a}}", false, "spec.rules.0.subjects.0.user", "spec.rules.0.subjects.0.group"},
	{"ClusterRole without aggregation", "rbac.authorization.k8s.io/v1", "ClusterRole", "aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}", "aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}", "rules: [{apiGroups: [a], resources: [b], verbs: [get]}]", false, "aggregationRule", "rules"},
}, serviceTypes()...), handlers()...), volumeSources()...)

func conversionCRD(plural, conversion string) string {
	return "spec: {group: union.example.com, scope: Namespaced, " + conversion + "names: {plural: " + plural + ", singular: " + plural +
		"x, kind: K" + plural + ", listKind: K" + plural + "List}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}"
}

func webhook(clientConfig string) string {
	return "webhooks: [{name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], failurePolicy: Ignore, clientConfig: {" + clientConfig +
		"}, rules: [{apiGroups: [zz], apiVersions: [v1], operations: [CREATE], resources: [zz]}]}]"
}

// serviceTypes returns every change of a Service from one type to another.
func serviceTypes() (list []member) {
	types := []string{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}
	for _, from := range types[:3] {
		for _, to := range types {
			next := member{
				"Service " + from + " to " + to, "v1", "Service", "spec: {type: " + from + ", selector: {a: b}, ports: [{port: 80}]}",
				"type: " + from, "type: " + to, false, "spec.nothing", "spec.type",
			}
			switch to {
			case from:
				continue
			case "ClusterIP":
				next.gone = "spec.ports.0.nodePort"
			case "ExternalName":
				next.next += ", externalName: a.example.com"
				next.gone, next.there = "spec.clusterIP", "spec.externalName"
			}
			list = append(list, next)
		}
	}
	return list
}

// handlers returns every change of a handler of probes and lifecycle hooks to another handler.
func handlers() (list []member) {
	all := map[string]string{
		"httpGet": "{path: /, port: 80}", "tcpSocket": "{port: 80}", "exec": "{command: [a]}", "grpc": "{port: 80}", "sleep": "{seconds: 1}",
	}
	for _, field := range []string{"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} {
		for from := range all {
			for to := range all {
				at, hook := field, func(h string) bool { return h == "tcpSocket" || h == "grpc" }
				if field != "lifecycle" {
					hook = func(h string) bool { return h == "sleep" }
				}
				if from == to || hook(from) || hook(to) {
					continue
				}
				open, end := field+": {", "}, "
				if field == "lifecycle" {
					at, open, end = "lifecycle.preStop", "lifecycle: {preStop: {", "}}, "
				}
				at = "spec.template.spec.containers.0." + at
				list = append(list, member{
					field + " " + from + " to " + to, "apps/v1", "Deployment", workload("", open+from+": "+all[from]+end, ""),
					from + ": " + all[from], to + ": " + all[to], false, at + "." + from, at + "." + to,
				})
			}
		}
	}
	return list
}

// volumeSources returns changes of each volume source to the most common ones.
func volumeSources() (list []member) {
	all := map[string]string{
		"emptyDir": "{medium: Memory}", "configMap": "{name: m}", "secret": "{secretName: s}", "hostPath": "{path: /p}",
		"projected": "{sources: [{configMap: {name: m}}]}", "downwardAPI": "{items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}",
		"persistentVolumeClaim": "{claimName: c}", "csi": "{driver: d}", "nfs": "{server: s, path: /p}", "image": "{reference: r}",
		"ephemeral": "{volumeClaimTemplate: {" + pvcSpec + "}}",
	}
	for from, source := range all {
		for _, to := range []string{"emptyDir", "configMap", "secret", "projected"} {
			if from == to {
				continue
			}
			at := "spec.template.spec.volumes.0."
			list = append(list, member{
				"volume " + from + " to " + to, "apps/v1", "Deployment", workload("", "", "volumes: [{name: v, "+from+": "+source+"}], "),
				from + ": " + source, to + ": " + all[to], false, at + from, at + to,
			})
		}
	}
	return list
}

func TestUnionMembersReplaceEachOther(t *testing.T) {
	ns := namespace(t)
	for _, u := range unions {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			a, record := connect(t, owner)
			name := slug(u.name)
			if u.kind == "CustomResourceDefinition" {
				_, rest, _ := strings.Cut(u.text, "plural: ")
				name, _, _ = strings.Cut(rest, ",")
				name += ".union.example.com"
			}
			if u.kind == "APIService" {
				name = "v1.union.example.com"
			}
			first, next := change{apiVersion: u.apiVersion, kind: u.kind, text: u.text, old: u.old, next: u.next}.manifests(t, ns, name, "note: x")
			uid := must(t, a, first).UID
			record.drain()
			got := must(t, a, next)
			assert.Equal(t, apply.Applied, got.Action)
			if u.unowned {
				assert.Equal(t, []string{"PATCH apply-patch", "GET", "POST", "PUT", "PATCH json-patch+json", "PATCH apply-patch"}, methods(record.drain()))
			} else {
				assert.Len(t, record.drain(), 1, "the manifest's fields are ours, so one request is enough")
			}
			obj := live(t, next)
			assert.Equal(t, uid, obj.GetUID())
			assert.Nil(t, at(obj.Object, u.gone), u.gone)
			assert.NotNil(t, at(obj.Object, u.there), u.there)
			again := must(t, a, next)
			assert.Equal(t, got.Generation, again.Generation)
			if !slices.Contains([]string{"CustomResourceDefinition", "APIService", "FlowSchema"}, u.kind) { // the server writes the status of these
				assert.Equal(t, got.ResourceVersion, again.ResourceVersion)
			}
			assert.Len(t, record.drain(), 1)

			must(t, a, first)
			must(t, a, next)
			assert.Nil(t, at(live(t, next).Object, u.gone), "the first member must replace the second one again")
		})
	}
}

// at returns the value at a path of names and indexes, or nil if there is none.
func at(value any, path string) any {
	for step := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			i := int(step[0] - '0')
			if i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}

// TestUnionsOfAFormerManagerAreReplaced uses objects whose fields all belong to the update entry of OpenShift's operator.
func TestUnionsOfAFormerManagerAreReplaced(t *testing.T) {
	ns := namespace(t)
	for _, u := range unions {
		if !u.unowned {
			continue
		}
		t.Run(u.name, func(t *testing.T) {
			a, record := connect(t, owner)
			first, next := change{apiVersion: u.apiVersion, kind: u.kind, text: u.text, old: u.old, next: u.next}.manifests(t, ns, slug(u.name), "note: x")
			original(t, first)
			must(t, a, next)
			assert.Len(t, record.drain(), 6)
			assert.Nil(t, at(live(t, next).Object, u.gone))
			assert.Empty(t, former(live(t, next)))
			must(t, a, next)
			assert.Len(t, record.drain(), 1)
		})
	}
}

// TestReturningDefaultIsRemovedOnce uses a default that the server sets again after each removal.
func TestReturningDefaultIsRemovedOnce(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	must(t, a, deployment(t, ns, "a", 1))
	m := deployment(t, ns, "a", 1)
	require.NoError(t, unstructured.SetNestedField(m.Object.Object, int64(700), "spec", "minReadySeconds"))
	record.drain()
	for range 3 {
		_, err := a.Apply(t.Context(), m, release.Updating)
		var failed *failure.Error
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, []string{"spec.progressDeadlineSeconds"}, failed.Fields)
		require.ErrorContains(t, err, "must be greater than minReadySeconds")
		assert.Contains(t, failed.Remedy, "correct the release's manifest")
		assert.Equal(t, []string{"PATCH apply-patch", "GET", "POST", "POST"}, methods(record.drain()), "the manifest itself is invalid")
	}
}

func TestTakeOverSurvivesAnotherWriter(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	must(t, a, deployment(t, ns, "a", 1))
	m := deployment(t, ns, "a", 1)
	require.NoError(t, unstructured.SetNestedField(m.Object.Object, "Recreate", "spec", "strategy", "type"))
	edits := 0
	record.before = func(r *http.Request) {
		if r.Header.Get("Content-Type") == string(types.JSONPatchType) && edits < 2 {
			edits++
			as(t, "busy", m, types.MergePatchType, `{"metadata":{"annotations":{"busy":"`+strings.Repeat("x", edits)+`"}}}`)
		}
	}
	must(t, a, m)
	assert.Nil(t, at(live(t, m).Object, "spec.strategy.rollingUpdate"))
	assert.Equal(t, 2, edits)
}
