// Package event describes and records Kubernetes events about the ClusterVersion. It truncates long messages and removes the parts
// that differ each time.
package event

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/internal/printable"
)

// Event is a Kubernetes event about the ClusterVersion.
type Event struct{ Kind, Reason, Message string }

// Normal returns an event about normal operation.
func Normal(reason, format string, args ...any) Event {
	return Event{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)}
}

// Warning returns an event that an administrator should look at.
func Warning(reason, format string, args ...any) Event {
	return Event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)}
}

// MaxMessage limits a message in bytes. It may quote megabytes of a release, which neither a status nor an event can hold.
const MaxMessage = 32 << 10

// Steady truncates an error text to MaxMessage and removes the variable parts, see printable.Steady. The texts of conditions and events must
// not change with them. Conditions and events are truncated again where they are written; Steady bounds what is kept until then,
// such as the message of a rejected release.
func Steady(text string) string {
	return printable.Excerpt(printable.Steady(text), MaxMessage)
}
