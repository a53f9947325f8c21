package event

import (
	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/cluster-version/cvo/internal/printable"
)

// Emitter records events about a ClusterVersion. It writes them to the operator's namespace, as OpenShift's operator does.
type Emitter struct {
	Recorder  record.EventRecorder
	Namespace string
}

// Emit records events about a ClusterVersion. Messages may quote a release, so they are truncated, and characters that a
// terminal interprets are replaced.
func (e Emitter) Emit(cv *configv1.ClusterVersion, list ...Event) {
	regarding := &corev1.ObjectReference{
		APIVersion: configv1.GroupVersion.String(), Kind: "ClusterVersion", Namespace: e.Namespace, Name: cv.Name, UID: cv.UID,
	}
	for _, event := range list {
		e.Recorder.Event(regarding, event.Kind, event.Reason, printable.Lines(printable.Excerpt(event.Message, MaxMessage)))
	}
}
