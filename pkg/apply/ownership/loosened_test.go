package ownership_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

// in puts fields below other fields.
func in(fields string, path ...string) string {
	for _, name := range slices.Backward(path) {
		fields = fmt.Sprintf("{%q:%s}", name, fields)
	}
	return fields
}

// inContainer puts fields into a container of a Deployment.
func inContainer(fields string) string {
	return in(fields, "f:spec", "f:template", "f:spec", "f:containers", `k:{"name":"x"}`)
}

func TestLoosenedFindsWeakenedSecurity(t *testing.T) {
	const (
		template  = "spec.template.spec."
		container = template + `containers[name="x"].`
	)
	pod := func(fields string) string { return in(fields, "f:spec", "f:template", "f:spec") }
	tests := []struct {
		name    string
		entries []metav1.ManagedFieldsEntry
		// paths, all by kubectl-edit
		want []string
	}{
		{"finds nothing without entries", nil, nil},
		{"finds nothing in our own fields", []metav1.ManagedFieldsEntry{ours(pod(`{"f:hostPID":{}}`))}, nil},
		{"finds nothing in an empty security context", []metav1.ManagedFieldsEntry{theirs(pod(`{"f:securityContext":{}}`))}, nil},
		{"finds nothing in harmless fields", []metav1.ManagedFieldsEntry{theirs(inContainer(
			`{".":{},"f:image":{},"f:name":{},"f:securityContext":{".":{},"f:readOnlyRootFilesystem":{},"f:runAsGroup":{},"f:capabilities":{".":{},"f:drop":{}}},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}`))}, nil},
		{"finds nothing in kinds without a pod spec", []metav1.ManagedFieldsEntry{theirs(in(`{"f:hostPID":{},"f:privileged":{},"f:hostPath":{}}`, "f:data"))}, nil},
		{"finds nothing in annotations of the same name", []metav1.ManagedFieldsEntry{theirs(in(`{"f:hostPID":{},"f:privileged":{}}`, "f:metadata", "f:annotations"))}, nil},
		{"finds host namespaces", []metav1.ManagedFieldsEntry{theirs(pod(`{"f:hostPID":{},"f:hostIPC":{},"f:hostNetwork":{},"f:hostUsers":{},"f:hostname":{}}`))}, []string{template + "hostIPC", template + "hostNetwork", template + "hostPID", template + "hostUsers"}},
		{"finds loosened fields in a pod's security context", []metav1.ManagedFieldsEntry{theirs(pod(
			`{"f:securityContext":{"f:runAsUser":{},"f:runAsGroup":{},"f:runAsNonRoot":{},"f:sysctls":{},"f:fsGroup":{},"f:seccompProfile":{".":{},"f:type":{}},"f:appArmorProfile":{"f:type":{}},"f:seLinuxOptions":{"f:type":{}},"f:windowsOptions":{"f:hostProcess":{},"f:runAsUserName":{}}}}`))}, []string{
			template + "securityContext.appArmorProfile", template + "securityContext.runAsNonRoot", template + "securityContext.runAsUser",
			template + "securityContext.seLinuxOptions.type", template + "securityContext.seccompProfile", template + "securityContext.sysctls",
			template + "securityContext.windowsOptions.hostProcess",
		}},
		{"finds loosened fields in a container's security context", []metav1.ManagedFieldsEntry{theirs(inContainer(
			`{"f:securityContext":{"f:privileged":{},"f:allowPrivilegeEscalation":{},"f:procMount":{},"f:runAsUser":{},"f:runAsNonRoot":{},"f:capabilities":{"f:add":{},"f:drop":{}},"f:seccompProfile":{"f:type":{}},"f:appArmorProfile":{"f:type":{}},"f:seLinuxOptions":{"f:level":{},"f:role":{},"f:type":{},"f:user":{}},"f:windowsOptions":{"f:hostProcess":{}}}}`))}, []string{
			container + "securityContext.allowPrivilegeEscalation", container + "securityContext.appArmorProfile",
			container + "securityContext.capabilities.add", container + "securityContext.privileged", container + "securityContext.procMount",
			container + "securityContext.runAsNonRoot", container + "securityContext.runAsUser",
			container + "securityContext.seLinuxOptions.level", container + "securityContext.seLinuxOptions.role",
			container + "securityContext.seLinuxOptions.type", container + "securityContext.seLinuxOptions.user",
			container + "securityContext.seccompProfile", container + "securityContext.windowsOptions.hostProcess",
		}},
		{"finds host ports and host paths", []metav1.ManagedFieldsEntry{theirs(pod(
			`{"f:containers":{"k:{\"name\":\"x\"}":{"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{"f:hostPort":{}}}}},"f:volumes":{".":{},"k:{\"name\":\"v\"}":{".":{},"f:hostPath":{".":{},"f:path":{},"f:type":{}},"f:name":{}}}}`))}, []string{
			container + `ports[containerPort=80,protocol="TCP"].hostPort`, template + `volumes[name="v"].hostPath`,
		}},
		{"finds loosened fields in init containers", []metav1.ManagedFieldsEntry{theirs(pod(`{"f:initContainers":{"k:{\"name\":\"i\"}":{".":{},"f:securityContext":{"f:privileged":{}}}}}`))}, []string{
			template + `initContainers[name="i"].securityContext.privileged`,
		}},
		{"finds loosened fields in pods", []metav1.ManagedFieldsEntry{theirs(in(`{"f:hostPID":{}}`, "f:spec"))}, []string{"spec.hostPID"}},
		{"finds loosened fields in CronJobs", []metav1.ManagedFieldsEntry{theirs(in(`{"f:hostPID":{}}`, "f:spec", "f:jobTemplate", "f:spec", "f:template", "f:spec"))}, []string{"spec.jobTemplate.spec.template.spec.hostPID"}},
		{"omits fields that we also own", []metav1.ManagedFieldsEntry{
			ours(pod(`{"f:hostPID":{},"f:volumes":{"k:{\"name\":\"v\"}":{"f:hostPath":{"f:path":{}}}},"f:containers":{"k:{\"name\":\"x\"}":{"f:securityContext":{"f:seLinuxOptions":{"f:level":{}}}}}}`)),
			theirs(pod(`{"f:hostPID":{},"f:hostIPC":{},"f:volumes":{"k:{\"name\":\"v\"}":{"f:hostPath":{"f:path":{},"f:type":{}}},"k:{\"name\":\"w\"}":{"f:hostPath":{"f:path":{}}}},"f:containers":{"k:{\"name\":\"x\"}":{"f:securityContext":{"f:seLinuxOptions":{"f:level":{},"f:type":{}}}}}}`)),
		}, []string{container + "securityContext.seLinuxOptions.type", template + "hostIPC", template + `volumes[name="w"].hostPath`}},
		{"skips unreadable entries", []metav1.ManagedFieldsEntry{
			theirs(`{"f:spec":{"f:hostPID":`), theirs(`"f:hostPID"`), theirs("\x00\xff\"f:hostPID\""), theirs(in(`{"f:hostIPC":{}}`, "f:spec")), {Manager: "kubectl-edit"},
		}, []string{"spec.hostIPC"}},
		{"does not report our fields if our entry is unreadable", []metav1.ManagedFieldsEntry{ours("{"), theirs(in(`{"f:hostIPC":{}}`, "f:spec"))}, []string{"spec.hostIPC"}},
		{"reports a field once if one manager has two entries", []metav1.ManagedFieldsEntry{
			theirs(in(`{"f:hostIPC":{}}`, "f:spec")), entry("kubectl-edit", metav1.ManagedFieldsOperationApply, in(`{"f:hostIPC":{}}`, "f:spec")),
		}, []string{"spec.hostIPC"}},
		{"omits subresources", []metav1.ManagedFieldsEntry{func() metav1.ManagedFieldsEntry {
			e := theirs(in(`{"f:hostIPC":{}}`, "f:spec"))
			e.Subresource = "ephemeralcontainers"
			return e
		}()}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var want []ownership.Loosening
			for _, path := range tt.want {
				want = append(want, ownership.Loosening{Manager: "kubectl-edit", Path: path})
			}
			assert.Equal(t, want, ownership.Loosened(tt.entries))
		})
	}
}

func TestLoosenedIsSorted(t *testing.T) {
	assert.Equal(t, []ownership.Loosening{{"a", "spec.hostIPC"}, {"a", "spec.hostPID"}, {"b", "spec.hostNetwork"}}, ownership.Loosened([]metav1.ManagedFieldsEntry{
		entry("b", metav1.ManagedFieldsOperationUpdate, in(`{"f:hostNetwork":{}}`, "f:spec")),
		entry("a", metav1.ManagedFieldsOperationApply, in(`{"f:hostPID":{}}`, "f:spec")),
		entry("a", metav1.ManagedFieldsOperationUpdate, in(`{"f:hostIPC":{}}`, "f:spec")),
	}))
}

const podSpec = `{restartPolicy: Always, containers: [{name: x, image: x, securityContext: {runAsNonRoot: true}}]}`

// workloads maps objects of the kinds with a pod spec to the path of that spec.
func workloads() map[string]string {
	return map[string]string{
		"{apiVersion: v1, kind: Pod, spec: " + podSpec + "}": "spec",
		"{apiVersion: apps/v1, kind: Deployment, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " + podSpec + "}}}":                       "spec.template.spec",
		"{apiVersion: apps/v1, kind: DaemonSet, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " + podSpec + "}}}":                        "spec.template.spec",
		"{apiVersion: apps/v1, kind: ReplicaSet, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " + podSpec + "}}}":                       "spec.template.spec",
		"{apiVersion: apps/v1, kind: StatefulSet, spec: {serviceName: s, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " + podSpec + "}}}":      "spec.template.spec",
		"{apiVersion: batch/v1, kind: Job, spec: {suspend: true, template: {spec: " + strings.Replace(podSpec, "Always", "Never", 1) + "}}}":                                    "spec.template.spec",
		"{apiVersion: batch/v1, kind: CronJob, spec: {schedule: '* * * * *', jobTemplate: {spec: {template: {spec: " + strings.Replace(podSpec, "Always", "Never", 1) + "}}}}}": "spec.jobTemplate.spec.template.spec",
	}
}

// TestLoosenedReadsEntriesOfARealServer reads entries that a real API server has written.
func TestLoosenedReadsEntriesOfARealServer(t *testing.T) {
	// at returns a pod spec at its path.
	at := func(path, spec string) string {
		for _, name := range slices.Backward(strings.Split(path, ".")) {
			spec = "{" + name + ": " + spec + "}"
		}
		return spec
	}
	for text, path := range workloads() {
		name := object(t, text).GetKind()
		fresh := func(t *testing.T, suffix string) *unstructured.Unstructured {
			t.Helper()
			obj := object(t, text)
			obj.SetName(strings.ToLower(name) + suffix)
			as(t, api.FieldManager).apply(t, obj)
			return obj
		}
		t.Run(name+" has no loosening as we apply it", func(t *testing.T) {
			obj := as(t, api.FieldManager).apply(t, fresh(t, "-plain"))
			assert.Empty(t, ownership.Loosened(obj.GetManagedFields()))
			assert.Empty(t, ownership.Writer(obj.GetManagedFields()))
		})
		if name == "Pod" || name == "Job" {
			continue // the pod specs of these kinds are immutable
		}
		t.Run(name+" reports a sidecar added by an edit", func(t *testing.T) {
			obj := as(t, "kubectl-edit").patch(t, fresh(t, "-edit"), at(path, `{
				volumes: [{name: host, hostPath: {path: /}}], hostNetwork: true,
				containers: [{name: evil, image: evil, ports: [{containerPort: 80, hostPort: 80}], securityContext: {privileged: true, capabilities: {add: [SYS_ADMIN], drop: [CHOWN]}}}]}`))
			assert.Equal(t, []ownership.Loosening{
				{"kubectl-edit", path + `.containers[name="evil"].ports[containerPort=80,protocol="TCP"].hostPort`},
				{"kubectl-edit", path + `.containers[name="evil"].securityContext.capabilities.add`},
				{"kubectl-edit", path + `.containers[name="evil"].securityContext.privileged`},
				{"kubectl-edit", path + `.hostNetwork`},
				{"kubectl-edit", path + `.volumes[name="host"].hostPath`},
			}, ownership.Loosened(obj.GetManagedFields()))
			assert.Equal(t, "kubectl-edit", ownership.Writer(obj.GetManagedFields()))
		})
		t.Run(name+" reports fields that another manager applies to our container", func(t *testing.T) {
			obj := fresh(t, "-apply")
			other := object(t, "{apiVersion: "+obj.GetAPIVersion()+", kind: "+name+", metadata: {name: "+obj.GetName()+"}}")
			require.NoError(t, unstructured.SetNestedField(other.Object, map[string]any{
				"hostPID": true,
				"containers": []any{map[string]any{"name": "x", "securityContext": map[string]any{
					"runAsUser": int64(0), "runAsNonRoot": true, "seccompProfile": map[string]any{"type": "Unconfined"},
				}}},
				"initContainers": []any{map[string]any{"name": "i", "image": "i", "securityContext": map[string]any{"allowPrivilegeEscalation": true}}},
			}, strings.Split(path, ".")...))
			result := as(t, "sidecar-operator").apply(t, other)
			want := []ownership.Loosening{
				{"sidecar-operator", path + `.containers[name="x"].securityContext.runAsUser`},
				{"sidecar-operator", path + `.containers[name="x"].securityContext.seccompProfile`},
				{"sidecar-operator", path + `.hostPID`},
				{"sidecar-operator", path + `.initContainers[name="i"].securityContext.allowPrivilegeEscalation`},
			}
			assert.Equal(t, want, ownership.Loosened(result.GetManagedFields()), "we also own runAsNonRoot")

			// When the release sets one of the fields, it becomes ours.
			require.NoError(t, unstructured.SetNestedField(obj.Object, true, append(strings.Split(path, "."), "hostPID")...))
			result = as(t, api.FieldManager).apply(t, obj)
			assert.Len(t, ownership.Loosened(result.GetManagedFields()), len(want)-1)
		})
		t.Run(name+" ignores a write to status", func(t *testing.T) {
			obj := fresh(t, "-status")
			result := as(t, "kube-controller-manager").apply(t, object(t, "{apiVersion: "+obj.GetAPIVersion()+", kind: "+name+", metadata: {name: "+obj.GetName()+"}, status: "+statusOf(name)+"}"), "status")
			assert.Empty(t, ownership.Loosened(result.GetManagedFields()))
			assert.Empty(t, ownership.Writer(result.GetManagedFields()))
		})
	}
}

// statusOf returns a status that a kind accepts.
func statusOf(kind string) string {
	switch kind {
	case "CronJob":
		return "{lastScheduleTime: '2026-01-01T00:00:00Z'}"
	case "DaemonSet":
		return "{observedGeneration: 1, currentNumberScheduled: 0, numberMisscheduled: 0, desiredNumberScheduled: 0, numberReady: 0}"
	}
	return "{observedGeneration: 1, replicas: 0}"
}

//threat:managed-fields
func FuzzLoosened(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"f:spec":{"f:hostPID":{}}}`, `{"f:spec":{"f:template":{"f:spec":{"f:securityContext":{"f:runAsUser":{}}}}}}`,
		inContainer(`{".":{},"f:securityContext":{".":{},"f:privileged":{}},"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{"f:hostPort":{}}}}`),
		`{"f:spec":{"f:volumes":{"i:0":{"f:hostPath":{}},"v:\"x\"":{"f:hostPath":{}},"k:{}":{"f:hostPath":{}}}}}`,
		`{"f:spec":{"f:containers":{"k:{\"name\":{}}":{"f:securityContext":{"f:privileged":1}}}}}`,
		strings.Repeat(`{"f:spec":`, 50) + `{"f:hostPID":{}}`, `{"f:hostPID":[[[[[[`, "\"f:hostPID\"\x00",
	} {
		f.Add([]byte(seed), []byte("{}"))
		f.Add([]byte(seed), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, fields, own []byte) {
		var entries []metav1.ManagedFieldsEntry
		for i, raw := range [][]byte{fields, own} {
			e := theirs("")
			if i == 1 {
				e = ours("")
			}
			e.FieldsV1.SetRawBytes(raw)
			entries = append(entries, e)
		}
		for _, l := range ownership.Loosened(entries) {
			assert.Equal(t, "kubectl-edit", l.Manager)
			assert.True(t, strings.HasPrefix(l.Path, "spec."), l.Path)
		}
		entries[1] = theirs(string(fields))
		entries[0] = ours(string(fields))
		assert.Empty(t, ownership.Loosened(entries), "we also own the field")
		ownership.Ours(entries)
		ownership.Writer(entries)
	})
}

// benchmarks returns entries as in watch events.
func benchmarks() map[string][]metav1.ManagedFieldsEntry {
	var env strings.Builder
	for i := range 40 {
		fmt.Fprintf(&env, `"k:{\"name\":\"VARIABLE_%d\"}":{".":{},"f:name":{},"f:value":{}},`, i)
	}
	plain := inContainer(`{".":{},"f:env":{` + strings.TrimSuffix(env.String(), ",") + `},"f:image":{},"f:name":{},"f:resources":{"f:requests":{"f:cpu":{},"f:memory":{}}}}`)
	own := ours(inContainer(`{".":{},"f:env":{` + strings.TrimSuffix(env.String(), ",") + `},"f:image":{},"f:name":{},"f:securityContext":{"f:privileged":{}}}`))
	status := theirs(plain)
	status.Subresource = "status"
	return map[string][]metav1.ManagedFieldsEntry{
		"ours":     {own, status},
		"foreign":  {own, status, theirs(plain)},
		"loosened": {own, status, theirs(plain), theirs(in(`{"f:hostPID":{}}`, "f:spec", "f:template", "f:spec"))},
	}
}

func BenchmarkLoosened(b *testing.B) {
	for name, entries := range benchmarks() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ownership.Loosened(entries)
			}
		})
	}
}

func BenchmarkOurs(b *testing.B) {
	entries := benchmarks()["foreign"]
	b.ReportAllocs()
	for b.Loop() {
		ownership.Ours(entries)
	}
}
