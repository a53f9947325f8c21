package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/install/plan"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Existing is the part of an installation that a cluster already has. The zero value describes a cluster without any.
type Existing struct {
	// ClusterVersion is nil if it does not exist.
	ClusterVersion *configv1.ClusterVersion
	// Deployment is the operator's Deployment; nil if it does not exist.
	Deployment *appsv1.Deployment
	// PullSecret holds the cluster's registry credentials; nil if there are none.
	PullSecret []byte
	// Bundle is the ConfigMap with the certificates that the operator trusts in addition to the system's; nil if it does not exist.
	Bundle *corev1.ConfigMap
	// beingDeleted lists the objects that an installation needs but that are being deleted.
	beingDeleted []string
}

// Look reads the existing part of an installation from a cluster.
func Look(ctx context.Context, cfg *rest.Config, namespace, name string) (Existing, error) {
	c, err := target.Connect(ctx, cfg, nil)
	if err != nil {
		return Existing{}, err
	}
	return readExisting(ctx, c, namespace, name)
}

func readExisting(ctx context.Context, c *target.Cluster, namespace, name string) (e Existing, err error) {
	cv, deployment, secret, bundle := &configv1.ClusterVersion{}, &appsv1.Deployment{}, &corev1.Secret{}, &corev1.ConfigMap{}
	for _, part := range []struct {
		what string
		key  client.ObjectKey
		into client.Object
		set  func()
	}{
		{"ClusterVersion", client.ObjectKey{Name: name}, cv, func() { e.ClusterVersion = cv }},
		{"Deployment", client.ObjectKey{Namespace: namespace, Name: target.Operator}, deployment, func() { e.Deployment = deployment }},
		{
			"Secret",
			client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.PullSecret},
			secret,
			func() { e.PullSecret = secret.Data[corev1.DockerConfigJsonKey] },
		},
		{"ConfigMap", client.ObjectKey{Namespace: api.ConfigManagedNamespace, Name: api.TrustedCABundle}, bundle, func() { e.Bundle = bundle }},
	} {
		switch err := c.Get(ctx, part.key, part.into); {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		case err != nil:
			return Existing{}, fmt.Errorf("reading %s %s: %w", part.what, strings.TrimPrefix(part.key.String(), "/"), err)
		default:
			part.set()
		}
	}
	if e.beingDeleted, err = findBeingDeleted(ctx, c, namespace, name); err != nil {
		return Existing{}, err
	}
	return e, nil
}

// findBeingDeleted returns the objects that an installation needs but that are being deleted.
func findBeingDeleted(ctx context.Context, c *target.Cluster, namespace, name string) ([]string, error) {
	ids := []manifest.ID{{Group: configv1.GroupName, Kind: "ClusterVersion", Name: name}}
	for _, namespace := range []string{namespace, api.ConfigNamespace, api.ConfigManagedNamespace} {
		ids = append(ids, manifest.ID{Kind: "Namespace", Name: namespace})
	}
	for _, crd := range append(target.NeededCRDs(), target.OperatorCRDs()...) {
		ids = append(ids, target.CRD(crd))
	}
	var ending []string
	for _, id := range ids {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: id.Name}}
		object.SetGroupVersionKind(schema.GroupVersionKind{Group: id.Group, Version: "v1", Kind: id.Kind})
		live, err := c.Metadata(ctx, object)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		if text := id.Kind + " " + id.Name; live != nil && live.DeletionTimestamp != nil && !slices.Contains(ending, text) {
			ending = append(ending, text)
		}
	}
	return ending, nil
}

// CheckDeletion returns an error if objects of an installation are being deleted, because new objects would be deleted with them.
func (e Existing) CheckDeletion() error {
	if len(e.beingDeleted) == 0 {
		return nil
	}
	return &target.Refusal{Err: fmt.Errorf("%s is being deleted: let 'cvo uninstall' finish, or wait until it is gone, then install again", strings.Join(e.beingDeleted, ", "))}
}

// CheckRelease returns the reason why a release cannot be installed into the cluster; nil if it can.
func (e Existing) CheckRelease(image string) error {
	if err := e.CheckDeletion(); err != nil {
		return err
	}
	if e.ClusterVersion == nil {
		return nil
	}
	status := e.ClusterVersion.Status
	if len(status.History) == 0 {
		return nil // no release was ever installed, so the new release replaces the earlier attempt
	}
	if !release.SameImage(status.Desired.Image, image) {
		return &target.Refusal{Err: fmt.Errorf("the cluster already runs release %s (%s), and 'cvo install' does not update it: use 'cvo upgrade --to-image %s'",
			status.Desired.Version, status.Desired.Image, image)}
	}
	if requested := e.requested(); requested != "" {
		return &target.Refusal{Err: fmt.Errorf("the ClusterVersion requests an update to %s, which an install would revert: wait for it with 'cvo upgrade wait', or cancel it with 'cvo upgrade --clear'", requested)}
	}
	return nil
}

// requested returns the release that spec requests and that the operator has not answered yet, or an empty string. Once the operator has
// accepted or rejected the request, the desired release in status counts.
func (e Existing) requested() string {
	cv := e.ClusterVersion
	update, accepted := cv.Spec.DesiredUpdate, api.FindCondition(cv.Status.Conditions, api.ReleaseAccepted)
	answered := cv.Status.ObservedGeneration == cv.Generation && (accepted == nil || accepted.Status != configv1.ConditionUnknown)
	switch {
	case update == nil, update.Mode == configv1.UpdateModePreflight, answered:
	case update.Image != "" && !release.SameImage(update.Image, cv.Status.Desired.Image):
		return update.Image
	case update.Image == "" && update.Version != cv.Status.Desired.Version:
		return update.Version
	}
	return ""
}

// TrustWarning returns a warning with the remedy if the cluster's existing bundle lacks certificates that this install trusts; otherwise an
// empty string. An install does not change another owner's bundle.
func (e Existing) TrustWarning(s plan.Settings) string {
	added := strings.TrimSpace(string(s.Authorities))
	if added == "" || e.Bundle == nil || strings.Contains(e.Bundle.Data[api.CABundleKey], added) {
		return ""
	}
	return fmt.Sprintf("the existing ConfigMap %s/%s lacks the certificates of --certificate-authority: add them to its key %s, or the operator may not reach the registry",
		api.ConfigManagedNamespace, api.TrustedCABundle, api.CABundleKey)
}

// Network reports whether the installed operator can run before the cluster has a network.
func (e Existing) Network() bool {
	if e.Deployment == nil {
		return false
	}
	for _, container := range e.Deployment.Spec.Template.Spec.Containers {
		for _, variable := range container.Env {
			if container.Name == target.Operator && variable.Name == plan.NetworkVariable && variable.Value == "true" {
				return true
			}
		}
	}
	return false
}

// warnings describes requested settings that the installation ignores, because the cluster already has other values.
func (e Existing) warnings(s plan.Settings) []string {
	var warnings []string
	if warning := e.TrustWarning(s); warning != "" {
		warnings = append(warnings, warning)
	}
	for _, difference := range e.Differences(s) {
		warnings = append(warnings, fmt.Sprintf("keeping the existing ClusterVersion %s: %s", s.Name, difference))
	}
	return warnings
}

// Differences lists the settings that differ from the existing ClusterVersion. An install does not change the ClusterVersion,
// because it belongs to its administrators.
func (e Existing) Differences(s plan.Settings) []string {
	if e.ClusterVersion == nil {
		return nil
	}
	var difference []string
	spec := e.ClusterVersion.Spec
	if s.Channel != "" && s.Channel != spec.Channel {
		difference = append(difference, fmt.Sprintf("its channel is %q: use 'cvo upgrade channel %s' to change it", spec.Channel, s.Channel))
	}
	if s.Upstream != "" && s.Upstream != string(spec.Upstream) {
		difference = append(difference, fmt.Sprintf("its update service is %q: edit spec.upstream to change it", spec.Upstream))
	}
	if s.ClusterID != "" && s.ClusterID != string(spec.ClusterID) {
		difference = append(difference, fmt.Sprintf("its cluster ID is %q: edit spec.clusterID to change it", spec.ClusterID))
	}
	if s.Capabilities != nil && !equalCapabilities(s.Capabilities, spec.Capabilities) {
		difference = append(difference, "it requests other capabilities: edit spec.capabilities to change them")
	}
	return difference
}

func equalCapabilities(a, b *configv1.ClusterVersionCapabilitiesSpec) bool {
	if b == nil || a.BaselineCapabilitySet != b.BaselineCapabilitySet || len(a.AdditionalEnabledCapabilities) != len(b.AdditionalEnabledCapabilities) {
		return false
	}
	have := map[configv1.ClusterVersionCapability]bool{}
	for _, capability := range b.AdditionalEnabledCapabilities {
		have[capability] = true
	}
	for _, capability := range a.AdditionalEnabledCapabilities {
		if !have[capability] {
			return false
		}
	}
	return true
}
