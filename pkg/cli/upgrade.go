package cli

import (
	"fmt"

	"github.com/blang/semver/v4"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

type upgradeOptions struct {
	requestFlags

	to          string
	toImage     string
	toLatest    bool
	toMultiArch bool
	clear       bool
	preflight   bool

	force               bool
	allowExplicit       bool
	allowNotRecommended bool
	allowWithWarnings   bool

	includeNotRecommended bool
	exitCode              bool
}

func newUpgradeCmd(streams Streams) *cobra.Command {
	o := &upgradeOptions{}
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Look at updates of a cluster, ask for one, or take that back",
		Long: `Look at updates of a cluster, ask for one, or take that back.

Without an option that asks for something, it prints what the cluster says of itself and its updates.

--to, --to-latest, --to-image and --to-multi-arch ask for an update, and return as soon as the API server has noted it:
they edit spec.desiredUpdate of the ClusterVersion. The request holds for the ClusterVersion that was looked at: if
somebody changes it meanwhile, it is looked at again.

There are two kinds of guards. This command refuses while the cluster is being updated or is not well;
--allow-upgrade-with-warnings goes on. With --preflight it does not: nothing but a release is looked at, and what came of
that is part of what 'cvo upgrade' prints. The cluster itself verifies the release and checks its own conditions; --force
makes it go on, with an image that will have all rights in the cluster, whoever made it.

Exit codes: 0 asked for, or nothing to ask for; 1 something went wrong; 2 the command line cannot be understood; 3 refused:
by a guard, or since the update is not recommended or not known. With --exit-code, the overview ends with 0 if the
cluster is at rest, 4 if it does not tell, 5 while it is being updated, 6 if something keeps it from going on.`,
		Example: `  # What does the cluster say of itself, and where could it go?
  cvo upgrade

  # Also the updates that are not recommended for it, and why
  cvo upgrade --include-not-recommended

  # Ask for an update; first look at what would be sent
  cvo upgrade --to=4.14.3 --dry-run
  cvo upgrade --to=4.14.3

  # What would come of it? Nothing is changed
  cvo upgrade --to=4.14.3 --preflight

  # Ask for an image in a mirror that the cluster does not list
  cvo upgrade --to-image=mirror.example/release@sha256:5f8e… --allow-explicit-upgrade

  # Take the request back
  cvo upgrade --clear

  # The versions that are recommended, for a script
  cvo upgrade -o json | jq -r '.recommended[].version'`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(cmd.Flags()); err != nil {
				return err
			}
			if plan := o.planner(); plan != nil {
				return o.requestFlags.run(cmd.Context(), streams, plan)
			}
			return o.overview(cmd.Context(), streams)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "ask for this `version`, which must be one of the updates that the cluster knows")
	f.BoolVar(&o.toLatest, "to-latest", false, "ask for the newest of these updates")
	f.StringVar(&o.toImage, "to-image", "", "ask for this release image, given as a `pullspec` by digest")
	f.BoolVar(&o.toMultiArch, "to-multi-arch", false, "ask for the current version for several architectures")
	f.BoolVar(&o.preflight, "preflight", false, "with --to, --to-latest or --to-image: look at the release as far as an update would go, and change nothing")
	f.BoolVar(&o.clear, "clear", false, "take back what was asked for; accepted risks stay accepted")
	f.BoolVar(&o.force, "force", false, "make the cluster go on where it cannot verify the release, or where its own conditions speak against the update")
	f.BoolVar(&o.allowExplicit, "allow-explicit-upgrade", false, "with --to-image: also an image that is none of the updates that the cluster knows")
	f.BoolVar(&o.allowNotRecommended, "allow-not-recommended", false, "also updates that are not recommended for this cluster")
	f.BoolVar(&o.allowWithWarnings, "allow-upgrade-with-warnings", false, "also while the cluster is being updated or is not well")
	f.BoolVar(&o.includeNotRecommended, "include-not-recommended", false, "print the updates that are not recommended for this cluster, and why")
	f.BoolVar(&o.exitCode, "exit-code", false, "tell the state of the cluster by the exit code: 0, 4, 5 or 6")
	o.add(cmd)
	_ = cmd.RegisterFlagCompletionFunc("to", o.completeVersions)
	cmd.AddCommand(
		newUpgradeAcceptCmd(streams),
		newUpgradeChannelCmd(streams),
		newUpgradeDiffCmd(streams),
		newUpgradeHistoryCmd(streams),
		newUpgradePauseCmd(streams),
		newUpgradeRecommendCmd(streams),
		newUpgradeResumeCmd(streams),
		newUpgradeRollbackCmd(streams),
		newUpgradeStatusCmd(streams),
		newUpgradeWaitCmd(streams),
	)
	return cmd
}

// planner is nil if nothing is asked for.
func (o *upgradeOptions) planner() planner {
	switch {
	case o.clear:
		return o.planClear
	case o.toMultiArch:
		return o.planMultiArch
	case o.to != "", o.toImage != "", o.toLatest:
		return o.planUpdate
	}
	return nil
}

func (o *upgradeOptions) validate(flags *pflag.FlagSet) error {
	for _, name := range []string{"to", "to-image"} {
		if f := flags.Lookup(name); f.Changed && f.Value.String() == "" {
			return usageErrorf("--%s has no value; is a variable of a script empty?", name)
		}
	}
	asks := o.to != "" || o.toImage != "" || o.toLatest
	switch {
	case o.clear && (asks || o.toMultiArch):
		return usageErrorf("--clear may not be specified with any other flags")
	case o.toMultiArch && asks:
		return usageErrorf("--to-multi-arch may not be used with --to, --to-image, or --to-latest")
	case o.to != "" && o.toImage != "":
		return usageErrorf("only one of --to or --to-image may be provided")
	case o.toLatest && (o.to != "" || o.toImage != ""):
		return usageErrorf("--to-latest may not be used with --to or --to-image")
	case o.preflight && !asks:
		return usageErrorf("--preflight looks at a release: add --to, --to-latest or --to-image")
	case o.exitCode && o.planner() != nil:
		return usageErrorf("--exit-code tells the state of a cluster, and an update is asked for: give one or the other")
	case o.planner() == nil:
		for _, name := range []string{"force", "allow-explicit-upgrade", "allow-not-recommended", "allow-upgrade-with-warnings", "dry-run"} {
			if flags.Changed(name) {
				return usageErrorf("--%s is about a request, and none is made: add --to, --to-latest, --to-image, --to-multi-arch or --clear", name)
			}
		}
	}
	if o.to != "" {
		if _, err := semver.Parse(o.to); err != nil {
			return usageErrorf("--to must be a semantic version (e.g. 4.0.1 or 4.1.0-nightly-20181104): %w", err)
		}
	}
	if o.toImage != "" {
		if err := checkPullspec(o.toImage, o.force); err != nil {
			return err
		}
	}
	return o.requestFlags.validate()
}

// kubeconfigUsage is what restConfig does.
const kubeconfigUsage = "kubeconfig `file`; default $KUBECONFIG, the pod's service account, then ~/.kube/config"

// contextFlags choose the cluster.
type contextFlags struct {
	kubeconfig string
	context    string
}

func (f *contextFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", kubeconfigUsage)
	flags.StringVar(&f.context, "context", "", "`context` of the kubeconfig; default its current one")
}

func (f *contextFlags) config() (*rest.Config, error) {
	if f.context == "" {
		return restConfig(f.kubeconfig)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w (see 'kubectl config get-contexts')", err)
	}
	return cfg, nil
}
