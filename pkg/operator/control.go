package operator

import (
	"context"
	"fmt"
	"sync"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/clusterversion"
)

// clusterVersionDefinition is the name of the definition of ClusterVersion.
const clusterVersionDefinition = "clusterversions.config.openshift.io"

// control watches what administrators control beyond the ClusterVersion. It is a source of the controller, which waits
// for its first answers, and implements clusterversion.Control.
type control struct {
	client dynamic.Interface
	name   string

	synced []toolscache.InformerSynced

	mu   sync.Mutex
	look clusterversion.Controls
}

func newControl(mgr manager.Manager, options Options) (*control, error) {
	client, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating dynamic client: %w", err)
	}
	return &control{client: client, name: options.Name}, nil
}

// Look implements clusterversion.Control.
func (c *control) Look() clusterversion.Controls {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.look
}

// Start implements source.Source: it starts the watches, and has the ClusterVersion reconciled when they tell anything
// new.
func (c *control) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	changed := func() { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: c.name}}) }
	definition, err := c.watch(definitions(), clusterVersionDefinition, func(crd *unstructured.Unstructured) {
		if c.update(func(look *clusterversion.Controls) { look.Schema = schemaOf(crd) }) {
			changed()
		}
	})
	if err != nil {
		return err
	}
	c.synced = append(c.synced, definition.synced)
	go definition.informer.RunWithContext(ctx)
	return nil
}

// WaitForSync implements source.SyncingSource.
func (c *control) WaitForSync(ctx context.Context) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return fmt.Errorf("watching %s: %w", clusterVersionDefinition, ctx.Err())
	}
	return nil
}

// update changes the look and reports whether it is another one.
func (c *control) update(change func(*clusterversion.Controls)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.look
	change(&c.look)
	return before != c.look
}

// single is the watch of one object.
type single struct {
	informer toolscache.SharedIndexInformer
	// synced reports whether the first answer has been taken over.
	synced toolscache.InformerSynced
}

// watch makes the watch of one object by its name; seen is called with each of its states, nil for its absence.
func (c *control) watch(
	resource schema.GroupVersionResource, name string, seen func(*unstructured.Unstructured),
) (single, error) {
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(c.client, resource, metav1.NamespaceAll, 0, toolscache.Indexers{}, only).Informer()
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { seen(o.(*unstructured.Unstructured)) },
		UpdateFunc: func(_, o any) { seen(o.(*unstructured.Unstructured)) },
		DeleteFunc: func(any) { seen(nil) },
	})
	if err != nil {
		return single{}, fmt.Errorf("watching %s %s: %w", resource.Resource, name, err)
	}
	return single{informer, handler.HasSynced}, nil
}

func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// schemaField is a field of ClusterVersion that not every variant of its definition has.
type schemaField struct {
	path []string
	has  func(*clusterversion.Schema) *bool
}

func schemaFields() []schemaField {
	return []schemaField{
		{[]string{"spec", "desiredUpdate", "mode"}, func(s *clusterversion.Schema) *bool { return &s.Mode }},
		{[]string{"spec", "desiredUpdate", "acceptRisks"}, func(s *clusterversion.Schema) *bool { return &s.AcceptRisks }},
		{[]string{"status", "conditionalUpdateRisks"}, func(s *clusterversion.Schema) *bool { return &s.ConditionalUpdateRisks }},
		{[]string{"status", "conditionalUpdates", "[]", "riskNames"}, func(s *clusterversion.Schema) *bool { return &s.RiskNames }},
		{
			[]string{"status", "conditionalUpdates", "[]", "risks", "[]", "conditions"},
			func(s *clusterversion.Schema) *bool { return &s.RiskConditions },
		},
	}
}

// schemaOf reads from the definition of ClusterVersion which fields it has; of none it has none.
func schemaOf(crd *unstructured.Unstructured) clusterversion.Schema {
	var out clusterversion.Schema
	if crd == nil {
		return out
	}
	versions, _, _ := unstructured.NestedFieldNoCopy(crd.Object, "spec", "versions")
	list, _ := versions.([]any)
	for _, item := range list {
		version, _ := item.(map[string]any)
		if version["name"] != configv1.GroupVersion.Version {
			continue
		}
		root, _, _ := unstructured.NestedFieldNoCopy(version, "schema", "openAPIV3Schema")
		for _, field := range schemaFields() {
			*field.has(&out) = hasField(root, field.path)
		}
	}
	return out
}

// hasField follows the names of fields, "[]" for the entries of a list, down a schema.
func hasField(node any, path []string) bool {
	for _, name := range path {
		here, _ := node.(map[string]any)
		if name == "[]" {
			node = here["items"]
			continue
		}
		properties, _ := here["properties"].(map[string]any)
		node = properties[name]
	}
	return node != nil
}
