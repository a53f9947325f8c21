package cli

import (
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Bounds that the definition of ClusterVersion sets.
const (
	maxAcceptRisks = 1000
	maxRiskName    = 256
)

type upgradeAcceptOptions struct {
	requestFlags
	replace bool
	clear   bool

	added   sets.Set[string]
	removed sets.Set[string]
}

func newUpgradeAcceptCmd(streams Streams) *cobra.Command {
	o := &upgradeAcceptOptions{}
	cmd := &cobra.Command{
		Use:   "accept [RISK,RISK-,...]",
		Short: "Accept risks of updates by name, or accept them no more",
		Long: `Accept risks of updates by name, or accept them no more.

An update all of whose risks are accepted, or do not apply to the cluster, counts as recommended. What is accepted adds up;
"-" after a name, or before one that is not the first, takes it back. The names are kept in spec.desiredUpdate.acceptRisks
of the ClusterVersion, whichever update is asked for.

Exit codes: 0 accepted, or so already; 1 something went wrong, such as a cluster that does not know accepted risks; 2 the
command line cannot be understood.`,
		Example: `  # The risks there are
  cvo upgrade -o json | jq -r '.notRecommended[].risks[] | "\(.name): \(.message)"' | sort -u

  # Accept two, and take back a third
  cvo upgrade accept RiskA,RiskB,RiskC-

  # Accept these and no others
  cvo upgrade accept --replace RiskA,RiskB

  # Accept none
  cvo upgrade accept --clear`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.read(args); err != nil {
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), streams, o.plan)
		},
	}
	cmd.Flags().BoolVar(&o.replace, "replace", false, "accept what is named and nothing else")
	cmd.Flags().BoolVar(&o.clear, "clear", false, "accept nothing")
	o.add(cmd)
	cmd.ValidArgsFunction = o.complete
	return cmd
}

// read takes the argument apart.
func (o *upgradeAcceptOptions) read(args []string) error {
	switch {
	case o.clear && o.replace:
		return usageErrorf("--clear and --replace are mutually exclusive")
	case o.clear && len(args) > 0:
		return usageErrorf("--clear takes back all risks: give no names")
	case o.clear:
		return nil
	case len(args) == 0:
		return usageErrorf("no risks given: name them, with commas between them, or give --clear")
	}
	o.added, o.removed = sets.New[string](), sets.New[string]()
	for name := range strings.SplitSeq(args[0], ",") {
		name = strings.TrimSpace(name)
		kept, suffix := strings.CutSuffix(name, "-")
		kept, prefix := strings.CutPrefix(kept, "-")
		switch {
		case kept == "":
			return usageErrorf("illegal risk %q", name)
		case len(kept) > maxRiskName:
			return usageErrorf("illegal risk %.32q…: it has more than %d characters", kept, maxRiskName)
		case suffix || prefix:
			o.removed.Insert(kept)
		default:
			o.added.Insert(kept)
		}
	}
	if both := o.added.Intersection(o.removed); both.Len() > 0 {
		return usageErrorf("requested risks with both Risk and Risk-: %s", strings.Join(sets.List(both), ","))
	}
	if o.replace && o.removed.Len() > 0 {
		return usageErrorf(`"-" takes a risk back, and --replace accepts nothing but what is named: give one or the other`)
	}
	return nil
}

func (o *upgradeAcceptOptions) plan(cv *configv1.ClusterVersion, r *request) error {
	r.Action, r.unable = "accept", "unable to accept risks"
	var update configv1.Update
	if asked := cv.Spec.DesiredUpdate; asked != nil {
		update = *asked.DeepCopy()
	}
	before := riskNames(update.AcceptRisks)
	accepted := o.merge(update.AcceptRisks)
	names := riskNames(accepted)
	r.From.AcceptRisks, r.To.AcceptRisks = before, names
	if len(accepted) > maxAcceptRisks {
		return refusef("%d risks would be accepted, and a cluster keeps %d: take some back", len(accepted), maxAcceptRisks)
	}
	if slices.Equal(before, names) {
		r.Message = "info: Accept risks are not changed"
		return nil
	}
	known := knownRisks(cv)
	for _, name := range sets.List(o.added) {
		if !known.Has(name) && !slices.Contains(before, name) {
			r.warn("No update that the cluster knows has risk %q", name)
		}
	}
	update.AcceptRisks = accepted
	r.spec = cv.Spec.DeepCopy()
	r.specPatch = acceptPatch(r.spec, update)
	r.Message = "info: Accept risks are [" + strings.Join(names, ", ") + "]"
	r.tryFirst = len(accepted) > 0 && len(before) == 0
	r.stored = func(now *configv1.ClusterVersion) error {
		var stored []string
		if now.Spec.DesiredUpdate != nil {
			stored = riskNames(now.Spec.DesiredUpdate.AcceptRisks)
		}
		if !slices.Equal(stored, names) {
			return fmt.Errorf("%s: the API server drops spec.desiredUpdate.acceptRisks, which the CustomResourceDefinition clusterversions.config.openshift.io "+
				"of this cluster does not have: install the one with feature gate ClusterUpdateAcceptRisks, or ask for the update with --allow-not-recommended", r.unable)
		}
		return nil
	}
	return nil
}

// merge adds and removes; what was accepted before keeps its place.
func (o *upgradeAcceptOptions) merge(before []configv1.AcceptRisk) []configv1.AcceptRisk {
	var accepted []configv1.AcceptRisk
	if o.clear {
		return accepted
	}
	added := o.added.Clone()
	for _, risk := range before {
		if !o.replace && !o.removed.Has(risk.Name) {
			accepted = append(accepted, risk)
			added.Delete(risk.Name)
		}
	}
	for _, name := range sets.List(added) {
		accepted = append(accepted, configv1.AcceptRisk{Name: name})
	}
	return accepted
}

// acceptPatch sets the risks. A desiredUpdate that would be left empty goes as a whole: the operator finds it invalid.
func acceptPatch(spec *configv1.ClusterVersionSpec, update configv1.Update) map[string]any {
	if len(update.AcceptRisks) > 0 {
		spec.DesiredUpdate = &update
		return map[string]any{"desiredUpdate": map[string]any{"acceptRisks": update.AcceptRisks}}
	}
	if update.Version == "" && update.Image == "" && update.Architecture == "" {
		spec.DesiredUpdate = nil
		return map[string]any{"desiredUpdate": nil}
	}
	update.AcceptRisks = nil
	spec.DesiredUpdate = &update
	return map[string]any{"desiredUpdate": map[string]any{"acceptRisks": nil}}
}

// knownRisks are the names of the risks of all updates that the cluster knows.
func knownRisks(cv *configv1.ClusterVersion) sets.Set[string] {
	known := sets.New[string]()
	for _, risk := range cv.Status.ConditionalUpdateRisks {
		known.Insert(risk.Name)
	}
	for _, update := range cv.Status.ConditionalUpdates {
		known.Insert(update.RiskNames...)
		for _, risk := range update.Risks {
			known.Insert(risk.Name)
		}
	}
	return known
}

// complete offers, after what is there up to the last comma, the risks that could be accepted, and those that could be
// taken back.
func (o *upgradeAcceptOptions) complete(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || o.clear {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	offers, directive := o.cluster.complete(cmd, func(cv *configv1.ClusterVersion) []string {
		var accepted []string
		if cv.Spec.DesiredUpdate != nil {
			accepted = riskNames(cv.Spec.DesiredUpdate.AcceptRisks)
		}
		head := typed[:strings.LastIndex(typed, ",")+1]
		var offers []string
		for _, name := range sets.List(knownRisks(cv).Delete(accepted...)) {
			offers = append(offers, head+oneLine(name))
		}
		for _, name := range accepted {
			if !o.replace {
				offers = append(offers, head+oneLine(name)+"-")
			}
		}
		return offers
	})
	return offers, directive | cobra.ShellCompDirectiveNoSpace
}
