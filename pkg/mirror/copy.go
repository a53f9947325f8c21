package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/image"
)

// maxFailures is how many things may fail before the rest is not tried any more.
const maxFailures = 8

type blobKey struct {
	to     Target
	digest v1.Hash
}

// transfer is one blob on its way to one target.
type transfer struct {
	desc v1.Descriptor
	node *node
	// waiting are the nodes that need it.
	waiting []*node
}

// copier carries out a plan.
type copier struct {
	plan *Plan
	gate *gate

	mu       sync.Mutex
	result   Result
	failures []error
	// open counts what a node still waits for; parents are the indexes that list it.
	open    map[*node]int
	parents map[*node][]*node
	images  []imageState
}

type imageState struct {
	done, total int64
	// nodes are those of its documents that are not yet there.
	nodes int
	there bool
}

// Copy takes everything of the plan to its targets that they do not have. What fails is left out, with what depends on
// it, and reported together; the rest is copied, so that another run has less to do. The caller closes the targets.
func (p *Plan) Copy(ctx context.Context) (Result, error) {
	c := &copier{
		plan: p, gate: newGate(p.opts.Width), open: map[*node]int{}, parents: map[*node][]*node{},
		images: make([]imageState, len(p.Images)), result: Result{Images: len(p.Images), Documents: len(p.nodes)},
	}
	missing, err := c.ask(ctx)
	if err != nil {
		return c.result, err
	}
	transfers := c.schedule(missing)
	c.announce()
	if err := c.carry(ctx, missing, transfers); err != nil {
		return c.result, err
	}
	return c.result, c.failed(len(missing))
}

// ask finds out what the targets have.
func (c *copier) ask(ctx context.Context) ([]*node, error) {
	missing := make([]bool, len(c.plan.nodes))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(c.plan.opts.Width)
	for i, n := range c.plan.nodes {
		group.Go(func() error {
			held, err := c.holds(groupCtx, n)
			switch {
			case err != nil:
				return fmt.Errorf("looking for %s at %s: %w", n.doc.Digest, n.to, err)
			case held.Kept != "":
				c.plan.opts.Warn(fmt.Sprintf("%s: %s:%s has signatures that its source does not have: it stays as it is; to replace it, delete that tag first",
					c.plan.Images[n.image].Name, n.to, held.Kept))
				return nil
			case held.There && len(held.Missing) > 0 && !c.last(n):
				return c.put(groupCtx, n, held.Missing)
			}
			// The tag of the release, too, is put only when all others are there.
			missing[i] = !held.There || len(held.Missing) > 0 && c.last(n)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var out []*node
	for i, n := range c.plan.nodes {
		if n.attached {
			c.result.Attached++
		}
		if missing[i] {
			out = append(out, n)
		} else {
			c.result.There++
		}
	}
	return out, nil
}

func (c *copier) holds(ctx context.Context, n *node) (held Held, err error) {
	return held, c.try(ctx, func(ctx context.Context) (err error) {
		held, err = n.to.Holds(ctx, n.doc, n.blobs, n.tags)
		return err
	})
}

func (c *copier) try(ctx context.Context, do func(context.Context) error) error {
	again, err := c.gate.try(ctx, c.plan.opts.Attempts, do)
	if again > 0 {
		c.mu.Lock()
		c.result.Retries += again
		c.mu.Unlock()
	}
	return err
}

// schedule makes a transfer of every blob, in the order of images, so that these become complete one after the other.
func (c *copier) schedule(missing []*node) []*transfer {
	absent := map[*node]bool{}
	for _, n := range missing {
		absent[n] = true
	}
	var out []*transfer
	known := map[blobKey]*transfer{}
	for _, n := range missing {
		state := &c.images[n.image]
		state.nodes++
		for _, child := range n.children {
			if absent[child] {
				c.open[n]++
				c.parents[child] = append(c.parents[child], n)
			}
		}
		if c.last(n) {
			for _, other := range missing {
				if !c.plan.Images[other.image].Last {
					c.open[n]++
					c.parents[other] = append(c.parents[other], n)
				}
			}
		}
		for _, desc := range n.blobs {
			key := blobKey{n.to, desc.Digest}
			t := known[key]
			if t == nil {
				t = &transfer{desc: desc, node: n}
				known[key] = t
				out = append(out, t)
				state.total += desc.Size
			}
			t.waiting = append(t.waiting, n)
			c.open[n]++
		}
	}
	return out
}

// last reports whether a node is the very image that is to be put last, and not what belongs to it.
func (c *copier) last(n *node) bool {
	img := c.plan.Images[n.image]
	return img.Last && n.doc.Digest == img.Digest
}

// announce tells of every image how much there is to do for it.
func (c *copier) announce() {
	for i, img := range c.plan.Images {
		state := &c.images[i]
		state.there = state.nodes == 0
		c.plan.opts.Progress(Event{Name: img.Name, Total: state.total, Ended: state.there, There: state.there})
	}
}

// carry copies the blobs; whoever brings the last one of a document puts the document.
func (c *copier) carry(ctx context.Context, missing []*node, transfers []*transfer) error {
	// The counts are looked at before anything is started: from then on, others finish documents and count.
	ready := slices.DeleteFunc(slices.Clone(missing), func(n *node) bool { return c.open[n] != 0 })
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(c.plan.opts.Width)
	for _, n := range ready {
		group.Go(func() error { return c.finish(groupCtx, n) })
	}
	for _, t := range transfers {
		group.Go(func() error {
			if err := c.upload(groupCtx, t); err != nil {
				return c.fail(groupCtx, fmt.Errorf("copying blob %s of %s: %w", t.desc.Digest, c.plan.Images[t.node.image].Name, err))
			}
			for _, n := range c.arrived(t) {
				if err := c.finish(groupCtx, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("cut short; run it again to go on from here: %w", context.Cause(ctx))
	}
	return err
}

// arrived counts a blob off and returns the nodes that wait for nothing any more.
func (c *copier) arrived(t *transfer) []*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count(t.waiting)
}

func (c *copier) count(nodes []*node) []*node {
	var ready []*node
	for _, n := range nodes {
		if c.open[n]--; c.open[n] == 0 {
			ready = append(ready, n)
		}
	}
	return ready
}

// finish puts a document, and the indexes that waited for it.
func (c *copier) finish(ctx context.Context, n *node) error {
	if err := c.put(ctx, n, n.tags); err != nil {
		return c.fail(ctx, err)
	}
	c.mu.Lock()
	ready := c.count(c.parents[n])
	c.mu.Unlock()
	c.report(n.image, 0, true)
	for _, parent := range ready {
		if err := c.finish(ctx, parent); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) put(ctx context.Context, n *node, tags []string) error {
	err := c.try(ctx, func(ctx context.Context) error { return n.to.Put(ctx, n.doc, tags) })
	if err != nil {
		return fmt.Errorf("writing manifest %s of %s to %s: %w", n.doc.Digest, c.plan.Images[n.image].Name, n.to, err)
	}
	return nil
}

// upload brings one blob.
func (c *copier) upload(ctx context.Context, t *transfer) error {
	sent := false
	counts := &reads{report: func(n int64) { c.report(t.node.image, n, false) }}
	err := c.try(ctx, func(ctx context.Context) error {
		count := counts.begin()
		var err error
		sent, err = t.node.to.Upload(ctx, t.desc, t.node.origin, func() (io.ReadCloser, error) {
			body, err := t.node.from.Blob(ctx, t.desc)
			if err != nil {
				return nil, err
			}
			return &countedBody{ReadCloser: body, count: count}, nil
		})
		return err
	})
	if err != nil {
		return err
	}
	counts.end(t.desc.Size)
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent {
		c.result.Blobs++
		c.result.Bytes += t.desc.Size
	} else {
		c.result.Spared++
	}
	return nil
}

// reads counts what is read of one blob, by the attempt of the moment alone: an HTTP client may still read for an attempt
// that has failed, or succeeded, already.
type reads struct {
	report func(int64)

	mu      sync.Mutex
	attempt int
	bytes   int64
}

// begin takes back what earlier attempts have counted, and returns what counts for the next.
func (r *reads) begin() (count func(int64)) {
	r.end(0)
	r.mu.Lock()
	defer r.mu.Unlock()
	attempt := r.attempt
	return func(n int64) {
		if r.add(attempt, n) {
			r.report(n)
		}
	}
}

// add reports whether an attempt still counts.
func (r *reads) add(attempt int, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attempt != attempt {
		return false
	}
	r.bytes += n
	return true
}

// end has no attempt count any more, and so many bytes stand.
func (r *reads) end(bytes int64) {
	r.mu.Lock()
	more := bytes - r.bytes
	r.attempt, r.bytes = r.attempt+1, bytes
	r.mu.Unlock()
	r.report(more)
}

// report moves an image on.
func (c *copier) report(at int, bytes int64, document bool) {
	c.mu.Lock()
	state := &c.images[at]
	state.done += bytes
	if document {
		state.nodes--
	}
	event := Event{Name: c.plan.Images[at].Name, Done: state.done, Total: state.total, Ended: state.nodes == 0}
	c.mu.Unlock()
	if bytes != 0 || document {
		c.plan.opts.Progress(event)
	}
}

// fail remembers a failure, and returns it if there is no sense in going on.
func (c *copier) fail(ctx context.Context, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, err)
	if ctx.Err() != nil || len(c.failures) >= maxFailures || errors.Is(err, image.ErrUnauthorized) {
		return c.joined()
	}
	return nil
}

func (c *copier) failed(all int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failures) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d manifests are not there; run it again to go on from here: %w", c.unfinished(), all, c.joined())
}

func (c *copier) unfinished() int {
	n := 0
	for _, state := range c.images {
		n += state.nodes
	}
	return n
}

// joined is every failure once, sorted.
func (c *copier) joined() error {
	errs := slices.Clone(c.failures)
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(slices.CompactFunc(errs, func(a, b error) bool { return a.Error() == b.Error() })...)
}

// countedBody tells how much of it was read.
type countedBody struct {
	io.ReadCloser
	count func(int64)
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.count(int64(n))
	}
	return n, err
}
