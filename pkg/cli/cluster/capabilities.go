package cluster

import (
	"strings"

	configv1 "github.com/openshift/api/config/v1"
)

// CapabilityList reads a comma-separated list of capabilities.
func CapabilityList(text string) []configv1.ClusterVersionCapability {
	var list []configv1.ClusterVersionCapability
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			list = append(list, configv1.ClusterVersionCapability(name))
		}
	}
	return list
}
