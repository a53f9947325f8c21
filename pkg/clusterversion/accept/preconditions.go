package accept

import (
	"context"

	"github.com/cluster-version/cvo/pkg/update/precondition"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

// preconditions returns the input of the preconditions. Risks that an administrator accepted by name do not block the release.
func (in Input) preconditions(ctx context.Context, a *Acceptance) precondition.Input {
	out := precondition.Input{
		ClusterVersion: in.ClusterVersion, Target: a.Payload.Release, Manifests: Managed(*a, in.ClusterVersion.Spec.Overrides), NamesService: in.NamesService,
	}
	if in.Server != nil {
		out.Server = in.Server(ctx)
	}
	a.Obstacles = nil
	if in.Obstacles != nil {
		a.Obstacles = in.Obstacles(in.ClusterVersion)
	}
	var names []string
	if update := in.ClusterVersion.Spec.DesiredUpdate; update != nil {
		for _, risk := range update.AcceptRisks {
			names = append(names, risk.Name)
		}
	}
	out.Accepted, out.Upgradeable = upgradeable.Weigh(a.Obstacles, names)
	return out
}
