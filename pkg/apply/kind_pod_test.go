package apply_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/test/ring"
)

// unset lists the fields that no manifest can set, or all fields of a struct, with reasons.
var unset = map[string]string{
	"EphemeralContainer":       ephemeral,
	"EphemeralContainerCommon": ephemeral,

	"PodSpec.ephemeralContainers":    ephemeral,
	"PodSpec.schedulingGroup":        gated,
	"PodSchedulingGroup":             gated,
	"TypedObjectReference.namespace": gated,
	"Lifecycle.stopSignal":           gated,

	"VolumeProjection.clusterTrustBundle": gated,
	"ClusterTrustBundleProjection":        gated,
	"VolumeProjection.podCertificate":     gated,
	"PodCertificateProjection":            gated,

	"ConfigMapVolumeSource.defaultUser":   newer,
	"DownwardAPIVolumeFile.user":          newer,
	"DownwardAPIVolumeSource.defaultUser": newer,
	"EmptyDirVolumeSource.mode":           newer,
	"EvictionResponder":                   newer,
	"GRPCAction.mode":                     newer,
	"HTTPGetAction.protocol":              newer,
	"KeyToPath.user":                      newer,
	"PodSpec.evictionResponders":          newer,
	"ProjectedVolumeSource.defaultUser":   newer,
	"SecretVolumeSource.defaultUser":      newer,
	"ServiceAccountTokenProjection.user":  newer,
	"VolumeMount.bindMountOptions":        newer,
}

const (
	ephemeral = "the server accepts ephemeral containers only through a subresource of a running pod"
	gated     = "the server clears it unless a feature gate is enabled that is off by default"
	newer     = "newer than the API server of these tests"
)

// keys lists the fields that identify list entries for the server. Changing one removes our entry and adds another, which stays.
var keys = []string{
	"Container.name", "Volume.name", "EnvVar.name", "ContainerPort.containerPort", "ContainerPort.protocol", "VolumeMount.mountPath",
	"VolumeDevice.devicePath", "LocalObjectReference.name", "PodResourceClaim.name", "ResourceClaim.name", "HostAlias.ip",
	"TopologySpreadConstraint.topologyKey", "TopologySpreadConstraint.whenUnsatisfiable", "PodSchedulingGate.name",
}

// podManifests returns the manifests in testdata/pods-*.yaml, which together set every field of a pod.
func podManifests(t *testing.T, ns string) []*manifest.Manifest {
	t.Helper()
	files, err := filepath.Glob("testdata/pods-*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []*manifest.Manifest
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		all = append(all, parse(t, inNamespace(ns, string(data))))
	}
	return all
}

// podSpecOf returns the pod spec of an object.
func podSpecOf(t *testing.T, object *unstructured.Unstructured) map[string]any {
	t.Helper()
	path := []string{"spec", "template", "spec"}
	if object.GetKind() == "CronJob" {
		path = []string{"spec", "jobTemplate", "spec", "template", "spec"}
	}
	spec, ok := field(t, object, path...).(map[string]any)
	require.True(t, ok)
	return spec
}

// leaf is a value that a manifest sets in a pod spec, and the field of its Go type.
type leaf struct {
	path  []any // keys and indexes
	field string
}

func (l leaf) String() string { return strings.ReplaceAll(fmt.Sprint(l.path), " ", ".") }

// leaves walks a manifest's value of type t and calls visit for every set field. isLeaf reports whether the value has no fields of its own.
func leaves(t reflect.Type, value any, path []any, name string, visit func(l leaf, isLeaf bool)) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	path = slices.Clone(path)
	switch v := value.(type) {
	case map[string]any:
		if t.Kind() == reflect.Struct && len(v) > 0 {
			fields := podFields(t)
			for _, key := range slices.Sorted(maps.Keys(v)) {
				f, ok := fields[key]
				if !ok {
					visit(leaf{append(path, key), t.Name() + "." + key}, true)
					continue
				}
				visit(leaf{append(slices.Clone(path), key), f.owner + "." + key}, false)
				leaves(f.of, v[key], append(path, key), f.owner+"."+key, visit)
			}
			return
		}
	case []any:
		if of := t.Elem(); of.Kind() == reflect.Struct {
			for i, item := range v {
				leaves(of, item, append(slices.Clone(path), i), name, visit)
			}
			return
		}
	}
	visit(leaf{path, name}, true)
}

type podField struct {
	owner string
	of    reflect.Type
}

// podFields returns the types of fields by JSON name, and the structs that declare them.
func podFields(t reflect.Type) map[string]podField {
	fields := map[string]podField{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous {
			maps.Copy(fields, podFields(f.Type))
			continue
		}
		fields[name] = podField{t.Name(), f.Type}
	}
	return fields
}

// allFields collects the fields of all structs in a type, as Struct.field.
func allFields(t reflect.Type, into map[string]bool, seen map[reflect.Type]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	opaque := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
	if t.Kind() != reflect.Struct || opaque || seen[t] || t.Name() == "ObjectMeta" {
		return
	}
	seen[t] = true
	for name, f := range podFields(t) {
		into[f.owner+"."+name] = true
		allFields(f.of, into, seen)
	}
}

// This test fails when Kubernetes adds a field to pods, until a manifest in testdata sets it.
func TestEveryPodFieldIsSet(t *testing.T) {
	missing := map[string]bool{}
	allFields(reflect.TypeFor[corev1.PodSpec](), missing, map[reflect.Type]bool{})
	require.Greater(t, len(missing), 300)
	for _, m := range podManifests(t, "ns") {
		leaves(reflect.TypeFor[corev1.PodSpec](), podSpecOf(t, m.Object), nil, "", func(l leaf, _ bool) { delete(missing, l.field) })
	}
	for name := range unset {
		before := len(missing)
		maps.DeleteFunc(missing, func(field string, _ bool) bool {
			owner, _, _ := strings.Cut(field, ".")
			return field == name || owner == name
		})
		assert.Less(t, len(missing), before, "%s is set, so remove it from unset", name)
	}
	assert.Empty(t, slices.Sorted(maps.Keys(missing)), "no manifest sets these fields")
}

// TestEveryPodFieldIsRepaired lets another client change or remove each value of each pod by an update; the gate tries a part of them.
// OpenShift's operator ignores many changes: startupProbe, lifecycle, imagePullPolicy, hostPID, topologySpreadConstraints, dnsConfig.
func TestEveryPodFieldIsRepaired(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	c := otherClient(t)
	for _, m := range podManifests(t, ns) {
		t.Run(m.Object.GetName(), func(t *testing.T) {
			change := must(t, a, m)
			require.Empty(t, change.Dropped, "the server does not have these fields")
			assertQuiet(t, a, m)
			spec := podSpecOf(t, m.Object)
			var all []leaf
			leaves(reflect.TypeFor[corev1.PodSpec](), spec, nil, "", func(l leaf, isLeaf bool) {
				if isLeaf {
					all = append(all, l)
				}
			})
			require.NotEmpty(t, all)
			before := live(t, m)
			require.Empty(t, lacks("", podSpecOf(t, before), spec), "the server drops this field")
			var tried, steady []string
			for i, l := range all {
				if i%ring.Stride() != 0 {
					continue
				}
				tried = append(tried, l.String())
				tampered := tamper(t, c, before, l)
				if tampered == nil {
					steady = append(steady, l.String())
					continue
				}
				must(t, a, m)
				after := tampered
				require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(after), after))
				if slices.Contains(keys, l.field) {
					require.Empty(t, lacks("", podSpecOf(t, after), spec), "%s is not repaired", l)
					require.NoError(t, c.Delete(t.Context(), after))
					must(t, a, m)
					require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(after), after))
				} else {
					require.True(t, equality.Semantic.DeepEqual(typed(t, before), typed(t, after)), "%s is not repaired", l)
				}
				before = after
			}
			want := slices.DeleteFunc(slices.Clone(bound[m.Object.GetName()]), func(field string) bool { return !slices.Contains(tried, field) })
			assert.ElementsMatch(t, want, steady, "these fields are immutable")
		})
	}
}

// bound lists the values of a manifest that cannot change alone, because other values depend on them or only one value is allowed.
var bound = map[string][]string{
	"main": {
		"[affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0.matchFields.0.key]",
		"[containers.0.env.1.valueFrom.fieldRef.apiVersion]",
		"[containers.0.env.5.valueFrom.fileKeyRef.volumeName]",
		"[containers.0.livenessProbe.successThreshold]",
		"[containers.0.volumeDevices.0.name]",
		"[containers.0.volumeMounts.2.readOnly]",
		"[containers.1.restartPolicyRules.0.action]",
		"[initContainers.0.restartPolicy]",
		"[os.name]",
		"[resourceClaims.0.name]",
		"[restartPolicy]",
		"[securityContext.appArmorProfile.type]",
		"[securityContext.seccompProfile.type]",
		"[serviceAccount]",
		"[tolerations.0.effect]",
		"[volumes.0.name]",
		"[volumes.1.name]",
		"[volumes.19.azureDisk.diskURI]",
		"[volumes.19.azureDisk.kind]",
		"[volumes.2.name]",
		"[volumes.4.downwardAPI.items.0.fieldRef.apiVersion]",
		"[volumes.6.name]",
	},
	"linux": {
		"[containers.0.securityContext.appArmorProfile.type]",
		"[containers.0.securityContext.seccompProfile.type]",
		"[hostUsers]",
	},
	"windows": {"[hostNetwork]", "[os.name]"},
}

// tamper changes the value of a leaf as another client, in the first way that the server accepts. It returns the resulting object, or nil
// if the server accepted no change.
func tamper(t *testing.T, c client.Client, before *unstructured.Unstructured, l leaf) *unstructured.Unstructured {
	t.Helper()
	var edits []func(spec map[string]any)
	if slices.Contains(keys, l.field) {
		edits = append(edits, func(spec map[string]any) { removeEntry(spec, l.path[:len(l.path)-1]) })
	}
	for _, value := range others(valueAt(podSpecOf(t, before), l.path)) {
		edits = append(edits, func(spec map[string]any) { setAt(spec, l.path, value) })
	}
	for _, edit := range edits {
		obj := before.DeepCopy()
		edit(podSpecOf(t, obj))
		if err := c.Update(t.Context(), obj, client.FieldOwner("somebody")); err != nil {
			require.True(t, apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsInternalError(err), "%s: %v", l, err)
			continue
		}
		if obj.GetResourceVersion() != before.GetResourceVersion() {
			if !equality.Semantic.DeepEqual(typed(t, before), typed(t, obj)) {
				return obj
			}
			before.SetResourceVersion(obj.GetResourceVersion())
		}
	}
	return nil
}

// lacks returns the path of the first wanted value that is missing, or "" if none is.
func lacks(path string, there, want any) string {
	switch want := want.(type) {
	case map[string]any:
		there, _ := there.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if place := lacks(path+"."+key, there[key], want[key]); place != "" {
				return place
			}
		}
		return ""
	case []any:
		there, _ := there.([]any)
		for i, item := range want {
			if !slices.ContainsFunc(there, func(other any) bool { return lacks("", other, item) == "" }) {
				return fmt.Sprintf("%s[%d]", path, i) + lacks("", counterpart(item, append(slices.Clone(there), make([]any, len(want))...), i), item)
			}
		}
		return ""
	}
	if fmt.Sprint(there) == fmt.Sprint(want) || there == nil && isZero(want) || isQuantity(there, want) {
		return ""
	}
	return path
}

func isZero(value any) bool { return value == nil || reflect.ValueOf(value).IsZero() }

func isQuantity(a, b any) bool {
	x, errA := resource.ParseQuantity(fmt.Sprint(a))
	y, errB := resource.ParseQuantity(fmt.Sprint(b))
	return errA == nil && errB == nil && x.Cmp(y) == 0
}

// others returns candidates for replacing a value; nil removes it.
func others(value any) []any {
	// Replacements for values of which the server accepts only a few. Listing all words would take too long.
	choices := map[string][]any{
		"Always": {"Never", "OnFailure"}, "Never": {"Always", "PreemptLowerPriority", "OnFailure"}, "OnFailure": {"Never"},
		"Ignore": {"Honor"}, "Honor": {"Ignore"}, "UDP": {"TCP"}, "HTTPS": {"HTTP"}, "OnRootMismatch": {"Always"}, "Strict": {"Merge"},
		"Equal": {"Exists"}, "In": {"NotIn"}, "DoNotSchedule": {"ScheduleAnyway"}, "FallbackToLogsOnError": {"File"}, "None": {"Default", "ReadOnly"},
		"NotRequired": {"RestartContainer"}, "RuntimeDefault": {"Unconfined"}, "Unmasked": {"Default"}, "HostToContainer": {"None"},
		"IfPossible": {"Disabled"}, "metadata.name": {"metadata.namespace"}, "limits.cpu": {"requests.cpu"}, "Memory": {""},
		"Directory": {"File"}, "Filesystem": {"Block"}, "ThickProvisioned": {"ThinProvisioned"}, "$(A)": {"$(A)/x"}, "cpu": {"memory"},
		"hostpath": {"csi"}, "empty": {"csi"}, "secret": {"csi"}, "5": {"6"}, "2": {"3"}, "10.0.0.1": {"10.1.1.1"}, "10.0.0.2": {"10.1.1.1"},
		"10.0.0.3": {"10.1.1.1"}, "10.0.0.1:3260": {"10.1.1.1:3260"}, "Recursive": {nil}, "Default": {"Unmasked"},
	}
	switch v := value.(type) {
	case bool:
		return []any{!v, nil}
	case int64:
		return []any{v + 1, v - 1, nil, int64(3607)}
	case string:
		return slices.Concat(choices[v], []any{"other", "/other", "example.com/other", nil, "iqn.2001-04.com.example:other", "100", "3Gi"})
	case map[string]any:
		return []any{nil, map[string]any{"other": "1"}, map[string]any{"cpu": "3"}, map[string]any{"storage": "3Gi"}, map[string]any{}}
	case []any:
		return []any{[]any{"other"}, []any{"10.1.1.1"}, []any{int64(77)}, []any{"ReadWriteMany"}, nil, []any{}}
	}
	return []any{nil}
}

func valueAt(value any, path []any) any {
	for _, step := range path {
		switch v := value.(type) {
		case map[string]any:
			key, _ := step.(string)
			value = v[key]
		case []any:
			value = v[step.(int)]
		}
	}
	return value
}

// removeEntry removes an entry from a list.
func removeEntry(root map[string]any, path []any) {
	list, _ := valueAt(root, path[:len(path)-1]).([]any)
	if place, ok := path[len(path)-1].(int); ok {
		setAt(root, path[:len(path)-1], slices.Delete(list, place, place+1))
	}
}

func setAt(root map[string]any, path []any, value any) {
	parent, _ := valueAt(root, path[:len(path)-1]).(map[string]any)
	key, _ := path[len(path)-1].(string)
	if parent == nil {
		return
	}
	if value == nil {
		delete(parent, key)
		return
	}
	parent[key] = value
}

// typed returns the pod spec of an object as a Kubernetes type, for which 1000m equals 1.
func typed(t *testing.T, obj *unstructured.Unstructured) corev1.PodSpec {
	t.Helper()
	convert := runtime.DefaultUnstructuredConverter
	if obj.GetKind() == "CronJob" {
		var job batchv1.CronJob
		require.NoError(t, convert.FromUnstructured(obj.Object, &job))
		return job.Spec.JobTemplate.Spec.Template.Spec
	}
	var d appsv1.Deployment
	require.NoError(t, convert.FromUnstructured(obj.Object, &d))
	return d.Spec.Template.Spec
}
