package upgrade

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/oci/egress"
	"github.com/cluster-version/cvo/pkg/update/request"
)

// confirmForce asks for confirmation of --force if the cluster contacts a registry without TLS. Without signatures, only the digest
// protects the release. Without TLS, an attacker between the operator and the registry can choose the digest of a tag.
func (o *options) confirmForce(ctx context.Context, streams command.Streams) error {
	if !o.Force || o.yes || o.dryRun != request.DryRunNone {
		return nil
	}
	cfg, err := o.cluster.Config()
	if err != nil {
		return err
	}
	cfg.UserAgent = "cvo-upgrade"
	reader, err := cluster.OperatorReader(cfg)
	if err != nil {
		return err
	}
	insecure, err := egress.Insecure(ctx, reader, nil)
	switch {
	case apierrors.IsForbidden(err):
		streams.Warnf("cannot find out whether the cluster contacts registries without TLS: %s", err.Error())
		return nil
	case err != nil:
		return err
	case len(insecure) == 0:
		return nil
	}
	return command.Confirm(ctx, streams, "skip the signature check although the cluster contacts these registries without TLS, or without checking their certificates: "+
		strings.Join(insecure, ", "), nil)
}
