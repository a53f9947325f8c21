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

// operatorBinary is what a container has to run to be this operator, whichever folder it is in.
const operatorBinary = "cvo"

// ErrOtherOperator is why a release is refused whose Deployment of the operator would not run this operator.
var ErrOtherOperator = errors.New("this release does not bring this operator: build it on the image of this operator (cvo release new --to-image-base), or run the operator outside of the cluster")

// CheckOperator tells why the Deployment of that name would not run this operator, in the version of the release; nil if
// it would, or if the release has no such Deployment.
//
// A container that names no command runs what its image says. entrypoint finds that out; it is nil where the image's
// configuration cannot be read, as by a Job, to which a release is a folder of files. Then the release has to bring the
// definition of a kind that only this operator has: such manifests come with an image of this operator.
func (p *Payload) CheckOperator(deployment manifest.ID, entrypoint func() ([]string, error)) error {
	for _, m := range p.Manifests {
		if m.ID() != deployment || m.Tombstone() {
			continue
		}
		other := func(format string, args ...any) error {
			return &Error{Reason: api.ReasonPayloadFailed, Name: p.Release.Image, Err: fmt.Errorf("%s "+format+": %w", append(append([]any{deployment}, args...), ErrOtherOperator)...)}
		}
		container := manifest.OperatorContainer(m.Object.Object)
		if image, _ := container["image"].(string); !release.SameImage(image, p.Release.Image) {
			return other("runs image %q, which is not that of the release", image)
		}
		command, _, _ := unstructured.NestedStringSlice(container, "command")
		switch {
		case len(command) > 0:
		case entrypoint == nil:
			if !p.hasOwnKind() {
				return other("runs what its image starts, which cannot be told without the registry, and the release has no CustomResourceDefinition %s", ownKind)
			}
			continue
		default:
			var err error
			if command, err = entrypoint(); err != nil {
				return fmt.Errorf("finding out what the operator of release %s runs: %w", p.Release.Version, err)
			}
		}
		if len(command) == 0 || path.Base(command[0]) != operatorBinary {
			return other("runs %q", command)
		}
	}
	return nil
}

// ownKind is the definition of a kind that only this operator has.
const ownKind = "releasestatuses.cvo.cluster-version.github.io"

func (p *Payload) hasOwnKind() bool {
	for _, m := range p.Manifests {
		if m.Is("apiextensions.k8s.io", "CustomResourceDefinition") && m.Object.GetName() == ownKind && !m.Tombstone() {
			return true
		}
	}
	return false
}
