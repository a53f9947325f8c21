package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Values of --dry-run, as kubectl has them.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

func dryRuns() []string { return []string{dryRunNone, dryRunServer, dryRunClient} }

// requestFlags are those of every command that asks something of a cluster.
type requestFlags struct {
	cluster versionFlags
	dryRun  string
	output  string
}

func (f *requestFlags) add(cmd *cobra.Command) {
	f.cluster.add(cmd.Flags())
	cmd.Flags().StringVar(&f.dryRun, "dry-run", dryRunNone,
		"none; server: let the API server check the request, and store nothing; client: send nothing. Both print what would be sent")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = dryRunServer
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(dryRuns(), cobra.ShellCompDirectiveNoFileComp))
	addOutput(cmd, &f.output)
}

func (f *requestFlags) validate() error {
	if !slices.Contains(dryRuns(), f.dryRun) {
		return usageErrorf("--dry-run=%s: use none, server or client", f.dryRun)
	}
	return checkOutput(&f.output)
}

// requestEnd is one end of a request: what there was, or what was asked for.
type requestEnd struct {
	Version      string   `json:"version,omitempty"`
	Image        string   `json:"image,omitempty"`
	Architecture string   `json:"architecture,omitempty"`
	Force        bool     `json:"force,omitempty"`
	Channel      string   `json:"channel,omitempty"`
	AcceptRisks  []string `json:"acceptRisks,omitempty"`
	Mode         string   `json:"mode,omitempty"`
}

// request is what a command asks of a cluster, worked out from the ClusterVersion as it is at this moment.
type request struct {
	Action string `json:"action"`
	// Changed tells whether the spec is another one than before, or would be.
	Changed bool   `json:"changed"`
	DryRun  string `json:"dryRun,omitempty"`
	// Message is what is printed as text.
	Message  string     `json:"message"`
	From     requestEnd `json:"from"`
	To       requestEnd `json:"to"`
	Warnings []string   `json:"warnings,omitempty"`
	// Patch is the JSON merge patch that was sent, or would be; nil if there was nothing to ask for.
	Patch map[string]any `json:"patch,omitempty"`

	// spec is the spec that is wanted, and specPatch what makes it of the one there is.
	spec      *configv1.ClusterVersionSpec
	specPatch map[string]any
	// unable begins the error of a request that the API server does not take.
	unable string
	// tryFirst: a dry run goes before, since the API server may store half of the request and not say so.
	tryFirst bool
	// stored, if set, looks at what the API server made of the request.
	stored func(*configv1.ClusterVersion) error
}

// planner works out a request. An error means that nothing is asked for; warnings are printed all the same.
type planner func(cv *configv1.ClusterVersion, r *request) error

func (r *request) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
}

// update asks for another spec.desiredUpdate. The four fields that have no omitempty are sent empty, so that nothing of an
// earlier request stays; a mode, such as Preflight, does not stay either. Accepted risks do.
func (r *request) update(cv *configv1.ClusterVersion, update configv1.Update) {
	r.spec = cv.Spec.DeepCopy()
	fields := map[string]any{
		"architecture": update.Architecture, "version": update.Version, "image": update.Image, "force": update.Force,
	}
	if asked := cv.Spec.DesiredUpdate; asked != nil {
		if update.AcceptRisks = asked.AcceptRisks; len(update.AcceptRisks) > 0 {
			fields["acceptRisks"] = update.AcceptRisks
		}
		if asked.Mode != "" {
			fields["mode"] = nil
		}
	}
	if update.Mode != "" {
		fields["mode"] = update.Mode
	}
	r.spec.DesiredUpdate = &update
	r.specPatch = map[string]any{"desiredUpdate": fields}
	r.To = endOfUpdate(update)
}

func endOfRelease(release configv1.Release) requestEnd {
	return requestEnd{Version: release.Version, Image: release.Image, Architecture: string(release.Architecture)}
}

func endOfUpdate(update configv1.Update) requestEnd {
	return requestEnd{
		Version: update.Version, Image: update.Image, Architecture: string(update.Architecture), Force: update.Force,
		AcceptRisks: riskNames(update.AcceptRisks), Mode: string(update.Mode),
	}
}

func riskNames(risks []configv1.AcceptRisk) []string {
	names := make([]string, 0, len(risks))
	for _, risk := range risks {
		names = append(names, risk.Name)
	}
	return names
}

// run reads the ClusterVersion, plans, and asks. The request holds only for the ClusterVersion that it was planned from:
// if somebody was faster, it is read and planned once more, guards included.
func (f *requestFlags) run(ctx context.Context, streams Streams, plan planner) error {
	c, err := f.cluster.open("cvo-upgrade")
	if err != nil {
		return err
	}
	var r *request
	told := map[string]bool{}
	err = retry.OnError(retry.DefaultRetry, apierrors.IsConflict, func() error {
		cv, err := f.cluster.readClusterVersion(ctx, c)
		if err != nil {
			return err
		}
		r = &request{}
		if controlPlaneIsHosted(ctx, c) {
			r.warn("The control plane of this cluster is hosted elsewhere, and updates of it are asked for there; what is asked for here may be put back")
		}
		err = plan(cv, r)
		for _, warning := range r.Warnings {
			if !told[warning] {
				told[warning] = true
				fmt.Fprintln(streams.Err, "warning:", printableLines(warning))
			}
		}
		if err != nil {
			return err
		}
		return f.send(ctx, c, cv, r)
	})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%w: somebody keeps changing it; try again", err)
	}
	if err != nil {
		return err
	}
	return f.print(streams, r)
}

// send sends a planned request, if it is one.
func (f *requestFlags) send(ctx context.Context, c client.Client, cv *configv1.ClusterVersion, r *request) error {
	if f.dryRun != dryRunNone {
		r.DryRun = f.dryRun
	}
	if r.specPatch == nil {
		return nil
	}
	r.Changed = !equality.Semantic.DeepEqual(cv.Spec, *r.spec)
	r.Patch = map[string]any{"metadata": map[string]any{"resourceVersion": cv.ResourceVersion}, "spec": r.specPatch}
	stored := cv.DeepCopy()
	stored.Spec = *r.spec
	var rounds [][]client.PatchOption
	if f.dryRun == dryRunServer || f.dryRun == dryRunNone && r.tryFirst {
		rounds = append(rounds, []client.PatchOption{client.DryRunAll})
	}
	if f.dryRun == dryRunNone {
		rounds = append(rounds, nil)
	}
	for _, opts := range rounds {
		if err := patchClusterVersion(ctx, c, stored, r.Patch, opts...); err != nil {
			return fmt.Errorf("%s: %w", r.unable, err)
		}
		if err := r.check(stored); err != nil {
			return err
		}
	}
	if len(rounds) == 0 {
		return r.check(stored)
	}
	return nil
}

func (r *request) check(stored *configv1.ClusterVersion) error {
	if r.stored == nil {
		return nil
	}
	return r.stored(stored)
}

// patchClusterVersion sends a merge patch; cv becomes what the API server answers.
func patchClusterVersion(ctx context.Context, c client.Client, cv *configv1.ClusterVersion, patch map[string]any, opts ...client.PatchOption) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	err = c.Patch(ctx, cv, client.RawPatch(types.MergePatchType, data), opts...)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: ask for a role that may patch clusterversions, such as cluster-admin", err)
	}
	return err
}

// controlPlaneIsHosted is a courtesy: who may not read it, or has no such thing, gets no warning.
func controlPlaneIsHosted(ctx context.Context, c client.Reader) bool {
	infrastructure := &configv1.Infrastructure{}
	err := c.Get(ctx, client.ObjectKey{Name: "cluster"}, infrastructure)
	return err == nil && infrastructure.Status.ControlPlaneTopology == configv1.ExternalTopologyMode
}

func (f *requestFlags) print(streams Streams, r *request) error {
	if f.output != "" {
		return printStructured(streams, f.output, r)
	}
	message := printableLines(r.Message)
	if r.Patch == nil || r.DryRun == "" {
		fmt.Fprintln(streams.Out, message)
		return nil
	}
	kind := "dry run"
	if r.DryRun == dryRunServer {
		kind = "server dry run"
	}
	patch, err := json.Marshal(r.Patch)
	if err != nil {
		return err
	}
	fmt.Fprintf(streams.Out, "%s (%s)\nThe merge patch: %s\n", message, kind, printable(string(patch)))
	return nil
}

func usageErrorf(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

func refusef(format string, args ...any) error { return &RefusedError{fmt.Errorf(format, args...)} }

// clusterCondition is a condition of a ClusterVersion, nil if there is none.

// because is how reason and message of a condition are printed.
func because(reason, message string) string {
	return fmt.Sprintf("  Reason: %s\n  Message: %s", oneLine(reason), strings.ReplaceAll(message, "\n", "\n  "))
}

// nameOf names a release in a message.
func nameOf(version, image string) string { return cmp.Or(version, image, "<unknown>") }
