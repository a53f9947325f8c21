package apply

import (
	"context"
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
func Connect(config *rest.Config, httpClient *http.Client) (*Connection, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return nil, fmt.Errorf("preparing scheme: %w", err)
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // priority and fairness on the server decides
	config.Timeout = RequestTimeout
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
}

// metadataOnly asks the server to answer with metadata instead of the object (Kubernetes API concepts, "Resource
// representations"). Statuses, such as errors and delete results, come as they are.
const metadataOnly = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

func (c *client) apply(ctx context.Context, t target, data []byte) (*metav1.PartialObjectMetadata, int, error) {
	force := true
	options := metav1.PatchOptions{FieldManager: api.FieldManager, Force: &force}
	result := c.on(c.rest.Patch(types.ApplyPatchType), t, true).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx)
	code := 0
	result.StatusCode(&code)
	meta, err := metadata(result)
	return meta, code, err
}

func (c *client) create(ctx context.Context, t target, data []byte) (*metav1.PartialObjectMetadata, error) {
	options := metav1.CreateOptions{FieldManager: api.FieldManager}
	return metadata(c.on(c.rest.Post(), t, false).
		SetHeader("Content-Type", runtime.ContentTypeJSON).
		VersionedParams(&options, metav1.ParameterCodec).Body(data).Do(ctx))
}

func (c *client) get(ctx context.Context, t target) (*metav1.PartialObjectMetadata, error) {
	return metadata(c.on(c.rest.Get(), t, true).Do(ctx))
}

func (c *client) delete(ctx context.Context, t target, uid types.UID) error {
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions:     &metav1.Preconditions{UID: &uid},
		PropagationPolicy: &background,
	}
	return c.on(c.rest.Delete(), t, true).Body(&options).Do(ctx).Error()
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
	r = r.AbsPath(root, t.resource.Version).SetHeader("Accept", metadataOnly).
		NamespaceIfScoped(t.namespace, t.namespace != "").Resource(t.resource.Resource)
	if named {
		r = r.Name(t.name)
	}
	return r
}

func metadata(result rest.Result) (*metav1.PartialObjectMetadata, error) {
	meta := &metav1.PartialObjectMetadata{}
	if err := result.Into(meta); err != nil {
		return nil, err
	}
	return meta, nil
}
