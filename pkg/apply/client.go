package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/api"
)

// Connection is a client connection that Appliers share.
type Connection struct{ client *client }

// Connect prepares a connection. httpClient may be shared with other clients; it carries authentication and TLS.
// Requests have a timeout of their own, because one in config binds only a client that config itself makes.
func Connect(config *rest.Config, httpClient *http.Client) (*Connection, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return nil, fmt.Errorf("preparing scheme: %w", err)
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // priority and fairness on the server decides
	config.APIPath = "/"
	config.GroupVersion = &schema.GroupVersion{}
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	own := *httpClient
	own.Transport = impatient{next: httpClient.Transport}
	restClient, err := rest.RESTClientForConfigAndClient(config, &own)
	if err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	return &Connection{client: &client{rest: restClient}}, nil
}

// impatient makes an answer final that asks to be asked again (Retry-After) when the request has no time left for that.
// client-go would wait in vain, and then tell of the time that ran out instead of what the server said.
type impatient struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t impatient) RoundTrip(r *http.Request) (*http.Response, error) {
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

// client sends the few requests that applying needs and reads metadata alone from the answers.
type client struct{ rest rest.Interface }

// target addresses one object.
type target struct {
	resource        schema.GroupVersionResource
	namespace, name string
	custom          bool // of a CRD of the release
	isNew           bool // see Mapping.New
}

// metadataOnly asks the server to answer with metadata instead of the object (Kubernetes API concepts, "Resource
// representations"). Statuses, such as errors and delete results, come as they are.
const metadataOnly = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

const metadataOnlyList = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

func (c *client) apply(ctx context.Context, t target, data []byte, force bool) (*metav1.PartialObjectMetadata, int, error) {
	options := metav1.PatchOptions{FieldManager: api.FieldManager, Force: &force}
	result := c.on(c.rest.Patch(types.ApplyPatchType), t, true).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx)
	code := 0
	result.StatusCode(&code)
	meta, err := metadata(result)
	return meta, code, err
}

// create posts an object. What the server ignores of it comes back as warnings; unknown collects the paths of unknown
// fields.
func (c *client) create(ctx context.Context, t target, data []byte) (meta *metav1.PartialObjectMetadata, unknown []string, err error) {
	options := metav1.CreateOptions{FieldManager: api.FieldManager, FieldValidation: metav1.FieldValidationWarn}
	var warnings unknownFieldWarnings
	meta, err = metadata(c.on(c.rest.Post(), t, false).WarningHandlerWithContext(&warnings).
		SetHeader("Content-Type", runtime.ContentTypeJSON).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx))
	return meta, warnings.paths, err
}

func (c *client) get(ctx context.Context, t target) (*metav1.PartialObjectMetadata, error) {
	return metadata(c.on(c.rest.Get(), t, true).Do(ctx))
}

// object reads a whole object into an encoding/json value.
func (c *client) object(ctx context.Context, t target, into any) error {
	data, err := c.on(c.rest.Get(), t, true).SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	return nil
}

// any reports whether there is an object of the resource, in whichever namespace.
func (c *client) any(ctx context.Context, resource schema.GroupVersionResource) (bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	options := metav1.ListOptions{Limit: 1}
	err := c.on(c.rest.Get(), target{resource: resource}, false).SetHeader("Accept", metadataOnlyList).
		VersionedParams(&options, metav1.ParameterCodec).Do(ctx).Into(list)
	return len(list.Items) > 0, err
}

// check has the server validate and admit a new object without creating it. One that is there already makes no
// difference to that: the server notices it last, and answers AlreadyExists.
func (c *client) check(ctx context.Context, t target, data []byte) error {
	options := metav1.CreateOptions{FieldManager: api.FieldManager, DryRun: []string{metav1.DryRunAll}}
	return c.on(c.rest.Post(), t, false).SetHeader("Content-Type", runtime.ContentTypeJSON).
		WarningHandlerWithContext(&unknownFieldWarnings{}).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx).Error()
}

// setManagers replaces the managed fields of the object seen: one that has changed since is a conflict.
func (c *client) setManagers(ctx context.Context, t target, seen *metav1.PartialObjectMetadata,
	entries []metav1.ManagedFieldsEntry,
) (*metav1.PartialObjectMetadata, error) {
	// Replacing the resource version, instead of testing it, has the server answer with a conflict.
	data, err := json.Marshal([]map[string]any{
		{"op": "add", "path": "/metadata/managedFields", "value": entries},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": seen.ResourceVersion},
	})
	if err != nil {
		return nil, err
	}
	options := metav1.PatchOptions{FieldManager: api.FieldManager}
	return metadata(c.on(c.rest.Patch(types.JSONPatchType), t, true).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx))
}

// delete asks for the deletion of the object seen, and of no other that may have taken its name. With unchanged, one
// that has changed since is a conflict, too. It returns nil for the metadata if that left nothing, else what is still
// there.
func (c *client) delete(ctx context.Context, t target, seen *metav1.PartialObjectMetadata, unchanged bool,
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
	return meta, err
}

// gone reports whether an object that was just deleted is no more. Of some kinds, such as Services and Pods, the server
// tells what it was instead of that.
func gone(meta *metav1.PartialObjectMetadata) bool {
	grace := meta.DeletionGracePeriodSeconds
	return meta.DeletionTimestamp == nil || len(meta.Finalizers) == 0 && grace != nil && *grace == 0
}

func (c *client) patchStatus(ctx context.Context, t target, data []byte) error {
	options := metav1.PatchOptions{FieldManager: api.FieldManager}
	return c.on(c.rest.Patch(types.MergePatchType), t, true).SubResource("status").
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx).Error()
}

// on addresses the request; named is false for requests to a collection.
func (c *client) on(r *rest.Request, t target, named bool) *rest.Request {
	root := "/apis/" + t.resource.Group
	if t.resource.Group == "" {
		root = "/api"
	}
	r = r.AbsPath(root, t.resource.Version).SetHeader("Accept", metadataOnly).Timeout(RequestTimeout).
		NamespaceIfScoped(t.namespace, t.namespace != "").Resource(t.resource.Resource)
	if named {
		r = r.Name(t.name)
	}
	return r
}

// metadata reads the answer. A server that cannot reduce objects, as some aggregated ones, sends the whole object.
func metadata(result rest.Result) (*metav1.PartialObjectMetadata, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	meta := &metav1.PartialObjectMetadata{}
	err := result.Into(meta)
	if runtime.IsNotRegisteredError(err) {
		data, _ := result.Raw() // its error is that of the result
		err = json.Unmarshal(data, meta)
	}
	if err == nil && meta.Name == "" {
		err = errors.New("it is no object")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	return meta, nil
}
