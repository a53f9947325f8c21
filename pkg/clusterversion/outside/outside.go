// Package outside gives a cluster access to everything that an update needs from outside. It reads release images with the cluster's pull
// secret, mirrors, proxy and certificates, and provides the verifier of their signatures. It selects the root of trust: the trust file of
// the process, the trust policy in the cluster, or the keys of the running release. ClusterImagePolicies apply in addition. A Job can read
// images too, but cannot serve requests that need the registry, such as resolving a tag.
package outside

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/oci/egress"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

// Outside is the source of release images and their signatures. It uses the cluster's configuration as of Open and serves one release only.
type Outside struct {
	*image.Reader
	clock  clock.PassiveClock
	reader client.Reader
	policy *policy.Policy
	cv     *configv1.ClusterVersion
	// attachments reads the signatures that a registry stores with an image.
	attachments verify.Attachments
	// exist looks up images in their registries; nil if registries are not contacted.
	exist func(ctx context.Context, images []release.Image) []error
}

// Options are settings of the operator that override the cluster's configuration.
type Options struct {
	// Access configures the access to registries.
	Access registry.Options
	// Images configures how images are read. Open sets its field Access.
	Images image.Options
	// Policy is the administrator's root of trust; nil selects one from the cluster.
	Policy *policy.Policy
}

// Open returns the source of release images for a cluster with this ClusterVersion and an operator with these options. It fails if the
// cluster's configuration cannot be read.
func Open(ctx context.Context, clk clock.PassiveClock, reader client.Reader, cv *configv1.ClusterVersion, options Options) (*Outside, error) {
	e, err := egress.Read(ctx, reader, options.Access)
	if err != nil {
		return nil, err
	}
	how := options.Images
	how.Access = registry.New(e)
	images, err := image.New(how)
	if err != nil {
		return nil, err
	}
	return &Outside{Reader: images, clock: clk, reader: reader, policy: options.Policy, cv: cv, attachments: images, exist: images.Exist}, nil
}

// Verifier returns the verifier of an image, with its policy and its signature sources.
func (o *Outside) Verifier(ctx context.Context, img release.Image, running *payload.Payload) (accept.Verifier, error) {
	trusted, err := o.trust(ctx, img, running)
	if err != nil {
		return nil, err
	}
	stores := o.Access().WebClient()
	signatures := store.NewConfigMaps(func(ctx context.Context) ([]store.ConfigMapData, error) {
		return signatureConfigMaps(ctx, o.reader)
	})
	authorities := func(ctx context.Context, name string) (map[string]string, error) {
		return egress.ConfigMapData(ctx, o.reader, client.ObjectKey{Namespace: api.ConfigNamespace, Name: name})
	}
	return verify.New(trusted, verify.Sources{
		Local:     []store.Store{signatures},
		Exclusive: store.ForCluster(o.cv.Spec.SignatureStores, stores, authorities),
		Client:    stores, Attachments: o.attachments, Exist: o.exist,
	}, o.clock)
}

// trust returns the root of trust and every ClusterImagePolicy that matches the pullspec. The policies apply in addition, so the unverified
// pullspec never selects the root.
func (o *Outside) trust(ctx context.Context, img release.Image, running *payload.Payload) (policy.Policy, error) {
	matching, err := MatchingImagePolicies(ctx, o.reader, img.Pullspec)
	if err != nil {
		return policy.Policy{}, err
	}
	root, err := o.root(ctx, running)
	return policy.Require(root, err, matching)
}

// root returns the root of trust, the first of these that exists: the trust file of the process, the trust policy in the cluster, the keys
// in the files of the running release. It does not read the keys from the release's ConfigMap in the cluster. An administrator's policy
// replaces the keys of a release. Otherwise a platform team could never sign the successor of a release with its vendor's keys.
func (o *Outside) root(ctx context.Context, running *payload.Payload) (policy.Policy, error) {
	if o.policy != nil {
		return *o.policy, nil
	}
	if trust, found, err := o.clusterTrust(ctx); err != nil || found {
		return trust, err
	}
	if running == nil {
		return policy.Policy{}, policy.ErrNone
	}
	shipped, err := policy.FromManifests(running.Manifests)
	if err != nil {
		return shipped, fmt.Errorf("reading the keys of release %s: %w", running.Release.Version, err)
	}
	return shipped, nil
}

// clusterTrust reads the trust policy that an administrator stored in the cluster. An unreadable policy is an error, because with other
// keys the operator would trust signers that the administrator does not.
func (o *Outside) clusterTrust(ctx context.Context) (policy.Policy, bool, error) {
	cm := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap}
	switch err := o.reader.Get(ctx, key, cm); {
	case apierrors.IsNotFound(err):
		return policy.Policy{}, false, nil
	case err != nil:
		return policy.Policy{}, false, fmt.Errorf("reading the trust policy, ConfigMap %s: %w", key, err)
	}
	trust, err := policy.ParseData("ConfigMap "+key.String(), cm.Data, cm.BinaryData)
	return trust, true, err
}

// Bounds of reading ClusterImagePolicies, which may be many or large.
const (
	imagePolicyPage          = 20
	maxMatchingImagePolicies = 100
)

// MatchingImagePolicies returns the ClusterImagePolicies of a cluster that match a pullspec, none if the cluster does not
// serve the kind. It fails if they cannot be read, if too many match, or if the pullspec is invalid.
func MatchingImagePolicies(ctx context.Context, reader client.Reader, pullspec string) ([]policy.Policy, error) {
	var matching policy.ClusterImagePolicies
	for next := ""; ; {
		page := &configv1.ClusterImagePolicyList{}
		switch err := reader.List(ctx, page, client.Limit(imagePolicyPage), client.Continue(next)); {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("reading ClusterImagePolicies: %w", err)
		}
		covering, err := policy.ClusterImagePolicies(page.Items).Covering(pullspec)
		if err != nil {
			return nil, err
		}
		if matching = append(matching, covering...); len(matching) > maxMatchingImagePolicies {
			return nil, fmt.Errorf("reading ClusterImagePolicies: more than %d match %s: delete some, or narrow their scopes", maxMatchingImagePolicies, pullspec)
		}
		if next = page.Continue; next == "" {
			return matching.Matching(pullspec)
		}
	}
}

// signatureConfigMaps lists the ConfigMaps with signatures in this cluster.
func signatureConfigMaps(ctx context.Context, reader client.Reader) ([]store.ConfigMapData, error) {
	list := &corev1.ConfigMapList{}
	if err := reader.List(ctx, list, client.InNamespace(api.ConfigManagedNamespace), client.HasLabels{api.VerificationSignatureLabel}); err != nil {
		return nil, fmt.Errorf("listing signature ConfigMaps: %w", err)
	}
	data := make([]store.ConfigMapData, len(list.Items))
	for i, item := range list.Items {
		data[i] = store.ConfigMapData{Namespace: item.Namespace, Name: item.Name, BinaryData: item.BinaryData}
	}
	return data, nil
}
