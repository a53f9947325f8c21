package drain

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

const drainPrefix, uncordonPrefix = "drain-", "uncordon-"

// Before returns the request for a drain before the update to a config.
func Before(config string) string { return drainPrefix + config }

// EndOf returns the request to lift the cordon after the update to a config.
func EndOf(config string) string { return uncordonPrefix + config }

// IsRequested reports whether a drain is the latest request of a node's daemon.
func IsRequested(n *corev1.Node) bool {
	return strings.HasPrefix(n.Annotations[api.DesiredDrainAnnotation], drainPrefix)
}

// IsEndRequested reports whether the latest request is to lift the cordon.
func IsEndRequested(n *corev1.Node) bool {
	return strings.HasPrefix(n.Annotations[api.DesiredDrainAnnotation], uncordonPrefix)
}

// IsAnswered reports whether the controller has done what the latest request says. It is true without a request.
func IsAnswered(n *corev1.Node) bool {
	return n.Annotations[api.DesiredDrainAnnotation] == n.Annotations[api.AppliedDrainAnnotation]
}

// IsPending reports whether a drain is requested and not complete.
func IsPending(n *corev1.Node) bool { return IsRequested(n) && !IsAnswered(n) }
