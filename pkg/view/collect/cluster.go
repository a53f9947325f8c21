// Package collect reads the state of an update for package insight: from a cluster, from a dump of its objects, or from a must-gather. The
// result lists the unreadable parts with the reasons. Package insight assesses the state. For package nodes, it reads the state of the updates
// of nodes from a cluster.
package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/view/insight"
)

// Assess reads the state of an update from a cluster and assesses it with package insight. It reads alerts only during an update. The
// operator's Lease has the name of the ClusterVersion.
func Assess(ctx context.Context, cfg *rest.Config, namespace, name string) (*insight.Assessment, error) {
	reader, err := newClusterReader(cfg, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	in, err := reader.read(ctx, name)
	if err != nil {
		return nil, err
	}
	if record, err := leader.Find(ctx, cfg, namespace, name); err == nil { // without permission, nothing is known about the operator
		in.Leader, in.Now = record, record.ReadAt // the reader's own clock may be wrong
	}
	assessment, err := insight.Assess(in)
	if err != nil || !assessment.Updating {
		return assessment, err
	}
	// Alerts count from the start of the update. Without an update, the user needs no permission to read them.
	in.Alerts, err = Alerts(ctx, cfg)
	if err != nil {
		in.Missing = append(in.Missing, insight.Missing{
			Section: insight.SectionHealth, Reason: fmt.Sprintf("alerts: %v", err), Absent: errors.Is(err, ErrAbsent),
		})
	}
	return insight.Assess(in)
}

// configOperators are the containers whose image ClusterOperator machine-config reports: that of OpenShift's operator or, if there is none, that
// of the node stage. OpenShift has both.
var configOperators = []string{"machine-config-operator", api.MachineConfigController}

const (
	monitoringNamespace = "openshift-monitoring"
	monitoringRoute     = "thanos-querier"
	// alertBytes limits the size of the response with the alerts, alertTime its duration.
	alertBytes = 32 << 20
	alertTime  = 30 * time.Second
)

// clusterReader reads the state of an update from a cluster.
type clusterReader struct {
	clock  clock.PassiveClock
	client client.Client
}

func newClusterReader(cfg *rest.Config, clock clock.PassiveClock) (*clusterReader, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		configv1.Install, mcfgv1.Install, corev1.AddToScheme, appsv1.AddToScheme, metav1.AddMetaToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return &clusterReader{clock: clock, client: c}, nil
}

// read requires the ClusterVersion. It records which other objects are missing.
func (r *clusterReader) read(ctx context.Context, name string) (insight.Input, error) {
	in := insight.Input{Now: r.clock.Now(), ClusterVersion: &configv1.ClusterVersion{}}
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, in.ClusterVersion)
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return in, fmt.Errorf("%w %q", ErrNoClusterVersion, name)
	case err != nil:
		return in, fmt.Errorf("reading ClusterVersion %q: %w", name, err)
	}
	in.Rollout = r.rollout(ctx, name)
	s := sections{in: &in}
	in.Operators, err = listed[configv1.ClusterOperator](ctx, r.client, &configv1.ClusterOperatorList{})
	s.note(explain("ClusterOperators", err), insight.SectionOperators)
	in.Pools, err = listed[mcfgv1.MachineConfigPool](ctx, r.client, &mcfgv1.MachineConfigPoolList{})
	s.note(explain("MachineConfigPools", err), insight.SectionControlNodes, insight.SectionWorkers)
	if err != nil {
		return in, nil //nolint:nilerr // noted above, and nodes mean nothing without pools
	}
	in.Nodes, err = listed[corev1.Node](ctx, r.client, &corev1.NodeList{})
	s.note(explain("nodes", err), insight.SectionControlNodes, insight.SectionWorkers)
	// One annotation is enough. Whole MachineConfigs contain files of several megabytes.
	configs := &metav1.PartialObjectMetadataList{}
	configs.SetGroupVersionKind(mcfgv1.GroupVersion.WithKind("MachineConfigList"))
	metadata, err := listed[metav1.PartialObjectMetadata](ctx, r.client, configs)
	s.note(explain("MachineConfigs", err), insight.SectionWorkers)
	in.Releases = releasesOf(metadata)
	if needsConfigOperatorImage(in.Operators) {
		var deployments appsv1.DeploymentList
		err := r.client.List(ctx, &deployments, client.InNamespace(api.MachineConfigNamespace))
		if in.ConfigOperatorImage = configOperatorImage(deployments.Items); err == nil && in.ConfigOperatorImage == nil {
			err = fmt.Errorf("namespace %s has no container %s", api.MachineConfigNamespace, strings.Join(configOperators, " or "))
		}
		s.note(explain("the Deployment of the machine config operator", err), insight.SectionConfigOperator)
	}
	return in, nil
}

// rollout returns the operator's ReleaseRollout; nil if it does not exist, as with other version operators.
func (r *clusterReader) rollout(ctx context.Context, name string) *api.ReleaseRollout {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind))
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
		return nil
	}
	rollout := &api.ReleaseRollout{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, rollout); err != nil {
		return nil
	}
	return rollout
}

var (
	// ErrNoClusterVersion means that the cluster has no ClusterVersion with the given name.
	ErrNoClusterVersion = errors.New("this cluster has no ClusterVersion")
	// ErrAbsent means that the cluster has no object of a kind that only some platforms have.
	ErrAbsent = errors.New("this cluster has no")
)

// viewed lists the resources that ClusterRole cluster-version-operator-viewer allows to read.
var viewed = []string{"ClusterOperators", "MachineConfigNodes", "MachineConfigPools", "nodes"}

func explain(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%w %s", ErrAbsent, what)
	case apierrors.IsForbidden(err) && slices.Contains(viewed, what):
		return fmt.Errorf("reading %s: %w: ask an administrator for ClusterRole cluster-version-operator-viewer", what, err)
	}
	return fmt.Errorf("reading %s: %w", what, err)
}

// listed reads all objects of a kind, page by page.
func listed[T any](ctx context.Context, c client.Reader, list client.ObjectList) ([]T, error) {
	var all []T
	if err := each(ctx, c, list, func(item *T) { all = append(all, *item) }); err != nil {
		return nil, err
	}
	return all, nil
}

// each calls do with all objects of a kind, which it reads page by page.
func each[T any](ctx context.Context, c client.Reader, list client.ObjectList, do func(*T), options ...client.ListOption) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page := list.DeepCopyObject().(client.ObjectList)
		return page, c.List(ctx, page, append(options, client.Limit(o.Limit), client.Continue(o.Continue))...)
	})
	pages.PageBufferSize = 1 // pages of pods are large
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		do(object.(any).(*T))
		return nil
	})
}

// needsConfigOperatorImage reports whether the machine config operator reports the image that it has updated to. If it does not, its
// version is enough.
func needsConfigOperatorImage(operators []configv1.ClusterOperator) bool {
	return slices.ContainsFunc(operators, func(operator configv1.ClusterOperator) bool {
		return operator.Name == insight.ConfigOperator && slices.ContainsFunc(operator.Status.Versions, func(v configv1.OperandVersion) bool {
			return v.Name == insight.ConfigOperatorImage
		})
	})
}

// configOperatorImage returns the image of the first container in configOperators that exists; nil if none does.
func configOperatorImage(deployments []appsv1.Deployment) *string {
	for _, name := range configOperators {
		for _, deployment := range deployments {
			for _, container := range deployment.Spec.Template.Spec.Containers {
				if container.Name == name {
					return &container.Image
				}
			}
		}
	}
	return nil
}
