// Package install brings the version operator into a cluster and takes it out again. It takes a payload that was
// verified already and what an administrator chose, makes a Plan of them, and deploys it or writes it into files: the
// operator's own part of the release, with trust, credentials and the ClusterVersion. Doing it again changes nothing.
// Everything else of the release is the operator's work.
//
// Prepare is the part for operators that run elsewhere: namespaces, the CRDs that they need, and the ClusterVersion.
package install

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// Options are the settings of an installation.
type Options struct {
	// Namespace of the operator; default api.OperatorNamespace.
	Namespace string
	// Name of the ClusterVersion; default "version".
	Name string
	// Progress is told each thing that is now there; nil for nobody.
	Progress func(what string)
}

// establishTimeout bounds the wait for one CRD; an API server needs well under a second.
const establishTimeout = time.Minute

// Prepare brings the cluster to the point where the operator can start.
func Prepare(ctx context.Context, cfg *rest.Config, p *payload.Payload, options Options) error {
	if options.Namespace == "" {
		options.Namespace = api.OperatorNamespace
	}
	if options.Name == "" {
		options.Name = api.ClusterVersionName
	}
	if options.Progress == nil {
		options.Progress = func(string) {}
	}
	c, err := connect(cfg, p.Manifests)
	if err != nil {
		return err
	}
	i := &preparer{cluster: c, applier: apply.New(c.connection, c.mapper, apply.Owner{}), payload: p, options: options}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"creating namespaces", i.namespaces},
		{"creating CRDs", i.crds},
		{"creating the ClusterVersion", i.clusterVersion},
	} {
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// cluster is the way to a cluster, for typed objects, for any, and for manifests.
type cluster struct {
	client.WithWatch
	connection *apply.Connection
	mapper     apply.Mapper
}

// connect opens the way to a cluster; manifests tell of kinds that are yet to be defined there.
func connect(cfg *rest.Config, manifests []*manifest.Manifest) (*cluster, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, configv1.Install} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("preparing scheme: %w", err)
		}
	}
	gate.AddToScheme(scheme)
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme, HTTPClient: httpClient})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	connection, err := apply.Connect(cfg, httpClient)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return &cluster{c, connection, apply.NewDiscoveryMapper(clock.RealClock{}, d, manifests)}, nil
}

// preparer brings a cluster to the point where an operator can be started by hand.
type preparer struct {
	*cluster
	applier *apply.Applier
	payload *payload.Payload
	options Options
}

func (i *preparer) namespaces(ctx context.Context) error {
	for _, name := range []string{i.options.Namespace, api.ConfigNamespace, api.ConfigManagedNamespace} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		err := i.Create(ctx, namespace, client.FieldOwner(api.FieldManager))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
		i.options.Progress("namespace " + name)
	}
	return nil
}

// releaseStatuses is where the operator keeps what ClusterVersion has no field for.
const releaseStatuses = "releasestatuses.cvo.cluster-version.github.io"

// crds applies the CRDs that the operator itself works with, from the release, and waits until they are served.
func (i *preparer) crds(ctx context.Context) error {
	for _, name := range []string{"clusterversions.config.openshift.io", "clusteroperators.config.openshift.io", releaseStatuses} {
		m := i.find(manifest.ID{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: name})
		if m == nil && name == releaseStatuses {
			continue // releases that are built on another operator do not bring it, and can be installed without
		}
		if m == nil {
			return fmt.Errorf("release %s brings no CRD %s: add it to the operator's manifests when the release is made", i.payload.Release.Version, name)
		}
		if _, err := i.applier.Apply(ctx, m, release.Initializing); err != nil {
			return err
		}
		if err := i.established(ctx, m); err != nil {
			return fmt.Errorf("waiting for CRD %s: %w", name, err)
		}
		i.options.Progress("CRD " + name)
	}
	return nil
}

func (i *preparer) find(id manifest.ID) *manifest.Manifest {
	for _, m := range i.payload.Manifests {
		if m.ID() == id {
			return m
		}
	}
	return nil
}

// established waits until the kind that a CRD defines is served.
func (c *cluster) established(ctx context.Context, m *manifest.Manifest) error {
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	selector := client.MatchingFields{metav1.ObjectNameField: m.Object.GetName()}
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &gate.CRDList{}
			return list, c.List(ctx, list, selector, &client.ListOptions{Raw: &options})
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, &gate.CRDList{}, selector, &client.ListOptions{Raw: &options})
		},
	}
	_, err := watchtools.UntilWithSync(ctx, lw, &gate.CRD{}, nil, func(e watch.Event) (bool, error) {
		crd, ok := e.Object.(*gate.CRD)
		return ok && gate.Check(crd, gate.Want{Manifest: m, Mode: release.Initializing}).State == gate.Settled, nil
	})
	return err
}

// clusterVersion creates the ClusterVersion, with an identity of its own, unless there is one.
func (i *preparer) clusterVersion(ctx context.Context) error {
	cv := &configv1.ClusterVersion{
		ObjectMeta: metav1.ObjectMeta{Name: i.options.Name},
		Spec:       configv1.ClusterVersionSpec{ClusterID: configv1.ClusterID(uuid.NewString())},
	}
	err := i.Create(ctx, cv, client.FieldOwner(api.FieldManager))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	i.options.Progress("ClusterVersion " + i.options.Name)
	return nil
}
