package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion"
)

// clusterVersionDefinition is the name of the definition of ClusterVersion.
const clusterVersionDefinition = "clusterversions.config.openshift.io"

// control watches what administrators control beyond the ClusterVersion, and writes what there is to tell of it. It is a
// source of the controller, which waits for its first answers, and implements clusterversion.Control.
type control struct {
	clock  clock.PassiveClock
	client dynamic.Interface
	name   string
	// repairs bounds how often the ReleaseRollout is made, for somebody may keep deleting it.
	repairs bucket

	synced []toolscache.InformerSynced
	// changed has the ClusterVersion reconciled.
	changed func()

	rollout *whileServed

	mu   sync.Mutex
	look clusterversion.Controls
}

func newControl(clk clock.PassiveClock, mgr manager.Manager, options Options) (*control, error) {
	client, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating dynamic client: %w", err)
	}
	return controlOf(clk, client, options.Name), nil
}

func controlOf(clk clock.PassiveClock, client dynamic.Interface, name string) *control {
	c := &control{clock: clk, client: client, name: name, repairs: bucket{left: repairsAtOnce, at: clk.Now()}}
	c.rollout = &whileServed{client: client, resource: releaseRollouts(), name: c.name, seen: c.seen}
	return c
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
	c.changed = func() { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: c.name}}) }
	for _, w := range []struct {
		name string
		seen func(crd *unstructured.Unstructured)
	}{
		{clusterVersionDefinition, func(crd *unstructured.Unstructured) {
			c.update(func(look *clusterversion.Controls) { look.Schema = schemaOf(crd) })
		}},
		{api.ReleaseRolloutDefinition, func(crd *unstructured.Unstructured) { c.serve(ctx, established(crd)) }},
	} {
		definition := newDefinition(c.client, w.name, w.seen)
		c.synced = append(c.synced, definition.HasSynced)
		go definition.RunWithContext(ctx)
	}
	return nil
}

// WaitForSync implements source.SyncingSource. A pause is known before anything is rolled out.
func (c *control) WaitForSync(ctx context.Context) error {
	if !toolscache.WaitForCacheSync(ctx.Done(), c.synced...) || !toolscache.WaitForCacheSync(ctx.Done(), c.rollout.told) {
		return fmt.Errorf("watching what administrators control: %w", ctx.Err())
	}
	return nil
}

// serve watches the ReleaseRollout as long as its kind is served.
func (c *control) serve(ctx context.Context, served bool) {
	c.update(func(look *clusterversion.Controls) {
		if look.Served = served; !served {
			look.Rollout = nil
		}
	})
	c.rollout.serve(ctx, served)
}

// seen takes over a ReleaseRollout, nil for none.
func (c *control) seen(u *unstructured.Unstructured) {
	rollout := releaseRolloutOf(u)
	c.update(func(look *clusterversion.Controls) {
		if look.Served { // a watch that was ended may have one more thing to say
			look.Rollout = rollout
		}
	})
}

// releaseRolloutOf reads a ReleaseRollout. If that fails it is read without its status, into which others may have put what
// the schema lets pass: a pause that is asked for has to hold all the same. One that cannot be read then counts as none.
func releaseRolloutOf(u *unstructured.Unstructured) *api.ReleaseRollout {
	if u == nil {
		return nil
	}
	for _, object := range []map[string]any{u.Object, {"metadata": u.Object["metadata"], "spec": u.Object["spec"]}} {
		rollout := &api.ReleaseRollout{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, rollout); err == nil {
			return rollout
		}
	}
	return nil
}

// Put implements clusterversion.Control. It replaces the status and looks at nothing else, so that it conflicts with
// nobody: nobody else writes it. It is not called twice at a time.
func (c *control) Put(ctx context.Context, status api.ReleaseRolloutStatus) error {
	if err := c.put(ctx, status); err != nil {
		return fmt.Errorf("writing %s %s: %w", api.ReleaseRolloutKind, c.name, err)
	}
	return nil
}

func (c *control) put(ctx context.Context, status api.ReleaseRolloutStatus) error {
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/status", "value": status}})
	if err != nil {
		return fmt.Errorf("encoding it: %w", err)
	}
	write := func() error {
		_, err := c.client.Resource(releaseRollouts()).Patch(
			ctx, c.name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: api.FieldManager}, "status")
		return err
	}
	if c.Look().Rollout == nil && !c.repairs.fill(c.clock.Now()) {
		return errTooMany
	}
	if err = write(); !apierrors.IsNotFound(err) {
		return err
	}
	if !c.repairs.fill(c.clock.Now()) {
		return errTooMany
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind))
	u.SetName(c.name)
	_, err = c.client.Resource(releaseRollouts()).Create(ctx, u, metav1.CreateOptions{FieldManager: api.FieldManager})
	if c.repairs.take(err); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return write()
}

// update changes the look, and has the ClusterVersion reconciled if that makes a difference. Our own writes of status
// make none.
func (c *control) update(change func(*clusterversion.Controls)) {
	c.mu.Lock()
	before := c.look
	change(&c.look)
	now := c.look
	c.mu.Unlock()
	if before.Schema != now.Schema || before.Served != now.Served || !sameRequest(before.Rollout, now.Rollout) {
		c.changed()
	}
}

func sameRequest(a, b *api.ReleaseRollout) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.UID == b.UID && a.Generation == b.Generation && a.Spec == b.Spec
}

func releaseRollouts() schema.GroupVersionResource {
	return api.ReleaseRolloutVersion.WithResource(api.ReleaseRolloutResource)
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
		out.Capabilities = capabilityNames(root)
		for _, field := range schemaFields() {
			*field.has(&out) = hasField(root, field.path)
		}
	}
	return out
}

// capabilityNames are the capabilities that status may name, with commas around each; empty if the schema has no list.
func capabilityNames(root any) string {
	node, _ := root.(map[string]any)
	names, _, _ := unstructured.NestedFieldNoCopy(node, "properties", "status", "properties", "capabilities",
		"properties", "knownCapabilities", "items", "enum")
	list, _ := names.([]any)
	var out strings.Builder
	for _, name := range list {
		if text, ok := name.(string); ok {
			out.WriteString("," + text)
		}
	}
	if out.Len() > 0 {
		out.WriteString(",")
	}
	return out.String()
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
