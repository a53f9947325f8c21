// Package plan lists the objects of an installation: the operator's own part of a verified payload, and the trust policy, credentials and
// ClusterVersion that the administrator has chosen. It also writes these objects to files. It does not access a cluster; package install
// applies a plan.
package plan

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

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/permission"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// ClusterAdminBinding grants the operator all permissions if Settings.ClusterAdmin is set.
const ClusterAdminBinding = "cluster-version-operator-cluster-admin"

// These environment variables of the operator's container hold the choices that survive updates.
const (
	retrievalVariable = "CVO_PAYLOAD_RETRIEVAL"
	NetworkVariable   = "CVO_BRING_YOUR_OWN_NETWORK"
)

// Settings are the administrator's choices for an installation. The zero value uses the signature policy and the pull
// secret of the cluster.
type Settings struct {
	// Namespace is the operator's namespace; default api.OperatorNamespace.
	Namespace string
	// Name is the name of the ClusterVersion; default "version".
	Name string
	// Trust is the content of the trust ConfigMap; nil means no ConfigMap.
	Trust map[string]string
	// TrustBinary is the binaryData of the trust ConfigMap.
	TrustBinary map[string][]byte
	// Registries is the content of the ConfigMap with registries for the operator (egress.Registries); nil means no ConfigMap.
	Registries map[string]string
	// PullSecret holds credentials for registries as a dockerconfigjson; nil means none.
	PullSecret []byte
	// ExistingPullSecret is the cluster's pull secret; the operator's pods start with it if PullSecret is empty.
	ExistingPullSecret []byte
	// Authorities are PEM certificates that this install and the operator trust; nil means none.
	Authorities []byte
	// ClusterAdmin binds the operator to cluster-admin.
	ClusterAdmin bool
	// Retrieval is the operator's method of getting payloads; if empty, the operator decides.
	Retrieval string
	// Channel, Upstream and Capabilities are settings for a new ClusterVersion.
	Channel, Upstream string
	Capabilities      *configv1.ClusterVersionCapabilitiesSpec
	// ClusterID identifies the cluster; empty means a new ID.
	ClusterID string
}

func (s Settings) withDefaults() Settings {
	s.Namespace = cmp.Or(s.Namespace, api.OperatorNamespace)
	s.Name = cmp.Or(s.Name, api.ClusterVersionName)
	s.ClusterID = cmp.Or(s.ClusterID, uuid.NewString())
	return s
}

// Mode is how an item is installed.
type Mode int

const (
	// AsRelease applies the item as the operator applies releases.
	AsRelease Mode = iota
	// CreateOnce creates the item if it is missing, and otherwise keeps it unchanged.
	CreateOnce
	// AsInstaller applies the item under the installer's own field manager. It fails if another client has set other values.
	AsInstaller
)

// Item is one object of an installation.
type Item struct {
	*manifest.Manifest
	Mode Mode
}

// IsDeployment reports whether the item is the operator's Deployment.
func (i Item) IsDeployment() bool {
	return i.Is("apps", "Deployment") && i.Object.GetName() == target.Operator
}

// Plan lists the objects of an installation in the order in which they are applied.
type Plan struct {
	Release  string
	Image    string
	Settings Settings
	Items    []Item
	// Nothing is the reason why the cluster gets no manifest of the release; empty if it gets one.
	Nothing string
	// Manifests are all manifests of the release. Their CRDs define kinds that the cluster may not serve yet.
	Manifests []*manifest.Manifest
}

// ErrNoOperator means that a release lacks the objects to deploy.
var ErrNoOperator = errors.New("this release does not contain the operator")

// New returns the plan for an installation of a verified payload.
func New(p *payload.Payload, settings Settings) (Plan, error) {
	plan := Plan{Release: p.Release.Version, Image: p.Release.Image, Settings: settings.withDefaults(), Manifests: p.Manifests, Nothing: p.Nothing()}
	if err := plan.addOperator(p); err != nil {
		return Plan{}, err
	}
	if err := plan.addRole(p); err != nil {
		return Plan{}, err
	}
	if err := plan.addChosen(); err != nil {
		return Plan{}, err
	}
	sorted.By(plan.Items, func(a, b Item) int { return cmp.Compare(deployStage(a), deployStage(b)) })
	return plan, nil
}

// NewPreparation returns the plan for an operator that runs elsewhere: namespaces, the operator's CRDs, the administrator's
// choices, and the ClusterVersion. It ignores settings of the operator's own Deployment and account.
func NewPreparation(p *payload.Payload, settings Settings) (Plan, error) {
	plan := Plan{Release: p.Release.Version, Image: p.Release.Image, Settings: settings.withDefaults(), Manifests: p.Manifests, Nothing: p.Nothing()}
	if err := plan.addCRDs(p); err != nil {
		return Plan{}, err
	}
	for _, add := range []func() error{plan.addNamespaces, plan.addRegistries, plan.addAuthorities, plan.addPullSecret, plan.addClusterVersion} {
		if err := add(); err != nil {
			return Plan{}, err
		}
	}
	sorted.By(plan.Items, func(a, b Item) int { return cmp.Compare(deployStage(a), deployStage(b)) })
	return plan, nil
}

// releaseStatuses is the CRD for operator data that has no field in ClusterVersion.
const releaseStatuses = "releasestatuses.cvo.cluster-version.github.io"

// addCRDs adds the operator's CRDs.
func (p *Plan) addCRDs(payload *payload.Payload) error {
	for _, name := range append(target.NeededCRDs(), releaseStatuses) {
		i := slices.IndexFunc(payload.Manifests, func(m *manifest.Manifest) bool { return m.ID() == target.CRD(name) })
		switch {
		case i >= 0:
			p.Items = append(p.Items, Item{payload.Manifests[i], AsRelease})
		case name != releaseStatuses: // a release with another operator does not need this CRD
			return fmt.Errorf("release %s does not contain CRD %s: add it to the operator's manifests when you build the release", p.Release, name)
		}
	}
	return nil
}

// Deploys reports whether the plan deploys the operator in the cluster.
func (p *Plan) Deploys() bool { return p.find(p.Deployment()) != nil }

// addOperator adds the operator's own part of the release.
func (p *Plan) addOperator(payload *payload.Payload) error {
	missing := map[manifest.ID]bool{p.Deployment(): true}
	for _, crd := range target.NeededCRDs() {
		missing[target.CRD(crd)] = true
	}
	for _, m := range payload.Manifests {
		if !isOperatorManifest(m) || m.Tombstone() {
			continue
		}
		if namespace := m.Object.GetNamespace(); namespace != "" && namespace != p.Settings.Namespace && m.ID().Kind == "Deployment" {
			return fmt.Errorf("%w for this namespace: the release runs it in %s: use --namespace %s", ErrNoOperator, namespace, namespace)
		}
		delete(missing, m.ID())
		mode := AsRelease
		if m.CreateOnly() {
			mode = CreateOnce
		}
		p.Items = append(p.Items, Item{m, mode})
	}
	for _, id := range append([]manifest.ID{p.Deployment()}, target.CRD(target.NeededCRDs()[0]), target.CRD(target.NeededCRDs()[1])) {
		if missing[id] {
			return fmt.Errorf("%w: release %s has no %s in its manifests %s*", ErrNoOperator, payload.Release.Version, id, ownFiles)
		}
	}
	return nil
}

// addRole adds the permissions to apply the release. Older releases lack them.
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
		return fmt.Errorf("creating the role of the release: %w", err)
	}
	for _, m := range role {
		p.Items = append(p.Items, Item{m, AsRelease})
	}
	return nil
}

// Deployment identifies the operator's Deployment.
func (p *Plan) Deployment() manifest.ID {
	return manifest.ID{Group: "apps", Kind: "Deployment", Namespace: p.Settings.Namespace, Name: target.Operator}
}

// ownFiles is the prefix of the operator's own manifest files.
const ownFiles = "0000_00_cluster-version-operator_"

// isOperatorManifest reports whether a manifest is needed to run the operator.
func isOperatorManifest(m *manifest.Manifest) bool {
	return strings.HasPrefix(m.File, ownFiles) || m.File == permission.File
}

// addChosen adds the items that do not come from the release.
func (p *Plan) addChosen() error {
	for _, add := range []func() error{
		p.addNamespaces, p.addTrust, p.addRegistries, p.addAuthorities, p.addPullSecret, p.addPullSecretCopy, p.addClusterAdmin, p.addClusterVersion,
	} {
		if err := add(); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plan) addNamespaces() error {
	s := p.Settings
	for _, namespace := range []string{s.Namespace, api.ConfigNamespace, api.ConfigManagedNamespace} {
		if p.find(manifest.ID{Kind: "Namespace", Name: namespace}) != nil {
			continue
		}
		if err := p.add(CreateOnce, &corev1.Namespace{TypeMeta: typeMeta("v1", "Namespace"), ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plan) addTrust() error {
	s := p.Settings
	if len(s.Trust)+len(s.TrustBinary) == 0 {
		return nil
	}
	return p.add(AsInstaller, &corev1.ConfigMap{
		TypeMeta:   typeMeta("v1", "ConfigMap"),
		ObjectMeta: described(api.ConfigNamespace, api.TrustConfigMap, "The signers of release images that this cluster accepts."),
		Data:       s.Trust, BinaryData: s.TrustBinary,
	})
}

func (p *Plan) addRegistries() error {
	if len(p.Settings.Registries) == 0 {
		return nil
	}
	return p.add(AsInstaller, &corev1.ConfigMap{
		TypeMeta:   typeMeta("v1", "ConfigMap"),
		ObjectMeta: described(api.ConfigNamespace, api.RegistriesConfigMap, "Registries that the version operator contacts without TLS or through mirrors."),
		Data:       p.Settings.Registries,
	})
}

func (p *Plan) addAuthorities() error {
	if len(p.Settings.Authorities) == 0 {
		return nil
	}
	return p.add(CreateOnce, &corev1.ConfigMap{
		TypeMeta:   typeMeta("v1", "ConfigMap"),
		ObjectMeta: described(api.ConfigManagedNamespace, api.TrustedCABundle, "Certificates that the version operator trusts besides the system's."),
		Data:       map[string]string{api.CABundleKey: string(p.Settings.Authorities)},
	})
}

func (p *Plan) addPullSecret() error {
	if len(p.Settings.PullSecret) == 0 {
		return nil
	}
	return p.add(AsInstaller, pullSecret(api.ConfigNamespace, api.PullSecret, "Credentials for registries.", p.Settings.PullSecret))
}

// addPullSecretCopy adds the credentials that pull the image of the operator's pods.
func (p *Plan) addPullSecretCopy() error {
	credentials := p.Settings.PullSecret
	if len(credentials) == 0 {
		credentials = p.Settings.ExistingPullSecret
	}
	if len(credentials) == 0 {
		return nil
	}
	return p.add(AsRelease, pullSecret(p.Settings.Namespace, api.PullSecretCopy, api.PullSecretCopyDescription, credentials))
}

func (p *Plan) addClusterAdmin() error {
	if !p.Settings.ClusterAdmin {
		return nil
	}
	return p.add(AsInstaller, clusterAdmin(p.Settings.Namespace))
}

func (p *Plan) addClusterVersion() error {
	s := p.Settings
	return p.add(CreateOnce, &configv1.ClusterVersion{
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
		ObjectMeta: described("", ClusterAdminBinding, "Grants the version operator all permissions, because 'cvo install --cluster-admin' was used."),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: target.Operator}},
	}
}

func (p *Plan) add(mode Mode, object runtime.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Errorf("converting %T: %w", object, err)
	}
	delete(content, "status")
	if spec, ok := content["spec"].(map[string]any); ok && len(spec) == 0 {
		delete(content, "spec")
	}
	dropNulls(content)
	p.Items = append(p.Items, Item{&manifest.Manifest{Component: target.Operator, Object: &unstructured.Unstructured{Object: content}}, mode})
	return nil
}

// dropNulls removes the nulls that Go types write for unset fields.
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

// deployStage returns an item's position in the installation order. Namespaces, configuration and CRDs precede the objects that need them,
// and the guard precedes the ClusterVersion. The Deployment is last, so that the operator finds everything it needs.
func deployStage(item Item) int {
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
