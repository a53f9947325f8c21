package cli

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/permission"
)

type releaseRBACOptions struct {
	source, from string
	account      string
	operator     bool
	output       string
	capabilities bool
	cluster      clusterFlags
	read         readFlags
}

func newReleaseRBACCmd(streams Streams) *cobra.Command {
	var opts releaseRBACOptions
	cmd := &cobra.Command{
		Use:   "rbac RELEASE",
		Short: "Print what the version operator has to be allowed to apply a release",
		Long: `Print what the version operator has to be allowed to apply a release: a ClusterRole that names its objects, and the
binding to the operator's service account.

The release is an image in a registry; one in an OCI layout on this machine, as DIR, DIR:VERSION or DIR@DIGEST; a folder
that holds manifests/ and release-manifests/; or a version that the cluster knows. The rules are for what a cluster with
this profile, feature set, feature gates and capabilities gets; without --capability all of them count, since one that is
off may be switched on.

Releases made by 'cvo release new' bring their role along, and the operator allows itself what an update takes beyond. The
command is for clusters where it may not do that, for releases without a role, and for reviews.`,
		Example: `  # What an operator takes that installs this release
  cvo release rbac registry.example/platform/release:1.0.0 | kubectl apply -f -

  # What an update takes, before and after: for an operator that may not allow itself more
  cvo release rbac registry.example/platform/release:1.1.0 --from registry.example/platform/release:1.0.0 | kubectl apply -f -

  # With what the operator itself takes, for another service account
  cvo release rbac ./release --operator --service-account ops/updater

  # Which Secrets it may read
  cvo release rbac ./release -o json | jq '.items[0].rules[] | select(.resources | index("secrets"))'`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.source, opts.capabilities = args[0], cmd.Flags().Changed("capability")
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.from, "from", "", "`release` that is updated from: the rules are for both")
	flags.StringVar(&opts.account, "service-account", api.OperatorNamespace+"/"+api.OperatorServiceAccount, "`namespace/name` of the account that the operator runs as")
	flags.BoolVar(&opts.operator, "operator", false, "print the roles of the operator itself, too, which this binary brings")
	flags.StringVarP(&opts.output, "output", "o", outputYAML, "yaml or json")
	opts.cluster.add(flags)
	opts.read.add(cmd)
	cmd.ValidArgsFunction = opts.read.complete(1)
	_ = cmd.RegisterFlagCompletionFunc("from", opts.read.complete(2))
	for name, values := range map[string][]string{
		"output": {outputYAML, outputJSON}, "feature-set": manifest.KnownFeatureSets(), "profile": {}, "feature-gate": {}, "service-account": {},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func (o *releaseRBACOptions) run(ctx context.Context, streams Streams) error {
	namespace, name, ok := strings.Cut(o.account, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return &UsageError{Err: fmt.Errorf("--service-account %q: write it as namespace/name", o.account)}
	}
	if o.output != outputYAML && o.output != outputJSON {
		return &UsageError{Err: fmt.Errorf("unknown output %q: use yaml or json", o.output)}
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
		own, err := operatorRoles(account)
		if err != nil {
			return err
		}
		objects = append(objects, own...)
	}
	if o.output == outputJSON {
		return writeJSON(streams.Out, map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	}
	text, err := permission.YAML(objects...)
	if err != nil {
		return err
	}
	_, err = streams.Out.Write(text)
	return err
}

// rules are those that a release takes.
func (o *releaseRBACOptions) rules(ctx context.Context, streams Streams, source string) ([]rbacv1.PolicyRule, error) {
	p, err := loadAny(ctx, streams, source, o.read, o.cluster, !o.capabilities)
	if err != nil {
		return nil, err
	}
	return permission.Rules(p.Manifests), nil
}

// operatorRoles are the roles and bindings of the operator's own set that are about the operator, for an account.
func operatorRoles(account permission.Account) ([]any, error) {
	set := manifests.FS()
	names, err := fs.Glob(set, "*_roles.yaml")
	if err != nil {
		return nil, err
	}
	var out []any
	for _, name := range names {
		data, err := fs.ReadFile(set, name)
		if err != nil {
			return nil, err
		}
		list, err := manifest.Parse(name, data, manifest.Limits{})
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			if object := forAccount(m.Object, list, account); object != nil {
				out = append(out, object)
			}
		}
	}
	return out, nil
}

// forAccount returns a binding to the operator's account for another one, or a role that such a binding leads to; nil for
// what others have.
func forAccount(object *unstructured.Unstructured, all []*manifest.Manifest, account permission.Account) any {
	if strings.HasSuffix(object.GetKind(), "Binding") {
		if !bindsOperator(object) {
			return nil
		}
		copied := object.DeepCopy()
		copied.Object["subjects"] = []any{map[string]any{"kind": rbacv1.ServiceAccountKind, "namespace": account.Namespace, "name": account.Name}}
		return withoutProfiles(copied)
	}
	bound := slices.ContainsFunc(all, func(m *manifest.Manifest) bool {
		kind, _, _ := unstructured.NestedString(m.Object.Object, "roleRef", "kind")
		name, _, _ := unstructured.NestedString(m.Object.Object, "roleRef", "name")
		return bindsOperator(m.Object) && kind == object.GetKind() && name == object.GetName() && m.Object.GetNamespace() == object.GetNamespace()
	})
	if !bound {
		return nil
	}
	return withoutProfiles(object.DeepCopy())
}

func bindsOperator(object *unstructured.Unstructured) bool {
	subjects, _, _ := unstructured.NestedSlice(object.Object, "subjects")
	return slices.ContainsFunc(subjects, func(s any) bool {
		subject, _ := s.(map[string]any)
		return subject["name"] == api.OperatorServiceAccount && subject["namespace"] == api.OperatorNamespace
	})
}

// withoutProfiles leaves out what matters within a release alone.
func withoutProfiles(object *unstructured.Unstructured) map[string]any {
	annotations := object.GetAnnotations()
	for name := range annotations {
		if strings.HasPrefix(name, api.IncludePrefix) {
			delete(annotations, name)
		}
	}
	object.SetAnnotations(annotations)
	object.SetCreationTimestamp(metav1.Time{})
	return object.Object
}
