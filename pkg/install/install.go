package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/inject"
	enginecluster "github.com/cluster-version/cvo/pkg/engine/cluster"
	"github.com/cluster-version/cvo/pkg/install/lease"
	"github.com/cluster-version/cvo/pkg/install/plan"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// Source reads a release image, as *image.Reader does.
type Source interface {
	Manifests(ctx context.Context, img release.Image) (fs.FS, error)
	Entrypoint(ctx context.Context, img release.Image) ([]string, error)
}

// Request is a verified release with the choices for its installation.
type Request struct {
	Image  release.Image
	Source Source
	// Load selects the manifests for the cluster. Prepare sets BringYourOwnNetwork if the installed operator has it.
	Load payload.Options
	// PodNetwork rejects an operator that was installed with BringYourOwnNetwork.
	PodNetwork bool
	// NoOperator prepares the cluster for an operator that runs elsewhere.
	NoOperator bool
	Settings   plan.Settings
}

// Plan returns the objects to install. It rejects a release without a runnable operator. In this case, the returned plan contains at most
// Nothing.
func (r Request) Plan(ctx context.Context) (plan.Plan, error) {
	files, err := r.Source.Manifests(ctx, r.Image)
	if err != nil {
		return plan.Plan{}, err
	}
	p, err := payload.Load(files, r.Image.ByDigest(), r.Load)
	if err != nil {
		return plan.Plan{}, err
	}
	objects, err := r.objects(ctx, p)
	if err != nil {
		objects = plan.Plan{Nothing: p.Nothing()}
	}
	if errors.Is(err, plan.ErrNoOperator) || errors.Is(err, payload.ErrOtherOperator) {
		err = &target.Refusal{Err: fmt.Errorf("%w; to run the operator outside the cluster, use 'cvo install --no-operator' and 'cvo start'", err)}
	}
	return objects, err
}

func (r Request) objects(ctx context.Context, p *payload.Payload) (plan.Plan, error) {
	if r.NoOperator {
		return plan.NewPreparation(p, r.Settings)
	}
	objects, err := plan.New(p, r.Settings)
	if err == nil {
		err = p.CheckOperator(objects.Deployment(), func() ([]string, error) { return r.Source.Entrypoint(ctx, r.Image) })
	}
	return objects, err
}

// Installation is a plan for one cluster.
type Installation struct {
	Plan plan.Plan
	// Warnings lists requested settings that the installation ignores, because the cluster already has other values.
	Warnings []string

	config    *rest.Config
	injection inject.Values
}

// Prepare plans the installation in a cluster. It rejects a request that the cluster's state does not allow. If a killed uninstall still
// holds the Lease, Prepare reclaims it, so that the operator can start at once, and reports the wait to logLine. The Installation is nil if
// an error occurs before the plan exists.
func (r Request) Prepare(ctx context.Context, clk clock.Clock, cfg *rest.Config, logLine func(string)) (*Installation, error) {
	there, err := Look(ctx, cfg, r.Settings.Namespace, r.Settings.Name)
	if err != nil {
		return nil, err
	}
	if r.NoOperator {
		err = there.CheckDeletion()
	} else {
		err = there.CheckRelease(r.Image.ByDigest())
	}
	if err != nil {
		return nil, err
	}
	if err := lease.Reclaim(ctx, clk, cfg, r.Settings.Namespace, r.Settings.Name, logLine); err != nil {
		return nil, err
	}
	if !r.NoOperator {
		if r.PodNetwork && there.Network() {
			return nil, &target.Refusal{Err: fmt.Errorf("the operator was installed with --bring-your-own-network and would revert the change of its network: "+
				"remove it with 'cvo uninstall%s', which keeps the platform, and install it again", api.PlaceFlags(r.Settings.Namespace, r.Settings.Name))}
		}
		r.Load.BringYourOwnNetwork = r.Load.BringYourOwnNetwork || there.Network()
		r.Settings.ExistingPullSecret = there.PullSecret
	}
	i := &Installation{config: cfg, Warnings: there.warnings(r.Settings)}
	if r.NoOperator {
		// A preparation does not change the release, so a mismatch is only a warning. The user may not expect what an operator of this
		// release would do.
		if err := there.CheckRelease(r.Image.ByDigest()); err != nil {
			i.Warnings = append(i.Warnings, err.Error())
		}
	}
	if i.Plan, err = r.Plan(ctx); err != nil || r.NoOperator {
		return i, err
	}
	i.injection, err = injection(ctx, cfg)
	return i, err
}

// injection returns the values that the operator would inject into its own Deployment.
func injection(ctx context.Context, cfg *rest.Config) (inject.Values, error) {
	scheme, err := enginecluster.NewScheme()
	if err != nil {
		return inject.Values{}, err
	}
	reader, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return inject.Values{}, fmt.Errorf("connecting to the API server: %w", err)
	}
	return enginecluster.Injection(ctx, reader)
}

// Deploy applies the plan and calls done with each result; done may be nil. Deploy does not write to objects that already match.
func (i *Installation) Deploy(ctx context.Context, done func(target.Result)) ([]target.Result, error) {
	return Deploy(ctx, i.config, i.Plan, i.injection, done)
}
