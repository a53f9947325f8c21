package request

import (
	"context"
	"encoding/json"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// Pause pauses or resumes updates.
type Pause struct {
	Paused bool
	// Reason is shown to other administrators. Without a reason, the reason of an earlier pause is kept.
	Reason string
}

// PauseResult is the result of a request to a ReleaseRollout.
type PauseResult struct {
	Action  string `json:"action"`
	Changed bool   `json:"changed"`
	DryRun  string `json:"dryRun,omitempty"`
	Message string `json:"message"`
	// Paused and Reason are the state after the request or its dry run.
	Paused bool   `json:"paused"`
	Reason string `json:"reason,omitempty"`
	// Updating is the version of the running update; empty if there is none.
	Updating string `json:"updating,omitempty"`
	// Patch is the JSON merge patch of the request; nil if there was nothing to change.
	Patch map[string]any `json:"patch,omitempty"`
}

// Send reads the ReleaseRollout, and changes it if necessary.
func (o *Pause) Send(ctx context.Context, c client.Client, cv *configv1.ClusterVersion, dryRun string) (*PauseResult, error) {
	r := &PauseResult{Action: "resume", Updating: updatingTo(cv)}
	if o.Paused {
		r.Action = "pause"
	}
	if dryRun != DryRunNone {
		r.DryRun = dryRun
	}
	before, there, err := readRollout(ctx, c, cv.Name)
	if err != nil {
		return nil, err
	}
	spec := api.ReleaseRolloutSpec{Paused: o.Paused}
	if o.Paused {
		spec.Reason = o.Reason
		if spec.Reason == "" {
			spec.Reason = before.Spec.Reason
		}
	}
	r.Paused, r.Reason, r.Changed = spec.Paused, spec.Reason, spec != before.Spec
	r.Message = pauseMessage(r, before.Spec)
	if !r.Changed {
		return r, nil
	}
	fields := map[string]any{"paused": spec.Paused, "reason": nil}
	if spec.Reason != "" {
		fields["reason"] = spec.Reason
	}
	r.Patch = map[string]any{"spec": fields}
	if dryRun == DryRunClient {
		return r, nil
	}
	if err := r.send(ctx, c, cv.Name, there, spec); err != nil {
		return nil, fmt.Errorf("unable to %s updates: %w", r.Action, err)
	}
	return r, nil
}

// send creates or patches the object. It retries because another client may create or delete the object in the meantime.
func (r *PauseResult) send(ctx context.Context, c client.Client, name string, exists bool, spec api.ReleaseRolloutSpec) error {
	data, err := json.Marshal(r.Patch)
	if err != nil {
		return err
	}
	var creating []client.CreateOption
	var patching []client.PatchOption
	if r.DryRun == DryRunServer {
		creating, patching = append(creating, client.DryRunAll), append(patching, client.DryRunAll)
	}
	object := func() (*unstructured.Unstructured, error) {
		rollout := api.ReleaseRollout{Spec: spec}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&rollout)
		u := &unstructured.Unstructured{Object: fields}
		u.SetGroupVersionKind(api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind))
		u.SetName(name)
		return u, err
	}
	const attempts = 3
	for range attempts {
		u, uErr := object()
		if uErr != nil {
			return uErr
		}
		if exists {
			err = c.Patch(ctx, u, client.RawPatch(types.MergePatchType, data), patching...)
		} else {
			err = c.Create(ctx, u, creating...)
		}
		switch {
		case apierrors.IsNotFound(err):
			exists = false
		case apierrors.IsAlreadyExists(err):
			exists = true
		case apierrors.IsForbidden(err):
			return fmt.Errorf("%w (ask an administrator for ClusterRole cluster-version-operator-pauser)", err)
		default:
			return err
		}
	}
	return err
}

// readRollout reads the ReleaseRollout of a ClusterVersion. It returns an empty one if the object does not exist.
func readRollout(ctx context.Context, c client.Reader, name string) (rollout api.ReleaseRollout, there bool, err error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind))
	switch err := c.Get(ctx, client.ObjectKey{Name: name}, u); {
	case meta.IsNoMatchError(err):
		return rollout, false, fmt.Errorf("the cluster does not serve %s, because its release does not contain the CustomResourceDefinition",
			api.ReleaseRolloutResource+"."+api.ReleaseRolloutVersion.Group)
	case apierrors.IsNotFound(err):
		return rollout, false, nil
	case err != nil:
		return rollout, false, fmt.Errorf("reading %s %q: %w", api.ReleaseRolloutKind, name, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &rollout); err != nil {
		return rollout, true, fmt.Errorf("reading %s %q: %w", api.ReleaseRolloutKind, name, err)
	}
	return rollout, true, nil
}

// updatingTo returns the version of the running update, or "" if there is none.
func updatingTo(cv *configv1.ClusterVersion) string {
	history := cv.Status.History
	if len(history) < 2 || history[0].State == configv1.CompletedUpdate || !reported.HasCompleted(cv.Status.History) {
		return ""
	}
	return history[0].Version
}

func pauseMessage(r *PauseResult, before api.ReleaseRolloutSpec) string {
	why := ""
	if r.Reason != "" {
		why = " (" + r.Reason + ")"
	}
	switch {
	case !r.Paused && !r.Changed:
		return "Updates are not paused (no change)"
	case !r.Paused && r.Updating != "":
		return fmt.Sprintf("Updates are no longer paused; the update to %s continues", r.Updating)
	case !r.Paused:
		return "Updates are no longer paused"
	case !r.Changed:
		return "Updates are already paused" + why + " (no change)"
	case before.Paused:
		return "Updates are already paused; the reason has changed" + why
	case r.Updating != "":
		return fmt.Sprintf("Updates are paused%s; the update to %s finishes its current runlevel and stops before the next one", why, r.Updating)
	}
	return "Updates are paused" + why + "; the next update stops before its first runlevel"
}
