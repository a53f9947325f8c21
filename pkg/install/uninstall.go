package install

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Removal says what is to be removed.
type Removal struct {
	// Namespace of the operator; default api.OperatorNamespace.
	Namespace string
	// Name of the ClusterVersion; default "version".
	Name string
	// Platform removes what releases brought, too.
	Platform bool
	// DeleteData goes on where that would delete volume claims or objects that no release brought.
	DeleteData bool
	// Force goes on while a release is being rolled out.
	Force bool
	// DryRun only tells.
	DryRun bool
}

// Uninstall removes the operator, and what releases brought only if asked for. Nothing is touched before every reason to
// refuse has been looked at. done is told each object, say what is waited for. It can be done again after it was
// interrupted.
func Uninstall(ctx context.Context, clk clock.Clock, cfg *rest.Config, removal Removal, done func(Result), say func(string)) ([]Result, error) {
	removal.Namespace = cmp.Or(removal.Namespace, api.OperatorNamespace)
	removal.Name = cmp.Or(removal.Name, api.ClusterVersionName)
	c, err := connect(cfg, nil)
	if err != nil {
		return nil, err
	}
	served, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	u := &remover{cluster: c, clock: clk, discovery: served, core: core, removal: removal, done: done, say: say}
	if err := u.look(ctx); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
		// left says what an interruption leaves behind.
		left string
	}{
		{"stopping the operator", u.stop, "the operator is stopped, all else is as it was"},
		{"taking the platform out of the ClusterVersion's hands", u.disown, "the operator is stopped, and the platform as it was"},
		{"deleting the ClusterVersion", u.clusterVersion, "the operator is stopped, the ClusterVersion gone or about to go, and the platform as it was"},
		{"deleting the platform", u.platform, "the operator is stopped, the ClusterVersion gone, and a part of the platform, too"},
		{"deleting the operator", u.operator, "the ClusterVersion is gone, and a part of the operator, too"},
	} {
		if err := step.run(ctx); err != nil {
			if err := u.giveBack(ctx); err != nil {
				u.say(err.Error())
			}
			return u.results, &UnfinishedError{Left: step.left, Err: fmt.Errorf("%s: %w", step.name, err)}
		}
	}
	return u.results, nil
}

// UnfinishedError says what an uninstall leaves behind that did not come to its end.
type UnfinishedError struct {
	// Left is how the cluster is, in a sentence without a period.
	Left string
	Err  error
}

func (e *UnfinishedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnfinishedError) Unwrap() error { return e.Err }

// remover takes an operator out of a cluster.
type remover struct {
	*cluster
	clock     clock.Clock
	discovery *discovery.DiscoveryClient
	core      corev1client.ConfigMapsGetter
	removal   Removal
	done      func(Result)
	say       func(string)
	results   []Result

	// version is nil if there is no ClusterVersion any more.
	version *configv1.ClusterVersion
	owned   []metav1.PartialObjectMetadata
	// places tell which manifest has brought an object, as far as that is recorded.
	places map[manifest.ID]inventory.Record

	hold
}

// look finds out what there is, and refuses what must not be done.
func (u *remover) look(ctx context.Context) error {
	cv := &configv1.ClusterVersion{}
	switch err := u.Get(ctx, client.ObjectKey{Name: u.removal.Name}, cv); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
	case err != nil:
		return fmt.Errorf("reading ClusterVersion %s: %w", u.removal.Name, err)
	default:
		u.version = cv
	}
	if u.version != nil && !u.removal.Force && len(cv.Status.History) > 0 && cv.Status.History[0].State == configv1.PartialUpdate {
		return &Refusal{fmt.Errorf("release %s is being rolled out, and half of it would stay: wait with 'cvo upgrade wait', or use --force", cv.Status.History[0].Version)}
	}
	var err error
	if u.owned, err = u.list(ctx); err != nil || !u.removal.Platform {
		return err
	}
	return u.readPlaces(ctx)
}

// readPlaces reads the inventory, which goes with the operator at the end. What it does not tell costs the order of some
// objects and nothing else.
func (u *remover) readPlaces(ctx context.Context) error {
	inv, err := inventory.NewStore(u.core, u.removal.Namespace, u.removal.Name).Load(ctx)
	if _, damaged := errors.AsType[*inventory.DamagedError](err); damaged {
		u.say(err.Error() + ": objects that are recorded there are deleted by their kind")
	} else if err != nil {
		return err
	}
	u.places = inv.Records
	return nil
}

// list finds all objects that releases brought, of all kinds that the cluster serves.
func (u *remover) list(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	kinds, err := u.kinds(ctx)
	if err != nil {
		return nil, err
	}
	var all []metav1.PartialObjectMetadata
	seen := map[types.UID]bool{}
	for _, gvk := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		switch err := u.List(ctx, list, client.MatchingLabels{api.OwnedByLabel: u.removal.Name}); {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("listing %s: %w", gvk.GroupKind(), err)
		}
		for _, item := range list.Items {
			item.SetGroupVersionKind(gvk)
			if !seen[item.UID] && !ofController(&item) {
				seen[item.UID] = true
				all = append(all, item)
			}
		}
	}
	services := map[types.NamespacedName]bool{}
	for i := range all {
		if all[i].GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Service") {
			services[client.ObjectKeyFromObject(&all[i])] = true
		}
	}
	return slices.DeleteFunc(all, func(object metav1.PartialObjectMetadata) bool { // they have no owner, and go with the Service
		return object.GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Endpoints") && services[client.ObjectKeyFromObject(&object)]
	}), nil
}

// ofController reports whether a controller has made an object for another, whose labels it gave it: no release brought
// it, and it goes with the other.
func ofController(object *metav1.PartialObjectMetadata) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.Kind != "ClusterVersion"
}

// kinds are all that can be listed and deleted. An API whose server is away is a reason to stop: what it has would be
// left behind, or be deleted with its owner.
func (u *remover) kinds(context.Context) ([]schema.GroupVersionKind, error) {
	lists, err := u.discovery.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("asking for the APIs of the cluster: %w: what an API that is away has cannot be looked after; mend it or remove its APIService", err)
	}
	var kinds []schema.GroupVersionKind
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "delete") {
				kinds = append(kinds, gv.WithKind(resource.Kind))
			}
		}
	}
	return kinds, nil
}

// stop has no operator act any more. The Lease is taken from whoever leads, in the cluster or outside: an operator that
// cannot renew it does not write, and gives its word for that as soon as no write of it is under way; without its word, as
// from one of an earlier version or one that is stopped, it is waited until its fence is closed for certain. Then the
// Deployment is scaled down, again and again if need be, because an operator that renews slowly repairs it while it still
// can. That begins with the word, or when an operator should have noticed: until then it would repair what is done to its
// Deployment, pods would start only to be ended, and a kubelet may wait out the whole grace period of one that is ended
// while it starts.
func (u *remover) stop(ctx context.Context) error {
	if u.removal.DryRun {
		return nil
	}
	if err := u.take(ctx); err != nil {
		return err
	}
	noticed := u.clock.Now().Add(notice)
	said := ""
	return wait.PollUntilContextCancel(ctx, glance, true, func(ctx context.Context) (bool, error) {
		if err := errors.Join(u.renew(ctx), u.hear(ctx)); err != nil {
			return false, err
		}
		if u.fencing() && u.clock.Now().Before(noticed) {
			return false, nil
		}
		if err := u.scaleDown(ctx); err != nil {
			return false, err
		}
		pods := &corev1.PodList{}
		if err := u.List(ctx, pods, client.InNamespace(u.removal.Namespace), client.MatchingLabels{podLabel: Operator}); err != nil {
			return false, err
		}
		waiting := ""
		switch {
		case len(pods.Items) > 0:
			waiting = fmt.Sprintf("waiting for %d pods of the operator to end", len(pods.Items))
		case u.fencing():
			waiting = fmt.Sprintf("waiting until %s, for operator %s to notice that it leads no more", u.fenced.UTC().Format(time.TimeOnly), u.fencedHolder)
		default:
			return true, nil
		}
		if waiting != said {
			u.say(waiting)
			said = waiting
		}
		return false, nil
	})
}

// glance is how often it is looked whether the operator has stopped.
const glance = 250 * time.Millisecond

func (u *remover) scaleDown(ctx context.Context) error {
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: u.removal.Namespace, Name: Operator}
	switch err := u.Get(ctx, key, deployment); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case ptr.Deref(deployment.Spec.Replicas, 1) == 0:
		return nil
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	return client.IgnoreNotFound(u.Patch(ctx, deployment, patch, client.FieldOwner(Manager)))
}

// disown removes the references to the ClusterVersion from what releases brought. The garbage collector would do so for
// a deletion that orphans; but what it does not know of yet it would delete as soon as the owner is gone.
func (u *remover) disown(ctx context.Context) error {
	if u.version == nil || u.removal.DryRun {
		return nil
	}
	if len(u.owned) > 0 {
		u.say(fmt.Sprintf("taking %d objects out of the ClusterVersion's hands", len(u.owned)))
	}
	for i := range u.owned {
		if err := errors.Join(u.renew(ctx), u.disownOne(ctx, &u.owned[i])); err != nil {
			return err
		}
	}
	// Nobody acts any more, so what is looked at now is what the garbage collector will find.
	again, err := u.list(ctx)
	if err != nil {
		return err
	}
	for i := range again {
		if refersTo(&again[i], u.version.UID) {
			return fmt.Errorf("%s is owned by the ClusterVersion again: something still applies the release; stop it and do this again", describe(&again[i]))
		}
	}
	return nil
}

func (u *remover) disownOne(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if !refersTo(object, u.version.UID) {
			return nil
		}
		others := slices.DeleteFunc(slices.Clone(object.OwnerReferences), func(o metav1.OwnerReference) bool { return o.UID == u.version.UID })
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"ownerReferences": others, "resourceVersion": object.ResourceVersion, "uid": object.UID,
		}})
		if err != nil {
			return err
		}
		err = u.Patch(ctx, object.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(Manager))
		if apierrors.IsConflict(err) {
			if err := u.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
		}
		return err
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("%s: %w", describe(object), err)
	}
	return nil
}

func refersTo(object client.Object, uid types.UID) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == uid })
}

func describe(object *metav1.PartialObjectMetadata) string {
	return outcomeOf(object, "").String()
}

func outcomeOf(object *metav1.PartialObjectMetadata, outcome Outcome) Result {
	gvk := object.GroupVersionKind()
	return Result{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: object.Namespace, Name: object.Name, Outcome: outcome}
}

// clusterVersion deletes the ClusterVersion, and leaves what it owned where it is.
func (u *remover) clusterVersion(ctx context.Context) error {
	if u.version == nil {
		return nil
	}
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: u.version.Name, UID: u.version.UID}}
	object.SetGroupVersionKind(configv1.GroupVersion.WithKind("ClusterVersion"))
	return u.remove(ctx, object, metav1.DeletePropagationOrphan)
}

// allowDeletion is the annotation that the deletion guard looks for.
const allowDeletion = "cvo.cluster-version.github.io/allow-deletion"

// remove deletes one object and waits until it is gone. Finalizers are for whoever set them.
func (u *remover) remove(ctx context.Context, object *metav1.PartialObjectMetadata, propagation metav1.DeletionPropagation) error {
	if err := u.startRemoval(ctx, object, propagation); err != nil {
		return err
	}
	return u.gone(ctx, []*metav1.PartialObjectMetadata{object})
}

// startRemoval asks for the deletion of the object that was seen, and of no other that has taken its name.
func (u *remover) startRemoval(ctx context.Context, object *metav1.PartialObjectMetadata, propagation metav1.DeletionPropagation) error {
	if u.removal.DryRun {
		return nil
	}
	if guarded(object) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+allowDeletion+`":"true"}}}`))
		if err := u.Patch(ctx, object.DeepCopy(), patch, client.FieldOwner(Manager)); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	options := []client.DeleteOption{client.PropagationPolicy(propagation)}
	if object.UID != "" {
		options = append(options, client.Preconditions{UID: &object.UID})
	}
	// The answer holds the object if a finalizer keeps it, and must be readable whatever its kind.
	named := &unstructured.Unstructured{}
	named.SetGroupVersionKind(object.GroupVersionKind())
	named.SetNamespace(object.Namespace)
	named.SetName(object.Name)
	err := u.Delete(ctx, named, options...)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or another one has its name
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", describe(object), err)
	}
	return nil
}

func guarded(object *metav1.PartialObjectMetadata) bool {
	return object.Kind == "ClusterVersion" || object.Kind == crdKind && object.Name == neededCRDs()[0]
}

const crdKind = "CustomResourceDefinition"

// gone waits until objects are gone, and says which finalizers hold them.
func (u *remover) gone(ctx context.Context, objects []*metav1.PartialObjectMetadata) error {
	said := ""
	var stuck []string
	err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if u.removal.DryRun {
			return true, nil
		}
		if err := u.renew(ctx); err != nil {
			return false, err
		}
		stuck = nil
		for _, object := range objects {
			live := &metav1.PartialObjectMetadata{}
			live.SetGroupVersionKind(object.GroupVersionKind())
			err := u.Get(ctx, client.ObjectKeyFromObject(object), live)
			switch {
			case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
				continue
			case err != nil:
				return false, err
			case object.UID != "" && live.UID != object.UID:
				continue
			}
			stuck = append(stuck, strings.TrimSuffix(fmt.Sprintf("%s (finalizers %s)", describe(object), strings.Join(live.Finalizers, ", ")), " (finalizers )"))
		}
		if text := listed(stuck); text != said && text != "" {
			u.say("waiting for the end of " + text)
			said = text
		}
		return len(stuck) == 0, nil
	})
	if err != nil {
		if len(stuck) > 0 {
			return fmt.Errorf("%w: still there: %s; finalizers are never removed by force: mend what has to remove them, and do this again", err, listed(stuck))
		}
		return err
	}
	for _, object := range objects {
		u.tell(outcomeOf(object, Deleted))
	}
	return nil
}

func listed(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func (u *remover) tell(result Result) {
	u.results = append(u.results, result)
	u.done(result)
}

// platform deletes what releases brought, in the order that deletionSteps gives it.
func (u *remover) platform(ctx context.Context) error {
	if !u.removal.Platform {
		return nil
	}
	defined, err := u.definitions(ctx)
	if err != nil {
		return err
	}
	var going []*metav1.PartialObjectMetadata
	for i := range u.owned {
		object := &u.owned[i]
		if u.own(object) {
			continue
		}
		why, err := u.keep(ctx, object)
		if err != nil {
			return err
		}
		if why != "" {
			kept := outcomeOf(object, Kept)
			kept.Message = why
			u.tell(kept)
			continue
		}
		going = append(going, object)
	}
	steps, err := deletionSteps(going, u.places, defined)
	if err != nil {
		return err
	}
	for _, step := range steps {
		for _, object := range step {
			if err := u.startRemoval(ctx, object, metav1.DeletePropagationBackground); err != nil {
				return err
			}
		}
		if err := u.gone(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// definitions are the kinds that CRDs define, by the CRD's name.
func (u *remover) definitions(ctx context.Context) (map[string]schema.GroupKind, error) {
	list, err := u.crds(ctx)
	kinds := map[string]schema.GroupKind{}
	for _, crd := range list {
		kinds[crd.Name] = schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
	}
	return kinds, err
}

// own reports whether an object is part of what makes the operator run, which goes last.
func (u *remover) own(object *metav1.PartialObjectMetadata) bool {
	gk := object.GroupVersionKind().GroupKind()
	switch {
	case object.Namespace == u.removal.Namespace, gk == (schema.GroupKind{Kind: "Namespace"}) && object.Name == u.removal.Namespace:
		return true
	case gk.Kind == "ClusterVersion":
		return true
	case gk.Kind == crdKind:
		return slices.Contains(operatorCRDs(), object.Name)
	case gk.Group == rbacv1.GroupName:
		return object.Name == Operator || strings.HasPrefix(object.Name, Operator+"-")
	case gk.Group == "admissionregistration.k8s.io":
		return object.Name == deletionGuard
	}
	return false
}

const deletionGuard = "cluster-version-deletion-guard"

// operatorCRDs are those whose objects are the operator's alone.
func operatorCRDs() []string {
	return []string{"releasestatuses.cvo.cluster-version.github.io", "releaserollouts.cvo.cluster-version.github.io", neededCRDs()[0]}
}

// keep says why an object of the platform is not deleted: something would go with it that no release brought.
func (u *remover) keep(ctx context.Context, object *metav1.PartialObjectMetadata) (string, error) {
	switch gk := object.GroupVersionKind().GroupKind(); {
	case u.removal.DeleteData:
		return "", nil
	case gk == (schema.GroupKind{Kind: "PersistentVolume"}), gk == (schema.GroupKind{Kind: "PersistentVolumeClaim"}),
		gk == (schema.GroupKind{Group: "cdi.kubevirt.io", Kind: "DataVolume"}):
		return "it holds data; --delete-data deletes it", nil
	case gk == (schema.GroupKind{Kind: "Namespace"}):
		if object.Name == api.ConfigNamespace || object.Name == api.ConfigManagedNamespace {
			return "it holds configuration of administrators, such as the trust policy; --delete-data deletes it", nil
		}
		claims := &corev1.PersistentVolumeClaimList{}
		if err := u.List(ctx, claims, client.InNamespace(object.Name), client.Limit(1)); err != nil {
			return "", fmt.Errorf("looking for volume claims in namespace %s: %w", object.Name, err)
		}
		if len(claims.Items) > 0 {
			return "there are volume claims in it; --delete-data deletes them", nil
		}
	case gk.Kind == crdKind:
		return u.instances(ctx, object.Name)
	}
	return "", nil
}

// operator deletes what makes the operator run, from what needs it to what it needs. The guard goes after what it
// guards.
func (u *remover) operator(ctx context.Context) error {
	var last []*metav1.PartialObjectMetadata
	add := func(gvk schema.GroupVersionKind, namespace, name string) error {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		object.SetGroupVersionKind(gvk)
		live, err := u.metadata(ctx, object)
		if err == nil && live != nil {
			live.SetGroupVersionKind(gvk)
			last = append(last, live)
		}
		return err
	}
	var errs []error
	for _, name := range operatorCRDs() {
		errs = append(errs, add(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: crdKind}, "", name))
	}
	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"} {
		errs = append(errs, add(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind}, "", deletionGuard))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, kind := range []string{"ClusterRoleBinding", "RoleBinding", "ClusterRole", "Role"} {
		found, err := u.roles(ctx, rbacv1.SchemeGroupVersion.WithKind(kind))
		if err != nil {
			return err
		}
		last = append(last, found...)
	}
	if err := add(corev1.SchemeGroupVersion.WithKind("Namespace"), "", u.removal.Namespace); err != nil {
		return err
	}
	for _, object := range last {
		if err := u.startRemoval(ctx, object, metav1.DeletePropagationBackground); err != nil {
			return err
		}
	}
	return u.gone(ctx, last)
}

// roles finds the roles and bindings of the operator outside its namespace, by name and by who made them.
func (u *remover) roles(ctx context.Context, gvk schema.GroupVersionKind) ([]*metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk)
	if err := u.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing %s: %w", gvk.GroupKind(), err)
	}
	var found []*metav1.PartialObjectMetadata
	for i := range list.Items {
		item := &list.Items[i]
		item.SetGroupVersionKind(gvk)
		ours := slices.ContainsFunc(item.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.Manager == api.FieldManager || e.Manager == Manager
		})
		for annotation := range item.Annotations { // applied by hand from rendered files
			ours = ours || strings.HasPrefix(annotation, api.IncludePrefix)
		}
		if ours && u.own(item) && item.Namespace != u.removal.Namespace {
			found = append(found, item)
		}
	}
	return found, nil
}
