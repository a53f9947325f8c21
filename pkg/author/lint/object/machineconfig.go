package object

import (
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
)

// nodeRunlevel is the runlevel of the node stage.
const nodeRunlevel = 80

// checkMachineConfig finds MachineConfigs that a cluster gets before the release's node stage.
func checkMachineConfig(o *source.Object) {
	if o.Is(api.MachineConfigGroup, "MachineConfig") && o.Runlevel < nodeRunlevel {
		o.Find("machine-config-runlevel", nil, "the MachineConfig is at runlevel %02d, before the node stage at %d: the stage of the earlier release also applies it",
			o.Runlevel, nodeRunlevel)
	}
}
