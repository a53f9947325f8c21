package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image/repository"
	"github.com/cluster-version/cvo/pkg/release"
)

const (
	// maxDepth is the maximum nesting of documents below an image.
	maxDepth = 5
	// maxDocuments is the maximum number of documents of an image.
	maxDocuments = 1000
)

// Plan is the desired content of the targets. It contains each document once, ordered by image.
type Plan struct {
	Images []Image
	// ReleaseUnsure is set if the plan may lack signatures of the release image, because the search for them failed somewhere or the source
	// lists one that it does not have.
	ReleaseUnsure bool

	nodes []*node
	opts  Options
}

// node is a document at a target.
type node struct {
	doc    *document.Document
	from   Source
	origin name.Repository
	to     Target
	tags   []string
	// attached is set if the document is an attachment or part of one.
	attached bool
	// lacks lists the attestations in the index that the source does not have.
	lacks []string
	// omittable is set if indexes list the document, and all of them as an attestation.
	omittable bool
	// blobs are the document's blobs to copy to the target.
	blobs []v1.Descriptor
	// children are the nodes of doc.Manifests, in their order. A missing attestation has no doc.
	children []*node
	// image is the index of an image that needs the document. place is the position within that image.
	image, place int
}

type nodeKey struct {
	to     Target
	digest release.Digest
}

// New reads the manifests of all images and their attachments, and returns a plan to copy them.
func New(ctx context.Context, images []Image, opts Options) (*Plan, error) {
	opts = opts.withDefaults()
	for _, img := range images {
		// Component names come from the release and may be malicious. A name with a path would select another repository.
		if img.Tag != "" && !validTag.MatchString(img.Tag) {
			return nil, fmt.Errorf("%s: %q cannot be a tag: choose a tag format with ${component} and ${version} that results in at most 128 letters, digits, '_', '.' and '-'", img.Name, img.Tag)
		}
	}
	p := &planner{opts: opts, throttle: newThrottle(opts.Width), nodes: map[nodeKey]*node{}, unsure: map[string][]string{}}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(opts.Width)
	for i, img := range images {
		group.Go(func() error {
			b := &branch{planner: p, image: i, img: img}
			if _, err := b.fetch(groupCtx, img.Digest, []string{img.Tag}, 0, false); err != nil {
				return fmt.Errorf("%s: %w", img.Name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, img := range images {
		if p.nodes[nodeKey{img.To, img.Digest}].doc == nil { // it is also an attachment, which may be omitted
			return nil, fmt.Errorf("%s: image %s: %w", img.Name, img.Digest, failure.ErrNotFound)
		}
	}
	p.warn()
	plan := &Plan{Images: images, ReleaseUnsure: p.releaseUnsure, nodes: p.sorted(), opts: opts}
	if err := plan.findLacks(); err != nil {
		return nil, err
	}
	plan.findOmittable()
	return plan, nil
}

// findLacks reports the missing attestations of each index. Only the complete plan knows them, because two indexes may list the same one,
// one of them as an image.
func (p *Plan) findLacks() error {
	for _, n := range p.nodes {
		for i, child := range n.children {
			if child.doc == nil {
				digest := release.Digest(n.doc.Manifests[i].Digest.String())
				if desc := n.doc.Manifests[i]; !document.IsAttestation(desc) {
					return missing(n.doc, desc, failure.ErrNotFound)
				}
				n.lacks = append(n.lacks, string(digest))
				p.opts.Warn(fmt.Sprintf("%s: not copying attestation %s of index %s: its source does not have it", p.Images[n.image].Name, digest, n.doc.Digest))
			}
		}
	}
	return nil
}

// findOmittable marks the attestations that no cluster pulls.
func (p *Plan) findOmittable() {
	needed := map[*node]bool{}
	for _, n := range p.nodes {
		needed[n] = needed[n] || n.attached || slices.ContainsFunc(p.Images, func(img Image) bool { return img.Digest == n.doc.Digest })
		for i, child := range n.children {
			child.omittable = true
			needed[child] = needed[child] || !document.IsAttestation(n.doc.Manifests[i])
		}
	}
	for n, is := range needed {
		n.omittable = n.omittable && !is
	}
}

// validTag matches valid tags (OCI distribution specification).
var validTag = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)

// Size returns the number of documents and blobs in the plan, and the total size of the blobs in bytes.
func (p *Plan) Size() (documents, blobs int, bytes int64) {
	seen := map[blobKey]bool{}
	for _, n := range p.nodes {
		for _, desc := range n.blobs {
			if key := (blobKey{n.to, desc.Digest}); !seen[key] {
				seen[key] = true
				bytes += desc.Size
			}
		}
	}
	return len(p.nodes), len(seen), bytes
}

// Blobs returns all blobs in the plan's documents, including blobs omitted by Options.Without.
func (p *Plan) Blobs() map[release.Digest]bool {
	all := map[release.Digest]bool{}
	for _, n := range p.nodes {
		for _, desc := range listed(n.doc) {
			all[release.Digest(desc.Digest.String())] = true
		}
	}
	return all
}

// planner collects the nodes of all images.
type planner struct {
	opts     Options
	throttle *throttle

	mu    sync.Mutex
	nodes map[nodeKey]*node
	// unsure maps each reason why signatures may be incomplete to the affected images.
	unsure map[string][]string
	// releaseUnsure is set if the release image is one of them.
	releaseUnsure bool
}

// warn reports each reason once with the affected images.
func (p *planner) warn() {
	for _, reason := range slices.Sorted(maps.Keys(p.unsure)) {
		names := slices.Compact(slices.Sorted(slices.Values(p.unsure[reason])))
		about := names[0]
		if len(names) > 1 {
			about = fmt.Sprintf("%s and %d more", about, len(names)-1)
		}
		p.opts.Warn(fmt.Sprintf("%s: signatures may be missing at the target: %s", about, reason))
	}
}

// node returns the node for a document. fresh is set if the node is new and the caller must fill it.
func (p *planner) node(to Target, d release.Digest, tags []string, attached bool) (n *node, fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := nodeKey{to, d}
	n, known := p.nodes[key]
	if !known {
		n = &node{to: to, attached: attached}
		p.nodes[key] = n
	}
	for _, tag := range tags {
		if tag != "" && !slices.Contains(n.tags, tag) {
			n.tags = append(n.tags, tag)
		}
	}
	return n, !known
}

func (p *planner) sorted() []*node {
	nodes := make([]*node, 0, len(p.nodes))
	for _, n := range p.nodes {
		if n.doc == nil { // the source does not have it
			continue
		}
		slices.Sort(n.tags)
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.image, b.image), cmp.Compare(a.place, b.place))
	})
	return nodes
}

// branch walks all documents of an image.
type branch struct {
	*planner
	image int
	img   Image
	count int
}

// fetch plans a document: an image, a child of an index, or an attachment.
func (b *branch) fetch(ctx context.Context, d release.Digest, tags []string, depth int, attached bool) (*node, error) {
	n, fresh := b.node(b.img.To, d, tags, attached)
	if !fresh {
		return n, nil
	}
	var doc *document.Document
	_, err := b.throttle.try(ctx, b.opts.Attempts, func(ctx context.Context) (err error) {
		doc, err = b.img.From.Document(ctx, d)
		return err
	})
	if err != nil {
		return n, err
	}
	return n, b.fill(ctx, n, doc, tags, depth)
}

// fill plans the content and attachments of a document.
func (b *branch) fill(ctx context.Context, n *node, doc *document.Document, tags []string, depth int) error {
	if b.count++; b.count > maxDocuments || depth > maxDepth {
		return fmt.Errorf("%w: an image has more than %d manifests or more than %d levels of nesting", failure.ErrLimit, maxDocuments, maxDepth)
	}
	n.doc, n.from, n.origin, n.image, n.place = doc, b.img.From, b.img.Origin, b.image, b.count
	for _, desc := range doc.Manifests {
		digest, err := release.ParseDigest(desc.Digest.String())
		if err != nil {
			return fmt.Errorf("reading index %s: %w: %w", doc.Digest, failure.ErrIntegrity, err)
		}
		child, err := b.fetch(ctx, digest, nil, depth+1, n.attached)
		switch absent := errors.Is(err, failure.ErrNotFound); {
		case absent && document.IsAttestation(desc):
			child.doc = nil // not even if only a part of it is missing
		case absent && child.doc == nil:
			return missing(doc, desc, err)
		case err != nil:
			return err
		}
		n.children = append(n.children, child)
	}
	for _, desc := range listed(doc) {
		switch {
		case b.opts.Without[release.Digest(desc.Digest.String())]:
		case !desc.MediaType.IsDistributable():
			b.opts.Warn(fmt.Sprintf("%s: not copying layer %s of %s: its media type %s forbids redistribution", b.img.Name, desc.Digest, doc.Digest, desc.MediaType))
		default:
			n.blobs = append(n.blobs, desc)
		}
	}
	if n.attached && isSignature(doc, tags) {
		return nil
	}
	return b.attachments(ctx, doc, depth)
}

// missing describes an entry of an index that the source does not have.
func missing(index *document.Document, desc v1.Descriptor, err error) error {
	entry := "image " + desc.Digest.String()
	switch {
	case desc.Platform != nil:
		entry = "platform " + desc.Platform.String()
	case desc.MediaType.IsIndex():
		entry = "index " + desc.Digest.String()
	}
	return fmt.Errorf("index %s lists %s, which its source does not have: %w", index.Digest, entry, err)
}

// isSignature reports whether an attachment is a signature. Attachments of signatures are ignored, because searching for them would double
// the number of requests.
func isSignature(doc *document.Document, tags []string) bool {
	return strings.Contains(doc.ArtifactType, "sigstore.bundle") || strings.Contains(doc.ArtifactType, ".sig.") ||
		slices.ContainsFunc(tags, func(tag string) bool { return strings.HasSuffix(tag, ".sig") })
}

func (b *branch) attachments(ctx context.Context, doc *document.Document, depth int) error {
	var found []repository.Attached
	var failed error
	_, err := b.throttle.try(ctx, b.opts.Attempts, func(ctx context.Context) error {
		found, failed = b.img.From.Attached(ctx, doc.Digest)
		if overloaded(failed) {
			return failed
		}
		// Other errors are not retried. Otherwise, every image would wait if a mirror responds but its source is unreachable.
		return nil
	})
	if err := cmp.Or(err, failed); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// Without the digest, the same error has the same text for all images.
		b.mayLack(strings.ReplaceAll(strings.ReplaceAll(err.Error(), string(doc.Digest), "…"), doc.Digest.Hex(), "…"))
	}
	for _, a := range found {
		digest, err := release.ParseDigest(a.Digest.String())
		if err != nil {
			return fmt.Errorf("reading the attachments of %s: %w: %w", doc.Digest, failure.ErrIntegrity, err)
		}
		attachment, err := b.fetch(ctx, digest, []string{a.Tag}, depth+1, true)
		switch {
		case errors.Is(err, failure.ErrNotFound): // a registry may list an attachment that it has deleted
			attachment.doc = nil // not even if only a part of it is missing
			b.mayLack(fmt.Sprintf("not copying attachment %s of %s: its registry lists it, but does not have all of it", digest, doc.Digest))
		case err != nil:
			return fmt.Errorf("reading the attachments of %s: %w", doc.Digest, err)
		}
	}
	return nil
}

// mayLack records the reason why the plan may lack signatures of the image.
func (b *branch) mayLack(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unsure[reason] = append(b.unsure[reason], b.img.Name)
	b.releaseUnsure = b.releaseUnsure || b.img.Last
}

// listed returns the distinct blobs that a document lists.
func listed(doc *document.Document) []v1.Descriptor {
	var out []v1.Descriptor
	if doc.Config != nil {
		out = append(out, *doc.Config)
	}
	for _, desc := range doc.Layers {
		if !slices.ContainsFunc(out, func(d v1.Descriptor) bool { return d.Digest == desc.Digest }) {
			out = append(out, desc)
		}
	}
	return out
}
