package clustermetrics

import (
	"context"
	"maps"
	"sync"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
)

// transition identifies a condition of a ClusterOperator.
type transition struct{ name, condition string }

// transitions counts the status changes of ClusterOperator conditions that a watch has reported since the start of the process. It drops
// the counts of deleted ClusterOperators.
type transitions struct {
	mu          sync.Mutex
	byCondition map[transition]int
}

func newTransitions() *transitions { return &transitions{byCondition: map[transition]int{}} }

// handler returns the handler for the watch on ClusterOperators.
func (t *transitions) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			older, ok := before.(*configv1.ClusterOperator)
			newer, also := after.(*configv1.ClusterOperator)
			if ok && also {
				t.changed(newer.Name, older.Status.Conditions, newer.Status.Conditions)
			}
		},
		DeleteFunc: func(object any) {
			if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if co, ok := object.(*configv1.ClusterOperator); ok {
				t.forget(co.Name)
			}
		},
	}
}

// changed compares two states of one ClusterOperator. Adding or removing a condition counts as a change.
func (t *transitions) changed(name string, before, after []configv1.ClusterOperatorStatusCondition) {
	statuses := func(conditions []configv1.ClusterOperatorStatusCondition) map[configv1.ClusterStatusConditionType]configv1.ConditionStatus {
		out := make(map[configv1.ClusterStatusConditionType]configv1.ConditionStatus, len(conditions))
		for _, c := range conditions {
			out[c.Type] = c.Status
		}
		return out
	}
	older, newer := statuses(before), statuses(after)
	t.mu.Lock()
	defer t.mu.Unlock()
	for kind, status := range newer {
		if older[kind] != status {
			t.count(transition{name, string(kind)})
		}
	}
	for kind := range older {
		if _, still := newer[kind]; !still {
			t.count(transition{name, string(kind)})
		}
	}
}

// count increments a counter. It ignores new conditions beyond maxSeries, because other clients determine their types.
func (t *transitions) count(key transition) {
	if _, known := t.byCondition[key]; known || len(t.byCondition) < maxSeries {
		t.byCondition[key]++
	}
}

func (t *transitions) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.byCondition, func(key transition, _ int) bool { return key.name == name })
}

func (t *transitions) counts() map[transition]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.byCondition)
}

// installation is the recorded origin of the cluster. The zero value means that there is no record.
type installation struct{ kind, version, invoker string }

// ConfigMaps in which OpenShift's installer records installations: its own, and those by other tools that used its manifests.
const (
	installConfigMap   = "openshift-install"
	manifestsConfigMap = "openshift-install-manifests"
)

// installer determines the origin of the cluster from two watched ConfigMaps. It keeps two values of each.
type installer struct {
	install, manifests *watch.Single[*corev1.ConfigMap]
}

func newInstaller(core corev1client.CoreV1Interface) *installer {
	single := func(name string) *watch.Single[*corev1.ConfigMap] {
		return watch.NewReducedSingle(core.ConfigMaps(api.ConfigNamespace), &corev1.ConfigMap{}, name, toolscache.ResourceEventHandlerFuncs{}, installationValues)
	}
	return &installer{install: single(installConfigMap), manifests: single(manifestsConfigMap)}
}

// installationValues reduces a ConfigMap to the values that the metrics need.
func installationValues(in any) (any, error) {
	cm, ok := in.(*corev1.ConfigMap)
	if !ok {
		return in, nil
	}
	kept := &corev1.ConfigMap{Data: map[string]string{}}
	kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = cm.Namespace, cm.Name, cm.UID, cm.ResourceVersion
	for _, key := range []string{"version", "invoker"} {
		if value, there := cm.Data[key]; there {
			kept.Data[key] = clip(value)
		}
	}
	return kept, nil
}

// Start implements manager.Runnable. Only the leader runs these watches.
func (in *installer) Start(ctx context.Context) error {
	watch.Run(ctx, nil, in.install, in.manifests)
	return nil
}

// found returns the origin of the cluster. It returns false while the origin is unknown.
func (in *installer) found() (installation, bool) {
	if !in.install.HasSynced() || !in.manifests.HasSynced() {
		return installation{}, false
	}
	if cm, found := in.install.Object(); found {
		return installationOf("openshift-install", cm.Data), true
	}
	if cm, found := in.manifests.Object(); found {
		return installationOf("other", cm.Data), true
	}
	return installation{}, true
}

func installationOf(kind string, data map[string]string) installation {
	out := installation{kind: kind, version: "<missing>", invoker: "<missing>"}
	if version, there := data["version"]; there {
		out.version = version
	}
	if invoker, there := data["invoker"]; there {
		out.invoker = invoker
	}
	return out
}
