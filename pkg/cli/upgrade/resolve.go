package upgrade

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/registries"
	"github.com/cluster-version/cvo/pkg/clusterversion/outside"
	enginecluster "github.com/cluster-version/cvo/pkg/engine/cluster"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

// checkRegistryFlags rejects registry options if the command queries no registry, because --to-image has no tag.
func (o *options) checkRegistryFlags(flags *pflag.FlagSet) error {
	if o.Image != "" && byTag(o.Image) {
		return nil
	}
	of := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(registries.Flags).Add(of)
	var err error
	of.VisitAll(func(f *pflag.Flag) {
		if err == nil && flags.Changed(f.Name) {
			err = command.Usagef("--%s configures the registry that resolves a tag: add --to-image with a tag", f.Name)
		}
	})
	return err
}

// resolveTag replaces the tag of --to-image with its current digest, so that the request names fixed content.
func (o *options) resolveTag(ctx context.Context, streams command.Streams) error {
	if o.Image == "" || !byTag(o.Image) {
		return nil
	}
	if layout.IsReference(o.Image) {
		return command.Usagef("--to-image %s is a folder on this machine: name an image in a registry that the cluster can reach", o.Image)
	}
	reader, err := o.tagReader(ctx, streams)
	if err != nil {
		return err
	}
	resolved, err := reader.Resolve(ctx, o.Image)
	if err != nil {
		return fmt.Errorf("cannot resolve the tag in --to-image: %w; use the digest instead, as %s@sha256:…, if this machine cannot reach the registry",
			err, release.Pullspec(o.Image).Repository())
	}
	streams.Infof("Resolved %s to %s", o.Image, resolved.Digest)
	o.Tag, o.Image = o.Image, resolved.ByDigest()
	return nil
}

// tagReader returns a reader that reaches registries as the cluster does, with its pull secret, mirrors, proxy and certificates, and with
// the options. If the account cannot read these, the reader uses only the options.
func (o *options) tagReader(ctx context.Context, streams command.Streams) (*image.Reader, error) {
	access, err := o.registry.Options()
	if err != nil {
		return nil, err
	}
	cfg, err := o.cluster.Config()
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "cvo-upgrade"
	scheme, err := enginecluster.NewScheme()
	if err != nil {
		return nil, err
	}
	reader, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	opened, err := outside.Open(ctx, clock.RealClock{}, reader, &configv1.ClusterVersion{}, outside.Options{Access: access})
	if apierrors.IsForbidden(err) {
		streams.Warnf("resolving the tag without the cluster's pull secret, mirrors and certificates: %s", err.Error())
		return image.New(image.Options{Access: registry.New(access)})
	}
	if err != nil {
		return nil, err
	}
	return opened.Reader, nil
}
