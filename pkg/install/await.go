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
)

// State is how far the operator's Deployment is.
type State struct {
	// Running says that the Deployment is available, and no pod of an earlier template is left.
	Running bool
	// Message says in a sentence how far it is.
	Message string
	// Troubles are what keeps pods from running, each with the pod and the words of who knows, sorted.
	Troubles []string
}

// Await follows the operator's Deployment until it runs, and tells each state that differs from the one before. It
// returns the last state, also if ctx ends.
func Await(ctx context.Context, cfg *rest.Config, namespace string, tell func(State)) (State, error) {
	c, err := connect(cfg, nil)
	if err != nil {
		return State{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	wake := make(chan struct{}, 1)
	var stores [3]toolscache.Store
	for i, kind := range []struct {
		object client.Object
		list   func() client.ObjectList
		only   client.ListOption
	}{
		{&appsv1.Deployment{}, func() client.ObjectList { return &appsv1.DeploymentList{} }, client.MatchingFields{metav1.ObjectNameField: Operator}},
		{&corev1.Pod{}, func() client.ObjectList { return &corev1.PodList{} }, client.MatchingLabels{podLabel: Operator}},
		{&corev1.Event{}, func() client.ObjectList { return &corev1.EventList{} }, client.MatchingFields{}},
	} {
		informer := toolscache.NewSharedIndexInformer(c.source(namespace, kind.list, kind.only), kind.object, 0, toolscache.Indexers{})
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
		state := Diagnose(only[*appsv1.Deployment](stores[0]), only[*corev1.Pod](stores[1]), only[*corev1.Event](stores[2]))
		if state.Message != last.Message || !slices.Equal(state.Troubles, last.Troubles) || state.Running {
			tell(state)
		}
		if last = state; state.Running {
			return last, nil
		}
	}
}

// podLabel is what the operator's pods are known by.
const podLabel = "k8s-app"

func notify(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default: // one is waiting, and will see this change too
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
func (c *cluster) source(namespace string, list func() client.ObjectList, some client.ListOption) *toolscache.ListWatch {
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

// Diagnose says how far the operator's Deployment is, and what keeps its pods from running, from what the cluster has of
// them. Events of objects other than these are left aside.
func Diagnose(deployments []*appsv1.Deployment, pods []*corev1.Pod, events []*corev1.Event) State {
	if len(deployments) == 0 {
		return State{Message: "the operator's Deployment is not there"}
	}
	d := deployments[0]
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	s := d.Status
	state := State{Message: fmt.Sprintf("%d of %d replicas of the operator updated, %d available", min(s.UpdatedReplicas, replicas), replicas, s.AvailableReplicas)}
	warnings := lastWarnings(events)
	for _, condition := range s.Conditions {
		switch {
		case condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue:
			state.Troubles = append(state.Troubles, fmt.Sprintf("Deployment %s: %s: %s", d.Name, condition.Reason, brief(condition.Message)))
		case condition.Type == appsv1.DeploymentAvailable && condition.Status == corev1.ConditionTrue:
			state.Running = s.ObservedGeneration >= d.Generation && s.UpdatedReplicas >= replicas && s.Replicas == s.UpdatedReplicas
		}
	}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		if trouble := podTrouble(pod, warnings[pod.UID]); trouble != "" {
			state.Troubles = append(state.Troubles, fmt.Sprintf("Pod %s: %s", pod.Name, trouble))
		}
	}
	slices.Sort(state.Troubles)
	return state
}

// lastWarnings finds for each object the last warning about it.
func lastWarnings(events []*corev1.Event) map[types.UID]*corev1.Event {
	last := map[types.UID]*corev1.Event{}
	for _, event := range events {
		// A back-off tells that something is tried again, not why it did not work.
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

// eventMoment orders events, also those of the same second.
type eventMoment struct {
	at   int64
	name string
}

// Compare is as cmp.Compare.
func (m eventMoment) Compare(other eventMoment) int {
	return cmp.Or(cmp.Compare(m.at, other.at), cmp.Compare(m.name, other.name))
}

// podTrouble says why a pod does not run; empty if it does, or if nothing says that it won't.
func podTrouble(pod *corev1.Pod, warning *corev1.Event) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return fmt.Sprintf("no node takes it: %s: %s", condition.Reason, brief(condition.Message))
		}
	}
	ready := len(pod.Status.ContainerStatuses) > 0
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		ready = ready && status.Ready
		switch waiting, ended := status.State.Waiting, cmp.Or(status.State.Terminated, status.LastTerminationState.Terminated); {
		case ended != nil && !status.Ready && (waiting != nil || status.State.Terminated != nil):
			reason := "it ended"
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

// brief is the beginning of a message, on one line.
func brief(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if len(message) > maxWords {
		return strings.ToValidUTF8(message[:maxWords], "") + "…"
	}
	return message
}

// ending is the end of a log, on one line: that is where it says what went wrong.
func ending(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if len(message) > maxWords {
		return "…" + strings.ToValidUTF8(message[len(message)-maxWords:], "")
	}
	return message
}
