package lead

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/cluster-version/cvo/pkg/kube/leader"
)

// Lease is the Lease for which the replicas compete, with its clients. They have no fence.
type Lease struct {
	lock   *resourcelock.LeaseLock
	leases coordinationv1client.LeaseInterface
	// watched is a client without a timeout, which would end watches.
	watched coordinationv1client.LeaseInterface
}

// NewLease returns the Lease with the given name, for which this process competes with its identity. A leader that cannot renew gives up
// after renewDeadline.
func NewLease(cfg *rest.Config, namespace, name string, self leader.Identity, renewDeadline time.Duration) (*Lease, error) {
	cfg = rest.AddUserAgent(rest.CopyConfig(cfg), "leader-election")
	watcher, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating client to watch the Lease: %w", err)
	}
	// A hanging request must not cost the leadership, so the timeout leaves time for a second one.
	cfg.Timeout = max(renewDeadline/2, time.Second)
	client, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating lease client: %w", err)
	}
	l := &Lease{
		lock:   &resourcelock.LeaseLock{Client: client, LockConfig: resourcelock.ResourceLockConfig{Identity: self.String()}},
		leases: client.Leases(namespace), watched: watcher.Leases(namespace),
	}
	l.lock.LeaseMeta.Namespace, l.lock.LeaseMeta.Name = namespace, name
	return l, nil
}

func (l *Lease) name() string { return l.lock.LeaseMeta.Name }

// RecordEvents makes the elector report changes of the leader as events.
func (l *Lease) RecordEvents(recorder record.EventRecorder) {
	l.lock.LockConfig.EventRecorder = recorder
}

// leaderTimeout is the time limit for looking up the leader, which a follower does for each of its callers.
const leaderTimeout = 5 * time.Second

// Leader returns the host of the leader, or "" if no process leads.
func (l *Lease) Leader(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	lease, err := l.leases.Get(ctx, l.name(), metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	return leader.ParseIdentity(*lease.Spec.HolderIdentity).Host, nil
}
