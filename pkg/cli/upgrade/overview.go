package upgrade

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/leader"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/update/request"
	"github.com/cluster-version/cvo/pkg/view/insight"
	"github.com/cluster-version/cvo/pkg/view/overview"
)

// overview runs the command without a request.
func (o *options) overview(ctx context.Context, streams command.Streams) error {
	c, err := o.cluster.Open("cvo-upgrade")
	if err != nil {
		return err
	}
	cv, err := o.cluster.ReadClusterVersion(ctx, c)
	if err != nil {
		return err
	}
	v := overview.New(cv)
	if v.Preflight, err = request.ReadPreflight(ctx, c, cv); err != nil {
		streams.Warnf("Cannot read the preflight's result: %v", err)
	}
	if o.output != "" {
		err = printing.Structured(streams, o.output, v)
	} else {
		err = v.Print(streams.Out, streams.Err, o.includeNotRecommended)
	}
	if err != nil {
		return err
	}
	leader.Warn(streams, insight.DeletionInsights(cv, cluster.OperatorDeployment().Namespace))
	if cfg, err := o.cluster.Config(); err == nil {
		leader.WarnVacant(ctx, streams, cfg, cluster.OperatorDeployment().Namespace, o.cluster.Name)
	}
	if !o.exitCode {
		return nil
	}
	code := map[overview.State]int{overview.Updating: command.ExitUpdating, overview.Attention: command.ExitAttention, overview.Unknown: command.ExitPartial}[v.State]
	if code == 0 {
		return nil
	}
	return &command.StateError{Code: code, Err: fmt.Errorf("the state of the cluster is %s", v.State)}
}

// completeVersions offers the updates that the cluster knows.
func (o *options) completeVersions(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.cluster.Complete(cmd, func(cv *configv1.ClusterVersion) []string {
		v := overview.New(cv)
		var offers []string
		for _, update := range v.Recommended {
			offers = append(offers, cobra.CompletionWithDesc(terminal.OneLine(update.Version), "recommended"))
		}
		for _, update := range v.NotRecommended {
			offers = append(offers, cobra.CompletionWithDesc(terminal.OneLine(update.Version), "not recommended: "+terminal.OneLine(update.Reason)))
		}
		return offers
	})
}
