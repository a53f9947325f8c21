package taskgraph

import "math/bits"

// maxExactWidth bounds the segments whose width is worked out exactly: that takes n²/8 bytes and, for the worst of
// graphs, n³/64 steps. Segments of real releases are five times smaller.
const maxExactWidth = 5000

// Width returns the largest number of tasks none of which waits for another: how many can run at once at most. By Dilworth's theorem that number is the least number of chains that cover all tasks, which is the number of
// tasks less the size of a largest matching between tasks and tasks that come after them. Segments follow each other
// entirely, so each is looked at by itself and the widest counts. For a segment of more than 5,000 tasks the largest
// number of tasks at the same distance from its end stands in, which is never more than the width.
func (g *Graph) Width() int {
	widest := 0
	for from := 0; from < len(g.tasks); {
		to := from
		for to < len(g.tasks) && g.tasks[to].segment == g.tasks[from].segment {
			to++
		}
		measure := g.widthOf
		if to-from > maxExactWidth {
			measure = g.levelOf
		}
		widest = max(widest, measure(g.tasks[from:to]))
		from = to
	}
	return widest
}

// widthOf is the width of one segment's tasks, whose indexes follow each other.
func (g *Graph) widthOf(tasks []*Node) int {
	n := len(tasks)
	m := matching{after: make([]bitset, n), partner: make([]int, n), open: newBitset(n)}
	for i := n - 1; i >= 0; i-- {
		m.partner[i] = -1
		m.after[i] = newBitset(n)
		for _, s := range g.succs[tasks[i].Index] {
			if s.segment == tasks[i].segment {
				k := s.Index - tasks[0].Index
				m.after[i].set(k)
				m.after[i].union(m.after[k])
			}
		}
	}
	width := n
	for i := range n {
		m.open.fill(n)
		if m.augment(i) {
			width--
		}
	}
	return width
}

// levelOf is the largest number of a segment's tasks with equally long paths ahead: none of them waits for another.
func (g *Graph) levelOf(tasks []*Node) int {
	most, levels := 0, map[int]int{}
	for _, n := range tasks {
		levels[g.rest[n.Index]]++
		most = max(most, levels[g.rest[n.Index]])
	}
	return most
}

// matching pairs tasks with tasks after them, each at most once on either side.
type matching struct {
	// after holds, by task, the tasks that wait for it, directly or not.
	after []bitset
	// partner is, by task, the task before it that it is paired with, or -1.
	partner []int
	// open are the tasks that this round has not tried yet.
	open bitset
}

// augment pairs i with a task after it, moving other pairs if need be (Kuhn's algorithm, with sets of bits: one round
// costs at most n²/64 steps).
func (m *matching) augment(i int) bool {
	for w := range m.open {
		for {
			tries := m.after[i][w] & m.open[w]
			if tries == 0 {
				break
			}
			k := w*64 + bits.TrailingZeros64(tries)
			m.open[w] &^= tries & -tries
			if m.partner[k] < 0 || m.augment(m.partner[k]) {
				m.partner[k] = i
				return true
			}
		}
	}
	return false
}

// bitset is a set of small numbers.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (b bitset) set(i int) { b[i/64] |= 1 << (i % 64) }

func (b bitset) union(other bitset) {
	for w := range b {
		b[w] |= other[w]
	}
}

// fill puts 0 to n-1 into the set.
func (b bitset) fill(n int) {
	for w := range b {
		b[w] = ^uint64(0)
	}
	if n%64 != 0 {
		b[len(b)-1] = 1<<(n%64) - 1
	}
}
