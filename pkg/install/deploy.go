package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Outcome says what became of an object.
type Outcome string

// Outcomes of an installation.
const (
	Created   Outcome = "created"
	Changed   Outcome = "changed"
	Unchanged Outcome = "unchanged"
	Deleted   Outcome = "deleted"
	Kept      Outcome = "kept"
)

// Result is what was done about one object.
type Result struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Namespace  string  `json:"namespace,omitempty"`
	Name       string  `json:"name"`
	Outcome    Outcome `json:"outcome"`
	// Message adds what a reader should know, may be empty.
	Message string `json:"message,omitempty"`
}

// String reads like "Service openshift-cluster-version/cluster-version-operator".
func (r Result) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

func newResult(object *unstructured.Unstructured, outcome Outcome) Result {
	return Result{
		APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(), Outcome: outcome,
	}
}

// Deploy brings everything of a plan into the cluster, and says so item by item. What is there as it should be is not
// written to. done may be nil.
func Deploy(ctx context.Context, cfg *rest.Config, plan Plan, injection apply.Injection, done func(Result)) ([]Result, error) {
	if done == nil {
		done = func(Result) {}
	}
	c, err := connect(cfg, plan.manifests)
	if err != nil {
		return nil, err
	}
	d := &deployer{c, plan, injection}
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	var results []Result
	for _, item := range plan.Items {
		result, err := d.bring(ctx, item)
		if err != nil {
			return results, fmt.Errorf("installing %s: %w", item.ID(), err)
		}
		if item.Is("apiextensions.k8s.io", "CustomResourceDefinition") {
			if err := d.established(ctx, item.Manifest); err != nil {
				return results, fmt.Errorf("waiting for CRD %s: %w", item.Object.GetName(), err)
			}
		}
		results = append(results, result)
		done(result)
	}
	return results, nil
}

// deployer carries out a plan.
type deployer struct {
	*cluster
	plan      Plan
	injection apply.Injection
}

// check refuses what the cluster would refuse, before anything is written: another release, and what somebody else has set
// to other values than an administrator chose.
func (d *deployer) check(ctx context.Context) error {
	there, err := d.look(ctx, d.plan.Settings.Namespace, d.plan.Settings.Name)
	if err != nil {
		return err
	}
	if err := there.Refuse(d.plan.Image); err != nil {
		return err
	}
	for _, item := range d.plan.Items {
		if item.how != chosen {
			continue
		}
		live, err := d.metadata(ctx, item.Object)
		if err == nil && live != nil {
			_, err = d.choose(ctx, item.Object, client.DryRunAll)
		}
		if err != nil {
			return fmt.Errorf("installing %s: %w", item.ID(), err)
		}
	}
	return nil
}

// bring has one object be as the item says.
func (d *deployer) bring(ctx context.Context, item Item) (Result, error) {
	live, err := d.metadata(ctx, item.Object)
	if err != nil {
		return Result{}, err
	}
	var version string
	switch {
	case item.how == once && live != nil:
		return newResult(item.Object, Unchanged), nil
	case item.how == once:
		err = d.create(ctx, item.Object)
		if apierrors.IsAlreadyExists(err) {
			return newResult(item.Object, Unchanged), nil
		}
	case item.how == chosen:
		version, err = d.choose(ctx, item.Object)
	case item.deployment():
		version, err = d.deployment(ctx, item.Manifest, live)
	default:
		version, err = d.release(ctx, item.Manifest, live)
	}
	switch {
	case err != nil:
		return Result{}, err
	case live == nil:
		return newResult(item.Object, Created), nil
	case live.ResourceVersion == version:
		return newResult(item.Object, Unchanged), nil
	}
	return newResult(item.Object, Changed), nil
}

// metadata reads the metadata of the object that is there; nil if there is none.
func (c *cluster) metadata(ctx context.Context, object client.Object) (*metav1.PartialObjectMetadata, error) {
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	switch err := c.Get(ctx, client.ObjectKeyFromObject(object), live); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, fmt.Errorf("reading it: %w", err)
	}
	return live, nil
}

// create creates an object. A kind that was defined a moment ago may be served and not yet be listed as such.
func (c *cluster) create(ctx context.Context, object *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	return retry.OnError(wait.Backoff{Duration: 100 * time.Millisecond, Steps: 100, Factor: 1.1, Cap: 5 * time.Second},
		func(err error) bool { return meta.IsNoMatchError(err) && ctx.Err() == nil },
		func() error { return c.Create(ctx, object.DeepCopy(), client.FieldOwner(api.FieldManager)) })
}

// release applies a manifest as the operator does. An object that the operator has marked as the ClusterVersion's stays
// marked: to apply it without the mark would take that off.
func (d *deployer) release(ctx context.Context, m *manifest.Manifest, live *metav1.PartialObjectMetadata) (version string, err error) {
	owner := apply.Owner{}
	if live != nil {
		owner = ownerOf(live, d.plan.Settings.Namespace)
	}
	applier := apply.New(d.connection, d.mapper, owner).WithInjection(d.injection)
	change, err := applier.Apply(ctx, m, release.Initializing)
	return change.ResourceVersion, err
}

// ownerOf is the ClusterVersion that the operator has marked an object with; the zero value if it has not.
func ownerOf(live *metav1.PartialObjectMetadata, namespace string) apply.Owner {
	name := live.Labels[api.OwnedByLabel]
	for _, reference := range live.OwnerReferences {
		if reference.Kind == "ClusterVersion" && reference.Name == name && name != "" {
			return apply.Owner{Name: name, UID: reference.UID, ApplySet: inventory.ApplySetID(namespace, name)}
		}
	}
	return apply.Owner{}
}

// choose applies what an administrator chose, under the installer's name. Without client.ForceOwnership, values that
// somebody else has set are a refusal.
func (c *cluster) choose(ctx context.Context, object *unstructured.Unstructured, options ...client.ApplyOption) (version string, err error) {
	applied := object.DeepCopy()
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), append(options, client.FieldOwner(Manager))...)
	if apierrors.IsConflict(err) {
		return "", &Refusal{fmt.Errorf("somebody else has set it: %w: change it with what wrote it, or delete it and install again", err)}
	}
	return applied.GetResourceVersion(), err
}

// deployment applies the operator's Deployment with the choices in its environment. They are the installer's fields, not
// the operator's, so that they stay when the operator applies the Deployment of the next release. When it is created they
// are in it from the start, so that no pod is started without them, and change hands without a change.
//
// Whether the cluster is to stay at this release is asked once more: an update that was begun since would be set back.
func (d *deployer) deployment(ctx context.Context, m *manifest.Manifest, live *metav1.PartialObjectMetadata) (version string, err error) {
	there := Existing{ClusterVersion: &configv1.ClusterVersion{}}
	if err := d.Get(ctx, client.ObjectKey{Name: d.plan.Settings.Name}, there.ClusterVersion); err != nil {
		return "", fmt.Errorf("reading ClusterVersion %s: %w", d.plan.Settings.Name, err)
	}
	if err := there.Refuse(d.plan.Image); err != nil {
		return "", err
	}
	choices := d.plan.Settings.environment()
	if len(choices) > 0 && live == nil {
		with, err := withEnvironment(m, choices)
		if err != nil {
			return "", err
		}
		if _, err := d.release(ctx, with, nil); err != nil {
			return "", err
		}
		if _, err := d.choose(ctx, choicesOf(m, choices), client.ForceOwnership); err != nil {
			return "", err
		}
	}
	version, err = d.release(ctx, m, live)
	if err != nil || len(choices) == 0 {
		return version, err
	}
	return d.choose(ctx, choicesOf(m, choices), client.ForceOwnership)
}

// environment are the choices that outlive updates.
func (s Settings) environment() []any {
	if s.Retrieval == "" {
		return nil
	}
	return []any{map[string]any{"name": retrievalVariable, "value": s.Retrieval}}
}

// choicesOf is the part of the Deployment that is the installer's.
func choicesOf(m *manifest.Manifest, environment []any) *unstructured.Unstructured {
	part := &unstructured.Unstructured{}
	part.SetGroupVersionKind(m.GVK())
	part.SetNamespace(m.Object.GetNamespace())
	part.SetName(m.Object.GetName())
	_ = unstructured.SetNestedSlice(part.Object, []any{map[string]any{"name": Operator, "env": environment}}, "spec", "template", "spec", "containers")
	return part
}

// withEnvironment is a Deployment with more variables in the operator's container, in the place of those with the same name.
func withEnvironment(m *manifest.Manifest, environment []any) (*manifest.Manifest, error) {
	with := *m
	with.Object = m.Object.DeepCopy()
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(with.Object.Object, path...)
	if err != nil {
		return nil, err
	}
	for _, item := range containers {
		container, ok := item.(map[string]any)
		if !ok || container["name"] != Operator {
			continue
		}
		container["env"] = mergeEnvironment(container["env"], environment)
		return &with, unstructured.SetNestedSlice(with.Object.Object, containers, path...)
	}
	return nil, errors.New("it has no container " + Operator)
}

func mergeEnvironment(have any, more []any) []any {
	var merged []any
	set := map[any]bool{}
	for _, item := range more {
		set[item.(map[string]any)["name"]] = true
	}
	list, _ := have.([]any)
	for _, item := range list {
		if variable, ok := item.(map[string]any); ok && !set[variable["name"]] {
			merged = append(merged, item)
		}
	}
	return append(merged, more...)
}

// Refusal is a deliberate no: the cluster is not such that the installer may go on.
type Refusal struct{ Err error }

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// CheckPullSecret reports what is wrong with the credentials in a file.
func CheckPullSecret(data []byte) error {
	var config struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("it is no dockerconfigjson: %w", err)
	}
	if len(config.Auths) == 0 {
		return errors.New("it has no credentials under auths: give a file such as 'docker login' or 'podman login --authfile' writes")
	}
	return nil
}
