package upgrade

import (
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/update/request"
)

type acceptOptions struct {
	requestFlags
	request.Risks
}

func newAcceptCmd(streams command.Streams) *cobra.Command {
	o := &acceptOptions{}
	cmd := &cobra.Command{
		Use:   "accept [RISK,RISK-,...]",
		Short: "Accept risks of updates by name, or withdraw acceptance",
		Long: `Accept risks of updates by name, or withdraw acceptance.

An update counts as recommended if each of its risks is accepted or does not apply to the cluster. The command adds the
names to the accepted risks. To withdraw a risk, put "-" after its name, or before it if it is not the first. The command
stores the names in spec.desiredUpdate.acceptRisks of the ClusterVersion. They apply to every update.

Exit codes: 0 accepted, or accepted already; 1 failure, such as a cluster without support for accepted risks; 2 invalid
command line.`,
		Example: `  # List the risks
  cvo upgrade -o json | jq -r '.notRecommended[].risks[] | "\(.name): \(.message)"' | sort -u

  # Accept two, and withdraw a third
  cvo upgrade accept RiskA,RiskB,RiskC-

  # Accept exactly these
  cvo upgrade accept --replace RiskA,RiskB

  # Accept none
  cvo upgrade accept --clear`,
		Args: command.UsageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Parse(args); err != nil {
				return &command.UsageError{Err: err}
			}
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), streams, o.Plan)
		},
	}
	cmd.Flags().BoolVar(&o.Replace, "replace", false, "accept only the named risks")
	cmd.Flags().BoolVar(&o.Clear, "clear", false, "accept nothing")
	o.add(cmd)
	cmd.ValidArgsFunction = o.complete
	return cmd
}

// complete keeps the typed text up to the last comma, and offers the risks that can be accepted or withdrawn.
func (o *acceptOptions) complete(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || o.Clear {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	offers, directive := o.cluster.Complete(cmd, func(cv *configv1.ClusterVersion) []string {
		var accepted []string
		if cv.Spec.DesiredUpdate != nil {
			accepted = request.RiskNames(cv.Spec.DesiredUpdate.AcceptRisks)
		}
		head := typed[:strings.LastIndex(typed, ",")+1]
		var offers []string
		for _, name := range sets.List(request.KnownRisks(cv).Delete(accepted...)) {
			offers = append(offers, head+terminal.OneLine(name))
		}
		for _, name := range accepted {
			if !o.Replace {
				offers = append(offers, head+terminal.OneLine(name)+"-")
			}
		}
		return offers
	})
	return offers, directive | cobra.ShellCompDirectiveNoSpace
}
