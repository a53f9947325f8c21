package clusterversion

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/memo"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

const (
	// formerTimeout limits one attempt to read the earlier releases. Other objects wait meanwhile.
	formerTimeout = time.Minute
	// formerRetry is the time between two attempts. After formerPatience the rollout continues without the earlier releases, because they
	// only help to remove fields.
	formerRetry    = 10 * time.Second
	formerPatience = 5 * time.Minute
)

// former reads the releases that the cluster may have applied before the one that is rolled out: the last completed one and those after it.
type former struct {
	read    func(ctx context.Context, target request.Target) (payload.Update, error)
	targets []request.Target
	clock   clock.PassiveClock
	last    memo.Last[attempt]
}

// attempt is the result of reading all releases. It is kept for all objects.
type attempt struct {
	// found has the manifests of the releases that could be read.
	found map[manifest.ID][]*manifest.Manifest
	// gone names the releases that no longer exist, and err those that cannot be read for another reason.
	gone, err error
	// at is the time of this attempt, began is the time of the first one.
	at, began time.Time
}

// due reports whether the releases must be read, for the first time or again.
func (a attempt) due(now time.Time) bool {
	return a.at.IsZero() || a.err != nil && now.Sub(a.at) >= formerRetry && now.Sub(a.began) < formerPatience
}

// newFormer returns nil if the history has no earlier release.
func (w *rolling) newFormer() *former {
	history := w.r.original.Status.History
	last := reported.LastCompleted(history)
	if last < 1 {
		return nil
	}
	f := &former{clock: w.clock, read: func(ctx context.Context, target request.Target) (payload.Update, error) {
		in := w.acceptInput(w.r.original, w.r.settings)
		in.Running = w.r.accepted
		image := release.Image{Pullspec: target.Image, Digest: release.Digest(request.DigestIn(target.Image))}
		if verified, ok := in.Identity.Evidence(image); ok {
			in.Known = &verified
		}
		return accept.Read(ctx, in, target)
	}}
	for _, h := range history[1 : last+1] {
		f.targets = append(f.targets, request.Target{Image: h.Image, Version: h.Version})
	}
	return f
}

// manifests implements apply.Former. The first call reads the releases, mostly from the cache. Concurrent callers share one read, which
// continues for the others if ctx ends.
func (f *former) manifests(ctx context.Context, id manifest.ID) ([]*manifest.Manifest, error) {
	due := func(last attempt) bool { return last.due(f.clock.Now()) }
	last, err := f.last.Read(ctx, formerTimeout, due, f.readAll)
	if err != nil {
		return nil, err
	}
	if last.err != nil && f.clock.Since(last.began) < formerPatience {
		return nil, last.err
	}
	if missing := errors.Join(last.gone, last.err); missing != nil {
		return last.found[id], fmt.Errorf("%w: %w", apply.ErrNoFormer, missing)
	}
	return last.found[id], nil
}

// readAll makes an attempt after the last one.
func (f *former) readAll(ctx context.Context, last attempt) attempt {
	if last.began.IsZero() {
		last.began = f.clock.Now()
	}
	last.found, last.gone, last.err = map[manifest.ID][]*manifest.Manifest{}, nil, nil
	for _, target := range f.targets {
		update, err := f.read(ctx, target)
		if err != nil {
			err = fmt.Errorf("release %s cannot be read: %w", target.Version, err)
			if errors.Is(err, failure.ErrNotFound) {
				last.gone = errors.Join(last.gone, err)
			} else {
				last.err = errors.Join(last.err, err)
			}
			continue
		}
		for _, m := range update.Payload.Manifests {
			last.found[m.ID()] = append(last.found[m.ID()], m)
		}
	}
	last.at = f.clock.Now()
	return last
}
