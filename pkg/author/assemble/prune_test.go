package assemble

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	imagev1 "github.com/openshift/api/image/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/layer"
	"github.com/cluster-version/cvo/pkg/payload"
)

func TestPruneDropsUnreferencedImages(t *testing.T) {
	images := []imagev1.TagReference{input.ImageTag("z-base", "x"), input.ImageTag("dns", "x"), input.ImageTag("referred", "x"), input.ImageTag("included", "x"), input.ImageTag("unused", "x"), input.ImageTag("empty", "x")}
	components := []input.Component{
		{Name: "dns", Files: []input.File{file("a.yaml", "")}, References: []imagev1.TagReference{input.ImageTag("referred", "p"), input.ImageTag("not-there", "p")}},
		{Name: "empty"},
	}
	kept, left := prune(images, components, []string{"included", "z-base", "not-there-either"})
	var names []string
	for _, tag := range kept {
		names = append(names, tag.Name)
	}
	assert.Equal(t, []string{"dns", "included", "referred", "z-base"}, names)
	assert.Equal(t, []string{"empty", "unused"}, left)
}

func TestPruneKeepsImagesInTemplates(t *testing.T) {
	templates := []input.File{file("0000_50_console_00.yaml", object("ConfigMap", "console", "  namespace: x\ndata:\n  image: '{{index .Images \"console-plugin\"}}'\n"))}
	names := func(opts Options) (names []string) {
		opts.Images = append(opts.Images, input.ImageTag("console-plugin", "r/p@"+digestA), input.ImageTag("unused", "r/u@"+digestB))
		kept, left, err := opts.pruned()
		require.NoError(t, err)
		assert.Equal(t, []string{"unused"}, left)
		for _, tag := range kept {
			names = append(names, tag.Name)
		}
		return names
	}
	want := []string{"console-plugin", "dns", "ntp"}
	opts := small()
	opts.Operator = templates
	assert.Equal(t, want, names(opts), "with the operator's own manifests")
	content, err := layer.New(epoch, layer.Folder(payload.OperatorDir, 0o755, templates))
	require.NoError(t, err)
	opts.Operator = nil
	opts.Base, err = mutate.AppendLayers(empty.Image, content)
	require.NoError(t, err)
	assert.Equal(t, want, names(opts), "with a base image")
	opts.Platforms, opts.Base = []Platform{{Base: opts.Base}}, nil
	assert.Equal(t, want, names(opts), "with a base image for each platform")
}
