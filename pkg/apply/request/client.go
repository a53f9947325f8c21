// Package request sends the requests for applying objects. Each request addresses one object by its resource and, if possible, reads only
// metadata from the response. All server-side applies use one field manager. Dry runs store nothing.
package request

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/body"
)

// Connect prepares a client. httpClient provides authentication and TLS, and may be shared with other clients. Requests have their own
// timeout, because a timeout in config applies only to clients created from it.
func Connect(config *rest.Config, httpClient *http.Client) (*Client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return nil, fmt.Errorf("preparing scheme: %w", err)
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/"
	config.GroupVersion = &schema.GroupVersion{}
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	own := *httpClient
	own.Transport = finalRetryAfter{next: httpClient.Transport}
	restClient, err := rest.RESTClientForConfigAndClient(config, &own)
	if err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	return &Client{rest: restClient, probes: make(chan struct{}, maxProbes)}, nil
}

// finalRetryAfter makes a response with Retry-After final if the request has no time left for another attempt. Otherwise, client-go would
// wait in vain and report the timeout instead of the server's error.
type finalRetryAfter struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t finalRetryAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	next := t.next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	deadline, bounded := r.Context().Deadline()
	seconds, wrong := strconv.Atoi(resp.Header.Get("Retry-After"))
	if bounded && wrong == nil && time.Until(deadline) <= time.Duration(seconds)*time.Second {
		resp.Header.Del("Retry-After")
	}
	return resp, nil
}

// Client sends the requests for applying objects. Appliers share one Client.
type Client struct {
	rest rest.Interface
	// probes has an entry for each running probe, see afterTimeout.
	probes chan struct{}
}

// Timeout limits a single request.
const Timeout = 30 * time.Second

// dryRunTimeout limits a dry run. It is longer than a webhook may take (30 s), so that the server's error names a webhook that hangs.
const dryRunTimeout = 35 * time.Second

// ErrAnswer means that a response cannot be read.
var ErrAnswer = errors.New("reading the server's response")

// ErrUnserved means that the server does not serve the resource of a target. It is not a NotFound error, which is about the object.
var ErrUnserved = errors.New("the server does not serve the resource")

// served returns the error of a request, ErrUnserved for a 404 without the status that handlers of a resource send.
func served(err error) error {
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("%w: %s", ErrUnserved, err.Error()) // it hides err, because callers would take the object for absent
	}
	return err
}

// Target addresses one object.
type Target struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
}

// encode returns an object as JSON. Its error matches body.ErrManifest, because every object contains a manifest or a part of one.
func encode(object any) ([]byte, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", body.ErrManifest, err)
	}
	return data, nil
}

// metadataOnly requests metadata instead of the object in the response (Kubernetes API concepts, "Resource representations"). Statuses,
// such as errors and delete results, are returned unchanged.
const metadataOnly = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

const metadataOnlyList = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// Apply sends a server-side apply. It also returns the status code of the response.
func (c *Client) Apply(ctx context.Context, t Target, object map[string]any, force bool) (*metav1.PartialObjectMetadata, int, error) {
	data, err := encode(object)
	if err != nil {
		return nil, 0, err
	}
	options := metav1.PatchOptions{FieldManager: api.FieldManager, Force: &force}
	began := time.Now()
	result := c.on(c.rest.Patch(types.ApplyPatchType), t, true).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx)
	code := 0
	result.StatusCode(&code)
	meta, err := metadata(result)
	return meta, code, c.afterTimeout(began, err, func() error {
		_, _, err := c.DryApply(ctx, t, object, force)
		return err
	})
}

// Create posts an object. unknown contains the paths of the fields that the server ignored, which it reports as warnings.
func (c *Client) Create(ctx context.Context, t Target, object map[string]any) (meta *metav1.PartialObjectMetadata, unknown []string, err error) {
	data, err := encode(object)
	if err != nil {
		return nil, nil, err
	}
	options := metav1.CreateOptions{FieldManager: api.FieldManager, FieldValidation: metav1.FieldValidationWarn}
	var warnings unknownFieldWarnings
	began := time.Now()
	meta, err = metadata(c.on(c.rest.Post(), t, false).WarningHandlerWithContext(&warnings).
		SetHeader("Content-Type", runtime.ContentTypeJSON).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx))
	return meta, warnings.paths, c.afterTimeout(began, err, func() error { return c.Check(ctx, t, object) })
}

// Get reads the metadata of an object.
func (c *Client) Get(ctx context.Context, t Target) (*metav1.PartialObjectMetadata, error) {
	return metadata(c.on(c.rest.Get(), t, true).Do(ctx))
}

// Decode reads a whole object into an encoding/json value.
func (c *Client) Decode(ctx context.Context, t Target, into any) error {
	return decode(ctx, c.on(c.rest.Get(), t, true), into)
}

// DecodeList reads the list of the objects with the target's name, one or none, into an encoding/json value. It needs the permission to list
// the resource.
func (c *Client) DecodeList(ctx context.Context, t Target, into any) error {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, t.Name).String()}
	return decode(ctx, c.on(c.rest.Get(), t, false).VersionedParams(&options, metav1.ParameterCodec), into)
}

func decode(ctx context.Context, r *rest.Request, into any) error {
	data, err := r.SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return nil
}

// Any reports whether any object of the resource exists, in any namespace.
func (c *Client) Any(ctx context.Context, resource schema.GroupVersionResource) (bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	options := metav1.ListOptions{Limit: 1}
	err := c.on(c.rest.Get(), Target{Resource: resource}, false).SetHeader("Accept", metadataOnlyList).
		VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(list)
	return len(list.Items) > 0, served(err)
}

// Check lets the server validate and admit a new object without creating it. The result does not depend on whether the object exists,
// because the server checks that last and then returns AlreadyExists.
func (c *Client) Check(ctx context.Context, t Target, object map[string]any) error {
	data, err := encode(object)
	if err != nil {
		return err
	}
	options := metav1.CreateOptions{FieldManager: api.FieldManager, DryRun: []string{metav1.DryRunAll}}
	return c.on(c.rest.Post(), t, false).SetHeader("Content-Type", runtime.ContentTypeJSON).Timeout(dryRunTimeout).
		WarningHandlerWithContext(&unknownFieldWarnings{}).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx).Error()
}

// SetManagers replaces the managed fields of an object. It fails with a conflict if the object has another resource version.
func (c *Client) SetManagers(ctx context.Context, t Target, resourceVersion string, entries []metav1.ManagedFieldsEntry) (*metav1.PartialObjectMetadata, error) {
	data, err := managersPatch(resourceVersion, entries)
	if err != nil {
		return nil, err
	}
	send := func(r *rest.Request, dryRun ...string) rest.Result {
		options := metav1.PatchOptions{FieldManager: api.ManagedFieldsManager, DryRun: dryRun}
		return r.VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx)
	}
	began := time.Now()
	meta, err := metadata(send(c.on(c.rest.Patch(types.JSONPatchType), t, true)))
	return meta, c.afterTimeout(began, err, func() error {
		return send(c.whole(c.rest.Patch(types.JSONPatchType), t, true), metav1.DryRunAll).Error()
	})
}

// TrySetManagers returns the error of SetManagers, and changes nothing.
func (c *Client) TrySetManagers(ctx context.Context, t Target, resourceVersion string, entries []metav1.ManagedFieldsEntry) error {
	data, err := managersPatch(resourceVersion, entries)
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: api.ManagedFieldsManager, DryRun: []string{metav1.DryRunAll}}
	return c.on(c.rest.Patch(types.JSONPatchType), t, true).Timeout(dryRunTimeout).VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx).Error()
}

// managersPatch returns a JSON patch. It replaces the resource version instead of testing it, so that the server returns a conflict. It omits
// the entry of earlier writes of this kind.
func managersPatch(resourceVersion string, entries []metav1.ManagedFieldsEntry) ([]byte, error) {
	entries = slices.DeleteFunc(slices.Clone(entries), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == api.ManagedFieldsManager })
	return json.Marshal([]map[string]any{
		{"op": "add", "path": "/metadata/managedFields", "value": entries},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": resourceVersion},
	})
}

// Replace updates a whole object. It fails with a conflict if the object has another resource version.
func (c *Client) Replace(ctx context.Context, t Target, object any) (*metav1.PartialObjectMetadata, error) {
	data, err := encode(object)
	if err != nil {
		return nil, err
	}
	options := metav1.UpdateOptions{FieldManager: api.FieldManager}
	began := time.Now()
	meta, err := metadata(c.on(c.rest.Put(), t, true).SetHeader("Content-Type", runtime.ContentTypeJSON).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx))
	return meta, c.afterTimeout(began, err, func() error {
		_, err := c.DryUpdate(ctx, t, object)
		return err
	})
}

// Delete requests the deletion of the observed object, but not of another object with the same name. With unchanged, it also fails with a
// conflict if the object has changed since. It returns the metadata of the remaining object, or nil if it no longer exists.
func (c *Client) Delete(ctx context.Context, t Target, seen *metav1.PartialObjectMetadata, unchanged bool,
	propagation metav1.DeletionPropagation,
) (*metav1.PartialObjectMetadata, error) {
	options := metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions:     &metav1.Preconditions{UID: &seen.UID},
		PropagationPolicy: &propagation,
	}
	if unchanged {
		options.Preconditions.ResourceVersion = &seen.ResourceVersion
	}
	began := time.Now()
	result := c.on(c.rest.Delete(), t, true).Body(&options).Do(ctx)
	if answer, err := result.Get(); err == nil {
		if _, gone := answer.(*metav1.Status); gone {
			return nil, nil
		}
	}
	meta, err := metadata(result)
	if err == nil && gone(meta) {
		return nil, nil
	}
	return meta, c.afterTimeout(began, err, func() error { return c.DryDelete(ctx, t, propagation) })
}

// gone reports whether an object that was just deleted no longer exists. For some kinds, such as Services and Pods, the server returns the
// deleted object instead of a status.
func gone(meta *metav1.PartialObjectMetadata) bool {
	grace := meta.DeletionGracePeriodSeconds
	return meta.DeletionTimestamp == nil || len(meta.Finalizers) == 0 && grace != nil && *grace == 0
}

// PatchStatus sends a merge patch of the status.
func (c *Client) PatchStatus(ctx context.Context, t Target, patch map[string]any) error {
	data, err := encode(patch)
	if err != nil {
		return err
	}
	send := func(r *rest.Request, dryRun ...string) error {
		options := metav1.PatchOptions{FieldManager: api.FieldManager, DryRun: dryRun}
		return r.SubResource("status").VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx).Error()
	}
	began := time.Now()
	err = send(c.on(c.rest.Patch(types.MergePatchType), t, true))
	return c.afterTimeout(began, err, func() error { return send(c.whole(c.rest.Patch(types.MergePatchType), t, true), metav1.DryRunAll) })
}

// on sets the target of a request. named is false for requests to a collection.
func (c *Client) on(r *rest.Request, t Target, named bool) *rest.Request {
	root := "/apis/" + t.Resource.Group
	if t.Resource.Group == "" {
		root = "/api"
	}
	r = r.AbsPath(root, t.Resource.Version).SetHeader("Accept", metadataOnly).Timeout(Timeout).
		NamespaceIfScoped(t.Namespace, t.Namespace != "").Resource(t.Resource.Resource)
	if named {
		r = r.Name(t.Name)
	}
	return r
}

// metadata reads the response. A server that cannot return only metadata, such as some aggregated API servers, sends the whole object.
func metadata(result rest.Result) (*metav1.PartialObjectMetadata, error) {
	if err := result.Error(); err != nil {
		return nil, served(err)
	}
	meta := &metav1.PartialObjectMetadata{}
	err := result.Into(meta)
	if runtime.IsNotRegisteredError(err) {
		data, _ := result.Raw() // same error as above
		err = json.Unmarshal(data, meta)
	}
	if err == nil && meta.Name == "" {
		err = errors.New("it is not an object")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return meta, nil
}
