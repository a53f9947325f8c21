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

	// applySetTooling declares us as the only tool that may change members or parent. Other tools have to refuse.
	applySetTooling = "cvo/v1"
)

// maxAnnotation limits each list in an annotation, because the API server rejects objects with more than 256 KiB of annotations. A longer
// list is omitted. The specification allows this: readers then search all kinds or namespaces.
const maxAnnotation = 96 << 10

// ApplySetID returns the value of label applyset.kubernetes.io/part-of for the members of the owner's ApplySet. It identifies the parent,
// which is the first shard of the inventory in that namespace.
func ApplySetID(namespace, owner string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{shardName(owner, 0), namespace, "ConfigMap", ""}, ".")))
	return "applyset-" + base64.RawURLEncoding.EncodeToString(sum[:]) + "-v1"
}

// parentAnnotations returns the annotations that the specification requires of a parent. They describe its members.
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

// parseKinds parses a list of kinds, each as Kind.group.
func parseKinds(list string) []schema.GroupKind {
	var kinds []schema.GroupKind
	for _, name := range splitList(list) {
		if kind := schema.ParseGroupKind(name); possibleKind(kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func parseNamespaces(list string) []string {
	return slices.DeleteFunc(splitList(list), func(name string) bool { return !possibleNamespace(name) })
}

func splitList(list string) []string {
	return slices.DeleteFunc(strings.Split(list, ","), func(s string) bool { return s == "" })
}
