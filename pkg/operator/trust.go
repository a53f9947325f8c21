package operator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/verify"
)

// trust decides which root of trust applies. An administrator's policy replaces the keys that a release brings:
// otherwise a release with its vendor's keys could never be followed by one that a platform team signed.
type trust struct {
	clock   clock.PassiveClock
	policy  *verify.Policy
	sources verify.Sources
}

func newTrust(clk clock.PassiveClock, reader client.Reader, options Options) *trust {
	signatures := verify.NewConfigMaps(func(ctx context.Context) ([]verify.ConfigMapData, error) {
		return signatureConfigMaps(ctx, reader)
	})
	return &trust{clock: clk, policy: options.Policy, sources: verify.Sources{
		Local: []verify.Store{signatures}, Client: options.HTTPClient, Attachments: options.Registry,
	}}
}

// verifier returns the verifier for updates of a cluster that runs the given payload. The keys of a payload are those
// in its files, not those that its ConfigMap in the cluster holds by now.
func (t *trust) verifier(running *payload.Payload) (clusterversion.Verifier, error) {
	if t.policy != nil {
		return verify.New(*t.policy, t.sources, t.clock)
	}
	if running == nil {
		return nil, verify.ErrNoPolicy
	}
	policy, err := verify.FromManifests(running.Manifests)
	if err != nil {
		return nil, fmt.Errorf("reading the keys of release %s: %w", running.Release.Version, err)
	}
	return verify.New(policy, t.sources, t.clock)
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
