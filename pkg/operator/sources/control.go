package sources

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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	controls "github.com/cluster-version/cvo/pkg/clusterversion/control"
	"github.com/cluster-version/cvo/pkg/kube/fence"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/manifest/definition"
)

// clusterVersionDefinition is the name of the CustomResourceDefinition of ClusterVersion.
const clusterVersionDefinition = "clusterversions.config.openshift.io"

// Control watches the ReleaseRollout and the schema of ClusterVersion, and writes the status of the ReleaseRollout. It is a controller
// source, and the controller waits for its first results. It implements controls.Object.
type Control struct {
	clock  clock.PassiveClock
	client dynamic.Interface
	name   string
	// repairs limits how often the ReleaseRollout is created, because another client may keep deleting it.
	repairs fence.Repairs

	synced []toolscache.DoneChecker
	// changed requests a reconcile of the ClusterVersion.
	changed func()

	rollout *watch.Served

	mu   sync.Mutex
	look controls.Look
}

func newControl(clk clock.PassiveClock, client dynamic.Interface, name string) *Control {
	c := &Control{clock: clk, client: client, name: name, repairs: fence.NewRepairs(clk.Now())}
	c.rollout = watch.NewServed(client, releaseRollouts(), c.name, c.seen)
	return c
}

// Look implements controls.Object.
func (c *Control) Look() controls.Look {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.look
}

// Start implements source.Source. It starts the watches. A relevant change requests a reconcile of the ClusterVersion.
func (c *Control) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.changed = func() { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: c.name}}) }
	for _, w := range []struct {
		name string
		seen func(crd *unstructured.Unstructured)
	}{
		{clusterVersionDefinition, func(crd *unstructured.Unstructured) {
			c.update(func(look *controls.Look) { look.Schema = schemaOf(crd) })
		}},
		{api.ReleaseRolloutDefinition, func(crd *unstructured.Unstructured) { c.serve(ctx, watch.Established(crd)) }},
	} {
		crd := watch.NewDefinition(c.client, w.name, w.seen)
		c.synced = append(c.synced, crd.HasSyncedChecker())
		go crd.RunWithContext(ctx)
	}
	return nil
}

// WaitForSync implements source.SyncingSource. It ensures that a pause is known before a rollout begins.
func (c *Control) WaitForSync(ctx context.Context) error {
	if !toolscache.WaitFor(ctx, "", c.synced...) || !c.rollout.WaitForSync(ctx) {
		return fmt.Errorf("watching the ReleaseRollout and the ClusterVersion's definition: %w", ctx.Err())
	}
	return nil
}

// serve watches the ReleaseRollout while its kind is served.
func (c *Control) serve(ctx context.Context, served bool) {
	c.update(func(look *controls.Look) {
		if look.Served = served; !served {
			look.Rollout = nil
		}
	})
	c.rollout.SetServed(ctx, served)
}

// seen records a ReleaseRollout, nil for none.
func (c *Control) seen(u *unstructured.Unstructured) {
	rollout := releaseRolloutOf(u)
	c.update(func(look *controls.Look) {
		if look.Served { // a watch that has ended may still report an event
			look.Rollout = rollout
		}
	})
}

// releaseRolloutOf parses a ReleaseRollout. If that fails, it parses the object without the status: another client may have written values
// that the schema accepts, and a requested pause must hold anyway. If that fails too, it returns nil.
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

// Put implements controls.Object. It replaces the whole status without checking for conflicts, because the operator is the only writer.
// Calls must not be concurrent.
func (c *Control) Put(ctx context.Context, status api.ReleaseRolloutStatus) error {
	if err := c.put(ctx, status); err != nil {
		return fmt.Errorf("writing %s %s: %w", api.ReleaseRolloutKind, c.name, err)
	}
	return nil
}

func (c *Control) put(ctx context.Context, status api.ReleaseRolloutStatus) error {
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/status", "value": status}})
	if err != nil {
		return fmt.Errorf("encoding the status: %w", err)
	}
	write := func() error {
		_, err := c.client.Resource(releaseRollouts()).Patch(
			ctx, c.name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: api.FieldManager}, "status")
		return err
	}
	if c.Look().Rollout == nil && !c.repairs.Allowed(c.clock.Now()) {
		return fence.ErrTooMany
	}
	if err = write(); !apierrors.IsNotFound(err) {
		return err
	}
	if !c.repairs.Allowed(c.clock.Now()) {
		return fence.ErrTooMany
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind))
	u.SetName(c.name)
	_, err = c.client.Resource(releaseRollouts()).Create(ctx, u, metav1.CreateOptions{FieldManager: api.FieldManager})
	if c.repairs.Count(err); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return write()
}

// update changes the look and requests a reconcile of the ClusterVersion if the change is relevant. The operator's own status writes are
// not relevant.
func (c *Control) update(change func(*controls.Look)) {
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

// schemaOf returns the fields in the definition of ClusterVersion, none if crd is nil.
func schemaOf(crd *unstructured.Unstructured) controls.Schema {
	var out controls.Schema
	if crd == nil {
		return out
	}
	for _, v := range definition.Versions(crd.Object) {
		if v.Name != configv1.GroupVersion.Version {
			continue
		}
		out.Capabilities = capabilityNames(v.Schema())
		for _, field := range controls.Fields() {
			*field.In(&out) = hasField(v.Schema(), field.Path)
		}
	}
	return out
}

// capabilityNames returns the capability names that the status may contain, with a comma before and after each. It is empty if the schema
// has no such list.
func capabilityNames(root map[string]any) string {
	names, _, _ := unstructured.NestedFieldNoCopy(root, "properties", "status", "properties", "capabilities",
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

// hasField reports whether a schema has the field at a path. "[]" in the path stands for the items of a list.
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
