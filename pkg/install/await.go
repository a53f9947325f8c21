package install

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/install/target"
)

// State is the progress of the operator's Deployment.
type State struct {
	// Running reports whether a pod of the current template is available. The others are its standbys: on the host network of a cluster
	// with one node, they never start.
	Running bool
	// Message summarizes the progress in one sentence.
	Message string
	// Troubles are the reasons why pods do not run, sorted. Each names the pod and quotes the event or status.
	Troubles []string
}

// Await follows the operator's Deployment until it runs and calls report with each new state. It returns the last state, even when ctx
// ends.
func Await(ctx context.Context, cfg *rest.Config, namespace string, report func(State)) (State, error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	c, err := target.Connect(ctx, cfg, nil)
	if err != nil {
		return State{}, err
	}
	wake := make(chan struct{}, 1)
	var stores [3]toolscache.Store
	for i, kind := range []struct {
		object client.Object
		list   func() client.ObjectList
		only   client.ListOption
	}{
		{&appsv1.Deployment{}, func() client.ObjectList { return &appsv1.DeploymentList{} }, client.MatchingFields{metav1.ObjectNameField: target.Operator}},
		{&corev1.Pod{}, func() client.ObjectList { return &corev1.PodList{} }, client.MatchingLabels{target.PodLabel: target.Operator}},
		{&corev1.Event{}, func() client.ObjectList { return &corev1.EventList{} }, client.MatchingFields{}},
	} {
		informer := toolscache.NewSharedIndexInformer(source(c, namespace, kind.list, kind.only), kind.object, 0, toolscache.Indexers{})
		changed := func(any) { notify(wake) }
		_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) }, DeleteFunc: changed,
		})
		if err != nil {
			return State{}, fmt.Errorf("watching the operator: %w", err)
		}
		stores[i] = informer.GetStore()
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	var last State
	for {
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-wake:
		}
		state := diagnose(only[*appsv1.Deployment](stores[0]), only[*corev1.Pod](stores[1]), only[*corev1.Event](stores[2]))
		if state.Message != last.Message || !slices.Equal(state.Troubles, last.Troubles) || state.Running {
			report(state)
		}
		if last = state; state.Running {
			return last, nil
		}
	}
}

func notify(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default: // a pending signal covers this change too
	}
}

func only[T any](store toolscache.Store) []T {
	var all []T
	for _, object := range store.List() {
		if typed, ok := object.(T); ok {
			all = append(all, typed)
		}
	}
	return all
}

// source lists and watches the objects of one kind in a namespace.
func source(c *target.Cluster, namespace string, list func() client.ObjectList, some client.ListOption) *toolscache.ListWatch {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			into := list()
			return into, c.List(ctx, into, &client.ListOptions{Raw: &options}, client.InNamespace(namespace), some)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, list(), &client.ListOptions{Raw: &options}, client.InNamespace(namespace), some)
		},
	}
}

// diagnose derives the state of the operator's Deployment from objects of the cluster. It ignores events about other objects.
func diagnose(deployments []*appsv1.Deployment, pods []*corev1.Pod, events []*corev1.Event) State {
	if len(deployments) == 0 {
		return State{Message: "the operator's Deployment does not exist"}
	}
	d := deployments[0]
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	s := d.Status
	state := State{
		// More pods are available than there are old ones.
		Running: s.ObservedGeneration >= d.Generation && s.AvailableReplicas > s.Replicas-s.UpdatedReplicas,
		Message: fmt.Sprintf("%d of %d operator replicas updated, %d available", min(s.UpdatedReplicas, replicas), replicas, s.AvailableReplicas),
	}
	warnings := lastWarnings(events)
	for _, condition := range s.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			state.Troubles = append(state.Troubles, fmt.Sprintf("Deployment %s: %s: %s", d.Name, condition.Reason, brief(condition.Message)))
		}
	}
	for _, pod := range pods {
		// While no replica is available, only a finished pod shows why the kubelet rejects each new one.
		if pod.DeletionTimestamp != nil || target.IsFinished(pod) && s.AvailableReplicas > 0 {
			continue
		}
		if trouble := podTrouble(pod, warnings[pod.UID]); trouble != "" {
			state.Troubles = append(state.Troubles, fmt.Sprintf("Pod %s: %s", pod.Name, trouble))
		}
	}
	slices.Sort(state.Troubles)
	return state
}

// lastWarnings returns the last warning about each object.
func lastWarnings(events []*corev1.Event) map[types.UID]*corev1.Event {
	last := map[types.UID]*corev1.Event{}
	for _, event := range events {
		// A back-off event reports a retry, not the cause of the failure.
		if event.Type != corev1.EventTypeWarning || event.Reason == "BackOff" || strings.HasPrefix(event.Message, "Error: ") {
			continue
		}
		if before := last[event.InvolvedObject.UID]; before == nil || eventTime(before).Compare(eventTime(event)) < 0 {
			last[event.InvolvedObject.UID] = event
		}
	}
	return last
}

func eventTime(event *corev1.Event) eventMoment {
	moment := event.CreationTimestamp.Time
	if event.LastTimestamp.After(moment) {
		moment = event.LastTimestamp.Time
	}
	if event.Series != nil && event.Series.LastObservedTime.After(moment) {
		moment = event.Series.LastObservedTime.Time
	}
	return eventMoment{moment.UnixNano(), event.Name}
}

// eventMoment orders events, including events of the same second.
type eventMoment struct {
	at   int64
	name string
}

// Compare works like cmp.Compare.
func (m eventMoment) Compare(other eventMoment) int {
	return cmp.Or(cmp.Compare(m.at, other.at), cmp.Compare(m.name, other.name))
}

// podTrouble returns the reason why a pod does not run. It is empty if the pod runs or nothing indicates that it will fail.
func podTrouble(pod *corev1.Pod, warning *corev1.Event) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return fmt.Sprintf("no node accepts it: %s: %s", condition.Reason, brief(condition.Message))
		}
	}
	ready := len(pod.Status.ContainerStatuses) > 0
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		ready = ready && status.Ready
		switch waiting, ended := status.State.Waiting, cmp.Or(status.State.Terminated, status.LastTerminationState.Terminated); {
		case ended != nil && !status.Ready && (waiting != nil || status.State.Terminated != nil):
			reason := "terminated"
			if waiting != nil {
				reason = waiting.Reason
			}
			return fmt.Sprintf("container %s: %s: exit code %d (%s): %s", status.Name, reason, ended.ExitCode, ended.Reason, ending(ended.Message))
		case waiting == nil || waiting.Reason == "" || waiting.Reason == "ContainerCreating" || waiting.Reason == "PodInitializing":
		case warning != nil && strings.Contains(warning.Message, "image"):
			return fmt.Sprintf("container %s: %s: %s", status.Name, waiting.Reason, brief(warning.Message))
		default:
			return fmt.Sprintf("container %s: %s: %s", status.Name, waiting.Reason, brief(waiting.Message))
		}
	}
	if !ready && warning != nil {
		return fmt.Sprintf("%s: %s", warning.Reason, brief(warning.Message))
	}
	return ""
}

const maxWords = 600

// brief returns the beginning of a message, on one line.
func brief(message string) string {
	return printable.Excerpt(strings.Join(strings.Fields(message), " "), maxWords)
}

// ending returns the end of a log on one line, because the last lines usually name the error.
func ending(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if len(message) > maxWords {
		return "…" + strings.ToValidUTF8(message[len(message)-maxWords:], "")
	}
	return message
}
