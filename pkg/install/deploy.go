// Package install installs the version operator in a cluster. It takes a verified release and the administrator's choices, checks for an
// existing installation, applies a plan from package plan, and follows the operator until it runs. Installing a second time repairs
// these objects. The operator then installs the rest of the release. Package uninstall removes the operator.
package install

import (
	"context"
	"fmt"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/install/plan"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

func newResult(object *unstructured.Unstructured, outcome target.Outcome) target.Result {
	return target.Result{
		APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName(), Outcome: outcome,
	}
}

// Deploy installs all items of a plan in the cluster and calls done with each result; done may be nil. Deploy does not write to objects
// that already match.
func Deploy(ctx context.Context, cfg *rest.Config, p plan.Plan, injection inject.Values, done func(target.Result)) ([]target.Result, error) {
	if done == nil {
		done = func(target.Result) {}
	}
	c, err := target.Connect(ctx, cfg, p.Manifests)
	if err != nil {
		return nil, err
	}
	d := &deployer{c, p, injection}
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	var results []target.Result
	for _, item := range p.Items {
		result, err := d.applyItem(ctx, item)
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

// deployer installs a plan.
type deployer struct {
	*target.Cluster
	plan      plan.Plan
	injection inject.Values
}

// check returns an error before any write if the cluster would reject the installation. It rejects an installation of another release, and
// choices in fields that another client has set to other values.
func (d *deployer) check(ctx context.Context) error {
	there, err := readExisting(ctx, d.Cluster, d.plan.Settings.Namespace, d.plan.Settings.Name)
	if err != nil {
		return err
	}
	if err = there.CheckDeletion(); err == nil && d.plan.Deploys() {
		err = there.CheckRelease(d.plan.Image)
	}
	if err != nil {
		return err
	}
	for _, item := range d.plan.Items {
		if item.Mode != plan.AsInstaller {
			continue
		}
		live, err := d.Metadata(ctx, item.Object)
		if err == nil && live != nil {
			_, err = d.applyChoice(ctx, item.Object, client.DryRunAll)
		}
		if err != nil {
			return fmt.Errorf("installing %s: %w", item.ID(), err)
		}
	}
	return nil
}

// applyItem makes one object match its item.
func (d *deployer) applyItem(ctx context.Context, item plan.Item) (target.Result, error) {
	live, err := d.Metadata(ctx, item.Object)
	if err != nil {
		return target.Result{}, err
	}
	var version string
	switch {
	case item.Mode == plan.CreateOnce && live != nil:
		return newResult(item.Object, target.Unchanged), nil
	case item.Mode == plan.CreateOnce:
		var isOurs bool
		if isOurs, err = d.create(ctx, item.Object); err == nil && !isOurs {
			return newResult(item.Object, target.Unchanged), nil
		}
	case item.Mode == plan.AsInstaller:
		version, err = d.applyChoice(ctx, item.Object)
	case item.IsDeployment():
		version, err = d.deployment(ctx, item.Manifest, live)
	default:
		version, err = d.release(ctx, item.Manifest, live)
	}
	switch {
	case err != nil:
		return target.Result{}, err
	case live == nil:
		return newResult(item.Object, target.Created), nil
	case live.ResourceVersion == version:
		return newResult(item.Object, target.Unchanged), nil
	}
	return newResult(item.Object, target.Changed), nil
}

// create creates an object that did not exist a moment ago. It reports whether the installer created the existing object, and not another
// client. A repeated request whose first response was lost fails as if another client were faster, but managedFields then contain an update
// by the installer. The server may serve a newly defined kind before it lists the kind.
func (d *deployer) create(ctx context.Context, object *unstructured.Unstructured) (isOurs bool, err error) {
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, establishTimeout, true, func(ctx context.Context) (bool, error) {
		err := d.Create(ctx, object.DeepCopy(), client.FieldOwner(api.FieldManager))
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		return err == nil, err
	})
	if !apierrors.IsAlreadyExists(err) {
		return err == nil, err
	}
	live, err := d.Metadata(ctx, object)
	return live != nil && slices.ContainsFunc(live.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == api.FieldManager && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
	}), err
}

// release applies a manifest as the operator does. It keeps the owner reference to the ClusterVersion that the operator has set, because
// applying the manifest without it would remove it.
func (d *deployer) release(ctx context.Context, m *manifest.Manifest, live *metav1.PartialObjectMetadata) (version string, err error) {
	owner := body.Owner{}
	if live != nil {
		owner = ownerOf(live, d.plan.Settings.Namespace)
	}
	applier := apply.New(d.Connection, d.Mapper, owner).WithValues(d.injection)
	change, err := applier.Apply(ctx, m, release.Initializing)
	return change.ResourceVersion, err
}

// ownerOf returns the ClusterVersion that the operator has recorded as the object's owner, or the zero value.
func ownerOf(live *metav1.PartialObjectMetadata, namespace string) body.Owner {
	name := live.Labels[api.OwnedByLabel]
	for _, reference := range live.OwnerReferences {
		if reference.Kind == "ClusterVersion" && reference.Name == name && name != "" {
			return body.Owner{Name: name, UID: reference.UID, ApplySet: inventory.ApplySetID(namespace, name)}
		}
	}
	return body.Owner{}
}

// applyChoice applies the administrator's choices under the installer's name. Without client.ForceOwnership, it fails for
// values that another client has set.
func (d *deployer) applyChoice(ctx context.Context, object *unstructured.Unstructured, options ...client.ApplyOption) (version string, err error) {
	applied := object.DeepCopy()
	err = d.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), append(options, client.FieldOwner(target.Manager))...)
	if apierrors.IsConflict(err) {
		return "", &target.Refusal{Err: fmt.Errorf("another client has set these fields: %w: change them with that client, or delete the object and install again", err)}
	}
	return applied.GetResourceVersion(), err
}

// deployment applies the operator's Deployment with the choices in its environment. The installer owns these fields, so they survive when
// the operator applies the Deployment of the next release. A new Deployment is created with the choices, so that no pod starts without
// them. Applying them afterwards changes only their owner.
//
// Just before the write, deployment checks again whether the cluster is to stay at this release. Without the check, the write would revert
// an update that has started meanwhile.
func (d *deployer) deployment(ctx context.Context, m *manifest.Manifest, live *metav1.PartialObjectMetadata) (version string, err error) {
	there := Existing{ClusterVersion: &configv1.ClusterVersion{}}
	if err := d.Get(ctx, client.ObjectKey{Name: d.plan.Settings.Name}, there.ClusterVersion); err != nil {
		return "", fmt.Errorf("reading ClusterVersion %s: %w", d.plan.Settings.Name, err)
	}
	if err := there.CheckRelease(d.plan.Image); err != nil {
		return "", err
	}
	choices := d.plan.Settings.Environment()
	if len(choices) > 0 && live == nil {
		with, err := plan.WithEnvironment(m, choices)
		if err != nil {
			return "", err
		}
		if _, err := d.release(ctx, with, nil); err != nil {
			return "", err
		}
		if _, err := d.applyChoice(ctx, plan.ChoicesOf(m, choices), client.ForceOwnership); err != nil {
			return "", err
		}
	}
	version, err = d.release(ctx, m, live)
	if err != nil || len(choices) == 0 {
		return version, err
	}
	return d.applyChoice(ctx, plan.ChoicesOf(m, choices), client.ForceOwnership)
}

// establishTimeout limits the wait for one CRD. An API server usually needs much less than a second.
const establishTimeout = time.Minute

// established waits until the API server serves the kind of a CRD.
func (d *deployer) established(ctx context.Context, m *manifest.Manifest) error {
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	selector := client.MatchingFields{metav1.ObjectNameField: m.Object.GetName()}
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &gate.CRDList{}
			return list, d.List(ctx, list, selector, &client.ListOptions{Raw: &options})
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return d.Watch(ctx, &gate.CRDList{}, selector, &client.ListOptions{Raw: &options})
		},
	}
	_, err := watchtools.UntilWithSync(ctx, lw, &gate.CRD{}, nil, func(e watch.Event) (bool, error) {
		crd, ok := e.Object.(*gate.CRD)
		return ok && gate.Check(crd, gate.Want{Manifest: m, Mode: release.Initializing}).State == gate.Settled, nil
	})
	return err
}
