package request

import (
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
)

// maxAcceptRisks is a limit in the CustomResourceDefinition of ClusterVersion.
const maxAcceptRisks = 1000

// Risks changes the accepted risks.
type Risks struct {
	// Replace accepts only the added risks. Clear accepts no risks.
	Replace bool
	Clear   bool

	added   sets.Set[string]
	removed sets.Set[string]
}

// Parse parses the arguments of the command: either none or one list of risks.
func (o *Risks) Parse(args []string) error {
	switch {
	case o.Clear && o.Replace:
		return fmt.Errorf("--clear and --replace are mutually exclusive")
	case o.Clear && len(args) > 0:
		return fmt.Errorf("--clear withdraws all risks, so omit their names")
	case o.Clear:
		return nil
	case len(args) == 0:
		return fmt.Errorf("no risks given: list their names, separated by commas, or use --clear")
	}
	o.added, o.removed = sets.New[string](), sets.New[string]()
	for name := range strings.SplitSeq(args[0], ",") {
		name = strings.TrimSpace(name)
		kept, suffix := strings.CutSuffix(name, "-")
		kept, prefix := strings.CutPrefix(kept, "-")
		switch {
		case kept == "":
			return fmt.Errorf("illegal risk %q", name)
		case len(kept) > api.MaxRiskName:
			return fmt.Errorf("illegal risk %.32q…: more than %d characters", kept, api.MaxRiskName)
		case suffix || prefix:
			o.removed.Insert(kept)
		default:
			o.added.Insert(kept)
		}
	}
	if both := o.added.Intersection(o.removed); both.Len() > 0 {
		return fmt.Errorf("requested risks with both Risk and Risk-: %s", strings.Join(sets.List(both), ","))
	}
	if o.Replace && o.removed.Len() > 0 {
		return fmt.Errorf(`names with "-" withdraw risks, which --replace does not allow: use only one of them`)
	}
	return nil
}

// Plan implements Plan. It changes the accepted risks.
func (o *Risks) Plan(cv *configv1.ClusterVersion, r *Request) error {
	r.Action, r.failure = "accept", "unable to accept risks"
	var update configv1.Update
	if asked := cv.Spec.DesiredUpdate; asked != nil {
		update = *asked.DeepCopy()
	}
	before := RiskNames(update.AcceptRisks)
	accepted := o.merge(update.AcceptRisks)
	names := RiskNames(accepted)
	r.From.AcceptRisks, r.To.AcceptRisks = before, names
	if len(accepted) > maxAcceptRisks {
		return refuse("%d accepted risks would exceed the limit of %d: withdraw some", len(accepted), maxAcceptRisks)
	}
	if slices.Equal(before, names) {
		r.Message = "info: Accept risks are not changed"
		return nil
	}
	known := KnownRisks(cv)
	for _, name := range sets.List(o.added) {
		if !known.Has(name) && !slices.Contains(before, name) {
			r.warn("No update known to the cluster has risk %q", name)
		}
	}
	update.AcceptRisks = accepted
	r.Spec = cv.Spec.DeepCopy()
	r.SpecPatch = acceptPatch(r.Spec, update)
	r.Message = "info: Accept risks are [" + strings.Join(names, ", ") + "]"
	r.dryRunFirst = len(accepted) > 0 && len(before) == 0
	r.checkStored = func(now *configv1.ClusterVersion) error {
		var stored []string
		if now.Spec.DesiredUpdate != nil {
			stored = RiskNames(now.Spec.DesiredUpdate.AcceptRisks)
		}
		if !slices.Equal(stored, names) {
			return fmt.Errorf("%s: %s: install the CustomResourceDefinition with feature gate ClusterUpdateAcceptRisks, "+
				"or request the update with --allow-not-recommended", r.failure, drops("acceptRisks"))
		}
		return nil
	}
	return nil
}

// merge adds and removes risks. Earlier risks keep their position.
func (o *Risks) merge(before []configv1.AcceptRisk) []configv1.AcceptRisk {
	var accepted []configv1.AcceptRisk
	if o.Clear {
		return accepted
	}
	added := o.added.Clone()
	for _, risk := range before {
		if !o.Replace && !o.removed.Has(risk.Name) {
			accepted = append(accepted, risk)
			added.Delete(risk.Name)
		}
	}
	for _, name := range sets.List(added) {
		accepted = append(accepted, configv1.AcceptRisk{Name: name})
	}
	return accepted
}

// acceptPatch returns the patch that sets the risks. It removes a desiredUpdate that would be empty, because the operator would reject it
// as invalid.
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

// KnownRisks returns the names of all risks of the updates that the cluster knows.
func KnownRisks(cv *configv1.ClusterVersion) sets.Set[string] {
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
