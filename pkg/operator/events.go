package operator

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// The recorder holds back what comes too fast about one object. An update tells some dozens of things within minutes,
// each once, so it may have more of them than the default allows.
const (
	eventBurst     = 200
	eventPerSecond = 1
)

// maxEvents bounds how many events are read at a start; a rollout writes some dozens.
const maxEvents = 500

// eventsAbout reads the events about a ClusterVersion, once in the life of a process.
func eventsAbout(reader client.Reader, namespace string) func(context.Context, *configv1.ClusterVersion) ([]corev1.Event, error) {
	return func(ctx context.Context, cv *configv1.ClusterVersion) ([]corev1.Event, error) {
		list := &corev1.EventList{}
		err := reader.List(ctx, list, client.InNamespace(namespace), client.Limit(maxEvents),
			client.MatchingFields{"involvedObject.kind": "ClusterVersion", "involvedObject.name": cv.Name, "involvedObject.uid": string(cv.UID)})
		if err != nil {
			return nil, fmt.Errorf("reading events in namespace %s: %w", namespace, err)
		}
		return list.Items, nil
	}
}

// newRecorder returns a recorder of core/v1 events, until ctx ends. The recorder of events.k8s.io takes two events with
// one reason for the same, whatever they say, and would keep only the first of "started to install 1.0.0" and "started
// to update to 1.1.0".
func newRecorder(ctx context.Context, mgr manager.Manager, namespace string) (record.EventRecorder, error) {
	client, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating events client: %w", err)
	}
	broadcaster := record.NewBroadcasterWithCorrelatorOptions(record.CorrelatorOptions{BurstSize: eventBurst, QPS: eventPerSecond})
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.Events("")})
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return broadcaster.NewRecorder(mgr.GetScheme(), corev1.EventSource{Component: namespace}), nil
}
