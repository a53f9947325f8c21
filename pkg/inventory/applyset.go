package inventory

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names of the ApplySet specification (KEP-3659, "Design Details: ApplySet Specification").
const (
	applySetIDLabel              = "applyset.kubernetes.io/id"
	applySetToolingAnnotation    = "applyset.kubernetes.io/tooling"
	applySetKindsAnnotation      = "applyset.kubernetes.io/contains-group-kinds"
	applySetNamespacesAnnotation = "applyset.kubernetes.io/additional-namespaces"

	// applySetTooling names us as the only tool that may change members or parent; others have to refuse.
	applySetTooling = "cvo/v1"
)

// maxAnnotation bounds each list in an annotation; the API server refuses objects with more than 256 KiB of them. A
// longer list is left out, which the specification allows: readers then look everywhere.
const maxAnnotation = 96 << 10

// ApplySetID returns what members of the owner's ApplySet carry in label applyset.kubernetes.io/part-of: the identity
// of its parent, which is the first shard of the inventory in that namespace.
func ApplySetID(namespace, owner string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{shardName(owner, 0), namespace, "ConfigMap", ""}, ".")))
	return "applyset-" + base64.RawURLEncoding.EncodeToString(sum[:]) + "-v1"
}

// parentAnnotations are what the specification has a parent say of its members.
func parentAnnotations(kinds []schema.GroupKind, namespaces []string, own string) map[string]string {
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = kind.String()
	}
	others := slices.DeleteFunc(slices.Clone(namespaces), func(n string) bool { return n == own })
	annotations := map[string]string{applySetToolingAnnotation: applySetTooling}
	for key, list := range map[string][]string{applySetKindsAnnotation: names, applySetNamespacesAnnotation: others} {
		if value := strings.Join(list, ","); value != "" && len(value) <= maxAnnotation {
			annotations[key] = value
		}
	}
	return annotations
}

// parseKinds reads a list of kinds, each as Kind.group.
func parseKinds(list string) []schema.GroupKind {
	var kinds []schema.GroupKind
	for _, name := range splitList(list) {
		kinds = append(kinds, schema.ParseGroupKind(name))
	}
	return kinds
}

func splitList(list string) []string {
	return slices.DeleteFunc(strings.Split(list, ","), func(s string) bool { return s == "" })
}
