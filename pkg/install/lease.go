package install

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
)

const (
	// leaseSeconds is how long the Lease keeps operators from starting after a removal was killed.
	leaseSeconds = 60
	// renewal is how often a removal renews the Lease, and silence is how long nobody has to renew it for a removal to be
	// taken for dead.
	renewal = 3 * time.Second
	silence = 4 * renewal
	// notice is by when an operator that lost the Lease has tried to renew it and given its word, as a rule: twice its
	// default retry period.
	notice = 2 * time.Second
	// farewell bounds giving the Lease back at the end of a removal that was interrupted.
	farewell = 5 * time.Second

	// farthest bounds what is believed of a fence.
	farthest = 10 * time.Minute
)

// hold is what a removal knows of the Lease that it has taken; the zero value is that of one that holds none.
type hold struct {
	held    bool
	renewed time.Time
	// fenced is from when on fencedHolder, who led before, does not act any more.
	fenced       time.Time
	fencedHolder string
}

// editLease changes the Lease unless there is none, or edit says that it stays as it is.
func (c *cluster) editLease(ctx context.Context, key client.ObjectKey, edit func(*coordinationv1.Lease) bool) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease := &coordinationv1.Lease{}
		if err := c.Get(ctx, key, lease); err != nil {
			return client.IgnoreNotFound(err)
		}
		if !edit(lease) {
			return nil
		}
		return client.IgnoreNotFound(c.Update(ctx, lease, client.FieldOwner(Manager)))
	})
}

func (u *remover) leaseKey() client.ObjectKey {
	return client.ObjectKey{Namespace: u.removal.Namespace, Name: u.removal.Name}
}

// take makes the Lease ours. It notes who had it, and from when on that one does not act any more, also if an earlier run
// has taken it.
func (u *remover) take(ctx context.Context) error {
	err := u.editLease(ctx, u.leaseKey(), func(lease *coordinationv1.Lease) bool {
		now := u.clock.Now()
		u.hold = hold{held: true, renewed: now}
		switch holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder {
		case "":
		case api.UninstallHolder:
			u.fencedHolder = lease.Annotations[api.FencedFromAnnotation]
			u.fenced = fence(lease, now)
		default:
			u.fencedHolder = holder
			u.fenced = now.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, api.FencedFromAnnotation, holder)
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, api.FencedUntilAnnotation, u.fenced.UTC().Format(time.RFC3339Nano))
		}
		own(lease, now, leaseSeconds)
		lease.Spec.AcquireTime = lease.Spec.RenewTime
		return true
	})
	if err != nil {
		return fmt.Errorf("taking Lease %s: %w", u.leaseKey(), err)
	}
	return nil
}

// hear looks whether whoever led before has given its word that it writes nothing any more: then it has taken its name off
// the Lease. Nobody else does while a removal has it, and whoever is named there instead has led since.
func (u *remover) hear(ctx context.Context) error {
	if !u.fencing() {
		return nil
	}
	lease := &coordinationv1.Lease{}
	switch err := u.Get(ctx, u.leaseKey(), lease); {
	case apierrors.IsNotFound(err):
		return nil // nobody is left to give a word, and time tells as well
	case err != nil:
		return fmt.Errorf("reading Lease %s: %w", u.leaseKey(), err)
	case ptr.Deref(lease.Spec.HolderIdentity, "") != api.UninstallHolder:
		return nil // which renew tells of
	}
	if named := lease.Annotations[api.FencedFromAnnotation]; named != u.fencedHolder {
		u.fencedHolder, u.fenced = named, fence(lease, u.clock.Now())
	}
	return nil
}

// fencing reports whether somebody who led before may still act.
func (u *remover) fencing() bool { return u.clock.Now().Before(u.fenced) }

func own(lease *coordinationv1.Lease, now time.Time, seconds int32) {
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new(api.UninstallHolder), new(seconds)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: now}
}

// fence is from when on whoever led before a removal does not act any more; zero if that is past, or nothing believable.
func fence(lease *coordinationv1.Lease, now time.Time) time.Time {
	until, err := time.Parse(time.RFC3339Nano, lease.Annotations[api.FencedUntilAnnotation])
	if err != nil || !until.After(now) || until.After(now.Add(farthest)) {
		return time.Time{}
	}
	return until
}

// renew keeps the Lease, which goes with its namespace in the end. Whoever else holds it has been let in by somebody.
func (u *remover) renew(ctx context.Context) error {
	now := u.clock.Now()
	if !u.held || now.Sub(u.renewed) < renewal {
		return nil
	}
	lost := api.UninstallHolder // also if there is none any more
	err := u.editLease(ctx, u.leaseKey(), func(lease *coordinationv1.Lease) bool {
		if lost = ptr.Deref(lease.Spec.HolderIdentity, ""); lost != api.UninstallHolder {
			return false
		}
		own(lease, now, leaseSeconds)
		return true
	})
	switch {
	case err != nil:
		return fmt.Errorf("renewing Lease %s: %w", u.leaseKey(), err)
	case lost != api.UninstallHolder:
		u.held = false
		return fmt.Errorf("renewing Lease %s: %q has it, which may bring back what is deleted: stop it and do this again", u.leaseKey(), lost)
	}
	u.renewed = now
	return nil
}

// giveBack lets others have the Lease at once, or as soon as whoever led before does not act any more. It comes after an
// interruption, so it does not end with its context.
func (u *remover) giveBack(ctx context.Context) error {
	if !u.held {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	err := u.editLease(ctx, u.leaseKey(), func(lease *coordinationv1.Lease) bool {
		ours := ptr.Deref(lease.Spec.HolderIdentity, "") == api.UninstallHolder
		if ours {
			vacate(lease, u.clock.Now())
		}
		return ours
	})
	if err != nil {
		return fmt.Errorf("giving Lease %s back, which nobody else can take for %d seconds now: %w", u.leaseKey(), leaseSeconds, err)
	}
	return nil
}

// vacate takes a removal's name off the Lease, or has it run out when whoever led before does not act any more.
func vacate(lease *coordinationv1.Lease, now time.Time) {
	if until := fence(lease, now); !until.IsZero() {
		own(lease, now, int32(math.Ceil(until.Sub(now).Seconds())))
		return
	}
	own(lease, now, 1)
	lease.Spec.HolderIdentity = new("")
	delete(lease.Annotations, api.FencedFromAnnotation)
	delete(lease.Annotations, api.FencedUntilAnnotation)
}

// Reclaim takes the Lease from a removal that was killed, so that an operator can start at once. It refuses if the removal
// still runs.
func Reclaim(ctx context.Context, clk clock.Clock, cfg *rest.Config, namespace, name string, say func(string)) error {
	c, err := connect(cfg, nil)
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	running := &Refusal{fmt.Errorf("'cvo uninstall' is at work in this cluster: it has just renewed Lease %s; wait for its end, or end it", key)}
	var first *metav1.MicroTime
	var since time.Time
	err = wait.PollUntilContextCancel(ctx, renewal/6, true, func(ctx context.Context) (bool, error) {
		lease := &coordinationv1.Lease{}
		switch err := c.Get(ctx, key, lease); {
		case apierrors.IsNotFound(err):
			return true, nil
		case err != nil:
			return false, err
		case ptr.Deref(lease.Spec.HolderIdentity, "") != api.UninstallHolder, ptr.Deref(lease.Spec.LeaseDurationSeconds, 0) < leaseSeconds:
			return true, nil // it is given back, or about to run out
		case since.IsZero():
			since, first = clk.Now(), lease.Spec.RenewTime
			say(fmt.Sprintf("looking for %s whether an uninstall that holds Lease %s still runs", silence, key))
		case !first.Equal(lease.Spec.RenewTime):
			return false, running
		}
		return clk.Since(since) >= silence, nil
	})
	if err != nil {
		return fmt.Errorf("looking at Lease %s: %w", key, err)
	}
	if since.IsZero() {
		return nil
	}
	renewed := false
	err = c.editLease(ctx, key, func(lease *coordinationv1.Lease) bool {
		held := ptr.Deref(lease.Spec.HolderIdentity, "") == api.UninstallHolder
		renewed = held && !first.Equal(lease.Spec.RenewTime)
		if !held || renewed {
			return false
		}
		vacate(lease, clk.Now())
		return true
	})
	switch {
	case err != nil:
		return fmt.Errorf("taking Lease %s from an uninstall that was killed: %w", key, err)
	case renewed:
		return running
	}
	return nil
}
