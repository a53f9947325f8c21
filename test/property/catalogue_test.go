package property

import (
	"maps"
	"slices"
	"strings"
)

// place is the placeholder in manifests for the namespace of a run, which is also the prefix of names without a namespace.
const place = "xplacex"

// shape defines how the lists and maps of a kind are merged. It repeats the API's schemas (x-kubernetes-list-type and its companions).
// Unless named here, lists are atomic and maps are not.
type shape struct {
	// lists has the keys of the items by list pattern; nil for sets.
	lists      map[string][]string
	atomicMaps map[string]bool
	// unions has groups of exclusive fields by the pattern of their parent. Setting one removes the others.
	unions map[string][]string
	// needs has the required fields of an item by the item's pattern. An item without them is removed.
	needs map[string][]string
}

// kind is a kind of object with the fields that manifests and other writers may set.
type kind struct {
	apiVersion, name string
	clusterScoped    bool
	shape            shape
	// base has the fields of every manifest except its slots.
	base map[string]any
	// slots are the fields that vary.
	slots []slot
	// status has the patches of other writers to the status subresource; nil for none.
	status []map[string]any
	// scales reports that the kind has a scale subresource.
	scales bool
	// stays reports that no step deletes the object, because that would delete other objects or never end.
	stays bool
	// served reports that the API server writes to the object a moment after each write.
	served bool
}

// slot is a field, or an item of a list, that releases and other writers may set, change and remove.
type slot struct {
	at path
	// values are its possible values.
	values []any
	// fallback is the server's default for a missing value; nil for none.
	fallback any
	// required reports that every manifest has the value and no writer removes it.
	required bool
	// in is the item to which the slot belongs. The slot is set only if that item exists.
	in path
	// foreign reports that no release sets the slot.
	foreign bool
}

func field(at string, values ...any) slot { return slot{at: parsePath(at), values: values} }

func (s slot) or(fallback any) slot { s.fallback = fallback; return s }
func (s slot) must() slot           { s.required = true; return s }
func (s slot) inside(item string) slot {
	s.in = parsePath(item)
	return s
}
func (s slot) theirs() slot { s.foreign = true; return s }

type object = map[string]any

// kinds returns all kinds of the test, in the order in which a release contains them.
func kinds() []kind {
	return []kind{
		namespaceKind(), crdKind(), priorityClassKind(), clusterRoleKind(), webhookKind(), serviceAccountKind(), roleKind(),
		roleBindingKind(), configMapKind(), secretKind(), serviceKind(), networkPolicyKind(), deploymentKind(),
		daemonSetKind(), cronJobKind(), gadgetKind(),
	}
}

func kindNamed(name string) kind {
	all := kinds()
	return all[slices.IndexFunc(all, func(k kind) bool { return k.name == name })]
}

// metadata returns the slots that every object has.
func metadata() []slot {
	return []slot{
		field("metadata.labels{app.kubernetes.io/part-of}", "one", "two"),
		field("metadata.labels.tier", "gold", "silver"),
		field("metadata.annotations{example.com/note}", "first", "second", "third"),
		field("metadata.annotations{example.com/empty}", ""),
		field("metadata.labels{mesh.example.com/injected}", "yes", "no").theirs(),
		field("metadata.annotations{example.com/last-seen}", "monday", "tuesday").theirs(),
		field("metadata.annotations{openshift.io/description}", "theirs").theirs(),
	}
}

func newShape(lists map[string][]string, atomicMaps ...string) shape {
	s := shape{lists: map[string][]string{
		"metadata.finalizers":      nil,
		"metadata.ownerReferences": {"uid"},
	}, atomicMaps: map[string]bool{}, unions: map[string][]string{}, needs: map[string][]string{}}
	maps.Copy(s.lists, lists)
	for _, m := range atomicMaps {
		s.atomicMaps[m] = true
	}
	return s
}

func namespaceKind() kind {
	return kind{
		apiVersion: "v1", name: "Namespace", clusterScoped: true, stays: true, shape: newShape(nil),
		slots: append(metadata(),
			field("metadata.labels{pod-security.kubernetes.io/enforce}", "privileged", "baseline", "restricted"),
			field("metadata.labels{pod-security.kubernetes.io/audit}", "privileged", "baseline"),
			field("metadata.annotations{openshift.io/node-selector}", "", "a=b")),
	}
}

func configMapKind() kind {
	return kind{
		apiVersion: "v1", name: "ConfigMap", shape: newShape(nil),
		slots: append(metadata(),
			field("data{config.yaml}", "a: 1\n", "a: 2\n", "b: [x]\n"), field("data.level", "debug", "info"), field("data.empty", ""),
			field("data{ca-bundle.crt}", "-----ONE-----", "-----TWO-----").theirs(),
			field("binaryData.blob", "aGk=", "aG8=")),
	}
}

func secretKind() kind {
	return kind{
		apiVersion: "v1", name: "Secret", shape: newShape(nil), base: object{"type": "Opaque"},
		slots: append(metadata(), field("data.user", "YQ==", "Yg=="), field("data.password", "YWE=", "YmI="),
			field("data.token", "dA==", "dQ==").theirs()),
	}
}

func serviceAccountKind() kind {
	return kind{
		apiVersion: "v1", name: "ServiceAccount", shape: newShape(map[string][]string{"secrets": {"name"}}),
		slots: append(metadata(),
			field("automountServiceAccountToken", true, false),
			field("secrets[name=ours]", object{"name": "ours"}),
			field("secrets[name=token-abc]", object{"name": "token-abc"}).theirs(),
			field("imagePullSecrets", []any{object{"name": "pull"}}, []any{object{"name": "pull"}, object{"name": "more"}})),
	}
}

func rules() []any {
	read := object{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{"get", "list"}}
	write := object{"apiGroups": []any{"apps"}, "resources": []any{"deployments"}, "verbs": []any{"*"}}
	return []any{[]any{read}, []any{read, write}, []any{write}, []any{}}
}

func roleKind() kind {
	return kind{
		apiVersion: "rbac.authorization.k8s.io/v1", name: "Role", shape: newShape(nil),
		slots: append(metadata(), field("rules", rules()...)),
	}
}

func clusterRoleKind() kind {
	return kind{
		apiVersion: "rbac.authorization.k8s.io/v1", name: "ClusterRole", clusterScoped: true, shape: newShape(nil),
		slots: append(metadata(), field("rules", rules()...)),
	}
}

func roleBindingKind() kind {
	subject := func(name string) object {
		return object{"kind": "ServiceAccount", "name": name, "namespace": place}
	}
	return kind{
		apiVersion: "rbac.authorization.k8s.io/v1", name: "RoleBinding", shape: newShape(nil, "roleRef"),
		base: object{"roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "any"}},
		slots: append(metadata(), field("subjects",
			[]any{subject("a")}, []any{subject("a"), subject("b")}, []any{object{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}})),
	}
}

func priorityClassKind() kind {
	return kind{
		apiVersion: "scheduling.k8s.io/v1", name: "PriorityClass", clusterScoped: true, shape: newShape(nil),
		base:  object{"value": int64(1000)},
		slots: append(metadata(), field("description", "for pods", "for other pods")),
	}
}

func serviceKind() kind {
	port := func(n int64, name string, target any) object {
		return object{"name": name, "port": n, "protocol": "TCP", "targetPort": target}
	}
	k := kind{
		apiVersion: "v1", name: "Service", shape: newShape(map[string][]string{"spec.ports": {"port", "protocol"}}, "spec.selector"),
		slots: append(metadata(),
			field("spec.ports[port=443,protocol=TCP]", port(443, "https", int64(8443)), port(443, "tls", "web")).must(),
			field("spec.ports[port=80,protocol=TCP]", port(80, "http", int64(8080)), port(80, "web", "web")),
			field("spec.ports[port=53,protocol=UDP]", object{"name": "dns", "port": int64(53), "protocol": "UDP", "targetPort": int64(5353)}),
			field("spec.ports[port=9090,protocol=TCP]", port(9090, "metrics", int64(9090))).theirs(),
			field("spec.ports[port=443,protocol=TCP].appProtocol", "https", "kubernetes.io/h2c").inside("spec.ports[port=443,protocol=TCP]"),
			field("spec.selector", object{"app": "a"}, object{"app": "a", "tier": "b"}, object{"app": "c"}),
			field("spec.type", "ClusterIP", "NodePort").or("ClusterIP"),
			field("spec.sessionAffinity", "None", "ClientIP").or("None"),
			field("spec.publishNotReadyAddresses", true),
			field("spec.internalTrafficPolicy", "Cluster", "Local").or("Cluster")),
	}
	k.shape.needs["spec.ports[]"] = []string{"name"} // if the Service has several
	return k
}

func networkPolicyKind() kind {
	ingress := []any{object{"from": []any{object{"podSelector": object{}}}}}
	egress := []any{object{"ports": []any{object{"port": int64(53), "protocol": "UDP"}}}}
	return kind{
		apiVersion: "networking.k8s.io/v1", name: "NetworkPolicy", shape: newShape(nil, "spec.podSelector"),
		slots: append(metadata(),
			field("spec.podSelector", object{}, object{"matchLabels": object{"app": "a"}}).must(),
			field("spec.ingress", ingress, []any{}), field("spec.egress", egress),
			field("spec.policyTypes", []any{"Ingress"}, []any{"Ingress", "Egress"}).must()),
	}
}

// podSlots returns the slots of a pod template at the path prefix.
func podSlots(prefix string) []slot {
	at := func(s string) string { return prefix + ".spec." + s }
	main, side := at("containers[name=main]"), at("containers[name=sidecar]")
	env := func(name string, rest object) object { rest["name"] = name; return rest }
	fromField := object{"fieldRef": object{"fieldPath": "metadata.name"}}
	return []slot{
		field(main+".image", "example.com/main:1", "example.com/main:2").must(),
		field(main+".args", []any{"--a"}, []any{"--a", "--b"}, []any{"--c"}),
		field(main+".imagePullPolicy", "IfNotPresent", "Always").or("IfNotPresent"),
		field(main+".env[name=LEVEL]", env("LEVEL", object{"value": "1"}), env("LEVEL", object{"value": "2"}), env("LEVEL", object{"valueFrom": fromField})),
		field(main+".env[name=MODE]", env("MODE", object{"value": "x"}), env("MODE", object{})),
		field(main+".env[name=HTTP_PROXY]", env("HTTP_PROXY", object{"value": "http://proxy"})).theirs(),
		field(main+".ports[containerPort=8443,protocol=TCP]", object{"containerPort": int64(8443), "name": "https"}, object{"containerPort": int64(8443), "protocol": "TCP"}),
		field(main+".ports[containerPort=9090,protocol=TCP]", object{"containerPort": int64(9090), "protocol": "TCP"}).theirs(),
		field(main+".resources.requests.cpu", "10m", "20m"),
		field(main+".resources.requests.memory", "50Mi", "64Mi"),
		field(main+".resources.limits.memory", "1Gi").theirs(),
		field(main+".securityContext.readOnlyRootFilesystem", true, false),
		field(main+".volumeMounts[mountPath=/etc/conf]", object{"mountPath": "/etc/conf", "name": "scratch"}, object{"mountPath": "/etc/conf", "name": "scratch", "readOnly": true}),
		field(main+".readinessProbe.httpGet", object{"path": "/ready", "port": int64(1), "scheme": "HTTP"}, object{"path": "/readyz", "port": int64(1), "scheme": "HTTP"}),
		field(side, object{"name": "sidecar", "image": "example.com/side:1"}, object{"name": "sidecar", "image": "example.com/side:2", "args": []any{"x"}}),
		field(side+".env[name=SIDE]", env("SIDE", object{"value": "1"}), env("SIDE", object{"value": "2"})).inside(side),
		field(at("containers[name=istio-proxy]"), object{"name": "istio-proxy", "image": "mesh/proxy:1"}, object{"name": "istio-proxy", "image": "mesh/proxy:2"}).theirs(),
		field(at("initContainers[name=setup]"), object{"name": "setup", "image": "example.com/setup:1"}, object{"name": "setup", "image": "example.com/setup:2"}),
		field(at("volumes[name=scratch]"), object{"name": "scratch", "emptyDir": object{}}, object{"name": "scratch", "configMap": object{"name": "conf", "defaultMode": int64(420)}}).must(),
		field(at("volumes[name=tls]"), object{"name": "tls", "secret": object{"secretName": "tls", "defaultMode": int64(420)}}, object{"name": "tls", "secret": object{"secretName": "tls2", "defaultMode": int64(256)}}),
		field(at("volumes[name=kube-api-access]"), object{"name": "kube-api-access", "emptyDir": object{"medium": "Memory"}}).theirs(),
		field(at("tolerations"), []any{object{"operator": "Exists"}}, []any{object{"key": "a", "operator": "Exists", "effect": "NoSchedule"}}, []any{}),
		field(at("nodeSelector"), object{"kubernetes.io/os": "linux"}, object{"kubernetes.io/os": "linux", "zone": "a"}),
		field(at("serviceAccountName"), "default-sa", "other-sa"),
		field(at("priorityClassName"), "system-cluster-critical", "system-node-critical"),
		field(at("hostNetwork"), false, true),
		field(at("terminationGracePeriodSeconds"), int64(30), int64(60)).or(int64(30)),
		field(at("dnsPolicy"), "ClusterFirst", "Default").or("ClusterFirst"),
		field(prefix+".metadata.annotations{target.workload.openshift.io/management}", `{"effect": "x"}`),
		field(prefix+".metadata.annotations{kubectl.kubernetes.io/restartedAt}", "now", "later").theirs(),
		field(prefix+".metadata.labels.extra", "a", "b"),
	}
}

func podShape(prefix string, extra map[string][]string, atomicMaps ...string) shape {
	lists := map[string][]string{}
	for _, containers := range []string{"containers", "initContainers"} {
		base := prefix + ".spec." + containers
		lists[base] = []string{"name"}
		lists[base+"[].env"] = []string{"name"}
		lists[base+"[].ports"] = []string{"containerPort", "protocol"}
		lists[base+"[].volumeMounts"] = []string{"mountPath"}
	}
	lists[prefix+".spec.volumes"] = []string{"name"}
	lists[prefix+".spec.imagePullSecrets"] = []string{"name"}
	maps.Copy(lists, extra)
	s := newShape(lists, append(atomicMaps, prefix+".spec.nodeSelector",
		prefix+".spec.containers[].env[].valueFrom.fieldRef", prefix+".spec.initContainers[].env[].valueFrom.fieldRef")...)
	for _, containers := range []string{"containers", "initContainers"} {
		s.unions[prefix+".spec."+containers+"[].env[]"] = []string{"value", "valueFrom"}
		s.needs[prefix+".spec."+containers+"[]"] = []string{"image"}
	}
	s.unions[prefix+".spec.volumes[]"] = []string{"emptyDir", "configMap", "secret"}
	return s
}

func template() object {
	return object{"metadata": object{"labels": object{"app": "a"}}}
}

func deploymentKind() kind {
	rolling := object{"type": "RollingUpdate", "rollingUpdate": object{"maxUnavailable": int64(1), "maxSurge": int64(0)}}
	k := kind{
		apiVersion: "apps/v1", name: "Deployment", shape: podShape("spec.template", nil, "spec.selector"), scales: true,
		base: object{"spec": object{"selector": object{"matchLabels": object{"app": "a"}}, "template": template()}},
		slots: slices.Concat(metadata(), podSlots("spec.template"), []slot{
			field("spec.replicas", int64(1), int64(2), int64(3)).or(int64(1)),
			field("spec.strategy", object{"type": "Recreate"}, rolling),
			field("spec.minReadySeconds", int64(5), int64(10)),
			field("spec.revisionHistoryLimit", int64(3), int64(10)).or(int64(10)),
			field("spec.paused", true).theirs(),
		}),
		status: []map[string]any{
			{"observedGeneration": int64(1), "replicas": int64(2), "updatedReplicas": int64(1)},
			{"conditions": []any{object{"type": "Available", "status": "True", "reason": "x", "message": "y"}}},
		},
	}
	k.shape.lists["status.conditions"] = []string{"type"}
	k.shape.unions["spec.strategy"] = []string{"type=Recreate", "rollingUpdate"}
	return k
}

func daemonSetKind() kind {
	return kind{
		apiVersion: "apps/v1", name: "DaemonSet", shape: podShape("spec.template", nil, "spec.selector"),
		base: object{"spec": object{"selector": object{"matchLabels": object{"app": "a"}}, "template": template()}},
		slots: slices.Concat(metadata(), podSlots("spec.template"), []slot{
			field("spec.updateStrategy.rollingUpdate.maxUnavailable", "10%", int64(1)).or(int64(1)),
			field("spec.minReadySeconds", int64(5), int64(10)),
		}),
		status: []map[string]any{{"observedGeneration": int64(1), "desiredNumberScheduled": int64(2)}},
	}
}

func cronJobKind() kind {
	const prefix = "spec.jobTemplate.spec.template"
	return kind{
		apiVersion: "batch/v1", name: "CronJob", shape: podShape(prefix, nil),
		base: object{"spec": object{"jobTemplate": object{"spec": object{"template": object{"spec": object{"restartPolicy": "Never"}}}}}},
		slots: slices.Concat(metadata(), podSlots(prefix), []slot{
			field("spec.schedule", "0 0 * * *", "*/5 * * * *").must(),
			field("spec.suspend", true, false).or(false),
			field("spec.concurrencyPolicy", "Forbid", "Allow").or("Allow"),
			field("spec.jobTemplate.spec.backoffLimit", int64(2), int64(6)),
		}),
	}
}

func webhookKind() kind {
	const hook = "webhooks[name=a.example.com]"
	webhook := func(name, path string) object {
		return object{
			"name": name, "admissionReviewVersions": []any{"v1"}, "sideEffects": "None", "failurePolicy": "Ignore",
			"clientConfig": object{"service": object{"namespace": place, "name": "hook", "path": path}},
			"rules":        []any{object{"apiGroups": []any{"nothing.example.com"}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"nothings"}, "scope": "*"}},
		}
	}
	k := kind{
		apiVersion: "admissionregistration.k8s.io/v1", name: "ValidatingWebhookConfiguration", clusterScoped: true,
		shape: newShape(map[string][]string{"webhooks": {"name"}, "webhooks[].matchConditions": {"name"}},
			"webhooks[].namespaceSelector", "webhooks[].objectSelector"),
		slots: append(metadata(),
			field(hook, webhook("a.example.com", "/a"), webhook("a.example.com", "/a2")).must(),
			field("webhooks[name=b.example.com]", webhook("b.example.com", "/b"), webhook("b.example.com", "/b2")),
			field("webhooks[name=theirs.example.com]", webhook("theirs.example.com", "/c")).theirs(),
			field(hook+".timeoutSeconds", int64(5), int64(10)).or(int64(10)),
			field(hook+".clientConfig.caBundle", "aGk=", "aG8=").theirs(),
			field(hook+".namespaceSelector", object{"matchLabels": object{"a": "b"}}, object{"matchLabels": object{"c": "d"}}),
			field(hook+".matchConditions[name=one]", object{"name": "one", "expression": "true"}, object{"name": "one", "expression": "false"})),
	}
	k.shape.needs["webhooks[]"] = []string{"clientConfig", "sideEffects", "admissionReviewVersions"}
	k.shape.needs["webhooks[].matchConditions[]"] = []string{"expression"}
	return k
}

// gadgetSchema returns the structural schema of the custom resource, with every way to merge lists and maps and a default.
func gadgetSchema() object {
	str := func() object { return object{"type": "string"} }
	return object{"type": "object", "properties": object{
		"spec": object{"type": "object", "properties": object{
			"byName": object{
				"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"name"},
				"items": object{"type": "object", "required": []any{"name"}, "properties": object{
					"name": str(), "value": str(), "extra": str(), "weight": object{"type": "integer", "default": int64(1)},
				}},
			},
			"set":      object{"type": "array", "x-kubernetes-list-type": "set", "items": str()},
			"atomic":   object{"type": "array", "x-kubernetes-list-type": "atomic", "items": str()},
			"map":      object{"type": "object", "additionalProperties": str()},
			"whole":    object{"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": str()},
			"nested":   object{"type": "object", "properties": object{"a": str(), "b": object{"type": "object", "properties": object{"c": str(), "d": str()}}}},
			"free":     object{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			"size":     object{"type": "integer", "default": int64(3)},
			"switched": object{"type": "boolean"},
		}},
		"status": object{"type": "object", "properties": object{"phase": str(), "count": object{"type": "integer"}}},
	}}
}

const gadgetGroup = "property.example.com"

func gadgetKind() kind {
	return kind{
		apiVersion: gadgetGroup + "/v1", name: "Gadget",
		shape: newShape(map[string][]string{"spec.byName": {"name"}, "spec.set": nil}, "spec.whole"),
		slots: append(metadata(),
			field("spec.byName[name=a]", object{"name": "a", "value": "1"}, object{"name": "a", "value": "2"}, object{"name": "a", "weight": int64(5)}),
			field("spec.byName[name=b]", object{"name": "b", "value": "1"}, object{"name": "b"}),
			field("spec.byName[name=a].extra", "x", "y").inside("spec.byName[name=a]"),
			field("spec.byName[name=theirs]", object{"name": "theirs", "value": "t"}).theirs(),
			field("spec.set[=one]", "one"), field("spec.set[=two]", "two"), field("spec.set[=three]", "three"),
			field("spec.set[=theirs]", "theirs").theirs(),
			field("spec.atomic", []any{"x"}, []any{"x", "y"}, []any{"z"}),
			field("spec.map.ours", "1", "2"), field("spec.map.theirs", "1", "2").theirs(),
			field("spec.whole", object{"a": "1"}, object{"a": "1", "b": "2"}),
			field("spec.nested.a", "1", "2"), field("spec.nested.b.c", "1", "2"), field("spec.nested.b.d", "1").theirs(),
			field("spec.free.x", "1", int64(2)), field("spec.free.y.z", true),
			field("spec.size", int64(3), int64(7)).or(int64(3)),
			field("spec.switched", true, false)),
		status: []map[string]any{{"phase": "Ready"}, {"phase": "Broken", "count": int64(4)}},
	}
}

// crd returns the definition of a custom resource with the gadgets' schema.
func crd(group, plural, name string) object {
	return object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": object{"name": plural + "." + group},
		"spec": object{
			"group": group, "scope": "Namespaced",
			"names":    object{"plural": plural, "singular": strings.ToLower(name), "kind": name, "listKind": name + "List"},
			"versions": []any{object{"name": "v1", "served": true, "storage": true, "schema": object{"openAPIV3Schema": gadgetSchema()}, "subresources": object{"status": object{}}}},
		},
	}
}

// crdKind is a CRD in a release, in addition to the gadgets' CRD, which all runs share.
func crdKind() kind {
	base := crd(place+".example.com", "things", "Thing")
	versions := func(description string) []any {
		list := clone(base["spec"].(object)["versions"].([]any))
		schema := list[0].(object)["schema"].(object)["openAPIV3Schema"].(object)
		schema["description"] = description
		return list
	}
	one, two := versions("one"), versions("two")
	delete(base, "apiVersion")
	delete(base, "kind")
	delete(base["spec"].(object), "versions")
	return kind{
		apiVersion: "apiextensions.k8s.io/v1", name: "CustomResourceDefinition", clusterScoped: true, stays: true, served: true,
		shape: newShape(nil), base: base,
		slots: append(metadata(),
			field("spec.versions", one, two).must(),
			field("spec.names.shortNames", []any{"thg"}, []any{"thg", "thgs"}),
			field("spec.names.categories", []any{"all"})),
	}
}

// thingKind is the custom resource of a CRD in the same release.
func thingKind() kind {
	k := gadgetKind()
	k.apiVersion, k.name = place+".example.com/v1", "Thing"
	return k
}
