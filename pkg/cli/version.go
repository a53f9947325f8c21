package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/leader"
	"github.com/cluster-version/cvo/pkg/cli/printing"
)

// version is set by the linker in released binaries (-X, see the Makefile). The program never writes it.
var version string

// binaryVersion returns the version from the linker, or else the version that the go command recorded, as with `go install`.
func binaryVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// versions are the versions that the command prints. Those of the cluster are empty if unknown.
type versions struct {
	Client   string `json:"clientVersion"`
	Operator string `json:"operatorVersion,omitempty"`
	Release  string `json:"releaseVersion,omitempty"`
}

type versionOptions struct {
	cluster.VersionFlags
	namespace string
	client    bool
	output    string
}

func newVersionCmd(streams command.Streams) *cobra.Command {
	o := &versionOptions{}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program, of the operator and of the running release",
		Long: `Print the versions of this program, of the leading operator in the cluster, and of the release that the operator runs.

Exit codes: 0 printed; 2 invalid command line; 4 the operator could not be reached.`,
		Example: `  # Print all versions
  cvo version

  # Print the version of this program only, without a cluster
  cvo version --client

  # Print the operator's version, for a script
  cvo version -o json | jq -r .operatorVersion`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := printing.Check(&o.output); err != nil {
				return err
			}
			found, err := o.find(cmd.Context())
			if printed := found.print(streams, o.output, o.client); printed != nil {
				return printed
			}
			if missing, ok := errors.AsType[*cluster.NoVersionError](err); ok { // the cluster has no other versions
				streams.Warnf("%v", missing)
				return nil
			}
			return err
		},
	}
	o.VersionFlags.Add(cmd.Flags())
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", command.EnvOr("CVO_NAMESPACE", api.OperatorNamespace), "`namespace` of the operator and its Lease")
	cmd.Flags().BoolVar(&o.client, "client", false, "print the version of this program only")
	printing.AddFlag(cmd, &o.output)
	return cmd
}

// find returns the versions, and a PartialError if those of the cluster are unknown.
func (o *versionOptions) find(ctx context.Context) (versions, error) {
	found := versions{Client: binaryVersion()}
	if o.client {
		return found, nil
	}
	cfg, err := o.ConfigFor("cvo-version")
	if err != nil {
		return found, &command.PartialError{Err: err}
	}
	operator := &leader.Connection{Clock: clock.RealClock{}, Config: cfg, Namespace: o.namespace, Name: o.Name}
	defer operator.Close()
	snapshot, err := operator.Rollout(ctx)
	if err == nil && snapshot == nil {
		err = errors.New("the operator has no rollout to report")
	}
	if err != nil {
		return found, &command.PartialError{Err: o.CheckVersion(ctx, cfg.UserAgent, err)}
	}
	found.Operator, found.Release = snapshot.OperatorVersion, snapshot.Progress.Release.Version
	return found, nil
}

func (v versions) print(streams command.Streams, output string, client bool) error {
	if output != "" {
		return printing.Structured(streams, output, v)
	}
	unknown := func(version string) string {
		if version == "" {
			return "unknown"
		}
		return printable.Text(version)
	}
	_, err := fmt.Fprintf(streams.Out, "Client Version: %s\n", v.Client)
	if err == nil && !client {
		_, err = fmt.Fprintf(streams.Out, "Operator Version: %s\nRelease Version: %s\n", unknown(v.Operator), unknown(v.Release))
	}
	return err
}
