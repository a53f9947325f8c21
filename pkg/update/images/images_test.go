package images_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/images"
)

func TestImagesByTagAreNamed(t *testing.T) {
	using := func(images ...string) (list []*manifest.Manifest) {
		for _, image := range images {
			list = append(list, &manifest.Manifest{Component: "dns", Object: &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"template": map[string]any{"spec": map[string]any{
					"initContainers": []any{map[string]any{"name": "init"}}, "containers": []any{map[string]any{"name": "dns", "image": image}},
				}}},
			}}})
		}
		return list
	}
	got := images.Find(t.Context(), "./release", using("example.com/dns:1", "example.com/dns:2", "./release"), using("example.com/dns:1"), nil)
	assert.Equal(t, images.Found{Unknown: []preview.Image{{Image: "example.com/dns:2", Components: []string{"dns"}, Message: "only images by digest are looked up"}}}, got)

	byDigest := "example.com/dns@sha256:" + strings.Repeat("1", 64)
	got = images.Find(t.Context(), "", using("example.com/dns:2", byDigest), nil, func(context.Context, []release.Image) ([]error, error) {
		return nil, errors.New("forbidden")
	})
	require.Len(t, got.Unknown, 2, "an image by tag stays, although the others are not looked up")
	assert.Equal(t, "example.com/dns:2", got.Unknown[0].Image)
}

func TestImagesThatTheRunningReleaseLacksAreLookedUp(t *testing.T) {
	image := func(digit string) string { return "example.com/dns@sha256:" + strings.Repeat(digit, 64) }
	using := func(router string, images ...string) []*manifest.Manifest {
		text := strings.Join(images, " ")
		object := &unstructured.Unstructured{Object: map[string]any{"spec": []any{text}}}
		tombstone := &unstructured.Unstructured{Object: map[string]any{"spec": image("4")}}
		tombstone.SetAnnotations(map[string]string{api.DeleteAnnotation: "true"})
		return []*manifest.Manifest{
			{Component: "router", Object: &unstructured.Unstructured{Object: map[string]any{"spec": router}}},
			{Component: "dns", Object: object},
			{Component: "dns", Object: object},
			{Component: "dns", Object: tombstone},
		}
	}
	for _, tt := range []struct {
		name string
		errs []error
		err  error
		want images.Found
	}{
		{"names missing images", []error{nil, fmt.Errorf("x: %w", failure.ErrNotFound)}, nil, images.Found{Missing: []preview.Image{{Image: image("3"), Components: []string{"dns", "router"}, Message: "x: " + failure.ErrNotFound.Error()}}}},
		{"names images behind another error", []error{errors.New("away"), nil}, nil, images.Found{Unknown: []preview.Image{{Image: image("2"), Components: []string{"dns"}, Message: "away"}}}},
		{"knows nothing if the configuration cannot be read", nil, errors.New("forbidden"), images.Found{Unknown: []preview.Image{{Message: "forbidden"}}}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			got := images.Find(t.Context(), "", using(image("3"), image("1"), image("3"), image("2")), using("", image("1")), func(_ context.Context, asked []release.Image) ([]error, error) {
				assert.Equal(t, []release.Image{
					{Pullspec: image("2"), Digest: release.Pullspec(image("2")).Digest()}, {Pullspec: image("3"), Digest: release.Pullspec(image("3")).Digest()},
				}, asked)
				return tt.errs, tt.err
			})
			assert.Equal(t, tt.want, got)
		})
	}
}
