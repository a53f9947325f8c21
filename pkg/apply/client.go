package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

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
	restClient, err := rest.RESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	return &Connection{client: &client{rest: restClient}}, nil
}

// client sends the few requests that applying needs and reads metadata alone from the answers.
type client struct{ rest rest.Interface }

// target addresses one object.
type target struct {
	resource        schema.GroupVersionResource
	namespace, name string
	custom          bool
}

// metadataOnly asks the server to answer with metadata instead of the object (Kubernetes API concepts, "Resource
// representations"). Statuses, such as errors and delete results, come as they are.
const metadataOnly = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

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

// delete asks for the deletion of the object with that UID. It returns nil for the metadata if that left nothing, else
// what is still there.
func (c *client) delete(ctx context.Context, t target, uid types.UID) (*metav1.PartialObjectMetadata, error) {
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions:     &metav1.Preconditions{UID: &uid},
		PropagationPolicy: &background,
	}
	result := c.on(c.rest.Delete(), t, true).Body(&options).Do(ctx)
	if answer, err := result.Get(); err == nil {
		if _, gone := answer.(*metav1.Status); gone {
			return nil, nil
		}
	}
	return metadata(result)
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
