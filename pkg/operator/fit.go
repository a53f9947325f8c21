package operator

import (
	"context"
	"errors"
	"fmt"
	"path"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// binary is what a container has to run to be this operator, whichever folder it is in.
const binary = "cvo"

// errUnfit is why a release is refused whose Deployment of the operator would not bring this operator in another version.
var errUnfit = errors.New("this release does not bring this operator: build it on the image of this operator (cvo release new --to-image-base), or run the operator outside of the cluster")

// entrypoints tells what an image runs; *image.Reader does.
type entrypoints interface {
	Entrypoint(ctx context.Context, img release.Image) ([]string, error)
}

// fit tells why the operator that a release brings could not take over from this process: a release for another operator
// would have that one take over the cluster, and an operator that is not the release itself cannot tell what it is of.
func (p *post) fit(ctx context.Context, images any, img release.Image, target *payload.Payload) error {
	id := p.handover().Deployment
	for _, m := range target.Manifests {
		if m.ID() != id || m.Tombstone() {
			continue
		}
		unfit := func(format string, args ...any) error {
			return &payload.Error{Reason: api.ReasonPayloadFailed, Name: target.Release.Image, Err: fmt.Errorf("%s runs %s: %w", id, fmt.Sprintf(format, args...), errUnfit)}
		}
		if runs := rollout.OperatorImage(m.Object.Object); !sameImage(runs, target.Release.Image) {
			return unfit("image %q, which is not that of the release", runs)
		}
		command := commandOf(m.Object.Object)
		if len(command) == 0 {
			reader, ok := images.(entrypoints)
			if !ok {
				return nil // where images are not read by this process, whoever reads them has to tell
			}
			var err error
			if command, err = reader.Entrypoint(ctx, img); err != nil {
				return fmt.Errorf("finding out what the operator of release %s runs: %w", target.Release.Version, err)
			}
		}
		if len(command) == 0 || path.Base(command[0]) != binary {
			return unfit("%q", command)
		}
	}
	return nil
}

// commandOf returns the command that a Deployment names for the operator, empty for that of its image.
func commandOf(deployment map[string]any) []string {
	image := rollout.OperatorImage(deployment)
	list, _, _ := unstructured.NestedSlice(deployment, "spec", "template", "spec", "containers")
	for _, item := range list {
		container, _ := item.(map[string]any)
		if container["image"] == image {
			command, _, _ := unstructured.NestedStringSlice(container, "command")
			return command
		}
	}
	return nil
}
