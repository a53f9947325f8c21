package operator

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
	"github.com/cluster-version/cvo/pkg/clusterversion"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

// Outside is where release images and their signatures come from, as a cluster's configuration had it when it was
// opened. It lives as long as one release is looked at.
type Outside struct {
	*image.Reader
	clock   clock.PassiveClock
	reader  client.Reader
	options Options
	cv      *configv1.ClusterVersion
	// attachments finds signatures beside an image.
	attachments verify.Attachments
}

// OpenOutside returns the way to release images that an operator with these options has, for a cluster with this
// ClusterVersion. Of the options only those that change that are looked at.
func OpenOutside(ctx context.Context, clk clock.PassiveClock, reader client.Reader, cv *configv1.ClusterVersion, options Options) (*Outside, error) {
	e, err := readEgress(ctx, reader, options.Access)
	if err != nil {
		return nil, err
	}
	how := options.Images
	how.Access = registry.New(e.Options)
	images, err := image.New(how)
	if err != nil {
		return nil, err
	}
	return &Outside{Reader: images, clock: clk, reader: reader, options: options, cv: cv, attachments: images}, nil
}

// Verifier returns what an image is verified with, and where its signatures are looked for.
func (o *Outside) Verifier(ctx context.Context, img release.Image, running *payload.Payload) (clusterversion.Verifier, error) {
	policy, err := o.policy(ctx, img, running)
	if err != nil {
		return nil, err
	}
	stores := o.Access().WebClient()
	signatures := verify.NewConfigMaps(func(ctx context.Context) ([]verify.ConfigMapData, error) {
		return signatureConfigMaps(ctx, o.reader)
	})
	authorities := func(ctx context.Context, name string) (map[string]string, error) {
		return configMapData(ctx, o.reader, client.ObjectKey{Namespace: api.ConfigNamespace, Name: name})
	}
	return verify.New(policy, verify.Sources{
		Local:     []verify.Store{signatures},
		Exclusive: verify.ClusterStores(o.cv.Spec.SignatureStores, stores, authorities),
		Client:    stores, Attachments: o.attachments,
	}, o.clock)
}

// policy decides which root of trust applies, from what is most the administrator's to what is least: the file that the
// process was given, the trust policy in the cluster, the ClusterImagePolicy whose scope matches the image best, and only
// then the keys of the running release, which are those in its files, not those that its ConfigMap in the cluster holds
// by now. An administrator's policy replaces the keys that a release brings: otherwise a release with its vendor's keys
// could never be followed by one that a platform team signed.
func (o *Outside) policy(ctx context.Context, img release.Image, running *payload.Payload) (verify.Policy, error) {
	if o.options.Policy != nil {
		return *o.options.Policy, nil
	}
	if policy, found, err := o.clusterTrust(ctx); err != nil || found {
		return policy, err
	}
	if policy, found, err := o.imagePolicy(ctx, img); err != nil || found {
		return policy, err
	}
	if running == nil {
		return verify.Policy{}, verify.ErrNoPolicy
	}
	policy, err := verify.FromManifests(running.Manifests)
	if err != nil {
		return policy, fmt.Errorf("reading the keys of release %s: %w", running.Release.Version, err)
	}
	return policy, nil
}

// clusterTrust reads the trust policy that an administrator put into the cluster. One that cannot be read is an error:
// to go on with other keys would be to trust whom the administrator does not.
func (o *Outside) clusterTrust(ctx context.Context) (verify.Policy, bool, error) {
	cm := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap}
	switch err := o.reader.Get(ctx, key, cm); {
	case apierrors.IsNotFound(err):
		return verify.Policy{}, false, nil
	case err != nil:
		return verify.Policy{}, false, fmt.Errorf("reading the trust policy, ConfigMap %s: %w", key, err)
	}
	policy, err := verify.ParseTrustData("ConfigMap "+key.String(), cm.Data, cm.BinaryData)
	return policy, true, err
}

func (o *Outside) imagePolicy(ctx context.Context, img release.Image) (verify.Policy, bool, error) {
	list := &configv1.ClusterImagePolicyList{}
	switch err := o.reader.List(ctx, list); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return verify.Policy{}, false, nil
	case err != nil:
		return verify.Policy{}, false, fmt.Errorf("reading ClusterImagePolicies: %w", err)
	}
	return verify.ClusterImagePolicies(list.Items).For(img.Pullspec)
}

// signatureConfigMaps lists the ConfigMaps that hold signatures for this cluster.
func signatureConfigMaps(ctx context.Context, reader client.Reader) ([]verify.ConfigMapData, error) {
	list := &corev1.ConfigMapList{}
	if err := reader.List(ctx, list, client.InNamespace(api.ConfigManagedNamespace), client.HasLabels{api.VerificationSignatureLabel}); err != nil {
		return nil, fmt.Errorf("listing signature ConfigMaps: %w", err)
	}
	data := make([]verify.ConfigMapData, len(list.Items))
	for i, item := range list.Items {
		data[i] = verify.ConfigMapData{Namespace: item.Namespace, Name: item.Name, BinaryData: item.BinaryData}
	}
	return data, nil
}
