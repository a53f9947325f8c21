package api

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// FinalizersText lists finalizers for a message. It names the process that removes the garbage collector's own finalizers. A cluster without
// this process keeps their objects forever.
func FinalizersText(finalizers []string) string {
	texts := make([]string, len(finalizers))
	for i, finalizer := range finalizers {
		texts[i] = finalizer
		if finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents {
			texts[i] += " (kube-controller-manager removes it)"
		}
	}
	return strings.Join(texts, ", ")
}

// RemainingContent returns the messages of a namespace's conditions that describe its remaining content. The namespace controller lists
// finalizers and kinds in them.
func RemainingContent(namespace map[string]any) []string {
	conditions, _, _ := unstructured.NestedSlice(namespace, "status", "conditions")
	var messages []string
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		status, _, _ := unstructured.NestedString(condition, "status")
		message, _, _ := unstructured.NestedString(condition, "message")
		if message = strings.TrimSpace(message); status == "True" && message != "" {
			messages = append(messages, message)
		}
	}
	slices.Sort(messages)
	return messages
}
