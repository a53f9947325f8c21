package clusterversion

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
)

// subject is the ClusterVersion for which the reconciler works.
type subject struct {
	uid types.UID
	// stopped reports that the ClusterVersion is gone or being deleted. Objects applied now would have an owner that no longer exists, and
	// the garbage collector would delete them.
	stopped bool
}

// stop ends all work for the last ClusterVersion and drops its state, because the object is gone, is being deleted or was replaced. why
// names the reason. stop emits one event. A recreated object is handled as after a restart of the process: its history and the inventory
// show where to continue.
func (c *Reconciler) stop(ctx context.Context, why string) {
	was, version := c.subject, ""
	if a := c.acceptance.snapshot().Accepted; a != nil {
		version = a.Payload.Release.Version
	}
	if was.uid == "" || was.stopped {
		return
	}
	c.subject = subject{uid: was.uid, stopped: true}
	for _, owner := range []interface{ Reset() }{c.acceptance, c.underway, c.updates, c.control, c.record, c.publisher} {
		owner.Reset()
	}
	c.runner.Stop()
	c.ledger.Close()
	logr.FromContextOrDiscard(ctx).Info("rollout stopped", "reason", why, "uid", was.uid, "release", version)
	cv := &configv1.ClusterVersion{}
	cv.Name, cv.UID = c.options.Name, was.uid
	c.emitter.Emit(cv, rolloutStopped(why, version))
}

// workFor makes the given ClusterVersion the one that the reconciler works for and ends the work for another one. It reports whether there
// is work to do. An object that is being deleted gets none.
func (c *Reconciler) workFor(ctx context.Context, cv *configv1.ClusterVersion) bool {
	another := c.subject.uid != cv.UID
	if another {
		c.stop(ctx, fmt.Sprintf("ClusterVersion %s was deleted and recreated", cv.Name))
	}
	deleting := cv.DeletionTimestamp != nil
	if another || !deleting {
		c.subject = subject{uid: cv.UID}
	}
	if deleting {
		c.stop(ctx, deletingText(cv))
	}
	return !deleting
}

// deletedText and deletingText explain why work has stopped.
func deletedText(name string) string {
	return fmt.Sprintf("ClusterVersion %s was deleted; recreate it to continue", name)
}

func deletingText(cv *configv1.ClusterVersion) string {
	text := fmt.Sprintf("ClusterVersion %s is being deleted", cv.Name)
	if len(cv.Finalizers) > 0 {
		text += " and waits for finalizers " + api.FinalizersText(cv.Finalizers)
	}
	return text + "; recreate it once it is gone to continue"
}

func rolloutStopped(why, version string) event.Event {
	what := "Stopped applying and repairing objects"
	if version != "" {
		what = "Stopped the rollout of " + version
	}
	return event.Warning(api.EventRolloutStopped, "%s: %s", what, why)
}
