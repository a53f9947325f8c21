package operator

import (
	"context"
	"fmt"
	"maps"
	"sync"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/cluster-version/cvo/pkg/api"
)

// transition names a condition of a ClusterOperator.
type transition struct{ name, condition string }

// transitions counts how often conditions of ClusterOperators have changed their status since the process started, by
// what a watch tells. A ClusterOperator that is deleted is forgotten.
type transitions struct {
	mu          sync.Mutex
	byCondition map[transition]int
}

func newTransitions() *transitions { return &transitions{byCondition: map[transition]int{}} }

// handler is for the watch on ClusterOperators.
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

// changed compares two states of one ClusterOperator. A condition that comes or goes has changed, too.
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
			t.byCondition[transition{name, string(kind)}]++
		}
	}
	for kind := range older {
		if _, still := newer[kind]; !still {
			t.byCondition[transition{name, string(kind)}]++
		}
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

// installation tells who installed the cluster; it is empty if nobody left word.
type installation struct{ kind, version, invoker string }

// The ConfigMaps by which OpenShift's installer leaves word: of an installation by itself, and of one by somebody else
// who used manifests that it had made.
const (
	installConfigMap   = "openshift-install"
	manifestsConfigMap = "openshift-install-manifests"
)

// installer knows who installed the cluster, by watching two ConfigMaps of which it keeps two values each.
type installer struct {
	informers map[string]toolscache.SharedInformer
}

func newInstaller(core corev1client.CoreV1Interface) (*installer, error) {
	in := &installer{informers: map[string]toolscache.SharedInformer{}}
	for _, name := range []string{installConfigMap, manifestsConfigMap} {
		selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name)
		source := toolscache.NewListWatchFromClient(core.RESTClient(), "configmaps", api.ConfigNamespace, selector)
		informer := toolscache.NewSharedInformer(source, &corev1.ConfigMap{}, 0)
		if err := informer.SetTransform(wordOf); err != nil {
			return nil, fmt.Errorf("watching ConfigMap %s/%s: %w", api.ConfigNamespace, name, err)
		}
		in.informers[name] = informer
	}
	return in, nil
}

// wordOf keeps of a ConfigMap what metrics tell.
func wordOf(in any) (any, error) {
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

// Start implements manager.Runnable: the watches are those of the leader.
func (in *installer) Start(ctx context.Context) error {
	var group sync.WaitGroup
	for _, informer := range in.informers {
		group.Go(func() { informer.RunWithContext(ctx) })
	}
	group.Wait()
	return nil
}

// found tells who installed the cluster; false while that is not known.
func (in *installer) found() (installation, bool) {
	for _, informer := range in.informers {
		if !informer.HasSynced() {
			return installation{}, false
		}
	}
	for _, kind := range []struct{ configMap, kind string }{{installConfigMap, "openshift-install"}, {manifestsConfigMap, "other"}} {
		for _, object := range in.informers[kind.configMap].GetStore().List() {
			if cm, ok := object.(*corev1.ConfigMap); ok {
				return installationOf(kind.kind, cm.Data), true
			}
		}
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
