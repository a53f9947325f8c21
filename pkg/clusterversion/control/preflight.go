package control

import (
	"context"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
)

// KeepMode returns an update with its requested mode, and keeps a preflight request for the status. If an administrator installs a
// ClusterVersion definition without the mode during a preflight, the API server drops the mode from the spec. No administrator has requested
// such an update.
func (k *Control) KeepMode(update *configv1.Update, generation int64, schema Schema) *configv1.Update {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.preflightRequest
	k.preflightRequest = nil
	if update == nil {
		return nil
	}
	asked := api.PreflightRequest{ObservedGeneration: generation, RequestContent: api.RequestContent{
		Image: update.Image, Version: update.Version, Architecture: string(update.Architecture), Force: update.Force,
	}}
	switch {
	case update.Mode == configv1.UpdateModePreflight:
		k.preflightRequest = &asked
	case before != nil && asked.RequestContent == before.RequestContent && (generation == before.ObservedGeneration || !schema.Mode):
		k.preflightRequest = before
		update = update.DeepCopy()
		update.Mode = configv1.UpdateModePreflight
	}
	return update
}

// KnowsPreflight reports whether an earlier process has examined the requested release, so that a restart of the operator does not repeat
// the preflight. ready reports that the cluster has a release, which a preflight needs.
func (k *Control) KnowsPreflight(target *request.Target, ready bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if target != nil && !ready || k.preflightDecided {
		return false
	}
	k.preflightDecided = true
	p := k.preflight
	return target != nil && p != nil && p.Image == target.Image && (p.State == api.PreflightPassed || p.State == api.PreflightObjected)
}

// ReportPreflight stores an account unless ctx is done. In that case the preflight was replaced or canceled, and no step would complete the
// account.
func (k *Control) ReportPreflight(ctx context.Context, account api.Preflight) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ctx.Err() == nil {
		k.preflight = &account
	}
}

// EndPreflight drops the account of an unfinished preflight. It reports whether there was one.
func (k *Control) EndPreflight() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	running := k.preflight != nil && k.preflight.State == api.PreflightRunning
	if running {
		k.preflight = nil
	}
	return running
}
