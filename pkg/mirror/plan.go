package mirror

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/release"
)

const (
	// maxDepth bounds how many documents lie between an image and what belongs to it.
	maxDepth = 5
	// maxDocuments bounds how many documents belong to one image.
	maxDocuments = 1000
)

// Plan is what is to be at the targets: documents, each once, those that others list before them.
type Plan struct {
	Images []Image
	nodes  []*node
	opts   Options
}

// node is one document at one target.
type node struct {
	doc    *image.Document
	from   Source
	origin name.Repository
	to     Target
	tags   []string
	// attached says that it belongs to another document without being listed by it.
	attached bool
	// blobs are what the document lists and the target is to have.
	blobs    []v1.Descriptor
	children []*node
	// image is the position of the first image that it is part of, place its position within.
	image, place int
}

type nodeKey struct {
	to     Target
	digest release.Digest
}

// New reads the manifests of all images and of what is attached to them.
func New(ctx context.Context, images []Image, opts Options) (*Plan, error) {
	opts = opts.withDefaults()
	for _, img := range images {
		// Names of components come from the release: a path in one would lead elsewhere.
		if img.Tag != "" && !validTag.MatchString(img.Tag) {
			return nil, fmt.Errorf("%s: %q cannot be a tag: name the images otherwise by a tag with ${component} and ${version} that gives at most 128 letters, digits, '_', '.' and '-'", img.Name, img.Tag)
		}
	}
	p := &planner{opts: opts, gate: newGate(opts.Width), nodes: map[nodeKey]*node{}, unsure: map[string][]string{}}
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
	p.warn()
	return &Plan{Images: images, nodes: p.sorted(), opts: opts}, nil
}

// validTag is what a tag may be (OCI distribution specification).
var validTag = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)

// Size is how many documents and blobs the plan has, and how many bytes these are.
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

// Blobs are all blobs that the documents of the plan list.
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
	opts Options
	gate *gate

	mu    sync.Mutex
	nodes map[nodeKey]*node
	// unsure are the images whose signatures could not all be looked for, by the reason.
	unsure map[string][]string
}

// warn tells once for each reason which images it concerns.
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

// node returns the node of a document, and whether it is new, which is whose business it is to fill it.
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
		slices.Sort(n.tags)
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.image, b.image), cmp.Compare(a.place, b.place))
	})
	return nodes
}

// branch walks through all that belongs to one image.
type branch struct {
	*planner
	image int
	img   Image
	count int
}

// fetch plans a document that an image or an index names, or that is attached to one.
func (b *branch) fetch(ctx context.Context, d release.Digest, tags []string, depth int, attached bool) (*node, error) {
	n, fresh := b.node(b.img.To, d, tags, attached)
	if !fresh {
		return n, nil
	}
	var doc *image.Document
	_, err := b.gate.try(ctx, b.opts.Attempts, func(ctx context.Context) (err error) {
		doc, err = b.img.From.Document(ctx, d)
		return err
	})
	if err != nil {
		return nil, err
	}
	return n, b.fill(ctx, n, doc, tags, depth)
}

// fill plans what a document lists, and what is attached to it.
func (b *branch) fill(ctx context.Context, n *node, doc *image.Document, tags []string, depth int) error {
	if b.count++; b.count > maxDocuments || depth > maxDepth {
		return fmt.Errorf("%w: more than %d manifests belong to one image, or more than %d lie within each other", image.ErrLimit, maxDocuments, maxDepth)
	}
	n.doc, n.from, n.origin, n.image, n.place = doc, b.img.From, b.img.Origin, b.image, b.count
	for _, desc := range doc.Manifests {
		digest, err := release.ParseDigest(desc.Digest.String())
		if err != nil {
			return fmt.Errorf("reading index %s: %w: %w", doc.Digest, image.ErrIntegrity, err)
		}
		child, err := b.fetch(ctx, digest, nil, depth+1, n.attached)
		if err != nil {
			return err
		}
		n.children = append(n.children, child)
	}
	for _, desc := range listed(doc) {
		switch {
		case b.opts.Without[release.Digest(desc.Digest.String())]:
		case !desc.MediaType.IsDistributable():
			b.opts.Warn(fmt.Sprintf("%s: layer %s of %s may not be distributed (media type %s): it stays where it is", b.img.Name, desc.Digest, doc.Digest, desc.MediaType))
		default:
			n.blobs = append(n.blobs, desc)
		}
	}
	if n.attached && isSignature(doc, tags) {
		return nil
	}
	return b.attachments(ctx, doc, depth)
}

// isSignature reports whether what is attached is a signature. What is attached to one serves nobody, and asking for it
// would double the requests.
func isSignature(doc *image.Document, tags []string) bool {
	return strings.Contains(doc.ArtifactType, "sigstore.bundle") || strings.Contains(doc.ArtifactType, ".sig.") ||
		slices.ContainsFunc(tags, func(tag string) bool { return strings.HasSuffix(tag, ".sig") })
}

func (b *branch) attachments(ctx context.Context, doc *image.Document, depth int) error {
	var found []image.Attached
	var failed error
	_, err := b.gate.try(ctx, b.opts.Attempts, func(ctx context.Context) error {
		found, failed = b.img.From.Attached(ctx, doc.Digest)
		if overloaded(failed) {
			return failed
		}
		// Where a mirror has answered and its source cannot be reached, every image would wait for nothing.
		return nil
	})
	if err := cmp.Or(err, failed); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		b.mu.Lock()
		// What is said of one digest is said of all; so it is one reason.
		reason := strings.ReplaceAll(strings.ReplaceAll(err.Error(), string(doc.Digest), "…"), doc.Digest.Hex(), "…")
		b.unsure[reason] = append(b.unsure[reason], b.img.Name)
		b.mu.Unlock()
	}
	for _, a := range found {
		digest, err := release.ParseDigest(a.Digest.String())
		if err != nil {
			return fmt.Errorf("reading what is attached to %s: %w: %w", doc.Digest, image.ErrIntegrity, err)
		}
		if _, err := b.fetch(ctx, digest, []string{a.Tag}, depth+1, true); err != nil {
			return fmt.Errorf("reading what is attached to %s: %w", doc.Digest, err)
		}
	}
	return nil
}

// listed are the blobs of a document, each once.
func listed(doc *image.Document) []v1.Descriptor {
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
