package request

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/api"
)

// DryApply is Apply as a dry run. It returns the object as the server would store it.
func (c *Client) DryApply(ctx context.Context, t Target, object map[string]any, force bool) (*unstructured.Unstructured, int, error) {
	data, err := encode(object)
	if err != nil {
		return nil, 0, err
	}
	options := metav1.PatchOptions{FieldManager: api.FieldManager, Force: &force, DryRun: []string{metav1.DryRunAll}}
	result := c.whole(c.rest.Patch(types.ApplyPatchType), t, true).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx)
	code := 0
	result.StatusCode(&code)
	stored, err := wholeObject(result)
	return stored, code, err
}

// DryUpdate replaces an object in a dry run. It uses another field manager name than ours, because otherwise the updated fields would count
// as fields of an earlier operator.
func (c *Client) DryUpdate(ctx context.Context, t Target, object any) (*unstructured.Unstructured, error) {
	data, err := encode(object)
	if err != nil {
		return nil, err
	}
	options := metav1.UpdateOptions{FieldManager: api.FieldManager + "-preview", DryRun: []string{metav1.DryRunAll}}
	return wholeObject(c.whole(c.rest.Put(), t, true).SetHeader("Content-Type", runtime.ContentTypeJSON).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx))
}

// DryCreate is Create as a dry run. It returns the object as the server would store it.
func (c *Client) DryCreate(ctx context.Context, t Target, object map[string]any) (stored *unstructured.Unstructured, unknown []string, err error) {
	data, err := encode(object)
	if err != nil {
		return nil, nil, err
	}
	options := metav1.CreateOptions{
		FieldManager: api.FieldManager, FieldValidation: metav1.FieldValidationWarn, DryRun: []string{metav1.DryRunAll},
	}
	var warnings unknownFieldWarnings
	stored, err = wholeObject(c.whole(c.rest.Post(), t, false).WarningHandlerWithContext(&warnings).
		SetHeader("Content-Type", runtime.ContentTypeJSON).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx))
	return stored, warnings.paths, err
}

// DryDelete requests a deletion in a dry run. Its options are in the query, which the server reads only if there is no body.
func (c *Client) DryDelete(ctx context.Context, t Target, propagation metav1.DeletionPropagation) error {
	options := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}, PropagationPolicy: &propagation}
	return c.whole(c.rest.Delete(), t, true).VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Error()
}

// Object reads a whole object.
func (c *Client) Object(ctx context.Context, t Target) (*unstructured.Unstructured, error) {
	return wholeObject(c.whole(c.rest.Get(), t, true).Do(ctx))
}

// isTimeout reports whether the server ended a request at its time limit. It either says so or aborts the HTTP/2 stream (RFC 9113, section 7).
func isTimeout(err error) bool {
	aborted, ok := errors.AsType[http2.StreamError](err)
	return apierrors.IsTimeout(err) || ok && aborted.Code == http2.ErrCodeInternal
}

// maxProbes is the maximum number of dry runs at the same time that look for the cause of a timeout. The API server may be overloaded.
const maxProbes = 4

// afterTimeout returns the error of a write that began at the given time. If the server ended the write at its time limit, a dry run finds out
// whether a webhook hangs: a leader's writes have less time than webhooks may take, dry runs have more, and the server names a webhook only
// after the webhook's timeout.
func (c *Client) afterTimeout(began time.Time, err error, dryRun func() error) error {
	if !isTimeout(err) {
		return err
	}
	select {
	case c.probes <- struct{}{}:
		defer func() { <-c.probes }()
	default:
		return err
	}
	limit, probed := time.Since(began), time.Now()
	reason := dryRun()
	took := time.Since(probed)
	switch {
	case apierrors.IsInternalError(reason):
		return reason
	case reason == nil && took > limit:
		return fmt.Errorf("%w: a write may take %s, and a dry run took %s: an admission webhook or the storage of the API server is slow",
			err, limit.Round(time.Second/10), took.Round(time.Second/10))
	}
	return err
}

// whole sets the target of a request and requests the whole object in the response.
func (c *Client) whole(r *rest.Request, t Target, named bool) *rest.Request {
	return c.on(r, t, named).SetHeader("Accept", runtime.ContentTypeJSON).Timeout(dryRunTimeout)
}

func wholeObject(result rest.Result) (*unstructured.Unstructured, error) {
	if err := result.Error(); err != nil {
		return nil, served(err)
	}
	data, _ := result.Raw() // same error as above
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return object, nil
}
