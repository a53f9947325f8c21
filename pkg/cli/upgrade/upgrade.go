// Package upgrade provides the command 'cvo upgrade' with the subcommands that send requests to a cluster or wait for them: accept,
// channel, pause, resume, rollback and wait. Packages request and follow make the decisions.
package upgrade

import (
	"context"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/registries"
	"github.com/cluster-version/cvo/pkg/cli/upgrade/diff"
	"github.com/cluster-version/cvo/pkg/cli/upgrade/report"
	"github.com/cluster-version/cvo/pkg/clusterversion/archive"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/request"
)

type options struct {
	requestFlags

	request.Update

	toMultiArch bool
	clear       bool
	// operator is the image of the release whose operator runs; empty if unknown.
	operator              string
	includeNotRecommended bool
	exitCode              bool
	yes                   bool

	// registry holds the options for the registry that resolves a tag.
	registry registries.Flags
}

// New returns the command 'cvo upgrade' with its subcommands.
func New(streams command.Streams) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Show the updates of a cluster, request one, or cancel it",
		Long: `Show the updates of a cluster, request one, or cancel it.

Without a flag that requests a change, the command shows the state of the cluster and its updates.

--to, --to-latest, --to-image and --to-multi-arch request an update: they set spec.desiredUpdate of the ClusterVersion and
return as soon as the API server has stored it. If another client changes the ClusterVersion meanwhile, the command reads it
again and repeats its checks.

--to-image resolves a tag in the registry, with the pull secret and the mirrors of the cluster, and requests the digest. If
the tag moves later, the cluster does not follow.

There are two kinds of checks. First, this command refuses while an update is running or the cluster is unhealthy;
--allow-upgrade-with-warnings overrides that. With --preflight it does not refuse, because a preflight only inspects the
release; 'cvo upgrade' shows the result. Second, the cluster verifies the release and checks its own preconditions. --force
skips this second kind. An image from an unknown source then gets all permissions in the cluster. If the cluster contacts
registries without TLS, --force asks for confirmation, or needs --yes.

Exit codes: 0 requested, or nothing to request; 1 failure; 2 invalid command line; 3 refused by a check, or the update is
not recommended or not known. With --exit-code, the overview returns 0 if the cluster is up to date, 4 if its state is
unknown, 5 if it is updating, 6 if it needs attention.`,
		Example: `  # Show the state of the cluster and its updates
  cvo upgrade

  # Include updates that are not recommended, with reasons
  cvo upgrade --include-not-recommended

  # Request an update; first print the request
  cvo upgrade --to=4.14.3 --dry-run
  cvo upgrade --to=4.14.3

  # Check an update without changing anything
  cvo upgrade --to=4.14.3 --preflight

  # Request a signed image, for a cluster without an update service
  cvo upgrade --to-image=registry.example/platform@sha256:5f8e…

  # Request an image from a mirror that the update service does not list
  cvo upgrade --to-image=mirror.example/release@sha256:5f8e… --allow-explicit-upgrade

  # Request the current image of a tag
  cvo upgrade --to-image=registry.example/platform:1.1.0

  # Cancel the request
  cvo upgrade --clear

  # List the recommended versions, for a script
  cvo upgrade -o json | jq -r '.recommended[].version'`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(cmd.Flags()); err != nil {
				return err
			}
			if plan := o.planner(); plan != nil {
				if err := o.confirmForce(cmd.Context(), streams); err != nil {
					return err
				}
				if err := o.resolveTag(cmd.Context(), streams); err != nil {
					return err
				}
				return o.request(cmd.Context(), streams, plan)
			}
			return o.overview(cmd.Context(), streams)
		},
	}
	o.addFlags(cmd)
	cmd.AddCommand(
		newAcceptCmd(streams),
		newChannelCmd(streams),
		diff.New(streams),
		report.NewHistory(streams),
		newPauseCmd(streams),
		report.NewRecommend(streams),
		newResumeCmd(streams),
		newRollbackCmd(streams),
		report.NewStatus(streams),
		newWaitCmd(streams),
	)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Version, "to", "", "request this `version`; it must be one of the cluster's known updates")
	f.BoolVar(&o.Latest, "to-latest", false, "request the newest known update")
	f.StringVar(&o.Image, "to-image", "", "request this release image, given as a `pullspec`; the command resolves a tag and sends the digest")
	f.BoolVar(&o.toMultiArch, "to-multi-arch", false, "request the multi-architecture image of the current version")
	f.BoolVar(&o.Preflight, "preflight", false, "with --to, --to-latest or --to-image: retrieve and check the release as an update would, without applying it")
	f.BoolVar(&o.clear, "clear", false, "cancel the requested update; accepted risks stay accepted")
	f.BoolVar(&o.Force, "force", false, "skip signature verification and preconditions (dangerous)")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation of --force")
	f.BoolVar(&o.AllowExplicit, "allow-explicit-upgrade", false, "with --to-image: allow an image that the cluster's update service does not list")
	f.BoolVar(&o.AllowNotRecommended, "allow-not-recommended", false, "allow updates that are not recommended for this cluster")
	f.BoolVar(&o.AllowWithWarnings, "allow-upgrade-with-warnings", false, "allow an update while another is running or the cluster is unhealthy")
	f.BoolVar(&o.includeNotRecommended, "include-not-recommended", false, "show updates that are not recommended for this cluster, with reasons")
	f.BoolVar(&o.exitCode, "exit-code", false, "set the exit code from the cluster's state: 0 up to date, 4 unknown, 5 updating, 6 needs attention")
	o.add(cmd)
	o.registry.Add(f)
	registries.LimitLookups(f)
	_ = cmd.RegisterFlagCompletionFunc("to", o.completeVersions)
}

// request sends a request to the cluster.
func (o *options) request(ctx context.Context, streams command.Streams, plan request.Plan) error {
	c, err := o.cluster.Open("cvo-upgrade")
	if err != nil {
		return err
	}
	if o.clear {
		o.operator = cluster.OperatorRelease(ctx, c)
	}
	if o.Image != "" {
		o.Unserved = runsWithoutService(ctx, c, o.cluster.Name)
	}
	return o.send(ctx, streams, c, plan)
}

// runsWithoutService reports whether the operator was started without an update service. It returns false if the operator's record does not
// say so or cannot be read; then the request needs --allow-explicit-upgrade.
func runsWithoutService(ctx context.Context, c client.Reader, name string) bool {
	status, err := archive.ReadReleaseStatus(ctx, c, name)
	return err == nil && status != nil && meta.IsStatusConditionFalse(status.Status.Conditions, api.ConditionOperatorUpdateService)
}

// planner returns the planner for the given flags, or nil if they request nothing.
func (o *options) planner() request.Plan {
	switch {
	case o.clear:
		return func(cv *configv1.ClusterVersion, r *request.Request) error {
			return request.Clear{Operator: o.operator}.Plan(cv, r)
		}
	case o.toMultiArch:
		return o.PlanMultiArch
	case o.Version != "", o.Image != "", o.Latest:
		return o.Plan
	}
	return nil
}

func (o *options) validate(flags *pflag.FlagSet) error {
	for _, name := range []string{"to", "to-image"} {
		if f := flags.Lookup(name); f.Changed && f.Value.String() == "" {
			return command.Usagef("--%s has no value: check the variables of your script", name)
		}
	}
	asks := o.Version != "" || o.Image != "" || o.Latest
	switch {
	case o.clear && (asks || o.toMultiArch):
		return command.Usagef("--clear may not be specified with any other flags")
	case o.toMultiArch && asks:
		return command.Usagef("--to-multi-arch may not be used with --to, --to-image, or --to-latest")
	case o.Version != "" && o.Image != "":
		return command.Usagef("only one of --to or --to-image may be provided")
	case o.Latest && (o.Version != "" || o.Image != ""):
		return command.Usagef("--to-latest may not be used with --to or --to-image")
	case o.Preflight && !asks:
		return command.Usagef("--preflight examines a release: add --to, --to-latest or --to-image")
	case o.exitCode && o.planner() != nil:
		return command.Usagef("--exit-code reports the state of a cluster: omit it from a request")
	case o.planner() == nil:
		for _, name := range []string{"force", "allow-explicit-upgrade", "allow-not-recommended", "allow-upgrade-with-warnings", "dry-run", "yes"} {
			if flags.Changed(name) {
				return command.Usagef("--%s modifies a request: add --to, --to-latest, --to-image, --to-multi-arch or --clear", name)
			}
		}
	}
	if o.Version != "" {
		if _, err := release.ParseVersion(o.Version); err != nil {
			return command.Usagef("--to must be a semantic version (e.g. 4.0.1 or 4.1.0-nightly-20181104): %w", err)
		}
	}
	if o.Image != "" {
		if err := checkPullspec(o.Image); err != nil {
			return err
		}
	}
	if err := o.checkRegistryFlags(flags); err != nil {
		return err
	}
	return o.requestFlags.validate()
}
