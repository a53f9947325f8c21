package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/test/env"
)

const (
	loaderName  = "plain-loader"
	loaderWidth = 16
	// loaderPause is the pause between two rounds over objects that could not be applied yet.
	loaderPause = 50 * time.Millisecond
	// loaderLimit is the time after which the loader gives up, per thousand objects.
	loaderLimit = 2 * time.Minute
)

// load measures the plain loader: the minimum cost of creating these objects with server-side apply. The loader waits only for the server's
// responses, and then for the CRDs to be established. No actor plays the platform's operators.
func (b *bench) load(ctx context.Context, sc scenario) (m Measurement, err error) {
	m.Subject, m.Scenario = loaderName, sc.name
	e, err := b.cluster(ctx, env.AuditNone, sc)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, e.Stop()) }()
	for i, release := range sc.releases {
		l, err := newLoader(e, release.payload.Manifests)
		if err != nil {
			return m, err
		}
		profiled := b.startProfile(ctx, e, loaderName, phaseNames()[i])
		start, before := time.Now(), serverCPU(e)
		if err := l.run(ctx); err != nil {
			return m, fmt.Errorf("loading %s: %w", release.payload.Release.Version, err)
		}
		p := Phase{Name: phaseNames()[i], Seconds: time.Since(start).Seconds(), Manifests: len(release.payload.Manifests)}
		if err := l.established(ctx); err != nil {
			return m, fmt.Errorf("loading %s: %w", release.payload.Release.Version, err)
		}
		p.Established, p.ServerCPU = time.Since(start).Seconds(), serverCPU(e)-before
		m.Phases = append(m.Phases, p)
		profiled()
	}
	return m, nil
}

type loader struct {
	client  dynamic.Interface
	mapper  apply.Mapper
	objects [][]*unstructured.Unstructured // in stage order
}

// newLoader sorts the objects into three stages: namespaces, CRDs and all others. It ignores tombstones.
func newLoader(e *env.Env, manifests []*manifest.Manifest) (*loader, error) {
	config := e.Config(loaderName)
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	l := &loader{
		client: client, mapper: kinds.NewMapper(clock.RealClock{}, d, manifests),
		objects: make([][]*unstructured.Unstructured, 3),
	}
	for _, m := range manifests {
		if m.Tombstone() {
			continue
		}
		stage := 2
		switch {
		case m.Is("", "Namespace"):
			stage = 0
		case m.Is("apiextensions.k8s.io", "CustomResourceDefinition"):
			stage = 1
		}
		l.objects[stage] = append(l.objects[stage], acceptable(m))
	}
	return l, nil
}

// acceptable returns the manifest's object in a form that server-side apply accepts. Some fields are missing or superfluous in real
// manifests; experience has shown which.
func acceptable(m *manifest.Manifest) *unstructured.Unstructured {
	object := m.Object.DeepCopy()
	unstructured.RemoveNestedField(object.Object, "status")
	unstructured.RemoveNestedField(object.Object, "metadata", "ownerReferences")
	unstructured.RemoveNestedField(object.Object, "metadata", "creationTimestamp")
	switch {
	case m.Is("config.openshift.io", "ClusterOperator"):
		_ = unstructured.SetNestedMap(object.Object, map[string]any{}, "spec")
	case m.Is("rbac.authorization.k8s.io", "ClusterRoleBinding"):
		unstructured.RemoveNestedField(object.Object, "userNames")
	case m.Is("security.openshift.io", "SecurityContextConstraints"):
		for _, field := range []string{
			"allowHostDirVolumePlugin", "allowHostIPC", "allowHostNetwork", "allowHostPID", "allowHostPorts",
			"allowPrivilegedContainer", "readOnlyRootFilesystem",
		} {
			setDefault(object, field, false)
		}
		for _, field := range []string{"allowedCapabilities", "defaultAddCapabilities", "priority", "requiredDropCapabilities", "volumes"} {
			setDefault(object, field, nil)
		}
	}
	return object
}

func setDefault(object *unstructured.Unstructured, field string, value any) {
	if _, ok := object.Object[field]; !ok {
		object.Object[field] = value
	}
}

func (l *loader) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.limit())
	defer cancel()
	var last error
	for _, left := range l.objects {
		for len(left) > 0 {
			refused, err := l.round(ctx, left)
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), last)
			}
			if left, last = refused, err; len(left) > 0 {
				time.Sleep(loaderPause)
			}
		}
	}
	return nil
}

// established waits until every CRD is established, in the order in which they were applied.
func (l *loader) established(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.limit())
	defer cancel()
	for _, definition := range l.objects[1] {
		for {
			crd, err := l.client.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")).
				Get(ctx, definition.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if isEstablished(crd) {
				break
			}
			time.Sleep(loaderPause)
		}
	}
	return nil
}

func isEstablished(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == string(apiextensionsv1.Established) && condition["status"] == string(apiextensionsv1.ConditionTrue)
	})
}

func (l *loader) limit() time.Duration {
	n := 0
	for _, stage := range l.objects {
		n += len(stage)
	}
	return time.Duration(1+n/1000) * loaderLimit
}

// round applies objects, 16 in parallel, and returns the rejected ones with an error.
func (l *loader) round(ctx context.Context, objects []*unstructured.Unstructured) (refused []*unstructured.Unstructured, err error) {
	var group errgroup.Group
	group.SetLimit(loaderWidth)
	errs := make([]error, len(objects))
	for i, object := range objects {
		group.Go(func() error {
			errs[i] = l.apply(ctx, object)
			return nil
		})
	}
	_ = group.Wait() // rejections are collected, not returned
	for i, err := range errs {
		if err != nil {
			refused = append(refused, objects[i])
		}
	}
	return refused, errors.Join(errs...)
}

func (l *loader) apply(ctx context.Context, object *unstructured.Unstructured) error {
	mapping, err := l.mapper.Mapping(ctx, object.GroupVersionKind())
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = l.client.Resource(mapping.Resource)
	if mapping.Namespaced {
		resource = l.client.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	_, err = resource.Apply(ctx, object.GetName(), object, applyOptions())
	if err != nil {
		return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}
