// Package target holds the parts that packages install and uninstall share: the client for the cluster, the names of the operator's own
// objects, the end of its pods, and the outcome for one object. It makes no decisions.
package target

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/request"
	enginecluster "github.com/cluster-version/cvo/pkg/engine/cluster"
	"github.com/cluster-version/cvo/pkg/kube/process"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Cluster is a client for typed objects, for objects of any kind, and for manifests.
type Cluster struct {
	client.WithWatch
	Connection *request.Client
	Mapper     apply.Mapper
}

// Connect returns a client for a cluster, for use until ctx ends. The CRDs in manifests add kinds that the cluster does not serve yet.
func Connect(ctx context.Context, cfg *rest.Config, manifests []*manifest.Manifest) (*Cluster, error) {
	scheme, err := enginecluster.NewScheme()
	if err != nil {
		return nil, err
	}
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	mapper, err := process.MapperUntil(ctx)(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme, HTTPClient: httpClient, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	connection, err := request.Connect(cfg, httpClient)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return &Cluster{c, connection, kinds.NewMapper(clock.RealClock{}, d, manifests)}, nil
}

// Metadata returns the metadata of the existing object, or nil if it does not exist.
func (c *Cluster) Metadata(ctx context.Context, object client.Object) (*metav1.PartialObjectMetadata, error) {
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	switch err := c.Get(ctx, client.ObjectKeyFromObject(object), live); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, nil // nil means that the object does not exist
	case err != nil:
		return nil, fmt.Errorf("reading it: %w", err)
	}
	return live, nil
}

// IsFinished reports whether all containers of a pod have ended and never run again. A ReplicaSet replaces such a pod, for example an
// evicted one, and does not delete it.
func IsFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
