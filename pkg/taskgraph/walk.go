package taskgraph

import (
	"container/heap"
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Outcome is what a walk knows of a node.
type Outcome uint8

const (
	// NotReached: something before the node is held, or the walk was cancelled.
	NotReached Outcome = iota
	// Held: the node was visited and has not settled; what depends on it is not visited.
	Held
	// Settled: what depends on the node may be visited.
	Settled
)

// String is the outcome's name.
func (o Outcome) String() string {
	switch o {
	case Held:
		return "Held"
	case Settled:
		return "Settled"
	case NotReached:
	}
	return "NotReached"
}

// Result is what a walk found. Both slices have one slot per node of the graph, by Node.Index.
type Result struct {
	Outcomes []Outcome
	// Visited tells the nodes for which visit was called from those that were done before, and barriers.
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

// Count returns how many tasks of the graph had the outcome.
func (r Result) Count(g *Graph, o Outcome) int {
	count := 0
	for _, n := range g.Tasks() {
		count += boolInt(r.Of(n) == o)
	}
	return count
}

// Tasks returns the tasks of the graph that had the outcome, by index.
func (r Result) Tasks(g *Graph, o Outcome) []*Node {
	var nodes []*Node
	for _, n := range g.Tasks() {
		if r.Of(n) == o {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// Walk visits the tasks of a graph, each once all its predecessors have settled, at most width (at least 1) at a time
// on as many goroutines as that. Of the tasks that are ready it takes the one with the longest path of tasks ahead,
// then the lowest index, so that the chain that decides the duration is never kept waiting.
//
// A task for which done is true, asked once when everything before it has settled, settles without a visit. A task
// that visit holds back keeps what depends on it from being visited; the other branches go on. Both functions are
// called from several goroutines at once; done must be quick, it runs between visits. A nil done means nothing is.
//
// While anything is still being visited, ringing the bell has the tasks that are held back visited again, so that one
// slow visit does not keep the walk from going on elsewhere. A nil bell is never rung.
//
// When ctx ends, no further visit begins; Walk returns ctx's error once the running visits have returned, with the
// result so far.
func Walk(ctx context.Context, g *Graph, width int, bell *Bell, done func(*Node) bool, visit func(context.Context, *Node) Outcome) (Result, error) {
	w := newWalk(g, done, visit)
	defer bell.hang(w)()
	stop := context.AfterFunc(ctx, w.wake)
	defer stop()
	w.settle(w.roots())
	var workers errgroup.Group
	for range min(max(width, 1), len(g.tasks)) {
		workers.Go(func() error {
			w.work(ctx)
			return nil
		})
	}
	_ = workers.Wait() // workers report by outcome, never by error
	return w.result, ctx.Err()
}

// Bell tells a running walk that something outside has changed. The zero value is ready; it serves one walk at a time.
type Bell struct {
	lock sync.Mutex
	walk *walk
}

// Ring has the running walk, if there is one, visit again what it holds back.
func (b *Bell) Ring() {
	b.lock.Lock()
	w := b.walk
	b.lock.Unlock()
	if w != nil {
		w.again()
	}
}

// hang connects the bell to a walk until the returned function is called.
func (b *Bell) hang(w *walk) (takeDown func()) {
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

// walk is the state of one Walk. The lock guards waiting, ready and running, and is never held during a call of done
// or visit. Each slot of result is written by the one goroutine that has the node.
type walk struct {
	graph  *Graph
	done   func(*Node) bool
	visit  func(context.Context, *Node) Outcome
	result Result

	lock sync.Mutex
	// changed is signalled when ready or running change, or the context ends.
	changed *sync.Cond
	// waiting counts, by node, the predecessors that have not settled.
	waiting []int
	ready   queue
	// held are the tasks that were held back since the bell rang last, rings how often it rang.
	held  []*Node
	rings int
	// running counts the workers that may still make nodes ready.
	running int
}

func newWalk(g *Graph, done func(*Node) bool, visit func(context.Context, *Node) Outcome) *walk {
	w := &walk{
		graph: g, done: done, visit: visit,
		result:  Result{Outcomes: make([]Outcome, len(g.nodes)), Visited: make([]bool, len(g.nodes))},
		waiting: make([]int, len(g.nodes)),
		ready:   queue{rest: g.rest},
	}
	w.changed = sync.NewCond(&w.lock)
	for i := range g.nodes {
		w.waiting[i] = len(g.preds[i])
	}
	return w
}

// roots are the nodes that wait for nothing.
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

// work visits nodes until there are no more to come or ctx ends.
func (w *walk) work(ctx context.Context) {
	for {
		n := w.take(ctx)
		if n == nil {
			return
		}
		w.result.Visited[n.Index] = true
		rings := w.heard()
		if w.visit(ctx, n) == Settled {
			w.result.Outcomes[n.Index] = Settled
			w.settle(w.release(n))
		} else {
			w.result.Outcomes[n.Index] = Held
			w.hold(n, rings)
		}
		w.lock.Lock()
		w.running--
		if w.running == 0 {
			w.changed.Broadcast()
		}
		w.lock.Unlock()
	}
}

func (w *walk) heard() int {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.rings
}

// hold puts a task aside, unless the bell rang while it was visited.
func (w *walk) hold(n *Node, rings int) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.rings == rings {
		w.held = append(w.held, n)
		return
	}
	heap.Push(&w.ready, n)
	w.changed.Signal()
}

// again makes what is held back ready.
func (w *walk) again() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.rings++
	for _, n := range w.held {
		heap.Push(&w.ready, n)
	}
	w.held = nil
	w.changed.Broadcast()
}

// take waits for a ready node; nil means that none will come.
func (w *walk) take(ctx context.Context) *Node {
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

// settle passes through nodes whose predecessors have all settled: those that need no visit settle at once, and with
// them what waited for them only; the others become ready.
func (w *walk) settle(nodes []*Node) {
	for len(nodes) > 0 {
		n := nodes[len(nodes)-1]
		nodes = nodes[:len(nodes)-1]
		if n.Barrier() || (w.done != nil && w.done(n)) {
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

// release tells the successors of a settled node and returns those that waited for it last.
func (w *walk) release(n *Node) []*Node {
	w.lock.Lock()
	defer w.lock.Unlock()
	var free []*Node
	for _, s := range w.graph.succs[n.Index] {
		if w.waiting[s.Index]--; w.waiting[s.Index] == 0 {
			free = append(free, s)
		}
	}
	return free
}

// queue is a heap of ready nodes: the longest path ahead first, then the lowest index.
type queue struct {
	nodes []*Node
	rest  []int
}

func (q *queue) Len() int { return len(q.nodes) }

func (q *queue) Less(i, j int) bool {
	a, b := q.nodes[i], q.nodes[j]
	if q.rest[a.Index] != q.rest[b.Index] {
		return q.rest[a.Index] > q.rest[b.Index]
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
