package payload

import (
	"errors"
	"fmt"
	"path"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// operatorBinary is the base name of this operator's command in a container.
const operatorBinary = "cvo"

// ErrOtherOperator rejects a release whose operator Deployment would not run this operator.
var ErrOtherOperator = errors.New("this release does not contain this operator: rebuild it with this operator (cvo release new with --to-image-base or --arch), or run the operator outside the cluster")

// CheckOperator checks that the named Deployment would run this operator from the release's image. If not, it returns an error with the
// reason. It accepts a release without such a Deployment, unless a skipped file may contain it.
//
// A container without a command runs its image's entrypoint, which the function entrypoint returns. entrypoint is nil if the image's
// configuration cannot be read, for example because a Job retrieved the release's files. In that case the release must have the CRD of a
// kind that only this operator has, because only this operator's image contains that manifest.
func (p *Payload) CheckOperator(deployment manifest.ID, entrypoint func() ([]string, error)) error {
	if objects, skipped := p.Named(); len(skipped) > 0 && objects[deployment] == nil {
		return &Error{Reason: api.ReasonPayloadFailed, Name: p.Release.Image, Err: fmt.Errorf(
			"this operator cannot read %s/%s, which may contain %s (%w): update first to an earlier release whose operator can read the file, or repair the file",
			OperatorDir, p.Skipped[0].File, deployment, p.Skipped[0].Err)}
	}
	for _, m := range p.Manifests {
		if m.ID() != deployment || m.Tombstone() {
			continue
		}
		other := func(format string, args ...any) error {
			return &Error{Reason: api.ReasonPayloadFailed, Name: p.Release.Image, Err: fmt.Errorf("%s "+format+": %w", append(append([]any{deployment}, args...), ErrOtherOperator)...)}
		}
		container := manifest.OperatorContainer(m.Object.Object)
		if image, _ := container["image"].(string); !release.SameImage(image, p.Release.Image) {
			return other("runs image %q instead of the release image", image)
		}
		command, _, _ := unstructured.NestedStringSlice(container, "command")
		switch {
		case len(command) > 0:
		case entrypoint == nil:
			if !p.hasOwnKind() {
				return other("has no command, so the registry would have to show which program it runs, and the release has no CustomResourceDefinition %s", ownKind)
			}
			continue
		default:
			var err error
			if command, err = entrypoint(); err != nil {
				return fmt.Errorf("checking the operator of release %s: %w", p.Release.Version, err)
			}
		}
		if len(command) == 0 || path.Base(command[0]) != operatorBinary {
			return other("runs %q", command)
		}
	}
	return nil
}

// ownKind is the CRD of a kind that only this operator has.
const ownKind = "releasestatuses.cvo.cluster-version.github.io"

func (p *Payload) hasOwnKind() bool {
	for _, m := range p.Manifests {
		if m.Is("apiextensions.k8s.io", "CustomResourceDefinition") && m.Object.GetName() == ownKind && !m.Tombstone() {
			return true
		}
	}
	return false
}
