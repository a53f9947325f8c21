package request

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// listLimit is the maximum number of objects in one response, because CRDs are large.
const listLimit = 200

// List reads all objects of a resource that match a label selector. It calls each with the JSON of every object, without copying it, so the
// caller decodes only the parts that it needs. List items may lack apiVersion and kind.
func (c *Client) List(ctx context.Context, resource schema.GroupVersionResource, selector string, each func(data json.RawMessage) error) error {
	options := metav1.ListOptions{LabelSelector: selector, Limit: listLimit}
	for {
		data, err := c.on(c.rest.Get(), Target{Resource: resource}, false).
			SetHeader("Accept", runtime.ContentTypeJSON).VersionedParams(&options, metav1.ParameterCodec).DoRaw(ctx)
		if err != nil {
			return err
		}
		var page struct {
			Metadata metav1.ListMeta   `json:"metadata"`
			Items    []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return fmt.Errorf("%w: %w", ErrAnswer, err)
		}
		for _, item := range page.Items {
			if err := each(item); err != nil {
				return err
			}
		}
		if options.Continue = page.Metadata.Continue; options.Continue == "" {
			return nil
		}
	}
}
