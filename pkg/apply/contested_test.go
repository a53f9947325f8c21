package apply_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// contest consists of an object of ours, an edit by another writer, and a next release that contradicts the edit.
type contest struct {
	name, apiVersion, kind string
	ours, theirs, next     string
	// dropped means that next lacks an item that ours has. The other writer then applies only partial.
	dropped bool
	partial string
	// owned means that the contradicting values belong to no union. So values of another owner stay, and the error names that owner.
	owned bool
	// gone lists paths that must be empty afterwards, there lists paths that must not be empty.
	gone, there []string
}

func deploymentSpec(strategy, containers, pod string) string {
	return "spec: {" + strategy + "selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {" + pod + "containers: [" + containers + "]}}}"
}

const podAt = "spec.template.spec."

func contests() []contest {
	container := func(text string) string { return deploymentSpec("", "{name: c, image: i"+text+"}", "") }
	pod := func(text string) string { return deploymentSpec("", "{name: c, image: i}", text) }
	deployment := func(name, ours, theirs, next string, gone, there []string) contest {
		return contest{name: name, apiVersion: "apps/v1", kind: "Deployment", ours: ours, theirs: theirs, next: next, gone: gone, there: there}
	}
	service := func(name, ours, theirs, next string, gone, there []string) contest {
		return contest{name: name, apiVersion: "v1", kind: "Service", ours: "spec: {selector: {a: b}, " + ours + "}", theirs: "spec: {selector: {a: b}, " + theirs + "}", next: "spec: {selector: {a: b}, " + next + "}", gone: gone, there: there}
	}
	side := func(text string) string {
		return deploymentSpec("", "{name: a, image: i}, {name: side, image: i"+text+"}, {name: z, image: i}", "")
	}
	hook := func(text string) string {
		return "webhooks: [{name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], failurePolicy: Ignore, rules: [{apiGroups: [zz], apiVersions: [v1], operations: [CREATE], resources: [zz]}], clientConfig: {" + text + "}}]"
	}
	v := podAt + "volumes.0."
	c := podAt + "containers.0."
	fromField := "valueFrom: {fieldRef: {fieldPath: metadata.name}}"
	return []contest{
		// Another member of a union, of any writer.
		deployment("volume emptyDir", pod("volumes: [{name: v, emptyDir: {}}], "), pod("volumes: [{name: v, configMap: {name: m}}], "), pod("volumes: [{name: v, emptyDir: {}}], "), []string{v + "configMap"}, []string{v + "emptyDir"}),
		deployment("volume configMap", pod("volumes: [{name: v, configMap: {name: m}}], "), pod("volumes: [{name: v, emptyDir: {medium: Memory}}], "), pod("volumes: [{name: v, configMap: {name: m}}], "), []string{v + "emptyDir"}, []string{v + "configMap"}),
		deployment("second volume", pod("volumes: [{name: u, secret: {secretName: s}}, {name: v, secret: {secretName: s}}], "), pod("volumes: [{name: x, emptyDir: {}}, {name: u, secret: {secretName: s}}, {name: v, projected: {sources: [{configMap: {name: m}}]}}], "), pod("volumes: [{name: v, secret: {secretName: s}}], "), []string{podAt + "volumes.0.projected", podAt + "volumes.1.projected", podAt + "volumes.2.projected"}, []string{podAt + "volumes.0.name", podAt + "volumes.1.name"}),
		deployment("env value", container(", env: [{name: A, value: x}]"), container(", env: [{name: A, "+fromField+"}]"), container(", env: [{name: A, value: x}]"), []string{c + "env.0.valueFrom"}, []string{c + "env.0.value"}),
		deployment("env valueFrom", container(", env: [{name: A, "+fromField+"}]"), container(", env: [{name: A, value: x}]"), container(", env: [{name: A, "+fromField+"}]"), []string{c + "env.0.value"}, []string{c + "env.0.valueFrom"}),
		deployment("env source", container(", env: [{name: A, "+fromField+"}]"), container(", env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]"), container(", env: [{name: A, "+fromField+"}]"), []string{c + "env.0.valueFrom.secretKeyRef"}, []string{c + "env.0.valueFrom.fieldRef"}),
		deployment("Recreate", deploymentSpec("strategy: {type: Recreate}, ", "{name: c, image: i}", ""), deploymentSpec("strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 3}}, ", "{name: c, image: i}", ""), deploymentSpec("strategy: {type: Recreate}, ", "{name: c, image: i}", ""), []string{"spec.strategy.rollingUpdate"}, nil),
		deployment("Recreate from defaults", deploymentSpec("", "{name: c, image: i}", ""), deploymentSpec("", "{name: c, image: i}", ""), deploymentSpec("strategy: {type: Recreate}, ", "{name: c, image: i}", ""), []string{"spec.strategy.rollingUpdate"}, nil),
		own(deployment("no surge and none unavailable", deploymentSpec("strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}, ", "{name: c, image: i}", ""), deploymentSpec("strategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}, ", "{name: c, image: i}", ""), deploymentSpec("strategy: {rollingUpdate: {maxUnavailable: 0}}, ", "{name: c, image: i}", ""), nil, []string{"spec.strategy.rollingUpdate.maxSurge"})),
		{name: "OnDelete", apiVersion: "apps/v1", kind: "StatefulSet", ours: "spec: {serviceName: s, selector: {matchLabels: {app: a}}, " + podTemplate + "}", theirs: "spec: {serviceName: s, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}, selector: {matchLabels: {app: a}}, " + podTemplate + "}", next: "spec: {serviceName: s, updateStrategy: {type: OnDelete}, selector: {matchLabels: {app: a}}, " + podTemplate + "}", gone: []string{"spec.updateStrategy.rollingUpdate"}, there: nil},
		deployment("probe", container(", readinessProbe: {httpGet: {path: /, port: 80}}"), container(", readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 7}"), container(", readinessProbe: {httpGet: {path: /, port: 80}}"), []string{c + "readinessProbe.tcpSocket"}, []string{c + "readinessProbe.httpGet", c + "readinessProbe.periodSeconds"}),
		deployment("lifecycle", container(", lifecycle: {preStop: {exec: {command: [a]}}}"), container(", lifecycle: {preStop: {sleep: {seconds: 1}}}"), container(", lifecycle: {preStop: {exec: {command: [a]}}}"), []string{c + "lifecycle.preStop.sleep"}, []string{c + "lifecycle.preStop.exec"}),
		own(deployment("privileges", container(", securityContext: {allowPrivilegeEscalation: false}"), container(", securityContext: {privileged: true}"), container(", securityContext: {allowPrivilegeEscalation: false}"), []string{c + "securityContext.privileged"}, []string{c + "securityContext.allowPrivilegeEscalation"})),
		own(deployment("host port", container(", ports: [{containerPort: 80, hostPort: 81}]"), deploymentSpec("", "{name: c, image: i, ports: [{containerPort: 80, hostPort: 80}]}", "hostNetwork: true, "), container(", ports: [{containerPort: 80, hostPort: 81}]"), []string{podAt + "hostNetwork"}, []string{c + "ports.0.hostPort"})),
		own(deployment("request above a limit", container(", resources: {requests: {cpu: 1}}"), container(", resources: {requests: {cpu: 1}, limits: {cpu: 1, memory: 1Gi}}"), container(", resources: {requests: {cpu: 2}}"), []string{c + "resources.limits.cpu"}, []string{c + "resources.limits.memory"})),
		own(deployment("limit below a request", container(", resources: {limits: {cpu: 3}}"), container(", resources: {limits: {cpu: 3}, requests: {cpu: 3, memory: 1Gi}}"), container(", resources: {limits: {cpu: 1}}"), nil, []string{c + "resources.requests.memory"})),
		{name: "ValidatingWebhook by URL", apiVersion: "admissionregistration.k8s.io/v1", kind: "ValidatingWebhookConfiguration", ours: hook("url: 'https://a.example.com'"), theirs: hook("service: {name: a, namespace: b}"), next: hook("url: 'https://a.example.com'"), gone: []string{"webhooks.0.clientConfig.service"}, there: []string{"webhooks.0.clientConfig.url"}},
		{name: "MutatingWebhook by service", apiVersion: "admissionregistration.k8s.io/v1", kind: "MutatingWebhookConfiguration", ours: hook("service: {name: a, namespace: b}"), theirs: hook("url: 'https://a.example.com'"), next: hook("service: {name: a, namespace: b}"), gone: []string{"webhooks.0.clientConfig.url"}, there: []string{"webhooks.0.clientConfig.service"}},
		{name: "PodDisruptionBudget", apiVersion: "policy/v1", kind: "PodDisruptionBudget", ours: "spec: {maxUnavailable: 1, selector: {matchLabels: {a: b}}}", theirs: "spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}", next: "spec: {maxUnavailable: 1, selector: {matchLabels: {a: b}}}", gone: []string{"spec.minAvailable"}, there: []string{"spec.maxUnavailable"}},
		{name: "HPA bounds", apiVersion: "autoscaling/v2", kind: "HorizontalPodAutoscaler", ours: "spec: {maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}", theirs: "spec: {maxReplicas: 5, minReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}", next: "spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}", owned: true, gone: nil, there: nil},
		service("Service node port", "type: NodePort, ports: [{port: 80}]", "type: NodePort, ports: [{port: 80, nodePort: 31PP}]", "type: ClusterIP, ports: [{port: 80}]", []string{"spec.ports.0.nodePort"}, []string{"spec.clusterIP"}),
		service("Service to a name", "type: ClusterIP, ports: [{port: 80}]", "type: NodePort, externalTrafficPolicy: Local, ports: [{port: 80}]", "type: ExternalName, externalName: a.example.com", []string{"spec.clusterIP", "spec.externalTrafficPolicy"}, []string{"spec.externalName"}),
		service("Service without balancer", "type: LoadBalancer, ports: [{port: 80}]", "type: LoadBalancer, externalTrafficPolicy: Local, allocateLoadBalancerNodePorts: false, loadBalancerSourceRanges: [10.0.0.0/8], ports: [{port: 80}]", "type: ClusterIP, ports: [{port: 80}]", []string{"spec.externalTrafficPolicy", "spec.allocateLoadBalancerNodePorts"}, nil),
		service("Service affinity", "sessionAffinity: None, ports: [{port: 80}]", "sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}, ports: [{port: 80}]", "sessionAffinity: None, ports: [{port: 80}]", []string{"spec.sessionAffinityConfig"}, []string{"spec.sessionAffinity"}),

		// Other parts of an item that the manifest dropped.
		drop("spec: {template: {spec: {containers: [{name: c, readinessProbe: {httpGet: {path: /theirs}, periodSeconds: 7}}]}}}", deployment("dropped probe", container(", readinessProbe: {httpGet: {path: /, port: 80}}"), container(", readinessProbe: {httpGet: {path: /theirs, port: 80}, periodSeconds: 7}"), container(""), []string{c + "readinessProbe"}, nil)),
		drop("spec: {template: {spec: {containers: [{name: side, args: [x], env: [{name: A, value: b}]}]}}}", deployment("dropped container", side(""), side(", args: [x], env: [{name: A, value: b}]"), deploymentSpec("", "{name: z, image: i}, {name: a, image: i}", ""), []string{podAt + "containers.2"}, []string{podAt + "containers.1"})),
		drop("spec: {template: {spec: {initContainers: [{name: s, args: [x]}, {name: k, args: [x]}]}}}", deployment("dropped init container", pod("initContainers: [{name: s, image: i}, {name: k, image: i}], "), pod("initContainers: [{name: s, image: i, args: [x]}, {name: k, image: i, args: [x]}], "), pod("initContainers: [{name: k, image: i}], "), []string{podAt + "initContainers.1"}, []string{podAt + "initContainers.0.args"})),
		drop("spec: {template: {spec: {containers: [{name: side, args: [x]}]}}}", deployment("container that becomes an init container", side(""), side(", args: [x]"), deploymentSpec("", "{name: a, image: i}, {name: z, image: i}", "initContainers: [{name: side, image: i}], "), []string{podAt + "containers.2", podAt + "initContainers.0.args"}, nil)),
		drop("spec: {template: {spec: {containers: [{name: c, volumeMounts: [{name: v, mountPath: /v}, {name: w, mountPath: /w}]}]}}}", deployment("mount of a dropped volume", deploymentSpec("", "{name: c, image: i}", "volumes: [{name: v, emptyDir: {}}, {name: w, emptyDir: {}}], "), deploymentSpec("", "{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}, {name: w, mountPath: /w}]}", "volumes: [{name: v, emptyDir: {}}, {name: w, emptyDir: {}}], "), pod("volumes: [{name: w, emptyDir: {}}], "), []string{c + "volumeMounts.1"}, []string{c + "volumeMounts.0"})),
		drop("spec: {ports: [{port: 81, protocol: TCP, appProtocol: x}]}", service("dropped port", "ports: [{name: a, port: 80}, {name: b, port: 81}]", "ports: [{name: a, port: 80}, {name: b, port: 81, appProtocol: x, nodePort: 32PP}], type: NodePort", "ports: [{name: a, port: 80}], type: ClusterIP", nil, []string{"spec.ports.0"})),
		service("nameless port", "ports: [{port: 80}]", "ports: [{name: a, port: 80}, {name: b, port: 81}]", "ports: [{port: 80}]", nil, []string{"spec.ports.0"}),
		{
			dropped: true, owned: true, name: "dropped webhook", apiVersion: "admissionregistration.k8s.io/v1", kind: "ValidatingWebhookConfiguration",
			ours:   strings.Replace(hook("url: 'https://a.example.com'"), "webhooks: [", "webhooks: [{name: b.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: 'https://b.example.com'}}, ", 1),
			theirs: strings.Replace(hook("url: 'https://a.example.com'"), "webhooks: [", "webhooks: [{name: b.example.com, sideEffects: None, admissionReviewVersions: [v1], timeoutSeconds: 3, clientConfig: {url: 'https://b.example.com', caBundle: BUNDLE}}, ", 1),
			next:   hook("url: 'https://a.example.com'"), gone: []string{"webhooks.1"}, there: []string{"webhooks.0"},
			partial: "webhooks: [{name: b.example.com, timeoutSeconds: 3}]",
		},

		// Duplicate values.
		own(service("port name", "ports: [{name: m, port: 8443}, {name: x, port: 1}]", "ports: [{name: m, port: 8444}, {name: x, port: 1}, {name: theirs, port: 2}]", "ports: [{name: m, port: 8443}, {name: x, port: 1}]", []string{"spec.ports.3"}, []string{"spec.ports.2"})),
		own(service("node port of another", "type: NodePort, ports: [{name: a, port: 80, nodePort: 30PP}]", "type: NodePort, ports: [{name: b, port: 81, nodePort: 30PP}]", "type: NodePort, ports: [{name: a, port: 80, nodePort: 30PP}]", []string{"spec.ports.1"}, []string{"spec.ports.0"})),
		own(deployment("container port name", container(", ports: [{name: web, containerPort: 80}]"), container(", ports: [{name: web, containerPort: 81}, {containerPort: 82}]"), container(", ports: [{name: web, containerPort: 80}]"), []string{c + "ports.2"}, []string{c + "ports.1"})),
		own(deployment("container with the name of an init container", pod("initContainers: [{name: x, image: i}], "), deploymentSpec("", "{name: c, image: i}, {name: x, image: i}", "initContainers: [{name: k, image: i}], volumes: [{name: x, emptyDir: {}}], "), pod("initContainers: [{name: x, image: i}], "), []string{podAt + "containers.1"}, []string{podAt + "initContainers.1", podAt + "volumes.0"})),
	}
}

// drop returns a contest about a part that the manifest dropped.
func drop(partial string, c contest) contest {
	c.dropped, c.owned, c.partial = true, true, partial
	return c
}

// own returns the contest with values that belong to no union of fields.
func own(c contest) contest {
	c.owned = true
	return c
}

// writers are the methods by which another writer can write the object before the next release.
var writers = []struct {
	name string
	// before means that the other writer writes first.
	before bool
	write  func(t *testing.T, theirs *manifest.Manifest)
}{
	{"put", false, func(t *testing.T, theirs *manifest.Manifest) {
		require.NoError(t, otherClient(t).Update(t.Context(), edited(t, theirs), client.FieldOwner("kubectl-edit")))
	}},
	{"merge patch", false, func(t *testing.T, theirs *manifest.Manifest) {
		before := live(t, theirs)
		require.NoError(t, otherClient(t).Patch(t.Context(), edited(t, theirs), client.MergeFrom(before), client.FieldOwner("kubectl-patch")))
	}},
	{"apply", false, applyTheirs},
	{"creation", true, func(t *testing.T, theirs *manifest.Manifest) {
		require.NoError(t, otherClient(t).Create(t.Context(), theirs.Object.DeepCopy(), client.FieldOwner("kubectl-create")))
	}},
	{"creation by apply", true, applyTheirs},
	{"creation without managed fields", true, func(t *testing.T, theirs *manifest.Manifest) {
		require.NoError(t, otherClient(t).Create(t.Context(), theirs.Object.DeepCopy()))
		as(t, "strip", theirs, types.MergePatchType, `{"metadata":{"managedFields":[{}]}}`)
	}},
}

// edited returns the live object with the other writer's field values.
func edited(t *testing.T, theirs *manifest.Manifest) *unstructured.Unstructured {
	t.Helper()
	obj := live(t, theirs)
	for field, value := range theirs.Object.DeepCopy().Object {
		if field != "metadata" {
			obj.Object[field] = value
		}
	}
	return obj
}

func applyTheirs(t *testing.T, theirs *manifest.Manifest) { require.NoError(t, sendTheirs(t, theirs)) }

func sendTheirs(t *testing.T, theirs *manifest.Manifest) error {
	data, err := theirs.Object.MarshalJSON()
	require.NoError(t, err)
	return otherClient(t).Patch(t.Context(), theirs.Object.DeepCopy(), client.RawPatch(types.ApplyPatchType, data), client.FieldOwner("argocd"), client.ForceOwnership)
}

// exclusive lists the contests whose values the server rejects in one object. So no other writer can apply theirs while ours are there. It is not
// derived from the responses, because then any other rejection would drop its contest unnoticed.
var exclusive = []string{
	"volume emptyDir", "volume configMap", "second volume", "env value", "env valueFrom", "env source", "probe", "lifecycle", "privileges",
	"ValidatingWebhook by URL", "MutatingWebhook by service", "PodDisruptionBudget", "port name", "node port of another", "container port name",
	"container with the name of an init container",
}

func TestManifestWinsOverOtherWriters(t *testing.T) {
	ns := namespace(t)
	bundle := encodedBundle(t)
	for n, c := range contests() {
		for i, writer := range writers {
			if writer.before && c.dropped { // only the other writer would own it
				continue
			}
			t.Run(c.name+" by "+writer.name, func(t *testing.T) {
				t.Parallel()
				a, record := connect(t, owner)
				name := slug(c.name) + "-" + string(rune('a'+i))
				parsed := func(text string) *manifest.Manifest {
					return parse(t, "apiVersion: "+c.apiVersion+"\nkind: "+c.kind+"\nmetadata: {name: "+name+", namespace: "+ns+"}\n"+strings.NewReplacer("PP", strconv.Itoa(100+n*10+i), "BUNDLE", bundle).Replace(text))
				}
				if !writer.before {
					must(t, a, parsed(c.ours))
				}
				if writer.name == "apply" && slices.Contains(exclusive, c.name) {
					require.Error(t, sendTheirs(t, parsed(c.theirs)))
					return
				}
				if writer.name == "apply" && c.partial != "" {
					writer.write(t, parsed(c.partial))
				} else {
					writer.write(t, parsed(c.theirs))
				}
				next := parsed(c.next)
				predicted, predictErr := a.Predict(t.Context(), next, release.Updating)
				before := live(t, next)
				record.drain()
				change, err := a.Apply(t.Context(), next, release.Updating)
				unowned := strings.HasSuffix(writer.name, "without managed fields")
				if c.owned && !unowned && err != nil {
					require.EqualError(t, predictErr, err.Error())
					var failed *failure.Error
					require.ErrorAs(t, err, &failed)
					if c.name != "node port of another" { // the server reports an internal error
						assert.Regexp(t, "^remove .+ of (kubectl-edit|kubectl-patch|kubectl-create|argocd) from the object", failed.Remedy)
					}
					assert.Equal(t, before, live(t, next), "foreign values must not be removed")
					return
				}
				if c.name == "node port of another" {
					return
				}
				require.NoError(t, predictErr)
				require.NoError(t, err)
				assert.NotContains(t, []string{"put", "merge patch"}, map[bool]string{true: writer.name}[c.owned && !c.dropped], "a value with another owner must not be removed")
				assert.Equal(t, apply.Applied, change.Action)
				requests, most := record.drain(), 6
				if unowned {
					most = 7
				}
				if c.owned {
					assert.LessOrEqual(t, len(requests), 30, "%v", methods(requests))
				} else {
					assert.Contains(t, []int{1, most}, len(requests), "rejected, read, checked, taken over and applied: %v", methods(requests))
				}
				taken, removed := strings.CutPrefix(change.Message, "removed values that contradict the manifest: ")
				assert.Equal(t, removed, change.Message != "")
				assert.Contains(t, predicted.Message, taken)
				assert.Equal(t, len(requests) > 1, strings.HasPrefix(predicted.Message, "values that contradict the manifest are removed first: "))
				obj := live(t, next)
				for _, path := range c.gone {
					assert.Nil(t, at(obj.Object, path), path)
				}
				for _, path := range c.there {
					if c.owned && strings.Contains(path, ".resources.") {
						continue // without an owner, everything is removed
					}
					assert.NotNil(t, at(obj.Object, path), path)
				}
				assert.Equal(t, stored(obj), stored(predicted.Object), "Predict must return the object as stored")

				again := must(t, a, next)
				assert.Equal(t, change.Generation, again.Generation)
				assert.Equal(t, change.Fields, again.Fields)
				assert.Len(t, record.drain(), 1)
			})
		}
	}
}

// TestManifestWinsOverABusyWriter makes another writer change the object between our read and our take-over.
func TestManifestWinsOverABusyWriter(t *testing.T) {
	ns := namespace(t)
	for _, tt := range []struct {
		name  string
		edits int
		fails bool
	}{
		{"a few times", 2, false},
		{"permanently", 1000, true},
	} {
		t.Run("it wins over a writer that writes "+tt.name, func(t *testing.T) {
			a, record := connect(t, owner)
			text := func(container string) string {
				return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: " + slug(tt.name) + ", namespace: " + ns + "}\n" + deploymentSpec("", "{name: c, image: i"+container+"}", "")
			}
			m := parse(t, text(", env: [{name: A, value: x}]"))
			must(t, a, m)
			require.NoError(t, otherClient(t).Update(t.Context(), edited(t, parse(t, text(", env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"))), client.FieldOwner("kubectl-edit")))
			edits := 0
			record.before = func(r *http.Request) {
				if r.Header.Get("Content-Type") == string(types.JSONPatchType) && edits < tt.edits {
					edits++
					as(t, "busy", m, types.MergePatchType, `{"metadata":{"annotations":{"busy":"`+strings.Repeat("x", edits)+`"}}}`)
				}
			}
			record.drain()
			_, err := a.Apply(t.Context(), m, release.Updating)
			if tt.fails {
				var failed *failure.Error
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, api.ReasonResourceConflict, failed.Reason)
				require.ErrorContains(t, err, "taking over conflicting fields")
				assert.Len(t, record.drain(), 3+4*3, "one apply, one read and one check, then four attempts with a read each")
				return
			}
			require.NoError(t, err)
			assert.Len(t, record.drain(), 3+2*3+3)
			assert.Equal(t, "x", at(live(t, m).Object, podAt+"containers.0.env.0.value"))
		})
	}
}

// TestUnremovableValuesAreKept uses a custom resource with a rule that keeps a field, and another rule that rejects it.
func TestUnremovableValuesAreKept(t *testing.T) {
	serveCRD(t, parse(t, strings.NewReplacer("fixeds", "bounds", "fixed", "bound", "Fixed", "Bound", "message: whim must stay}",
		"message: whim is immutable}\n            - {rule: '!has(self.plain) || !has(self.whim)', message: not with plain, fieldPath: .whim}").Replace(fixedCRD)))
	ns := namespace(t)
	a, record := connect(t, owner)
	m := parse(t, "apiVersion: immutable.example.com/v1\nkind: Bound\nmetadata: {name: a, namespace: "+ns+"}\nspec: {plain: x}")
	theirs := m.Object.DeepCopy()
	theirs.Object["spec"] = map[string]any{"whim": "w"}
	require.NoError(t, otherClient(t).Create(t.Context(), theirs, client.FieldOwner("kubectl-create")))
	before := live(t, m)
	for range 2 {
		record.drain()
		_, err := a.Apply(t.Context(), m, release.Updating)
		require.ErrorContains(t, err, "not with plain")
		assert.NotContains(t, methods(record.drain()), "PATCH json-patch+json", "a dry run shows that the value cannot be removed")
		after := live(t, m)
		assert.Equal(t, before.GetManagedFields(), after.GetManagedFields(), "the other writer owns it again")
		assert.Equal(t, before.Object["spec"], after.Object["spec"])
	}
}

// TestOthersValuesAreNoImmutableFields uses contradicting values that are not next to a rejected field, in objects that may be recreated. The
// other writer also sets a value that no update may remove.
func TestOthersValuesAreNoImmutableFields(t *testing.T) {
	const group = "limits.example.com"
	serveCRD(t, parse(t, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: limits.`+group+`}
spec:
  group: `+group+`
  scope: Namespaced
  names: {kind: Limit, plural: limits, singular: limit, listKind: LimitList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-validations: [
        {rule: "!has(self.max) || !has(self.ports) || self.ports.all(p, p.port <= self.max)", message: a port exceeds max},
        {rule: "!has(oldSelf.id) || has(self.id)", message: id must stay}], properties: {
      id: {type: string},
      max: {type: integer},
      names: {type: array, maxItems: 2, x-kubernetes-list-type: set, items: {type: string}},
      ports: {type: array, maxItems: 2, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [port], items: {type: object, required: [port], properties: {port: {type: integer}}}}}}}}}
`))
	ns := namespace(t)
	for _, tt := range []struct{ name, first, theirs, next, named string }{
		{"an item of a set", "{names: [a]}", `{"op":"add","path":"/spec/names/-","value":"theirs"}`, "{names: [a, b]}", `spec.names[="theirs"]`},
		{"an item of a list with keys", "{ports: [{port: 1}]}", `{"op":"add","path":"/spec/ports/-","value":{"port":9}}`, "{ports: [{port: 1}, {port: 2}]}", "spec.ports[port=9]"},
		{"an item that breaks a rule of the spec", "{ports: [{port: 1}]}", `{"op":"add","path":"/spec/ports/-","value":{"port":9}}`, "{max: 5, ports: [{port: 1}]}", "spec.id of other; spec.ports[port=9]"},
	} {
		t.Run("it is "+tt.name, func(t *testing.T) {
			a, _ := connect(t, owner)
			limit := func(spec string) *manifest.Manifest {
				return parse(t, "apiVersion: "+group+"/v1\nkind: Limit\nmetadata: {name: "+slug(tt.name)+", namespace: "+ns+", annotations: {"+recreateAnnotation+"}}\nspec: "+spec)
			}
			must(t, a, limit(tt.first))
			as(t, "other", limit(tt.first), types.JSONPatchType, "["+tt.theirs+`,{"op":"add","path":"/spec/id","value":"theirs"}]`)
			before := live(t, limit("{}"))
			_, err := a.Apply(t.Context(), limit(tt.next), release.Updating)
			var failed *failure.Error
			require.ErrorAs(t, err, &failed)
			assert.Contains(t, failed.Remedy, "remove "+tt.named+" of other from the object")
			_, predictErr := a.Predict(t.Context(), limit(tt.next), release.Updating)
			require.EqualError(t, predictErr, err.Error())
			assert.Equal(t, before, live(t, limit("{}")))
		})
	}
}
