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

//threat:template-skipped it rejects a release whose Deployment may be in a skipped file
func TestCheckOperatorRejectsImagesOfOtherPrograms(t *testing.T) {
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
		{"accepts a release on the operator's image", starts("/cvo"), manifests(image), ""},
		{"accepts a release pulled from a mirror", starts("/cvo"), manifests(mirrored), ""},
		{"accepts a Deployment with the operator's command", starts("/bin/sh"), manifests(image, "/usr/bin/cvo"), ""},
		{"accepts a release without an operator", starts("/bin/sh"), nil, ""},
		{"rejects another operator", starts("/usr/bin/cluster-version-operator"), manifests(image), `Deployment.apps x/operator runs ["/usr/bin/cluster-version-operator"]: this release does not contain this operator`},
		{"rejects a Deployment with another command", starts("/cvo"), manifests(image, "/usr/bin/cluster-version-operator"), "does not contain this operator"},
		{"rejects an image without an entrypoint", starts(), manifests(image), "runs []"},
		{"rejects an operator from another image", starts("/cvo"), manifests("registry.example/operator@sha256:cccc"), "instead of the release image"},
		{"accepts the operator's manifests if no image can be read", nil, append(manifests(image), definition), ""},
		{"accepts a Deployment with the operator's command if no image can be read", nil, manifests(image, "/cvo"), ""},
		{"rejects an unknown operator if no image can be read", nil, manifests(image), "the registry would have to show which program it runs, and the release has no CustomResourceDefinition " + ownKind},
		{"rejects a Deployment with another command if no image can be read", nil, append(manifests(image, "/bin/sh"), definition), `runs ["/bin/sh"]`},
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
	t.Run("it rejects a release whose Deployment may be in a skipped file", func(t *testing.T) {
		t.Parallel()
		p := &Payload{Release: release.Release{Version: "1.1.0", Image: image}, Skipped: []Skip{{"0000_00_x_30_deployment.yaml", errors.New("can't evaluate field New")}}}
		err := p.CheckOperator(id, starts("/cvo"))
		require.EqualError(t, err, "loading payload "+image+": this operator cannot read manifests/0000_00_x_30_deployment.yaml, which may contain Deployment.apps x/operator (can't evaluate field New): update first to an earlier release whose operator can read the file, or repair the file")
		require.ErrorAs(t, err, new(*Error))
		p.Manifests = manifests(image)
		require.NoError(t, p.CheckOperator(id, starts("/cvo")), "the skipped file has other objects")
	})
	t.Run("it distinguishes an unreadable image from another operator", func(t *testing.T) {
		t.Parallel()
		p := &Payload{Release: release.Release{Version: "1.1.0", Image: image}, Manifests: manifests(image)}
		err := p.CheckOperator(id, func() ([]string, error) { return nil, errors.New("registry is unreachable") })
		require.ErrorContains(t, err, "checking the operator of release 1.1.0: registry is unreachable")
		require.NotErrorIs(t, err, ErrOtherOperator)
	})
}
