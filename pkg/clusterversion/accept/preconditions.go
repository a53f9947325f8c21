package accept

import (
	"context"

	configv1 "github.com/openshift/api/config/v1"

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
	out.Accepted, out.Upgradeable = in.weigh(a.Obstacles)
	return out
}

// weigh is upgradeable.Weigh with the risks that the administrator accepted.
func (in Input) weigh(obstacles []upgradeable.Obstacle) (accepted, open *configv1.ClusterOperatorStatusCondition) {
	var names []string
	if update := in.ClusterVersion.Spec.DesiredUpdate; update != nil {
		for _, risk := range update.AcceptRisks {
			names = append(names, risk.Name)
		}
	}
	return upgradeable.Weigh(obstacles, names)
}
