package request

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/update/reported"
)

// Sender sends requests to a cluster.
type Sender struct {
	Client client.Client
	// DryRun is one of the values of --dry-run; empty means none.
	DryRun string
	// Read reads the ClusterVersion.
	Read func(context.Context) (*configv1.ClusterVersion, error)
	// Warn receives each different warning once.
	Warn func(text string)
}

// Send reads the ClusterVersion, plans the request and sends it. The request applies only to the version of the ClusterVersion that the
// plan used. After a conflict, Send reads and plans again, including the guards.
func (s Sender) Send(ctx context.Context, plan Plan) (*Request, error) {
	var r *Request
	warned := map[string]bool{}
	err := retry.OnError(retry.DefaultRetry, apierrors.IsConflict, func() error {
		cv, err := s.Read(ctx)
		if err != nil {
			return err
		}
		r = &Request{}
		if controlPlaneIsHosted(ctx, s.Client) {
			r.warn("The control plane of this cluster is hosted elsewhere: request updates there; a request here may be reverted")
		}
		err = plan(cv, r)
		for _, warning := range r.Warnings {
			if !warned[warning] {
				warned[warning] = true
				s.Warn(warning)
			}
		}
		if err != nil {
			return err
		}
		if err := s.send(ctx, cv, r); err != nil {
			return err
		}
		if r.DryRun == "" && r.startsRollout && reported.HasCompleted(cv.Status.History) {
			rollout, _, err := readRollout(ctx, s.Client, cv.Name)
			r.Paused = err == nil && rollout.Spec.Paused // without permission, only the hint is missing
		}
		return nil
	})
	if apierrors.IsConflict(err) {
		return nil, fmt.Errorf("%w: another client keeps changing it; try again", err)
	}
	return r, err
}

// send sends a planned request unless there is nothing to change.
func (s Sender) send(ctx context.Context, cv *configv1.ClusterVersion, r *Request) error {
	dryRun := cmp.Or(s.DryRun, DryRunNone)
	if dryRun != DryRunNone {
		r.DryRun = dryRun
	}
	if r.SpecPatch == nil {
		return nil
	}
	r.Changed = !equality.Semantic.DeepEqual(cv.Spec, *r.Spec)
	r.Patch = map[string]any{"metadata": map[string]any{"resourceVersion": cv.ResourceVersion}, "spec": r.SpecPatch}
	stored := cv.DeepCopy()
	stored.Spec = *r.Spec
	var rounds [][]client.PatchOption
	if dryRun == DryRunServer || dryRun == DryRunNone && r.dryRunFirst {
		rounds = append(rounds, []client.PatchOption{client.DryRunAll})
	}
	if dryRun == DryRunNone {
		rounds = append(rounds, nil)
	}
	for _, opts := range rounds {
		if err := patchClusterVersion(ctx, s.Client, stored, r.Patch, opts...); err != nil {
			return fmt.Errorf("%s: %w", r.failure, err)
		}
		if err := r.Check(stored); err != nil {
			return err
		}
	}
	if len(rounds) == 0 {
		return r.Check(stored)
	}
	return nil
}

// patchClusterVersion sends a merge patch and replaces cv with the API server's response.
func patchClusterVersion(ctx context.Context, c client.Client, cv *configv1.ClusterVersion, patch map[string]any, opts ...client.PatchOption) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	err = c.Patch(ctx, cv, client.RawPatch(types.MergePatchType, data), opts...)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w (you need permission to patch clusterversions, for example with ClusterRole cluster-admin)", err)
	}
	return err
}

// controlPlaneIsHosted reports whether the control plane runs elsewhere. It is used only for a warning, so it returns false if the answer
// is unknown.
func controlPlaneIsHosted(ctx context.Context, c client.Reader) bool {
	infrastructure := &configv1.Infrastructure{}
	err := c.Get(ctx, client.ObjectKey{Name: "cluster"}, infrastructure)
	return err == nil && infrastructure.Status.ControlPlaneTopology == configv1.ExternalTopologyMode
}
