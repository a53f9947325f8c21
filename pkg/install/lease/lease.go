// Package lease holds the operator's Lease during an uninstall, so that no operator writes. It also reclaims the Lease of a
// killed uninstall. Package lead in pkg/kube implements the operator's side.
package lease

import (
	"context"
	"fmt"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/install/target"
)

const (
	// leaseSeconds is how long the Lease of a killed uninstall keeps operators from starting.
	leaseSeconds = 60
	// renewInterval is the time between two renewals by an uninstall. An uninstall counts as dead if it has not renewed the Lease for
	// leaseExpiry.
	renewInterval = 3 * time.Second
	leaseExpiry   = 4 * renewInterval
	// ackTimeout is how long an operator usually needs to confirm the loss of the Lease. The operator watches the Lease, and waits this long
	// for the responses to its writes.
	ackTimeout = 2 * time.Second
	// releaseTimeout limits the release of the Lease at the end of an interrupted uninstall.
	releaseTimeout = 5 * time.Second

	// maxFence is the longest remaining time of a credible fence.
	maxFence = 10 * time.Minute
)

// Hold is an uninstall's hold on the Lease. It begins with Acquire.
type Hold struct {
	cluster *target.Cluster
	clock   clock.PassiveClock
	key     client.ObjectKey

	held bool
	// renewed is the time of the last look at the Lease, zero before Acquire.
	renewed time.Time
	// fenceEnd is the time from which fencedHolder, the earlier leader, can no longer act.
	fenceEnd     time.Time
	fencedHolder string
	// ackEnd is the time at which that leader should have confirmed the loss of the Lease.
	ackEnd time.Time
}

// New returns a Hold that has not acquired the Lease yet.
func New(clk clock.PassiveClock, c *target.Cluster, namespace, name string) *Hold {
	return &Hold{cluster: c, clock: clk, key: client.ObjectKey{Namespace: namespace, Name: name}}
}

// edit applies change to the Lease and updates it, retrying on conflict. It does nothing if the Lease does not exist or
// change returns false.
func edit(ctx context.Context, c *target.Cluster, key client.ObjectKey, change func(*coordinationv1.Lease) bool) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease := &coordinationv1.Lease{}
		if err := c.Get(ctx, key, lease); err != nil {
			return client.IgnoreNotFound(err)
		}
		if !change(lease) {
			return nil
		}
		return client.IgnoreNotFound(c.Update(ctx, lease, client.FieldOwner(target.Manager)))
	})
}

// Acquire acquires the Lease from any holder. It records the earlier holder and the time from which that holder can no longer act, even if an
// earlier run acquired the Lease. If the uninstall holds the Lease, Acquire renews it and checks whether the earlier holder has confirmed that
// it has stopped writing. A Lease that does not exist cannot be held: an operator that is just starting creates it.
func (h *Hold) Acquire(ctx context.Context) error {
	if h.held {
		if err := h.Renew(ctx); err != nil {
			return err
		}
		return h.pollAck(ctx)
	}
	h.renewed = h.clock.Now() // also if there is no Lease
	err := edit(ctx, h.cluster, h.key, func(lease *coordinationv1.Lease) bool {
		now := h.clock.Now()
		h.held, h.renewed, h.ackEnd, h.fenceEnd, h.fencedHolder = true, now, now.Add(ackTimeout), time.Time{}, ""
		switch holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder {
		case "":
		case api.UninstallHolder:
			h.fencedHolder = lease.Annotations[api.FencedFromAnnotation]
			h.fenceEnd = fenceEnd(lease, now)
		default:
			h.fencedHolder = holder
			h.fenceEnd = now.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, api.FencedFromAnnotation, holder)
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, api.FencedUntilAnnotation, h.fenceEnd.UTC().Format(time.RFC3339Nano))
		}
		setHolder(lease, now, leaseSeconds)
		lease.Spec.AcquireTime = lease.Spec.RenewTime
		return true
	})
	if err != nil {
		return fmt.Errorf("acquiring Lease %s: %w", h.key, err)
	}
	return nil
}

// pollAck checks whether the earlier leader has confirmed that it has stopped writing. The leader confirms by removing its name from the
// Lease. No other client removes it while an uninstall holds the Lease, and any other name there belongs to a later leader.
func (h *Hold) pollAck(ctx context.Context) error {
	if !h.Fencing() {
		return nil
	}
	lease := &coordinationv1.Lease{}
	switch err := h.cluster.Get(ctx, h.key, lease); {
	case apierrors.IsNotFound(err):
		return nil // no confirmation can arrive; the fence expires
	case err != nil:
		return fmt.Errorf("reading Lease %s: %w", h.key, err)
	case ptr.Deref(lease.Spec.HolderIdentity, "") != api.UninstallHolder:
		return nil // Renew reports this
	}
	if holder := lease.Annotations[api.FencedFromAnnotation]; holder != h.fencedHolder {
		h.fencedHolder, h.fenceEnd = holder, fenceEnd(lease, h.clock.Now())
	}
	return nil
}

// AwaitsAck reports whether an earlier leader may still act, but should soon confirm that it has stopped.
func (h *Hold) AwaitsAck() bool { return h.Fencing() && h.clock.Now().Before(h.ackEnd) }

// Fencing reports whether an earlier leader may still act.
func (h *Hold) Fencing() bool { return h.clock.Now().Before(h.fenceEnd) }

// Fenced returns the earlier leader, and the time from which it can no longer act.
func (h *Hold) Fenced() (holder string, until time.Time) { return h.fencedHolder, h.fenceEnd }

func setHolder(lease *coordinationv1.Lease, now time.Time, seconds int32) {
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new(api.UninstallHolder), new(seconds)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: now}
}

// fenceEnd returns the time from which the earlier leader can no longer act; zero if it is past, missing or not credible.
func fenceEnd(lease *coordinationv1.Lease, now time.Time) time.Time {
	until, err := time.Parse(time.RFC3339Nano, lease.Annotations[api.FencedUntilAnnotation])
	if err != nil || !until.After(now) || until.After(now.Add(maxFence)) {
		return time.Time{}
	}
	return until
}

// Renew renews the Lease until it is deleted with its namespace. It returns an error if another client holds the Lease, also if the Lease
// did not exist until now. Before Acquire, Renew does nothing.
func (h *Hold) Renew(ctx context.Context) error {
	now := h.clock.Now()
	if h.renewed.IsZero() || now.Sub(h.renewed) < renewInterval {
		return nil
	}
	holder := api.UninstallHolder // also if the Lease does not exist
	err := edit(ctx, h.cluster, h.key, func(lease *coordinationv1.Lease) bool {
		if holder = ptr.Deref(lease.Spec.HolderIdentity, ""); holder == "" && !h.held {
			holder = api.UninstallHolder // its creator has released it
		}
		if holder != api.UninstallHolder {
			return false
		}
		h.held = true
		setHolder(lease, now, leaseSeconds)
		return true
	})
	switch {
	case err != nil:
		return fmt.Errorf("renewing Lease %s: %w", h.key, err)
	case holder != api.UninstallHolder:
		h.held = false
		return fmt.Errorf("renewing Lease %s: %q now holds it and may recreate deleted objects: stop that process and run the command again", h.key, holder)
	}
	h.renewed = now
	return nil
}

// Release releases the Lease at once. If the earlier leader may still act, Release lets the Lease expire with that leader's fence. It runs
// after an interruption, so it ignores the cancellation of its context.
func (h *Hold) Release(ctx context.Context) error {
	if !h.held {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	err := edit(ctx, h.cluster, h.key, func(lease *coordinationv1.Lease) bool {
		held := ptr.Deref(lease.Spec.HolderIdentity, "") == api.UninstallHolder
		if held {
			clearHolder(lease, h.clock.Now())
		}
		return held
	})
	if err != nil {
		return fmt.Errorf("releasing Lease %s, which stays held for %d seconds: %w", h.key, leaseSeconds, err)
	}
	return nil
}

// clearHolder removes the uninstall's name from the Lease. If the earlier leader may still act, the Lease expires with that leader's fence.
func clearHolder(lease *coordinationv1.Lease, now time.Time) {
	if until := fenceEnd(lease, now); !until.IsZero() {
		setHolder(lease, now, int32(math.Ceil(until.Sub(now).Seconds())))
		return
	}
	setHolder(lease, now, 1)
	lease.Spec.HolderIdentity = new("")
	delete(lease.Annotations, api.FencedFromAnnotation)
	delete(lease.Annotations, api.FencedUntilAnnotation)
}

// Reclaim takes the Lease from a killed uninstall, so that an operator can start at once. It fails if the uninstall is still running.
func Reclaim(ctx context.Context, clk clock.Clock, cfg *rest.Config, namespace, name string, logLine func(string)) error {
	c, err := target.Connect(ctx, cfg, nil)
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	running := &target.Refusal{Err: fmt.Errorf("'cvo uninstall' is running in this cluster and has just renewed Lease %s: wait for it to finish, or stop it", key)}
	var first *metav1.MicroTime
	var since time.Time
	err = wait.PollUntilContextCancel(ctx, renewInterval/6, true, func(ctx context.Context) (bool, error) {
		lease := &coordinationv1.Lease{}
		switch err := c.Get(ctx, key, lease); {
		case apierrors.IsNotFound(err):
			return true, nil
		case err != nil:
			return false, err
		case ptr.Deref(lease.Spec.HolderIdentity, "") != api.UninstallHolder, ptr.Deref(lease.Spec.LeaseDurationSeconds, 0) < leaseSeconds:
			return true, nil // it is released, or about to expire
		case since.IsZero():
			since, first = clk.Now(), lease.Spec.RenewTime
			logLine(fmt.Sprintf("watching Lease %s for %s to see whether the uninstall that holds it is still running", key, leaseExpiry))
		case !first.Equal(lease.Spec.RenewTime):
			return false, running
		}
		return clk.Since(since) >= leaseExpiry, nil
	})
	if err != nil {
		return fmt.Errorf("reading Lease %s: %w", key, err)
	}
	if since.IsZero() {
		return nil
	}
	renewed := false
	err = edit(ctx, c, key, func(lease *coordinationv1.Lease) bool {
		held := ptr.Deref(lease.Spec.HolderIdentity, "") == api.UninstallHolder
		renewed = held && !first.Equal(lease.Spec.RenewTime)
		if !held || renewed {
			return false
		}
		clearHolder(lease, clk.Now())
		return true
	})
	switch {
	case err != nil:
		return fmt.Errorf("acquiring Lease %s from a killed uninstall: %w", key, err)
	case renewed:
		return running
	}
	return nil
}
