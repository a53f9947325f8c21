package release

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/reading"
	"github.com/cluster-version/cvo/pkg/engine/permission"
	"github.com/cluster-version/cvo/pkg/inclusion"
)

type rbacOptions struct {
	source, from string
	account      string
	operator     bool
	output       string
	capabilities bool
	cluster      reading.ClusterFlags
	read         reading.Flags
}

func newRBACCmd(streams command.Streams) *cobra.Command {
	var opts rbacOptions
	cmd := &cobra.Command{
		Use:   "rbac RELEASE",
		Short: "Print the permissions that the version operator needs to apply a release",
		Long: `Print the permissions that the version operator needs to apply a release: a ClusterRole that names its objects, and the
binding to the operator's service account.

The release is an image in a registry; an image in an OCI layout on this machine, as DIR, DIR:VERSION or DIR@DIGEST; a
folder with manifests/ and release-manifests/; or a version that the cluster knows. The rules cover the manifests for a cluster
with this profile, feature set, feature gates and capabilities. Without --capability they cover all capabilities, because an
administrator may enable one later.

Releases made by 'cvo release new' contain their role, and the operator grants itself additional permissions for an update.
Use this command for clusters where the operator must not do that, for releases without a role, and for reviews.`,
		Example: `  # Grant the permissions to install this release
  cvo release rbac registry.example/platform/release:1.0.0 | kubectl apply -f -

  # Grant the permissions for both releases of an update, if the operator must not grant them itself
  cvo release rbac registry.example/platform/release:1.1.0 --from registry.example/platform/release:1.0.0 | kubectl apply -f -

  # Include the operator's own permissions, for another service account
  cvo release rbac ./release --operator --service-account ops/updater

  # List the rules for Secrets
  cvo release rbac ./release -o json | jq '.items[0].rules[] | select(.resources | index("secrets"))'`,
		Args: command.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.source, opts.capabilities = args[0], cmd.Flags().Changed("capability")
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.from, "from", "", "`release` to update from: the rules cover both")
	flags.StringVar(&opts.account, "service-account", api.OperatorNamespace+"/"+api.OperatorServiceAccount, "`namespace/name` of the account that the operator runs as")
	flags.BoolVar(&opts.operator, "operator", false, "also print the operator's own roles, as built into this binary")
	flags.StringVarP(&opts.output, "output", "o", printing.FormatYAML, "yaml or json")
	opts.cluster.Add(flags)
	opts.read.Add(cmd)
	cmd.ValidArgsFunction = opts.read.Complete(1)
	_ = cmd.RegisterFlagCompletionFunc("from", opts.read.Complete(2))
	for name, values := range map[string][]string{
		"output": {printing.FormatYAML, printing.FormatJSON}, "feature-set": inclusion.KnownFeatureSets(), "profile": {}, "feature-gate": {}, "service-account": {},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func (o *rbacOptions) run(ctx context.Context, streams command.Streams) error {
	namespace, name, ok := strings.Cut(o.account, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return &command.UsageError{Err: fmt.Errorf("--service-account %q: write it as namespace/name", o.account)}
	}
	if o.output != printing.FormatYAML && o.output != printing.FormatJSON {
		return &command.UsageError{Err: fmt.Errorf("unknown output %q: use yaml or json", o.output)}
	}
	var sets [][]rbacv1.PolicyRule
	for _, source := range []string{o.source, o.from} {
		if source == "" {
			continue
		}
		rules, err := o.rules(ctx, streams, source)
		if err != nil {
			return err
		}
		sets = append(sets, rules)
	}
	account := permission.Account{Namespace: namespace, Name: name}
	objects := []any{permission.Role(api.ReleaseRole, permission.ReleaseDescription, permission.Union(sets...)), permission.Binding(api.ReleaseRole, account)}
	if o.operator {
		own, err := permission.OperatorRoles(manifests.FS(), account)
		if err != nil {
			return err
		}
		objects = append(objects, own...)
	}
	if o.output == printing.FormatJSON {
		return printing.JSON(streams.Out, map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	}
	text, err := permission.YAML(objects...)
	if err != nil {
		return err
	}
	if strings.ContainsFunc(string(text), printing.Controls) {
		return printing.YAML(streams.Out, map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	}
	_, err = streams.Out.Write(text)
	return err
}

// rules returns the permissions that a release needs.
func (o *rbacOptions) rules(ctx context.Context, streams command.Streams, source string) ([]rbacv1.PolicyRule, error) {
	p, err := reading.LoadAny(ctx, streams, source, o.read, o.cluster, !o.capabilities)
	if err != nil {
		return nil, err
	}
	return permission.Rules(p.Manifests), nil
}
