package payload

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestCheckOperator(t *testing.T) {
	t.Parallel()
	const image, mirrored = "registry.example/release@sha256:bbbb", "mirror.example/release@sha256:bbbb"
	id := manifest.ID{Group: "apps", Kind: "Deployment", Namespace: "x", Name: "operator"}
	manifests := func(image string, command ...any) []*manifest.Manifest {
		container := map[string]any{"name": "operator", "image": image, "args": []any{"start"}}
		if len(command) > 0 {
			container["command"] = command
		}
		return []*manifest.Manifest{{Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "x", "name": "operator"},
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
				map[string]any{"name": "sidecar", "image": "other", "command": []any{"/bin/sh"}}, container,
			}}}},
		}}}}
	}
	definition := &manifest.Manifest{Object: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": ownKind},
	}}}
	starts := func(entrypoint ...string) func() ([]string, error) {
		return func() ([]string, error) { return entrypoint, nil }
	}
	for _, tt := range []struct {
		name       string
		entrypoint func() ([]string, error)
		manifests  []*manifest.Manifest
		want       string
	}{
		{"takes a release on the operator's image", starts("/cvo"), manifests(image), ""},
		{"takes one that is pulled from elsewhere", starts("/cvo"), manifests(mirrored), ""},
		{"takes one whose Deployment names the operator", starts("/bin/sh"), manifests(image, "/usr/bin/cvo"), ""},
		{"takes one that brings no operator", starts("/bin/sh"), nil, ""},
		{"refuses another operator", starts("/usr/bin/cluster-version-operator"), manifests(image), `Deployment.apps x/operator runs ["/usr/bin/cluster-version-operator"]: this release does not bring this operator`},
		{"refuses a Deployment that names another", starts("/cvo"), manifests(image, "/usr/bin/cluster-version-operator"), "does not bring this operator"},
		{"refuses an image that runs nothing", starts(), manifests(image), "runs []"},
		{"refuses an operator apart from the release", starts("/cvo"), manifests("registry.example/operator@sha256:cccc"), "which is not that of the release"},
		{"takes, where no image can be read, the manifests of the operator", nil, append(manifests(image), definition), ""},
		{"takes, where no image can be read, a Deployment that names the operator", nil, manifests(image, "/cvo"), ""},
		{"refuses, where no image can be read, what it cannot tell", nil, manifests(image), "cannot be told without the registry, and the release has no CustomResourceDefinition " + ownKind},
		{"refuses, where no image can be read, a Deployment that names another", nil, append(manifests(image, "/bin/sh"), definition), `runs ["/bin/sh"]`},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			t.Parallel()
			p := &Payload{Release: release.Release{Version: "1.1.0", Image: image}, Manifests: tt.manifests}
			err := p.CheckOperator(id, tt.entrypoint)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			require.ErrorIs(t, err, ErrOtherOperator)
			assert.ErrorAs(t, err, new(*Error))
		})
	}
	t.Run("it does not take an image that could not be read for another operator", func(t *testing.T) {
		t.Parallel()
		p := &Payload{Release: release.Release{Version: "1.1.0", Image: image}, Manifests: manifests(image)}
		err := p.CheckOperator(id, func() ([]string, error) { return nil, errors.New("registry is away") })
		require.ErrorContains(t, err, "finding out what the operator of release 1.1.0 runs: registry is away")
		require.NotErrorIs(t, err, ErrOtherOperator)
	})
}
