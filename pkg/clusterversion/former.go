package clusterversion

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/payload"
)

const (
	// formerTimeout limits one attempt to read the earlier releases. Other objects wait meanwhile.
	formerTimeout = time.Minute
	// formerRetry is the time between two attempts, and formerPatience the time after which the rollout does without them: they only help to
	// remove fields.
	formerRetry    = 10 * time.Second
	formerPatience = 5 * time.Minute
)

// former reads the releases that the cluster may have applied before the one that is rolled out: the last completed one and those after it.
type former struct {
	read    func(ctx context.Context, target request.Target) (payload.Update, error)
	targets []request.Target
	clock   clock.PassiveClock

	mu sync.Mutex
	// found is nil until all releases have been read.
	found map[manifest.ID][]*manifest.Manifest
	// err is the result of the last attempt, at its time. began is the time of the first attempt.
	err       error
	at, began time.Time
}

// newFormer returns nil if the history has no earlier release.
func (w *rolling) newFormer() *former {
	history := w.r.original.Status.History
	last := slices.IndexFunc(history, func(h configv1.UpdateHistory) bool { return h.State == configv1.CompletedUpdate })
	if last < 1 {
		return nil
	}
	f := &former{clock: w.clock, read: func(ctx context.Context, target request.Target) (payload.Update, error) {
		in := w.acceptInput(w.r.original, w.r.settings)
		in.Running = w.r.accepted
		in.Known = in.VerifiedBefore(nil, target)
		return accept.Read(ctx, in, target)
	}}
	for _, h := range history[1 : last+1] {
		f.targets = append(f.targets, request.Target{Image: h.Image, Version: h.Version, Return: true})
	}
	return f
}

// manifests implements apply.Former. The first call reads the releases, mostly from the cache.
func (f *former) manifests(ctx context.Context, id manifest.ID) ([]*manifest.Manifest, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	if f.found == nil && (f.err == nil || now.Sub(f.at) >= formerRetry && now.Sub(f.began) < formerPatience) {
		if f.began.IsZero() {
			f.began = now
		}
		ctx, cancel := context.WithTimeout(ctx, formerTimeout)
		defer cancel()
		f.found, f.err = f.readAll(ctx)
		f.at = f.clock.Now()
	}
	switch {
	case f.err == nil:
		return f.found[id], nil
	case errors.Is(f.err, failure.ErrNotFound), now.Sub(f.began) >= formerPatience:
		return nil, fmt.Errorf("%w: %w", apply.ErrNoFormer, f.err)
	}
	return nil, f.err
}

func (f *former) readAll(ctx context.Context) (map[manifest.ID][]*manifest.Manifest, error) {
	found := map[manifest.ID][]*manifest.Manifest{}
	for _, target := range f.targets {
		update, err := f.read(ctx, target)
		if err != nil {
			return nil, fmt.Errorf("release %s cannot be read: %w", target.Version, err)
		}
		for _, m := range update.Payload.Manifests {
			found[m.ID()] = append(found[m.ID()], m)
		}
	}
	return found, nil
}
