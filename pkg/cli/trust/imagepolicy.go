package trust

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/verifying"
	"github.com/cluster-version/cvo/pkg/verify/policy"
)

type fromImagePolicyOptions struct {
	name    string
	files   []string
	output  string
	cluster cluster.VersionFlags
}

func newFromImagePolicyCmd(streams command.Streams) *cobra.Command {
	var o fromImagePolicyOptions
	cmd := &cobra.Command{
		Use:   "from-image-policy NAME",
		Short: "Print a trust policy with the signer of a ClusterImagePolicy as root of trust",
		Long: `Print a trust policy with the signer of a ClusterImagePolicy as root of trust.

A ClusterImagePolicy that matches a release only adds to the root of trust. A cluster has no root of trust, and accepts no
release, if its running release contains no keys and no administrator has written a trust policy. This command prints a
ConfigMap with a trust policy that requires the same signature as the ClusterImagePolicy. Once you apply it, the operator
uses it without a restart, instead of the keys in the running release. 'cvo install', 'cvo start' and 'cvo release' read
the same file with --trust.

A trust policy has no scopes: the signer may sign every release of the cluster, whatever its pullspec.

The command reads the ClusterImagePolicy from the cluster, or from the files of --policy. It changes nothing.

Exit codes: 0 printed; 1 the policy does not exist or cannot be read; 2 invalid command line.`,
		Example: `  # Print the trust policy, then apply it
  cvo trust from-image-policy platform
  cvo trust from-image-policy platform | kubectl apply -f -

  # Read a file, for a new cluster
  cvo trust from-image-policy platform --policy policies.yaml > trust.yaml
  cvo install --release-image registry.example/platform/release:2.0.0 --trust trust.yaml`,
		Args: command.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			return o.run(cmd.Context(), streams)
		},
		ValidArgsFunction: o.complete,
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.files, "policy", nil, "`file` with ClusterImagePolicies, read instead of the cluster (repeat for more)")
	flags.StringVarP(&o.output, "output", "o", printing.FormatYAML, "yaml or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{printing.FormatYAML, printing.FormatJSON}, cobra.ShellCompDirectiveNoFileComp))
	o.cluster.ContextFlags.Add(flags)
	return cmd
}

func (o *fromImagePolicyOptions) run(ctx context.Context, streams command.Streams) error {
	if o.output != printing.FormatYAML && o.output != printing.FormatJSON {
		return command.Usagef("unknown output %q: use %s, %s", o.output, printing.FormatYAML, printing.FormatJSON)
	}
	object, replaces, err := o.read(ctx)
	if err != nil {
		return err
	}
	document, err := policy.FromImagePolicy(object)
	if err != nil {
		return err
	}
	data, err := document.ConfigMapData()
	if err != nil {
		return err
	}
	scopes := make([]string, len(object.Spec.Scopes))
	for i, s := range object.Spec.Scopes {
		scopes[i] = string(s)
	}
	streams.Infof("A trust policy has no scopes: once applied, the signer of %s may sign every release of the cluster, not only the releases in %s",
		printable.Text(object.Name), printable.Text(strings.Join(scopes, ", ")))
	if replaces {
		streams.Warnf("ConfigMap %s/%s exists: applying this one replaces the cluster's trust policy", api.ConfigNamespace, api.TrustConfigMap)
	}
	return printing.Structured(streams, o.output, trustConfigMap(data))
}

// trustConfigMap returns the ConfigMap that holds a cluster's trust policy.
func trustConfigMap(data map[string]string) any {
	type metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	}
	return struct {
		metav1.TypeMeta
		Metadata metadata          `json:"metadata"`
		Data     map[string]string `json:"data"`
	}{
		metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		metadata{Name: api.TrustConfigMap, Namespace: api.ConfigNamespace},
		data,
	}
}

// read returns the ClusterImagePolicy, and whether the cluster already has a trust policy.
func (o *fromImagePolicyOptions) read(ctx context.Context) (policy configv1.ClusterImagePolicy, replaces bool, err error) {
	if len(o.files) > 0 {
		policies, err := verifying.ReadImagePolicies(o.files)
		if err != nil {
			return policy, false, err
		}
		at := slices.IndexFunc(policies, func(p configv1.ClusterImagePolicy) bool { return p.Name == o.name })
		if at < 0 {
			return policy, false, fmt.Errorf("no ClusterImagePolicy %q in %s: found %s", o.name, strings.Join(o.files, ", "),
				strings.Join(verifying.ImagePolicyNames(policies), ", "))
		}
		return policies[at], false, nil
	}
	c, err := o.cluster.Open("cvo-trust")
	if err != nil {
		return policy, false, err
	}
	switch err := c.Get(ctx, client.ObjectKey{Name: o.name}, &policy); {
	case meta.IsNoMatchError(err):
		return policy, false, errors.New("the cluster has no ClusterImagePolicies: it does not serve the kind")
	case err != nil:
		return policy, false, fmt.Errorf("reading ClusterImagePolicy %s: %w", o.name, err)
	}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap}, &corev1.ConfigMap{}); {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // An account that cannot read it cannot replace it either.
		return policy, false, nil
	case err != nil:
		return policy, false, fmt.Errorf("reading the cluster's trust policy: %w", err)
	}
	return policy, true, nil
}

// complete offers the ClusterImagePolicies of the files or of the cluster, or nothing if it cannot read any.
func (o *fromImagePolicyOptions) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	none := cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, none
	}
	if len(o.files) > 0 {
		policies, _ := verifying.ReadImagePolicies(o.files)
		return verifying.ImagePolicyNames(policies), none
	}
	ctx, cancel := cluster.CompletionContext(cmd)
	defer cancel()
	c, err := o.cluster.Open("cvo-completion")
	if err != nil {
		return nil, none
	}
	list := &configv1.ClusterImagePolicyList{}
	if err := c.List(ctx, list); err != nil {
		return nil, none
	}
	return verifying.ImagePolicyNames(list.Items), none
}
