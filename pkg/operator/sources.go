package operator

import (
	"context"

	configv1 "github.com/openshift/api/config/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// sources have the ClusterVersion reconciled: what is watched beside it, and what goes on in the background.
type sources struct {
	name     string
	settings *settings
	voices   *voices
	control  *control
	// changes holds one word of the background.
	changes chan event.TypedGenericEvent[client.Object]
}

func newSources(ctx context.Context, mgr manager.Manager, core corev1client.CoreV1Interface, options Options) (*sources, error) {
	s := &sources{name: options.Name, changes: make(chan event.TypedGenericEvent[client.Object], 1)}
	var err error
	if s.settings, err = newSettings(mgr, options); err != nil {
		return nil, err
	}
	if s.voices, err = newVoices(ctx, clock.RealClock{}, mgr.GetCache(), core, options.Name); err != nil {
		return nil, err
	}
	if s.control, err = newControl(clock.RealClock{}, mgr, options); err != nil {
		return nil, err
	}
	return s, nil
}

// changed tells of something in the background.
func (s *sources) changed() {
	cv := &configv1.ClusterVersion{}
	cv.Name = s.name
	select {
	case s.changes <- event.TypedGenericEvent[client.Object]{Object: cv}:
	default: // one is waiting, and will see this change too
	}
}

// all are those that a controller of ClusterVersions starts.
func (s *sources) all() []source.Source {
	return []source.Source{s.settings, s.voices, source.Channel(s.changes, &handler.EnqueueRequestForObject{}), s.control}
}
