// Package object contains the rules about single manifests: annotations, names, labels, sizes, keys of data, workloads, ClusterOperators,
// MachineConfigs, and ConfigMaps with signing keys or a trust policy. It takes an object of a release and adds findings to the object's
// file. Other packages contain the rules about kinds and images.
package object

import (
	"encoding/base64"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Check adds findings about an object of a release. It checks only the identity of tombstones.
func Check(r *source.Release, o *source.Object) {
	checkAnnotations(r, o)
	checkMeta(o)
	switch size := dataBytes(o); {
	case size > maxDataBytes && !o.Tombstone():
		o.Find("data-size", nil, "the object has %d bytes of data, the limit is %d", size, maxDataBytes)
	case len(o.Raw) > warnObjectBytes:
		o.Find("object-size", nil, "the object has %d bytes as JSON: etcd rejects requests above %d bytes, and managedFields need additional space",
			len(o.Raw), maxObjectBytes)
	}
	if o.Tombstone() {
		return
	}
	checkDataKeys(o)
	checkWorkload(o)
	checkClusterOperator(r, o)
	checkMachineConfig(o)
	checkVerification(o)
	checkThresholds(o)
}

// dataFields returns the fields of a ConfigMap or Secret with plain and with Base64-encoded values; empty for other kinds.
func dataFields(o *source.Object) (plain, encoded string) {
	switch {
	case o.Is("", "ConfigMap"):
		return "data", "binaryData"
	case o.Is("", "Secret"):
		return "stringData", "data"
	}
	return "", ""
}

// checkDataKeys checks the keys of a ConfigMap or Secret like the API server.
func checkDataKeys(o *source.Object) {
	plain, encoded := dataFields(o)
	texts := maps.Collect(values(o, plain))
	for _, name := range []string{plain, encoded} {
		for _, key := range slices.Sorted(maps.Keys(maps.Collect(values(o, name)))) {
			at := source.Path{name, key}
			for _, problem := range utilvalidation.IsConfigMapKey(key) {
				o.Find("data-key", at, "%s has the key %q: %s", name, key, problem)
			}
			if _, ok := texts[key]; ok && name == "binaryData" {
				o.Find("data-key", at, "the key %q is in both %s and %s", key, plain, name)
			}
		}
	}
}

// dataBytes returns the size of the values of a ConfigMap or Secret, as the API server counts them; 0 for other kinds.
func dataBytes(o *source.Object) int {
	plain, encoded := dataFields(o)
	sizes := map[string]int{}
	for key, value := range values(o, encoded) {
		decoded, _ := base64.StdEncoding.DecodeString(value) // rule wrong-type finds invalid text
		sizes[key] = len(decoded)
	}
	for key, value := range values(o, plain) {
		sizes[key] = len(value) // stringData replaces data
	}
	total := 0
	for _, size := range sizes {
		total += size
	}
	return total
}

// values yields the texts in a map of the object.
func values(o *source.Object, name string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		fields, _ := o.Object.Object[name].(map[string]any)
		for key, value := range fields {
			if text, ok := value.(string); ok && !yield(key, text) {
				return
			}
		}
	}
}

const (
	// maxDataBytes is the API server's limit for the data of a ConfigMap or a Secret.
	maxDataBytes = corev1.MaxSecretSize
	// maxObjectBytes is etcd's default limit for the size of a request.
	maxObjectBytes = 3 << 19
	// warnObjectBytes leaves space for managedFields, which can be a third of an object with many fields.
	warnObjectBytes = 1 << 20
)

// pathSegment validates names that need not be domain names, like the API server.
func pathSegment(name string, _ bool) []string { return content.IsPathSegmentName(name) }

// checkMeta checks name, labels, annotations, finalizers and owners with Kubernetes' own rules.
func checkMeta(o *source.Object) {
	gvk := o.GVK()
	names := validation.NameIsDNSSubdomain
	switch {
	case gvk.Group == "rbac.authorization.k8s.io", strings.HasSuffix(gvk.Group, ".openshift.io"):
		names = pathSegment // names such as "system:admin" are valid
	case gvk.Group == "" && gvk.Kind == "Namespace":
		names = validation.NameIsDNSLabel
	case gvk.Group == "" && gvk.Kind == "Service":
		names = validation.NameIsDNSLabel
	}
	requiresNamespace := o.Object.GetNamespace() != ""
	for _, err := range validation.ValidateObjectMetaAccessor(o.Object, requiresNamespace, names, field.NewPath("metadata")) {
		o.Find("invalid-metadata", source.ParsePath(err.Field), "%s", err.Error())
	}
}

// checkWorkload finds errors that make the API server reject a workload or that block a rollout.
func checkWorkload(o *source.Object) {
	template := o.PodTemplate()
	if template == nil {
		return
	}
	ttl := source.Path{"spec", "ttlSecondsAfterFinished"}
	if o.Is("batch", "Job") && ttl.Value(o.Object.Object) != nil {
		o.Find("job-ttl", ttl, "the Job is deleted once it is done, so the operator recreates and reruns it repeatedly")
	}
	if o.GVK().Group != "apps" {
		return
	}
	labels, _ := append(slices.Clone(template), "metadata", "labels").Value(o.Object.Object).(map[string]any)
	selector, _ := source.Path{"spec", "selector", "matchLabels"}.Value(o.Object.Object).(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if labels[key] != selector[key] {
			o.Find("selector", source.Path{"spec", "selector", "matchLabels", key},
				"the pod labels lack %s=%v, which the selector requires: the API server rejects the object", key, selector[key])
		}
	}
}

// checkClusterOperator checks the versions that the operator must report.
func checkClusterOperator(r *source.Release, o *source.Object) {
	if !o.Is("config.openshift.io", "ClusterOperator") {
		return
	}
	list, _ := source.Path{"status", "versions"}.Value(o.Object.Object).([]any)
	versions := map[string]string{}
	for i, entry := range list {
		fields, _ := entry.(map[string]any)
		name, _ := fields["name"].(string)
		value, _ := fields["version"].(string)
		where := source.Path{"status", "versions", i}
		switch {
		case name == "" || value == "":
			o.Find("operator-versions", where, "status.versions[%d]: the name or version is missing", i)
		case versions[name] != "":
			o.Find("operator-versions", where, "status.versions: duplicate name %q", name)
		}
		versions[name] = value
		if name == "operator" && r.Metadata != nil && value != "" && value != r.Metadata.Version && !strings.Contains(value, manifest.VersionPlaceholder) {
			o.Find("operator-version", append(where, "version"),
				"the operator's version is %q, but the release's is %s: the rollout waits forever if the operator reports the release's version", value, r.Metadata.Version)
		}
	}
	switch _, ok := versions["operator"]; {
	case len(list) == 0:
		o.Find("operator-versions", nil, "has no status.versions: the rollout fails, because it cannot determine whether the operator has been updated")
	case !ok:
		o.Find("operator-versions", source.Path{"status", "versions"}, "status.versions has no entry named operator")
	}
}

// nodeRunlevel is the runlevel of the node stage.
const nodeRunlevel = 80

// checkMachineConfig finds MachineConfigs that a cluster gets before the release's node stage.
func checkMachineConfig(o *source.Object) {
	if o.Is(api.MachineConfigGroup, "MachineConfig") && o.Runlevel < nodeRunlevel {
		o.Find("machine-config-runlevel", nil, "the MachineConfig is at runlevel %02d, before the node stage at %d: the stage of the earlier release also applies it",
			o.Runlevel, nodeRunlevel)
	}
}
