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
	// formerTimeout limits one attempt to read an earlier release. Other objects wait meanwhile.
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
	// read has the manifests of each release, nil if it could not be read.
	read []map[manifest.ID][]*manifest.Manifest
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
	last, err := f.last.Read(ctx, formerTimeout*time.Duration(len(f.targets)), due, f.readAll)
	if err != nil {
		return nil, err
	}
	if last.err != nil && f.clock.Since(last.began) < formerPatience {
		return nil, last.err
	}
	var found []*manifest.Manifest
	for _, manifests := range last.read {
		found = append(found, manifests[id]...)
	}
	if missing := errors.Join(last.gone, last.err); missing != nil {
		return found, fmt.Errorf("%w: %w", apply.ErrNoFormer, missing)
	}
	return found, nil
}

// readAll makes an attempt after the last one.
func (f *former) readAll(ctx context.Context, last attempt) attempt {
	if last.began.IsZero() {
		last.began = f.clock.Now()
	}
	known := last.read
	last.read, last.gone, last.err = make([]map[manifest.ID][]*manifest.Manifest, len(f.targets)), nil, nil
	for i, target := range f.targets {
		if known != nil && known[i] != nil {
			last.read[i] = known[i]
			continue
		}
		update, err := f.readOne(ctx, target)
		if err != nil {
			err = fmt.Errorf("release %s cannot be read: %w", target.Version, err)
			if errors.Is(err, failure.ErrNotFound) {
				last.gone = errors.Join(last.gone, err)
			} else {
				last.err = errors.Join(last.err, err)
			}
			continue
		}
		last.read[i] = map[manifest.ID][]*manifest.Manifest{}
		for _, m := range update.Payload.Manifests {
			last.read[i][m.ID()] = append(last.read[i][m.ID()], m)
		}
	}
	last.at = f.clock.Now()
	return last
}

func (f *former) readOne(ctx context.Context, target request.Target) (payload.Update, error) {
	ctx, cancel := context.WithTimeout(ctx, formerTimeout)
	defer cancel()
	return f.read(ctx, target)
}
