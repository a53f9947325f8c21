package apply

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Live returns the whole stored object of a manifest, or nil if it does not exist.
func (a *Applier) Live(ctx context.Context, m *manifest.Manifest) (*unstructured.Unstructured, error) {
	t, _, err := a.target(ctx, m)
	if err != nil {
		return nil, failure.Wrap(m, err)
	}
	object, err := a.client.Object(ctx, t)
	if apierrors.IsNotFound(err) {
		return nil, nil // absence is a valid result
	}
	return object, failure.Wrap(m, err)
}

// ListOwned reads all objects of a kind that have the label of the applier's owner, see request.Client.List.
func (a *Applier) ListOwned(ctx context.Context, gvk schema.GroupVersionKind, each func(data json.RawMessage) error) error {
	mapping, err := a.mapper.Mapping(ctx, gvk)
	if err != nil {
		return err
	}
	return a.client.List(ctx, mapping.Resource, api.OwnedByLabel+"="+a.builder.Owner.Name, each)
}
