package install

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/permission"
)

// Names of what an installation consists of.
const (
	// Operator is the name of the operator's Deployment, its container, its service account and the component whose
	// manifests they come from.
	Operator = "cluster-version-operator"
	// ClusterAdminBinding gives the operator all rights, where somebody asked for that.
	ClusterAdminBinding = "cluster-version-operator-cluster-admin"
	// Manager is the field manager of what an administrator chose: it outlives updates, because the operator applies
	// releases under a name of its own.
	Manager = "cvo-install"
)

// Choices that outlive updates are environment variables of the operator's container.
const (
	retrievalVariable = "CVO_PAYLOAD_RETRIEVAL"
	networkVariable   = "CVO_BRING_YOUR_OWN_NETWORK"
)

// Settings are what an administrator chooses for an installation; the zero value is one with signatures and pull secret
// left to what is in the cluster.
type Settings struct {
	// Namespace of the operator; default api.OperatorNamespace.
	Namespace string
	// Name of the ClusterVersion; default "version".
	Name string
	// Trust is the content of the trust ConfigMap; none without.
	Trust map[string]string
	// TrustBinary are those of its keys that hold no text.
	TrustBinary map[string][]byte
	// PullSecret holds credentials for registries, in the form of a dockerconfigjson; none without.
	PullSecret []byte
	// ExistingPullSecret is what the cluster has already; the operator's pods are started with it if none is given.
	ExistingPullSecret []byte
	// Authorities are PEM certificates that the operator is to trust as this install does; none without.
	Authorities []byte
	// ClusterAdmin binds the operator to cluster-admin.
	ClusterAdmin bool
	// Retrieval is how the operator gets payloads; empty leaves it to the operator.
	Retrieval string
	// Channel, Upstream and Capabilities go into a ClusterVersion that is created.
	Channel, Upstream string
	Capabilities      *configv1.ClusterVersionCapabilitiesSpec
	// ClusterID identifies the cluster; a new one without.
	ClusterID string
}

func (s Settings) withDefaults() Settings {
	s.Namespace = cmp.Or(s.Namespace, api.OperatorNamespace)
	s.Name = cmp.Or(s.Name, api.ClusterVersionName)
	s.ClusterID = cmp.Or(s.ClusterID, uuid.NewString())
	return s
}

// how is the way in which an item comes into the cluster.
type how int

const (
	// released is applied as the operator applies releases.
	released how = iota
	// once is created, and left as it is if it is there.
	once
	// chosen is applied under the installer's own name, and refused if somebody else has set other values.
	chosen
)

// Item is one object of an installation.
type Item struct {
	*manifest.Manifest
	how how
}

// deployment reports whether it is the operator's Deployment.
func (i Item) deployment() bool { return i.Is("apps", "Deployment") && i.Object.GetName() == Operator }

// Plan is what an installation consists of, in the order in which it is applied.
type Plan struct {
	Release  string
	Image    string
	Settings Settings
	Items    []Item
	// manifests are all of the release, which tell of the kinds that its CRDs define.
	manifests []*manifest.Manifest
}

// ErrNoOperator says that a release does not bring what an installation deploys.
var ErrNoOperator = errors.New("the release brings no operator that could be deployed")

// NewPlan makes the plan of an installation from a payload that was verified.
func NewPlan(p *payload.Payload, settings Settings) (Plan, error) {
	plan := Plan{Release: p.Release.Version, Image: p.Release.Image, Settings: settings.withDefaults(), manifests: p.Manifests}
	if err := plan.addOperator(p); err != nil {
		return Plan{}, err
	}
	if err := plan.addRole(p); err != nil {
		return Plan{}, err
	}
	if err := plan.addChosen(); err != nil {
		return Plan{}, err
	}
	slices.SortStableFunc(plan.Items, func(a, b Item) int { return cmp.Compare(stage(a), stage(b)) })
	return plan, nil
}

// addOperator takes over the operator's own part of the release.
func (p *Plan) addOperator(payload *payload.Payload) error {
	missing := map[manifest.ID]bool{p.Deployment(): true}
	for _, crd := range neededCRDs() {
		missing[crdID(crd)] = true
	}
	for _, m := range payload.Manifests {
		if !ofOperator(m) || m.Tombstone() {
			continue
		}
		if namespace := m.Object.GetNamespace(); namespace != "" && namespace != p.Settings.Namespace && m.ID().Kind == "Deployment" {
			return fmt.Errorf("%w: its operator runs in namespace %s: use --namespace %s", ErrNoOperator, namespace, namespace)
		}
		delete(missing, m.ID())
		way := released
		if m.CreateOnly() {
			way = once
		}
		p.Items = append(p.Items, Item{m, way})
	}
	for _, id := range append([]manifest.ID{p.Deployment()}, crdID(neededCRDs()[0]), crdID(neededCRDs()[1])) {
		if missing[id] {
			return fmt.Errorf("%w: release %s has no %s in its manifests %s*", ErrNoOperator, payload.Release.Version, id, ownFiles)
		}
	}
	return nil
}

// addRole adds the rights that applying the release takes, which older releases do not say themselves.
func (p *Plan) addRole(payload *payload.Payload) error {
	if slices.ContainsFunc(p.Items, func(item Item) bool { return item.File == permission.File }) {
		return nil
	}
	data, err := permission.ReleaseManifest(payload.Manifests)
	if err != nil {
		return err
	}
	role, err := manifest.Parse(permission.File, data, manifest.Limits{})
	if err != nil {
		return fmt.Errorf("making the role of the release: %w", err)
	}
	for _, m := range role {
		p.Items = append(p.Items, Item{m, released})
	}
	return nil
}

// Deployment is that of the operator.
func (p *Plan) Deployment() manifest.ID {
	return manifest.ID{Group: "apps", Kind: "Deployment", Namespace: p.Settings.Namespace, Name: Operator}
}

func neededCRDs() []string {
	return []string{"clusterversions.config.openshift.io", "clusteroperators.config.openshift.io"}
}

func crdID(name string) manifest.ID {
	return manifest.ID{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: name}
}

// ownFiles is how the files of the operator's own set begin.
const ownFiles = "0000_00_cluster-version-operator_"

// ofOperator reports whether a manifest is part of what makes the operator run.
func ofOperator(m *manifest.Manifest) bool {
	return strings.HasPrefix(m.File, ownFiles) || m.File == permission.File
}

// addChosen adds what does not come from the release.
func (p *Plan) addChosen() error {
	s := p.Settings
	for _, namespace := range []string{s.Namespace, api.ConfigNamespace, api.ConfigManagedNamespace} {
		if p.find(manifest.ID{Kind: "Namespace", Name: namespace}) != nil {
			continue
		}
		if err := p.add(once, &corev1.Namespace{TypeMeta: typeMeta("v1", "Namespace"), ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			return err
		}
	}
	if len(s.Trust)+len(s.TrustBinary) > 0 {
		err := p.add(chosen, &corev1.ConfigMap{
			TypeMeta:   typeMeta("v1", "ConfigMap"),
			ObjectMeta: described(api.ConfigNamespace, api.TrustConfigMap, "Whose signatures of release images this cluster accepts."),
			Data:       s.Trust, BinaryData: s.TrustBinary,
		})
		if err != nil {
			return err
		}
	}
	if len(s.Authorities) > 0 {
		err := p.add(once, &corev1.ConfigMap{
			TypeMeta:   typeMeta("v1", "ConfigMap"),
			ObjectMeta: described(api.ConfigManagedNamespace, api.TrustedCABundle, "Certificates that the version operator trusts besides the system's."),
			Data:       map[string]string{api.CABundleKey: string(s.Authorities)},
		})
		if err != nil {
			return err
		}
	}
	if len(s.PullSecret) > 0 {
		original := pullSecret(api.ConfigNamespace, api.PullSecret, "Credentials for registries.", s.PullSecret)
		if err := p.add(chosen, original); err != nil {
			return err
		}
	}
	credentials := s.PullSecret
	if len(credentials) == 0 {
		credentials = s.ExistingPullSecret
	}
	if len(credentials) > 0 {
		if err := p.add(released, pullSecret(s.Namespace, api.PullSecretCopy, api.PullSecretCopyDescription, credentials)); err != nil {
			return err
		}
	}
	if s.ClusterAdmin {
		if err := p.add(chosen, clusterAdmin(s.Namespace)); err != nil {
			return err
		}
	}
	return p.add(once, &configv1.ClusterVersion{
		TypeMeta:   typeMeta(configv1.GroupVersion.String(), "ClusterVersion"),
		ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Spec: configv1.ClusterVersionSpec{
			ClusterID: configv1.ClusterID(s.ClusterID), Channel: s.Channel, Upstream: configv1.URL(s.Upstream), Capabilities: s.Capabilities,
		},
	})
}

func typeMeta(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

func described(namespace, name, description string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"kubernetes.io/description": description}}
}

func pullSecret(namespace, name, description string, data []byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: typeMeta("v1", "Secret"), ObjectMeta: described(namespace, name, description),
		Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: data},
	}
}

func clusterAdmin(namespace string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   typeMeta(rbacv1.SchemeGroupVersion.String(), "ClusterRoleBinding"),
		ObjectMeta: described("", ClusterAdminBinding, "Lets the version operator do anything, as 'cvo install --cluster-admin' asked."),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: Operator}},
	}
}

func (p *Plan) add(way how, object runtime.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Errorf("converting %T: %w", object, err)
	}
	delete(content, "status")
	if spec, ok := content["spec"].(map[string]any); ok && len(spec) == 0 {
		delete(content, "spec")
	}
	dropNulls(content)
	p.Items = append(p.Items, Item{&manifest.Manifest{Component: Operator, Object: &unstructured.Unstructured{Object: content}}, way})
	return nil
}

// dropNulls removes what types write although it is not set.
func dropNulls(object map[string]any) {
	maps.DeleteFunc(object, func(_ string, value any) bool {
		if fields, ok := value.(map[string]any); ok {
			dropNulls(fields)
		}
		return value == nil
	})
}

func (p *Plan) find(id manifest.ID) *manifest.Manifest {
	for _, item := range p.Items {
		if item.ID() == id {
			return item.Manifest
		}
	}
	return nil
}

// stage is the place of an item in the order of an installation: what others live in or are made of comes first, the
// guard before the ClusterVersion that it guards, and the Deployment last, so that the operator finds all it needs.
func stage(item Item) int {
	id := item.ID()
	switch (schema.GroupKind{Group: id.Group, Kind: id.Kind}) {
	case schema.GroupKind{Kind: "Namespace"}:
		return 0
	case schema.GroupKind{Kind: "Secret"}, schema.GroupKind{Kind: "ConfigMap"}:
		return 1
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		return 2
	case schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"},
		schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}:
		return 3
	case schema.GroupKind{Kind: "ServiceAccount"}:
		return 4
	case schema.GroupKind{Group: rbacv1.GroupName, Kind: "ClusterRole"}, schema.GroupKind{Group: rbacv1.GroupName, Kind: "Role"}:
		return 5
	case schema.GroupKind{Group: rbacv1.GroupName, Kind: "ClusterRoleBinding"}, schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}:
		return 6
	case schema.GroupKind{Group: configv1.GroupName, Kind: "ClusterVersion"}:
		return 8
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}:
		return 9
	}
	return 7
}
