// Package install brings a bare cluster to the point where the operator can start: the namespaces that it and its
// configuration live in, the CRDs of ClusterVersion and ClusterOperator from the release itself, and the
// ClusterVersion. It takes a payload that was verified already; everything else of the release is the operator's work.
// Doing it again changes nothing.
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
	i, err := newInstaller(cfg, p, options)
	if err != nil {
		return err
	}
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

type installer struct {
	client  client.WithWatch
	applier *apply.Applier
	payload *payload.Payload
	options Options
}

func newInstaller(cfg *rest.Config, p *payload.Payload, options Options) (*installer, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, configv1.Install} {
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
	mapper := apply.NewDiscoveryMapper(clock.RealClock{}, d, p.Manifests)
	return &installer{client: c, applier: apply.New(connection, mapper, apply.Owner{}), payload: p, options: options}, nil
}

func (i *installer) namespaces(ctx context.Context) error {
	for _, name := range []string{i.options.Namespace, api.ConfigNamespace, api.ConfigManagedNamespace} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		err := i.client.Create(ctx, namespace, client.FieldOwner(api.FieldManager))
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
func (i *installer) crds(ctx context.Context) error {
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
		if err := i.established(ctx, name); err != nil {
			return fmt.Errorf("waiting for CRD %s: %w", name, err)
		}
		i.options.Progress("CRD " + name)
	}
	return nil
}

func (i *installer) find(id manifest.ID) *manifest.Manifest {
	for _, m := range i.payload.Manifests {
		if m.ID() == id {
			return m
		}
	}
	return nil
}

func (i *installer) established(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	selector := client.MatchingFields{metav1.ObjectNameField: name}
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &gate.CRDList{}
			return list, i.client.List(ctx, list, selector, &client.ListOptions{Raw: &options})
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return i.client.Watch(ctx, &gate.CRDList{}, selector, &client.ListOptions{Raw: &options})
		},
	}
	m := i.find(manifest.ID{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: name})
	_, err := watchtools.UntilWithSync(ctx, lw, &gate.CRD{}, nil, func(e watch.Event) (bool, error) {
		crd, ok := e.Object.(*gate.CRD)
		return ok && gate.Check(crd, gate.Want{Manifest: m, Mode: release.Initializing}).State == gate.Settled, nil
	})
	return err
}

// clusterVersion creates the ClusterVersion, with an identity of its own, unless there is one.
func (i *installer) clusterVersion(ctx context.Context) error {
	cv := &configv1.ClusterVersion{
		ObjectMeta: metav1.ObjectMeta{Name: i.options.Name},
		Spec:       configv1.ClusterVersionSpec{ClusterID: configv1.ClusterID(uuid.NewString())},
	}
	err := i.client.Create(ctx, cv, client.FieldOwner(api.FieldManager))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	i.options.Progress("ClusterVersion " + i.options.Name)
	return nil
}
