package api

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
