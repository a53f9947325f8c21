package pool

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cluster-version/cvo/pkg/api"
)

// Sources returns the MachineConfigs that a pool is rendered from, sorted by name. The error says why the pool's selector is invalid.
func Sources(p *mcfgv1.MachineConfigPool, configs []*mcfgv1.MachineConfig) ([]*mcfgv1.MachineConfig, error) {
	selector, err := metav1.LabelSelectorAsSelector(p.Spec.MachineConfigSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.machineConfigSelector: %w", err)
	}
	if selector.Empty() {
		return nil, errors.New("spec.machineConfigSelector selects every MachineConfig: set a label, such as " + api.MachineConfigRoleLabel)
	}
	var sources []*mcfgv1.MachineConfig
	for _, mc := range configs {
		if selector.Matches(labels.Set(mc.Labels)) && !IsRendered(mc) {
			sources = append(sources, mc)
		}
	}
	slices.SortFunc(sources, func(a, b *mcfgv1.MachineConfig) int { return strings.Compare(a.Name, b.Name) })
	return sources, nil
}
