package packing

import (
	"context"
	"maps"
	"slices"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/manifests/apicrd"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
)

// NodeManifests returns the manifests of the node stage and the definitions of its kinds. The current directory must be inside this module.
func NodeManifests(ctx context.Context) ([]input.File, error) {
	files, err := input.ReadFiles(manifests.Node())
	if err != nil {
		return nil, err
	}
	definitions, err := apicrd.NodeStage(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(definitions)) {
		files = append(files, input.File{Name: name, Data: definitions[name]})
	}
	return files, nil
}
