// Package nodeimage makes the component image of the node stage for tests that include the stage in releases and have no kubelets. It has the
// real manifests and a program that runs nothing.
package nodeimage

import (
	"context"
	"debug/elf"

	"github.com/cluster-version/cvo/hack/packing"
	"github.com/cluster-version/cvo/pkg/author/assemble/program"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// Component is the name of the component in `cvo release new COMPONENT=PULLSPEC`.
const Component = "machine-config-operator"

// Push pushes the image to repository:tag in the registry, and returns it with its digest. The current directory must be inside this module.
func Push(ctx context.Context, r *fixture.Registry, repositoryTag string) (release.Image, error) {
	manifests, err := packing.NodeManifests(ctx)
	if err != nil {
		return release.Image{}, err
	}
	image, err := program.NodeStage(program.ProjectOptions{
		Binary: fixture.StaticProgram(elf.EM_X86_64, Component), Architecture: "amd64", Manifests: manifests,
	})
	if err != nil {
		return release.Image{}, err
	}
	return fixture.Push(ctx, r, image, repositoryTag)
}
