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
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Existing is what a cluster has already of an installation; the zero value is a bare cluster.
type Existing struct {
	// ClusterVersion is nil if there is none.
	ClusterVersion *configv1.ClusterVersion
	// Deployment is that of the operator; nil if there is none.
	Deployment *appsv1.Deployment
	// PullSecret are the cluster's credentials for registries; nil if there are none.
	PullSecret []byte
	// Bundle holds the certificates that the operator trusts besides the system's; nil if there is none.
	Bundle *corev1.ConfigMap
	// ending are the objects that an installation needs and that are being deleted.
	ending []string
}

// Look finds out what a cluster has of an installation.
func Look(ctx context.Context, cfg *rest.Config, namespace, name string) (Existing, error) {
	c, err := connect(cfg, nil)
	if err != nil {
		return Existing{}, err
	}
	return c.look(ctx, namespace, name)
}

func (c *cluster) look(ctx context.Context, namespace, name string) (e Existing, err error) {
	cv, deployment, secret, bundle := &configv1.ClusterVersion{}, &appsv1.Deployment{}, &corev1.Secret{}, &corev1.ConfigMap{}
	for _, part := range []struct {
		what string
		key  client.ObjectKey
		into client.Object
		take func()
	}{
		{"ClusterVersion", client.ObjectKey{Name: name}, cv, func() { e.ClusterVersion = cv }},
		{"Deployment", client.ObjectKey{Namespace: namespace, Name: Operator}, deployment, func() { e.Deployment = deployment }},
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
			part.take()
		}
	}
	if e.ending, err = c.ending(ctx, namespace, name); err != nil {
		return Existing{}, err
	}
	return e, nil
}

// ending finds what an installation needs and somebody has asked to delete.
func (c *cluster) ending(ctx context.Context, namespace, name string) ([]string, error) {
	ids := []manifest.ID{{Group: configv1.GroupName, Kind: "ClusterVersion", Name: name}}
	for _, namespace := range []string{namespace, api.ConfigNamespace, api.ConfigManagedNamespace} {
		ids = append(ids, manifest.ID{Kind: "Namespace", Name: namespace})
	}
	for _, crd := range append(neededCRDs(), operatorCRDs()...) {
		ids = append(ids, crdID(crd))
	}
	var ending []string
	for _, id := range ids {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: id.Name}}
		object.SetGroupVersionKind(schema.GroupVersionKind{Group: id.Group, Version: "v1", Kind: id.Kind})
		live, err := c.metadata(ctx, object)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		if text := id.Kind + " " + id.Name; live != nil && live.DeletionTimestamp != nil && !slices.Contains(ending, text) {
			ending = append(ending, text)
		}
	}
	return ending, nil
}

// Ending refuses an installation into a cluster that something of it is just being deleted from; nil if there is nothing
// such. What is installed now would go with it.
func (e Existing) Ending() error {
	if len(e.ending) == 0 {
		return nil
	}
	return &Refusal{fmt.Errorf("%s is being deleted: let 'cvo uninstall' end what it has begun, or wait until it is gone, and install then", strings.Join(e.ending, ", "))}
}

// Refuse says why a release cannot be installed into the cluster; nil if it can.
func (e Existing) Refuse(image string) error {
	if err := e.Ending(); err != nil {
		return err
	}
	if e.ClusterVersion == nil {
		return nil
	}
	status := e.ClusterVersion.Status
	if len(status.History) == 0 {
		return nil // nothing was ever installed, so what was tried before is replaced
	}
	if !release.SameImage(status.Desired.Image, image) {
		return &Refusal{fmt.Errorf("the cluster is at release %s (%s) already: an install does not update; use 'cvo upgrade --to-image %s'",
			status.Desired.Version, status.Desired.Image, image)}
	}
	if asked := e.asked(); asked != "" {
		return &Refusal{fmt.Errorf("the cluster was asked to update to %s: an install would set it back; let 'cvo upgrade wait' tell when it is there, or take the request back with 'cvo upgrade --clear'", asked)}
	}
	return nil
}

// asked is the release that spec asks for and the operator has not answered for yet; empty if there is none. From then on
// the release that status desires decides, whether the operator has accepted or refused.
func (e Existing) asked() string {
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

// Distrusts says what to do about certificates that are trusted here, and not by the operator in the cluster because its
// bundle is there already and lacks them; empty if there is nothing to do. The bundle is not changed: it is somebody's.
func (e Existing) Distrusts(s Settings) string {
	added := strings.TrimSpace(string(s.Authorities))
	if added == "" || e.Bundle == nil || strings.Contains(e.Bundle.Data[api.CABundleKey], added) {
		return ""
	}
	return fmt.Sprintf("ConfigMap %s/%s is there already without the certificates of --certificate-authority, and stays as it is: add them to its key %s, else the operator may not reach the registry",
		api.ConfigManagedNamespace, api.TrustedCABundle, api.CABundleKey)
}

// Network reports whether the operator was installed to run before the cluster has a network.
func (e Existing) Network() bool {
	if e.Deployment == nil {
		return false
	}
	for _, container := range e.Deployment.Spec.Template.Spec.Containers {
		for _, variable := range container.Env {
			if container.Name == Operator && variable.Name == networkVariable && variable.Value == "true" {
				return true
			}
		}
	}
	return false
}

// Unlike lists what the settings ask for and the ClusterVersion that is there has otherwise. It is not changed: it is
// its administrators'.
func (e Existing) Unlike(s Settings) []string {
	if e.ClusterVersion == nil {
		return nil
	}
	var unlike []string
	spec := e.ClusterVersion.Spec
	if s.Channel != "" && s.Channel != spec.Channel {
		unlike = append(unlike, fmt.Sprintf("its channel is %q: use 'cvo upgrade channel %s' to change it", spec.Channel, s.Channel))
	}
	if s.Upstream != "" && s.Upstream != string(spec.Upstream) {
		unlike = append(unlike, fmt.Sprintf("its update service is %q: edit spec.upstream to change it", spec.Upstream))
	}
	if s.Capabilities != nil && !equalCapabilities(s.Capabilities, spec.Capabilities) {
		unlike = append(unlike, "it asks for other capabilities: edit spec.capabilities to change them")
	}
	return unlike
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
