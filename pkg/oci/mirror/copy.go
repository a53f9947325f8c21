package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/internal/errorset"
	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/mirror/target"
)

// maxFailures is the number of failures that aborts the copy.
const maxFailures = 8

type blobKey struct {
	to     Target
	digest v1.Hash
}

// transfer copies one blob to one target.
type transfer struct {
	desc v1.Descriptor
	node *node
	// waiting contains the nodes that need the blob.
	waiting []*node
}

// copier executes a plan.
type copier struct {
	plan     *Plan
	throttle *throttle

	mu       sync.Mutex
	result   Result
	failures []error
	// open counts the pending blobs and documents of each node. parents contains the nodes that wait for a node.
	open    map[*node]int
	parents map[*node][]*node
	images  []imageState
	// omitted contains the attestations that the source does not have completely.
	omitted map[*node]bool
}

type imageState struct {
	done, total int64
	// nodes is the number of the image's documents that the target still lacks.
	nodes int
	there bool
}

// Copy copies the plan's content that the targets lack. If some content fails, it skips everything that depends on it and copies the rest,
// so that the next run has less to do. It reports all failures together. The caller closes the targets.
func (p *Plan) Copy(ctx context.Context) (Result, error) {
	c := &copier{
		plan: p, throttle: newThrottle(p.opts.Width), open: map[*node]int{}, parents: map[*node][]*node{}, omitted: map[*node]bool{},
		images: make([]imageState, len(p.Images)), result: Result{Images: len(p.Images), Documents: len(p.nodes)},
	}
	missing, err := c.findMissing(ctx)
	if err != nil {
		return c.result, err
	}
	transfers := c.schedule(missing)
	c.reportRemaining()
	if err := c.copyBlobs(ctx, missing, transfers); err != nil {
		return c.result, err
	}
	return c.result, c.failed(len(missing))
}

// findMissing returns the nodes that the targets lack. It also adds missing tags to existing documents.
func (c *copier) findMissing(ctx context.Context) ([]*node, error) {
	missing := make([]bool, len(c.plan.nodes))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(c.plan.opts.Width)
	for i, n := range c.plan.nodes {
		group.Go(func() error {
			held, err := c.holds(groupCtx, n)
			switch {
			case err != nil:
				return fmt.Errorf("checking %s at %s: %w", n.doc.Digest, n.to, err)
			case held.Kept != "":
				c.plan.opts.Warn(fmt.Sprintf("%s: keeping tag %s:%s, which has signatures that the source lacks: delete the tag to replace it",
					c.plan.Images[n.image].Name, n.to, held.Kept))
				return nil
			case held.There && len(held.Missing) > 0 && !c.last(n):
				return c.put(groupCtx, n, held.Missing)
			}
			// A release that lacks only its tag counts as missing, because its tag is written last.
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

func (c *copier) holds(ctx context.Context, n *node) (held target.Held, err error) {
	return held, c.try(ctx, func(ctx context.Context) (err error) {
		held, err = n.to.Holds(ctx, n.doc, n.blobs, n.tags)
		return err
	})
}

func (c *copier) try(ctx context.Context, do func(context.Context) error) error {
	retries, err := c.throttle.try(ctx, c.plan.opts.Attempts, do)
	if retries > 0 {
		c.mu.Lock()
		c.result.Retries += retries
		c.mu.Unlock()
	}
	return err
}

// schedule creates a transfer for each blob, ordered by image, so that images are completed one at a time.
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

// last reports whether a node is the image to write last. It is false for the image's parts and attachments.
func (c *copier) last(n *node) bool {
	img := c.plan.Images[n.image]
	return img.Last && n.doc.Digest == img.Digest
}

// reportRemaining reports the remaining bytes of every image.
func (c *copier) reportRemaining() {
	for i, img := range c.plan.Images {
		state := &c.images[i]
		state.there = state.nodes == 0
		c.plan.opts.Progress(Event{Name: img.Name, Total: state.total, Ended: state.there, There: state.there})
	}
}

// copyBlobs copies the blobs. The goroutine that copies the last blob of a document also writes the document.
func (c *copier) copyBlobs(ctx context.Context, missing []*node, transfers []*transfer) error {
	// The ready nodes are computed before the goroutines start, because goroutines change the counts.
	ready := slices.DeleteFunc(slices.Clone(missing), func(n *node) bool { return c.open[n] != 0 })
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(c.plan.opts.Width)
	for _, n := range ready {
		group.Go(func() error { return c.finish(groupCtx, n) })
	}
	for _, t := range transfers {
		group.Go(func() error {
			err := c.upload(groupCtx, t)
			if _, absent := errors.AsType[absentError](err); absent && !slices.ContainsFunc(t.waiting, func(n *node) bool { return !n.omittable }) {
				return c.omit(groupCtx, t)
			}
			if err != nil {
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
		return fmt.Errorf("interrupted; run the command again to continue: %w", context.Cause(ctx))
	}
	return err
}

// absentError is the error of a blob that the source does not have.
type absentError struct{ error }

// Unwrap returns the source's error.
func (e absentError) Unwrap() error { return e.error }

// arrived marks a blob as copied and returns the nodes that have become ready.
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

// omit continues without the attestations that need a blob which the source does not have.
func (c *copier) omit(ctx context.Context, t *transfer) error {
	for _, n := range t.waiting {
		if !c.leaveOut(n, t.desc.Digest) {
			continue
		}
		if err := c.settle(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// leaveOut records in each index that it lacks an attestation. It returns false if that is already recorded.
func (c *copier) leaveOut(n *node, blob v1.Hash) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.omitted[n] {
		return false
	}
	c.omitted[n] = true
	c.result.Documents--
	for _, index := range c.plan.nodes {
		if slices.Contains(index.children, n) {
			index.lacks = append(index.lacks, string(n.doc.Digest))
			c.plan.opts.Warn(fmt.Sprintf("%s: not copying attestation %s of index %s: its source does not have blob %s",
				c.plan.Images[n.image].Name, n.doc.Digest, index.doc.Digest, blob))
		}
	}
	return true
}

// finish writes a document and then each parent that has no more pending children.
func (c *copier) finish(ctx context.Context, n *node) error {
	if err := c.put(ctx, n, n.tags); err != nil {
		return c.fail(ctx, err)
	}
	return c.settle(ctx, n)
}

// settle finishes each parent of a node that has no other pending children.
func (c *copier) settle(ctx context.Context, n *node) error {
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
	_, isRejected := errors.AsType[*target.RejectedIndexError](err)
	switch {
	case len(n.lacks) > 0 && isRejected:
		return &lackingError{fmt.Errorf("writing index %s of %s to %s: the source lacks %s of this index (%s): copy each from another registry, such as the publisher's, "+
			"with 'crane copy OTHER@DIGEST %s@DIGEST', and run the command again; or turn off the registry's check, in distribution 3 with validation.manifests.indexes.platforms: none: %w", n.doc.Digest,
			c.plan.Images[n.image].Name, n.to, printable.Count(len(n.lacks), "attestation"), printable.List(n.lacks, printable.Few), n.to, err)}
	case err != nil:
		return fmt.Errorf("writing manifest %s of %s to %s: %w", n.doc.Digest, c.plan.Images[n.image].Name, n.to, err)
	}
	return nil
}

// lackingError means that a registry needs manifests that the source lacks. Until someone copies them, another run fails as well.
type lackingError struct{ error }

func (e *lackingError) Unwrap() error { return e.error }

// upload copies one blob.
func (c *copier) upload(ctx context.Context, t *transfer) error {
	sent := false
	counts := &reads{report: func(n int64) { c.report(t.node.image, n, false) }}
	err := c.try(ctx, func(ctx context.Context) error {
		count := counts.begin()
		var err error
		sent, err = t.node.to.Upload(ctx, t.desc, t.node.origin, func() (io.ReadCloser, error) {
			body, err := t.node.from.Blob(ctx, t.desc)
			if errors.Is(err, failure.ErrNotFound) {
				return nil, absentError{err}
			} else if err != nil {
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

// reads counts the bytes of a blob read in the current attempt. It ignores earlier attempts, because an HTTP client may still read the
// body of an attempt that has ended.
type reads struct {
	report func(int64)

	mu      sync.Mutex
	attempt int
	bytes   int64
}

// begin starts an attempt and returns its counter. It discards the counts of earlier attempts.
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

// add adds n bytes if the attempt is the current one, and reports whether it is.
func (r *reads) add(attempt int, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attempt != attempt {
		return false
	}
	r.bytes += n
	return true
}

// end ends the current attempt and sets the final byte count.
func (r *reads) end(bytes int64) {
	r.mu.Lock()
	more := bytes - r.bytes
	r.attempt, r.bytes = r.attempt+1, bytes
	r.mu.Unlock()
	r.report(more)
}

// report updates the progress of an image.
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

// fail records a failure. It returns an error if the copy must be aborted, because the context ended, the registry rejected the
// credentials, or there were too many failures.
func (c *copier) fail(ctx context.Context, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, err)
	if ctx.Err() != nil || len(c.failures) >= maxFailures || errors.Is(err, failure.ErrUnauthorized) {
		return errorset.Join(c.failures)
	}
	return nil
}

func (c *copier) failed(all int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failures) == 0 {
		return nil
	}
	again := ""
	if slices.ContainsFunc(c.failures, func(err error) bool { _, lacks := errors.AsType[*lackingError](err); return !lacks }) {
		again = "; run the command again to continue"
	}
	return fmt.Errorf("%d of %d manifests are missing%s: %w", c.unfinished(), all, again, errorset.Join(c.failures))
}

func (c *copier) unfinished() int {
	n := 0
	for _, state := range c.images {
		n += state.nodes
	}
	return n
}

// countedBody counts the bytes read from it.
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
