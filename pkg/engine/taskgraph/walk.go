package taskgraph

import (
	"container/heap"
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Outcome is the result of a walk for one node.
type Outcome uint8

const (
	// NotReached means that a predecessor is held or the walk was canceled.
	NotReached Outcome = iota
	// Held means that the node was visited and has not settled. Its dependents are not visited.
	Held
	// Open means that the node has not settled, but its dependents may be visited.
	Open
	// Settled means that the node's dependents may be visited.
	Settled
)

// String returns the outcome's name.
func (o Outcome) String() string {
	switch o {
	case Held:
		return "Held"
	case Open:
		return "Open"
	case Settled:
		return "Settled"
	case NotReached:
	}
	return "NotReached"
}

// Result is the result of a walk. Both slices have one slot per node of the graph, by Node.Index.
type Result struct {
	Outcomes []Outcome
	// Visited is true for the nodes for which visit was called. It is never true for barriers.
	Visited []bool
}

// Of returns the outcome of a node.
func (r Result) Of(n *Node) Outcome { return r.Outcomes[n.Index] }

// Complete reports whether every node has settled.
func (r Result) Complete() bool {
	for _, o := range r.Outcomes {
		if o != Settled {
			return false
		}
	}
	return true
}

// Walk visits each task of a graph once all its predecessors have settled. It makes at most width (at least 1) visits in parallel, on as
// many goroutines. Of the ready tasks it visits the one with the longest path ahead, then the lowest index, so that the critical path never
// waits. In graphs without chains, CRDs precede all other ready tasks: after every new kind, an API server rebuilds its published schemas,
// but only once for kinds that arrive together.
//
// If visit holds a task, its dependents are not visited, and other branches continue. Several goroutines call visit in parallel.
//
// While any visit is running, a ring of the bell makes the walk visit held tasks again. One slow visit therefore does not delay the rest of
// the graph. A nil bell never rings.
//
// An open task is visited again like a held task. Once its dependents may be visited, they stay so.
//
// After ctx ends, no further visit starts. Walk waits for the running visits, and returns ctx's error and the result so far.
func Walk(ctx context.Context, g *Graph, width int, bell *Bell, visit func(context.Context, *Node) Outcome) (Result, error) {
	w := newWalk(g, visit)
	defer bell.connect(w)()
	stop := context.AfterFunc(ctx, w.wake)
	defer stop()
	w.settle(w.roots())
	var workers errgroup.Group
	for range min(max(width, 1), len(g.tasks)) {
		workers.Go(func() error {
			w.runWorker(ctx)
			return nil
		})
	}
	_ = workers.Wait() // workers report by outcome, never by error
	return w.result, ctx.Err()
}

// Bell informs a running walk of external changes. The zero value is ready for use. A Bell serves one walk at a time.
type Bell struct {
	lock sync.Mutex
	walk *walk
}

// Ring makes the running walk, if any, visit its held tasks again.
func (b *Bell) Ring() {
	b.lock.Lock()
	w := b.walk
	b.lock.Unlock()
	if w != nil {
		w.retryHeld()
	}
}

// connect connects the bell to a walk until the returned function is called.
func (b *Bell) connect(w *walk) (disconnect func()) {
	if b == nil {
		return func() {}
	}
	set := func(w *walk) {
		b.lock.Lock()
		defer b.lock.Unlock()
		b.walk = w
	}
	set(w)
	return func() { set(nil) }
}

// walk is the state of one Walk. The lock guards the fields after it. It is never held during a call of visit. Only the goroutine
// that visits a node writes the node's slot of result.
type walk struct {
	graph  *Graph
	visit  func(context.Context, *Node) Outcome
	result Result

	lock sync.Mutex
	// changed is signaled when ready or running changes, or the context ends.
	changed *sync.Cond
	// waiting counts the unsettled predecessors of each node.
	waiting []int
	ready   queue
	// held contains the held and open tasks since the bell last rang, and rings counts its rings.
	held  []*Node
	rings int
	// released is true, by node, once its successors no longer wait for it.
	released []bool
	// running is the number of workers that may still make nodes ready.
	running int
}

func newWalk(g *Graph, visit func(context.Context, *Node) Outcome) *walk {
	w := &walk{
		graph: g, visit: visit,
		result:  Result{Outcomes: make([]Outcome, len(g.nodes)), Visited: make([]bool, len(g.nodes))},
		waiting: make([]int, len(g.nodes)), released: make([]bool, len(g.nodes)),
		ready: queue{pathLengths: g.pathLengths},
	}
	w.changed = sync.NewCond(&w.lock)
	for i := range g.nodes {
		w.waiting[i] = len(g.preds[i])
	}
	return w
}

// roots returns the nodes without predecessors.
func (w *walk) roots() []*Node {
	var roots []*Node
	for _, n := range w.graph.nodes {
		if w.waiting[n.Index] == 0 {
			roots = append(roots, n)
		}
	}
	return roots
}

func (w *walk) wake() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.changed.Broadcast()
}

// runWorker visits nodes until no more can become ready or ctx ends.
func (w *walk) runWorker(ctx context.Context) {
	for {
		n := w.next(ctx)
		if n == nil {
			return
		}
		w.result.Visited[n.Index] = true
		rings := w.ringCount()
		outcome := w.visit(ctx, n)
		w.result.Outcomes[n.Index] = outcome
		if outcome == Open || outcome == Settled {
			w.settle(w.release(n))
		}
		if outcome != Settled {
			w.setAside(n, rings)
		}
		w.lock.Lock()
		w.running--
		if w.running == 0 {
			w.changed.Broadcast()
		}
		w.lock.Unlock()
	}
}

func (w *walk) ringCount() int {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.rings
}

// setAside keeps a task for the next ring of the bell, unless the bell rang during its visit.
func (w *walk) setAside(n *Node, rings int) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.rings == rings {
		w.held = append(w.held, n)
		return
	}
	heap.Push(&w.ready, n)
	w.changed.Signal()
}

// retryHeld makes held and open tasks ready.
func (w *walk) retryHeld() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.rings++
	for _, n := range w.held {
		heap.Push(&w.ready, n)
	}
	w.held = nil
	w.changed.Broadcast()
}

// next waits for a ready node. It returns nil if no more nodes can become ready.
func (w *walk) next(ctx context.Context) *Node {
	w.lock.Lock()
	defer w.lock.Unlock()
	for ctx.Err() == nil {
		if w.ready.Len() > 0 {
			w.running++
			return heap.Pop(&w.ready).(*Node)
		}
		if w.running == 0 {
			return nil
		}
		w.changed.Wait()
	}
	return nil
}

// settle processes nodes whose predecessors have all settled or are open. Barriers settle immediately, and so do barriers that waited only for those.
// All others become ready.
func (w *walk) settle(nodes []*Node) {
	for len(nodes) > 0 {
		n := nodes[len(nodes)-1]
		nodes = nodes[:len(nodes)-1]
		if n.Barrier() {
			w.result.Outcomes[n.Index] = Settled
			nodes = append(nodes, w.release(n)...)
			continue
		}
		w.lock.Lock()
		heap.Push(&w.ready, n)
		w.changed.Signal()
		w.lock.Unlock()
	}
}

// release updates the successors of a settled or open node and returns those without other predecessors left. A second call returns none.
func (w *walk) release(n *Node) []*Node {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.released[n.Index] {
		return nil
	}
	w.released[n.Index] = true
	var free []*Node
	for _, s := range w.graph.succs[n.Index] {
		if w.waiting[s.Index]--; w.waiting[s.Index] == 0 {
			free = append(free, s)
		}
	}
	return free
}

// queue is a heap of ready nodes. CRDs come first, then the longest path ahead, then the lowest index.
type queue struct {
	nodes       []*Node
	pathLengths []int
}

func (q *queue) Len() int { return len(q.nodes) }

func (q *queue) Less(i, j int) bool {
	a, b := q.nodes[i], q.nodes[j]
	if a.definition != b.definition {
		return a.definition
	}
	if q.pathLengths[a.Index] != q.pathLengths[b.Index] {
		return q.pathLengths[a.Index] > q.pathLengths[b.Index]
	}
	return a.Index < b.Index
}

func (q *queue) Swap(i, j int) { q.nodes[i], q.nodes[j] = q.nodes[j], q.nodes[i] }

func (q *queue) Push(x any) { q.nodes = append(q.nodes, x.(*Node)) }

func (q *queue) Pop() any {
	last := len(q.nodes) - 1
	n := q.nodes[last]
	q.nodes = q.nodes[:last]
	return n
}
