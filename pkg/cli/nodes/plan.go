package nodes

import (
	"context"
	"errors"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/view/collect"
	"github.com/cluster-version/cvo/pkg/view/nodes"
)

type planOptions struct {
	flags
	files []string
}

func newPlanCmd(streams command.Streams) *cobra.Command {
	o := &planOptions{}
	cmd := &cobra.Command{
		Use:   "plan [POOL]",
		Short: "Show which nodes would be updated, in which order, and what that disrupts",
		Long: `Show which nodes would be updated, in which order, and what that disrupts. The command changes nothing.

It renders the MachineConfigs of each pool and plans its nodes as the controller does. For each node it shows whether it starts
now or what it waits for, whether it needs a drain and a reboot, and how many pods a drain evicts. It names the pods that a
drain deletes permanently because they have no controller, the pods that lose the data in their emptyDir volumes, and the
PodDisruptionBudgets that allow no disruption now. Nodes that wait are in the order of zone and age; budgets may change that
order later. A paused pool is planned as if it were resumed.

With --filename the command adds MachineConfigs that are not in the cluster yet, or replaces those with the same name.

The text lists at most 20 nodes for each pool, -o json and yaml list all. The command lists MachineConfigPools, Nodes and
MachineConfigs, and reads ControllerConfig "machine-config-controller" and MachineConfiguration "cluster". If a node would start or be drained, it also lists all pods and
PodDisruptionBudgets. If several control-plane nodes would start, it reads Lease machine-config-controller: the node of the
leading controller is the last one. It checks neither the API servers, as the controller does before a control-plane node starts,
nor the metrics and Jobs that a NodeRolloutPolicy names, but shows what the controller reports.

If the MachineConfigs of a pool cannot be rendered, the controller reports the pool as degraded, and its nodes are still updated
to the pool's current config. A pool without MachineConfigs is such a pool. Give the name of a pool to ignore the others.

Exit codes: 0 planned; 1 failure; 2 invalid command line; 3 a MachineConfig or a pool is invalid, so nodes get no new config.`,
		Example: `  # Show the next nodes of all pools
  cvo nodes plan

  # Check a MachineConfig before it is applied
  cvo nodes plan worker -f 99-worker-sysctl.yaml
  kustomize build | cvo nodes plan -f -

  # List the nodes that would reboot, for a script
  cvo nodes plan -o json | jq -r '.pools[] | [.transitions[] | select(.reboot).from] as $r | .nodes[] | select(.from | IN($r[])).name'`,
		Args: command.UsageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.read(args); err != nil {
				return err
			}
			return o.run(cmd.Context(), streams)
		},
	}
	cmd.Flags().StringArrayVarP(&o.files, "filename", "f", nil, "`file` with MachineConfigs that are not applied yet, - for stdin (repeat for more)")
	o.add(cmd)
	return cmd
}

func (o *planOptions) run(ctx context.Context, streams command.Streams) error {
	added, err := readConfigs(o.files, streams.In)
	if err != nil {
		return err
	}
	plan, err := o.plan(ctx, added, streams)
	if _, invalid := errors.AsType[*config.Error](err); invalid {
		return &command.RefusedError{Err: err}
	}
	if err != nil {
		return o.explain(ctx, err)
	}
	for _, name := range plan.Unselected {
		streams.Warnf("no pool selects MachineConfig %s: check its labels", name)
	}
	if o.output != "" {
		err = printing.Structured(streams, o.output, plan)
	} else {
		err = plan.Text(streams.Out)
	}
	if err != nil {
		return err
	}
	if err := plan.Errors(); err != nil {
		return &command.RefusedError{Err: err}
	}
	return nil
}

// plan reads the cluster and makes the plan. It reads pods only if the plan depends on them: there are many.
func (o *planOptions) plan(ctx context.Context, added []*mcfgv1.MachineConfig, streams command.Streams) (*nodes.Plan, error) {
	c, err := o.open("cvo-nodes-plan")
	if err != nil {
		return nil, err
	}
	cluster, err := collect.Nodes(ctx, c, clock.RealClock{}.Now())
	if err != nil {
		return nil, err
	}
	configs, err := collect.Configs(ctx, c)
	if err != nil {
		return nil, err
	}
	configs.Added = added
	draft, err := nodes.NewDraft(cluster, configs, o.pool)
	if err != nil {
		return nil, err
	}
	if !draft.NeedsPods() {
		return draft.Plan(nodes.Workload{}), nil
	}
	workload, err := collect.Workload(ctx, c)
	if err != nil {
		return nil, err
	}
	if draft.NeedsLeader() {
		workload.Leader = o.leader(ctx, streams)
	}
	return draft.Plan(workload), nil
}

// leader returns the pod of the leading controller, whose node is the last one of the control plane. If it cannot be found, for example without
// permission, the name is empty, and a warning is printed.
func (o *planOptions) leader(ctx context.Context, streams command.Streams) types.NamespacedName {
	record, err := o.findLeader(ctx)
	if err != nil {
		streams.Warnf("the leading controller is unknown, so its node may not be planned last: %v", err)
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: api.MachineConfigNamespace, Name: record.Host}
}

func (o *planOptions) findLeader(ctx context.Context) (leader.Record, error) {
	cfg, err := o.cluster.Config()
	if err != nil {
		return leader.Record{}, err
	}
	cfg.UserAgent = "cvo-nodes-plan"
	record, err := leader.Find(ctx, cfg, api.MachineConfigNamespace, api.MachineConfigController)
	if err == nil && record.Gone {
		err = fmt.Errorf("no replica holds Lease %s/%s", api.MachineConfigNamespace, api.MachineConfigController)
	}
	return record, err
}
