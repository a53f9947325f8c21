package clusterversion

import (
	"context"
	"fmt"
	"slices"
	"sync"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// former returns a function that finds an object's manifest in the release that the cluster updates from. The first call reads that
// release, mostly from the cache; a failed read is repeated.
func (w *rolling) former() apply.Former {
	history := w.r.original.Status.History
	i := slices.IndexFunc(history, func(h configv1.UpdateHistory) bool { return h.State == configv1.CompletedUpdate })
	if i < 1 {
		return nil
	}
	target := request.Target{Image: history[i].Image, Version: history[i].Version, Return: true}
	var mu sync.Mutex
	var found map[manifest.ID]*manifest.Manifest
	return func(ctx context.Context, id manifest.ID) (*manifest.Manifest, error) {
		mu.Lock()
		defer mu.Unlock()
		if found == nil {
			in := w.acceptInput(w.r.original, w.r.settings)
			in.Known = in.VerifiedBefore(nil, target)
			update, err := accept.Read(ctx, in, target)
			if err != nil {
				return nil, fmt.Errorf("release %s cannot be read: %w", target.Version, err)
			}
			found = make(map[manifest.ID]*manifest.Manifest, len(update.Payload.Manifests))
			for _, m := range update.Payload.Manifests {
				found[m.ID()] = m
			}
		}
		return found[id], nil
	}
}
