package operator

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

type entrypoint []string

func (e entrypoint) Entrypoint(context.Context, release.Image) ([]string, error) { return e, nil }

func TestFit(t *testing.T) {
	t.Parallel()
	target := func(image string, command ...any) *payload.Payload {
		container := map[string]any{"name": "operator", "image": image}
		if len(command) > 0 {
			container["command"] = command
		}
		return &payload.Payload{Release: release.Release{Version: "1.1.0", Image: releaseB}, Manifests: []*manifest.Manifest{{
			Object: &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "x", "name": "operator"},
				"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}},
			}},
		}}}
	}
	p := &post{namespace: "x", deployment: "operator", own: releaseA}
	for _, tt := range []struct {
		name   string
		image  any
		target *payload.Payload
		want   string
	}{
		{"takes a release on the operator's image", entrypoint{"/cvo"}, target(releaseB), ""},
		{"takes one whose Deployment names the operator", entrypoint{"/bin/sh"}, target(releaseB, "/usr/bin/cvo"), ""},
		{"takes one that brings no operator", entrypoint{"/bin/sh"}, &payload.Payload{}, ""},
		{"refuses another operator", entrypoint{"/usr/bin/cluster-version-operator"}, target(releaseB), `Deployment.apps x/operator runs ["/usr/bin/cluster-version-operator"]: this release does not bring this operator`},
		{"refuses a Deployment that names another", entrypoint{"/cvo"}, target(releaseB, "/usr/bin/cluster-version-operator"), "does not bring this operator"},
		{"refuses an image that runs nothing", entrypoint{}, target(releaseB), "runs []"},
		{"refuses an operator apart from the release", entrypoint{"/cvo"}, target("registry.example/operator@sha256:cccc"), "which is not that of the release"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := p.fit(t.Context(), tt.image, release.Image{}, tt.target)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			require.ErrorIs(t, err, errUnfit)
			assert.ErrorAs(t, err, new(*payload.Error))
		})
	}
}
