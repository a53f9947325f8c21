// Package events records core/v1 events for a process that may lose the leadership. It drops events that the fence rejects without delaying
// later events.
package events

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/kube/fence"
)

// Limits of the recorder, which drops events about one object if there are too many, and combines those with the same reason. An update emits
// dozens of events within minutes, one for each runlevel. That is more than the default limits allow.
const (
	eventBurst     = 200
	eventPerSecond = 1
)

// NewRecorder returns a recorder for the events of a component. It runs until the process ends: controllers emit events while they stop, and
// a stopped recorder logs each of them as an error. It does not use the recorder of events.k8s.io, which merges events with the same reason:
// it would keep only the first of "started to install 1.0.0" and "started to update to 1.1.0".
func NewRecorder(mgr manager.Manager, component string) (record.EventRecorder, error) {
	client, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating events client: %w", err)
	}
	return newBroadcaster(client).NewRecorder(mgr.GetScheme(), corev1.EventSource{Component: component}), nil
}

// newBroadcaster returns a broadcaster that writes events with the client.
func newBroadcaster(client corev1client.EventsGetter) record.EventBroadcaster {
	broadcaster := record.NewBroadcasterWithCorrelatorOptions(record.CorrelatorOptions{BurstSize: eventBurst, QPS: eventPerSecond, MaxEvents: eventBurst})
	broadcaster.StartRecordingToSink(fencedSink{&corev1client.EventSinkImpl{Interface: client.Events("")}})
	return broadcaster
}

// fencedSink drops events that the fence rejects. The broadcaster retries an unknown error twelve times, and writes no other event during
// pauses of ten seconds. It drops an event immediately if the error is a RequestConstructionError.
type fencedSink struct{ record.EventSink }

// Create implements record.EventSink.
func (s fencedSink) Create(event *corev1.Event) (*corev1.Event, error) {
	return dropFenced(s.EventSink.Create(event))
}

// Update implements record.EventSink.
func (s fencedSink) Update(event *corev1.Event) (*corev1.Event, error) {
	return dropFenced(s.EventSink.Update(event))
}

// Patch implements record.EventSink.
func (s fencedSink) Patch(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	return dropFenced(s.EventSink.Patch(event, patch))
}

func dropFenced(event *corev1.Event, err error) (*corev1.Event, error) {
	if errors.Is(err, fence.ErrClosed) {
		return event, &rest.RequestConstructionError{Err: err}
	}
	return event, err
}
