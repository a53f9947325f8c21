package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestImagesByTagAreNamed(t *testing.T) {
	using := func(images ...string) payload.Update {
		var list []*manifest.Manifest
		for _, image := range images {
			list = append(list, &manifest.Manifest{Component: "dns", Object: &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"template": map[string]any{"spec": map[string]any{
					"initContainers": []any{map[string]any{"name": "init"}}, "containers": []any{map[string]any{"name": "dns", "image": image}},
				}}},
			}}})
		}
		return payload.Update{Payload: &payload.Payload{Manifests: list}}
	}
	f := Flight{
		Acceptance: accept.Acceptance{Update: using("example.com/dns:1", "example.com/dns:2")},
		Input:      accept.Input{Running: &accept.Acceptance{Update: using("example.com/dns:1")}},
	}
	assert.Equal(t, Images{Unknown: []preview.Image{{Image: "example.com/dns:2", Components: []string{"dns"}, Message: "only images by digest are looked up"}}}, f.findImages(t.Context(), f.Acceptance.Payload.Manifests))
}

func TestImagesThatTheRunningReleaseLacksAreLookedUp(t *testing.T) {
	image := func(digit string) string { return "example.com/dns@sha256:" + strings.Repeat(digit, 64) }
	using := func(router string, images ...string) payload.Update {
		text := strings.Join(images, " ")
		object := &unstructured.Unstructured{Object: map[string]any{"spec": []any{text}}}
		tombstone := &unstructured.Unstructured{Object: map[string]any{"spec": image("4")}}
		tombstone.SetAnnotations(map[string]string{api.DeleteAnnotation: "true"})
		return payload.Update{Payload: &payload.Payload{Manifests: []*manifest.Manifest{
			{Component: "router", Object: &unstructured.Unstructured{Object: map[string]any{"spec": router}}},
			{Component: "dns", Object: object},
			{Component: "dns", Object: object},
			{Component: "dns", Object: tombstone},
		}}}
	}
	lookUp := func(errs []error, err error) Lookup {
		return func(_ context.Context, _ *configv1.ClusterVersion, images []release.Image) ([]error, error) {
			assert.Equal(t, []release.Image{
				{Pullspec: image("2"), Digest: release.Pullspec(image("2")).Digest()}, {Pullspec: image("3"), Digest: release.Pullspec(image("3")).Digest()},
			}, images)
			return errs, err
		}
	}
	for _, tt := range []struct {
		name   string
		lookup Lookup
		want   Images
	}{
		{"names missing images", lookUp([]error{nil, fmt.Errorf("x: %w", failure.ErrNotFound)}, nil), Images{Missing: []preview.Image{{Image: image("3"), Components: []string{"dns", "router"}}}}},
		{"names images behind another error", lookUp([]error{errors.New("away"), nil}, nil), Images{Unknown: []preview.Image{{Image: image("2"), Components: []string{"dns"}, Message: "away"}}}},
		{"knows nothing if the configuration cannot be read", lookUp(nil, errors.New("forbidden")), Images{Unknown: []preview.Image{{Message: "forbidden"}}}},
		{"knows nothing without access to registries", nil, Images{Unknown: []preview.Image{{Message: "all, because this operator does not contact registries"}}}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			f := Flight{
				Lookup: tt.lookup, Acceptance: accept.Acceptance{Update: using(image("3"), image("1"), image("3"), image("2"))},
				Input: accept.Input{Running: &accept.Acceptance{Update: using("", image("1"))}},
			}
			assert.Equal(t, tt.want, f.findImages(t.Context(), f.Acceptance.Payload.Manifests))
		})
	}
}
