package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

type upgradePauseOptions struct {
	requestFlags
	pause  bool
	reason string
}

func newUpgradePauseCmd(streams Streams) *cobra.Command {
	o := &upgradePauseOptions{pause: true}
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Hold updates back at the next runlevel boundary",
		Long: `Hold updates back at the next runlevel boundary.

Of an update that is under way, what has begun goes on to its gates, and nothing of a higher runlevel is begun. What has
settled is looked after as before. An update that is asked for while updates are paused is held back before its first
runlevel. An install is not held back. It returns as soon as the API server has noted it; a pause that is asked for twice
stays where it is.

It edits spec.paused of the ReleaseRollout that bears the name of the ClusterVersion, and makes it if there is none.

Exit codes: 0 paused, or so already; 1 something went wrong; 2 the command line cannot be understood.`,
		Example: `  # Hold the update back, and tell others why
  cvo upgrade pause --reason "month-end closing until Friday"

  # Is it held back yet?
  kubectl get releaserollouts -o wide`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "`text` that tells others why; without it, that of an earlier pause stays")
	o.add(cmd)
	return cmd
}

func newUpgradeResumeCmd(streams Streams) *cobra.Command {
	o := &upgradePauseOptions{}
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Let updates go on that were paused",
		Long: `Let updates go on that were paused with 'cvo upgrade pause'.

It returns as soon as the API server has noted it. The update goes on within a second.

Exit codes: 0 not paused any more, or not paused at all; 1 something went wrong; 2 the command line cannot be understood.`,
		Example: `  # Go on
  cvo upgrade resume

  # What would be sent?
  cvo upgrade resume --dry-run`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	o.add(cmd)
	return cmd
}

// pauseResult is what was asked of a ReleaseRollout.
type pauseResult struct {
	Action  string `json:"action"`
	Changed bool   `json:"changed"`
	DryRun  string `json:"dryRun,omitempty"`
	Message string `json:"message"`
	// Paused and Reason are how it is now, or would be.
	Paused bool   `json:"paused"`
	Reason string `json:"reason,omitempty"`
	// Updating is the version of the update under way.
	Updating string `json:"updating,omitempty"`
	// Patch is the JSON merge patch that was sent, or would be; nil if there was nothing to ask for.
	Patch map[string]any `json:"patch,omitempty"`
}

func (o *upgradePauseOptions) run(ctx context.Context, streams Streams) error {
	if err := o.validate(); err != nil {
		return err
	}
	if length := utf8.RuneCountInString(o.reason); length > api.ReleaseRolloutReason {
		return usageErrorf("--reason has %d characters, at most %d are kept", length, api.ReleaseRolloutReason)
	}
	c, err := o.cluster.open("cvo-upgrade-pause")
	if err != nil {
		return err
	}
	cv, err := o.cluster.readClusterVersion(ctx, c)
	if err != nil {
		return err
	}
	r, err := o.ask(ctx, c, cv)
	if err != nil {
		return err
	}
	return o.tell(streams, r)
}

// ask reads the ReleaseRollout and changes it if that makes a difference.
func (o *upgradePauseOptions) ask(ctx context.Context, c client.Client, cv *configv1.ClusterVersion) (*pauseResult, error) {
	r := &pauseResult{Action: "resume", Updating: updatingTo(cv)}
	if o.pause {
		r.Action = "pause"
	}
	if o.dryRun != dryRunNone {
		r.DryRun = o.dryRun
	}
	before, there, err := readReleaseRollout(ctx, c, cv.Name)
	if err != nil {
		return nil, err
	}
	spec := api.ReleaseRolloutSpec{Paused: o.pause}
	if o.pause {
		spec.Reason = o.reason
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
	if o.dryRun == dryRunClient {
		return r, nil
	}
	if err := o.send(ctx, c, cv.Name, there, spec, r.Patch); err != nil {
		return nil, fmt.Errorf("unable to %s updates: %w", r.Action, err)
	}
	return r, nil
}

// send makes the object, or changes it, whichever turns out to be needed: others may make or delete it meanwhile.
func (o *upgradePauseOptions) send(ctx context.Context, c client.Client, name string, there bool, spec api.ReleaseRolloutSpec, patch map[string]any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	var creating []client.CreateOption
	var patching []client.PatchOption
	if o.dryRun == dryRunServer {
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
		if there {
			err = c.Patch(ctx, u, client.RawPatch(types.MergePatchType, data), patching...)
		} else {
			err = c.Create(ctx, u, creating...)
		}
		switch {
		case apierrors.IsNotFound(err):
			there = false
		case apierrors.IsAlreadyExists(err):
			there = true
		case apierrors.IsForbidden(err):
			return fmt.Errorf("%w: ask for a role that lets you, such as cluster-version-operator-pauser", err)
		default:
			return err
		}
	}
	return err
}

// readReleaseRollout reads the ReleaseRollout of a ClusterVersion; an empty one if it is not there.
func readReleaseRollout(ctx context.Context, c client.Reader, name string) (rollout api.ReleaseRollout, there bool, err error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind))
	switch err := c.Get(ctx, client.ObjectKey{Name: name}, u); {
	case meta.IsNoMatchError(err):
		return rollout, false, fmt.Errorf("the cluster does not serve %s, so its updates cannot be paused: its release brings no definition of it",
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

// updatingTo is the version of an update that is under way, empty if there is none.
func updatingTo(cv *configv1.ClusterVersion) string {
	history := cv.Status.History
	if len(history) < 2 || history[0].State == configv1.CompletedUpdate {
		return ""
	}
	installed := slices.ContainsFunc(history, func(e configv1.UpdateHistory) bool { return e.State == configv1.CompletedUpdate })
	if !installed {
		return ""
	}
	return history[0].Version
}

func pauseMessage(r *pauseResult, before api.ReleaseRolloutSpec) string {
	why := ""
	if r.Reason != "" {
		why = " (" + r.Reason + ")"
	}
	switch {
	case !r.Paused && !r.Changed:
		return "Updates are not paused (no change)"
	case !r.Paused && r.Updating != "":
		return fmt.Sprintf("Updates are not paused any more; the update to %s goes on", r.Updating)
	case !r.Paused:
		return "Updates are not paused any more"
	case !r.Changed:
		return "Updates are paused already" + why + " (no change)"
	case before.Paused:
		return "Updates are paused already; the reason is another one now" + why
	case r.Updating != "":
		return fmt.Sprintf("Updates are paused%s; the update to %s is held back at the next runlevel boundary, what has begun goes on", why, r.Updating)
	}
	return "Updates are paused" + why + "; the next one is held back before its first runlevel"
}

func (o *upgradePauseOptions) tell(streams Streams, r *pauseResult) error {
	if o.output != "" {
		return printStructured(streams, o.output, r)
	}
	message := printable(r.Message)
	switch {
	case r.DryRun == dryRunServer && r.Patch != nil:
		message += " (server dry run)"
	case r.DryRun != "" && r.Patch != nil:
		message += " (dry run)"
	}
	_, err := fmt.Fprintln(streams.Out, message)
	return err
}
