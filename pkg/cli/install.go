package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/install"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

type installOptions struct {
	where        contextFlags
	releaseImage string
	payloadCache string
	trust        string
	namespace    string
	name         string
	noOperator   bool
	registry     imageFlags
	cluster      clusterFlags
}

func newInstallCmd(streams Streams) *cobra.Command {
	o := &installOptions{}
	cmd := &cobra.Command{
		Use:   "install --no-operator --release-image REF --trust FILE",
		Short: "Prepare a bare cluster for the version operator",
		Long: `Prepare a bare cluster for the version operator: create the namespaces that it and its configuration live in, the
CRDs of ClusterVersion and ClusterOperator from the release, and the ClusterVersion. The release is verified first.
Running it again changes nothing. Afterwards 'cvo start' installs the release.`,
		Example: `  # Prepare the cluster of the current kubeconfig, then install the release
  cvo install --no-operator --release-image registry.example/platform/release:1.0.0 --trust trust.yaml
  cvo start --release-image registry.example/platform/release:1.0.0 --trust trust.yaml`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.where.add(f)
	f.StringVar(&o.releaseImage, "release-image", "", "`pullspec` of the release (required)")
	f.StringVar(&o.payloadCache, "payload-cache", "", "`folder` that keeps what was pulled, as an OCI layout; default none")
	f.StringVar(&o.trust, "trust", "", "`file` that says whose signatures are accepted (required)")
	f.StringVar(&o.namespace, "namespace", envOr("CVO_NAMESPACE", api.OperatorNamespace), "`namespace` of the operator")
	f.StringVar(&o.name, "name", envOr("CVO_NAME", api.ClusterVersionName), "`name` of the ClusterVersion")
	f.BoolVar(&o.noOperator, "no-operator", false, "only prepare the cluster; the operator is started by hand")
	o.registry.add(f)
	o.cluster.add(f)
	return cmd
}

func (o *installOptions) run(ctx context.Context, streams Streams) error {
	switch {
	case o.releaseImage == "":
		return &UsageError{errors.New("--release-image is missing: give the pullspec of the release to install")}
	case o.trust == "":
		return &UsageError{errors.New("--trust is missing: the first release of a cluster must be signed by someone it names; 'cvo release keygen' writes such a file")}
	case !o.noOperator:
		return &UsageError{errors.New("deploying the operator into the cluster is not supported yet: use --no-operator, then 'cvo start'")}
	}
	cfg, err := o.where.config()
	if err != nil {
		return err
	}
	filter, err := o.cluster.filter()
	if err != nil {
		return err
	}
	p, err := o.verifiedPayload(ctx, streams, filter)
	if err != nil {
		return err
	}
	options := install.Options{Namespace: o.namespace, Name: o.name, Progress: func(what string) {
		fmt.Fprintf(streams.Err, "info: %s is there\n", what)
	}}
	if err := install.Prepare(ctx, cfg, p, options); err != nil {
		return err
	}
	fmt.Fprintf(streams.Out, "The cluster is ready for release %s. Next:\n  cvo start --release-image %s --trust %s\n", p.Release.Version, o.releaseImage, o.trust)
	return nil
}

// verifiedPayload pulls the release, after its signature was checked.
func (o *installOptions) verifiedPayload(ctx context.Context, streams Streams, filter manifest.Filter) (*payload.Payload, error) {
	policy, err := readTrust(o.trust)
	if err != nil {
		return nil, err
	}
	registry, err := o.registry.images(o.payloadCache)
	if err != nil {
		return nil, err
	}
	img, err := registry.Resolve(ctx, o.releaseImage)
	if err != nil {
		return nil, err
	}
	if err := verifySigned(ctx, streams, *policy, registry, img); err != nil {
		return nil, err
	}
	files, err := registry.Manifests(ctx, img)
	if err != nil {
		return nil, err
	}
	return payload.Load(files, img.ByDigest(), payload.Options{Filter: filter})
}
