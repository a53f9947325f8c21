package cli

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"
)

const (
	// progressRedraw is the time between two pictures on a terminal, progressEvery that between two lines elsewhere.
	progressRedraw = 100 * time.Millisecond
	progressEvery  = 5 * time.Second
	// progressWindow is how far back the rate looks.
	progressWindow = 8 * time.Second
	// progressRows bounds the items that a terminal shows at the same time.
	progressRows = 8
)

// progressEvent tells how far one item is. Items come into being with their first event.
type progressEvent struct {
	// item names what is worked on, such as a component or a layer.
	item string
	// done of total bytes are through; total is 0 where nobody knows it, or where the item is not measured in bytes.
	done, total int64
	// ended says that the item is done with; note how, where that is worth a word: "mounted".
	ended bool
	note  string
	// unsaid ends an item without a line of its own, because nothing had to be done for it.
	unsaid bool
}

// progressFlags are --quiet.
type progressFlags struct{ quiet bool }

func (f *progressFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.quiet, "quiet", false, "do not show progress")
}

// start begins to show what the work is about; close ends it. Meanwhile everything is written through streams.
func (f progressFlags) start(streams Streams, what string) *progress {
	switch {
	case f.quiet:
		return newProgress(streams, what, 0, nil)
	case drawable(streams.Err):
		return newProgress(streams, what, progressRedraw, newProgressPicture(streams.Err))
	}
	return newProgress(streams, what, progressEvery, nil)
}

// newProgress shows something every so often: a picture, or lines without one.
func newProgress(streams Streams, what string, every time.Duration, picture *progressPicture) *progress {
	p := &progress{
		what: what, out: streams.Err, given: streams, every: every, picture: picture,
		began: time.Now(), items: map[string]*progressItem{},
	}
	if every > 0 {
		p.stop, p.stopped = make(chan struct{}), make(chan struct{})
		go p.watch()
	}
	return p
}

// progress shows how work goes on: bars on a terminal, a line now and then elsewhere, nothing if quiet. It is safe for
// concurrent use. Make it with progressFlags.start.
type progress struct {
	what    string
	out     io.Writer
	given   Streams
	every   time.Duration    // 0 if quiet
	picture *progressPicture // nil for lines
	began   time.Time

	stop, stopped chan struct{}
	closing       sync.Once

	mu    sync.Mutex
	items map[string]*progressItem
	// running are the items at work, oldest first.
	running []*progressItem
	// expected is what there is to do, as far as it has been told.
	expectedItems int
	expectedBytes int64
	endedItems    int
	// moved are the bytes that are through, announced those of all items so far.
	moved, announced int64
	marks            []progressMark
	dirty            bool
	held             []heldLine
}

type progressItem struct {
	name        string
	done, total int64
	began       time.Time
	ended       bool
}

type progressMark struct {
	at    time.Time
	moved int64
}

// heldLine is the beginning of a line that one writer has not ended yet.
type heldLine struct {
	to   io.Writer
	text []byte
}

// expect tells how much there is to do in all. It may be told again when more is known.
func (p *progress) expect(items int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expectedItems, p.expectedBytes, p.dirty = items, bytes, true
}

// report takes in an event.
func (p *progress) report(e progressEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	item := p.items[e.item]
	if item == nil {
		item = &progressItem{name: e.item, began: now}
		p.items[e.item] = item
		p.running = append(p.running, item)
	}
	if item.ended {
		return
	}
	p.moved += e.done - item.done
	p.announced += max(e.total, e.done) - item.total
	item.done, item.total, p.dirty = e.done, max(e.total, e.done), true
	if !e.ended {
		return
	}
	item.ended = true
	p.endedItems++
	p.running = slices.DeleteFunc(p.running, func(i *progressItem) bool { return i == item })
	if p.every != 0 && p.picture == nil && !e.unsaid {
		_, _ = io.WriteString(p.out, endLine(item, e.note, now.Sub(item.began)))
	}
}

// streams are those to write to while progress is shown: what is written appears above the bars, by whole lines.
func (p *progress) streams() Streams {
	if p.picture == nil {
		return p.given
	}
	s := p.given
	s.Err = progressWriter{p, p.given.Err}
	if isTerminal(s.Out) {
		s.Out = progressWriter{p, p.given.Out}
	}
	return s
}

// close ends the picture and says in one line what was done. It may be called again.
func (p *progress) close() {
	if p.every == 0 {
		return
	}
	p.closing.Do(func() {
		close(p.stop)
		<-p.stopped
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wipe()
		for _, line := range p.held {
			_, _ = line.to.Write(line.text)
		}
		p.held = nil
		if p.endedItems > 0 {
			_, _ = io.WriteString(p.out, p.sumLine(time.Now()))
		}
	})
}

// watch draws until it is told to stop.
func (p *progress) watch() {
	defer close(p.stopped)
	ticker := time.NewTicker(p.every)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case now := <-ticker.C:
			p.show(now)
		}
	}
}

func (p *progress) show(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mark(now)
	switch {
	case p.picture != nil:
		p.draw(now)
	case p.dirty:
		_, _ = io.WriteString(p.out, p.stateLine(now))
	}
	p.dirty = false
}

// mark remembers how far the work was, as long as the rate looks back.
func (p *progress) mark(now time.Time) {
	p.marks = append(p.marks, progressMark{now, p.moved})
	p.marks = slices.DeleteFunc(p.marks, func(m progressMark) bool { return now.Sub(m.at) > progressWindow })
}

// rate is in bytes per second, 0 if there is none yet.
func (p *progress) rate(now time.Time) float64 {
	from := progressMark{at: p.began}
	if len(p.marks) > 0 && now.Sub(p.began) > progressWindow {
		from = p.marks[0]
	}
	seconds := now.Sub(from.at).Seconds()
	if seconds <= 0 {
		return 0
	}
	return float64(p.moved-from.moved) / seconds
}

// bytes is what there is to move in all.
func (p *progress) bytes() int64 { return max(p.expectedBytes, p.announced) }

// left is how long the rest takes at this rate; ok is false if nobody can tell.
func (p *progress) left(now time.Time) (left time.Duration, ok bool) {
	rate := p.rate(now)
	rest := p.bytes() - p.moved
	if rate < 1 || rest <= 0 || now.Sub(p.began) < time.Second {
		return 0, false
	}
	return time.Duration(float64(rest)/rate) * time.Second, true
}

// progressWriter writes whole lines between two pictures.
type progressWriter struct {
	p  *progress
	to io.Writer
}

// Write implements io.Writer.
func (w progressWriter) Write(text []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if err := w.p.write(w.to, text); err != nil {
		return 0, err
	}
	return len(text), nil
}

func (p *progress) write(to io.Writer, text []byte) error {
	i := slices.IndexFunc(p.held, func(h heldLine) bool { return h.to == to })
	if i < 0 {
		i, p.held = len(p.held), append(p.held, heldLine{to: to})
	}
	held := slices.Concat(p.held[i].text, text)
	end := bytes.LastIndexByte(held, '\n')
	p.held[i].text = held[end+1:]
	if end < 0 {
		return nil
	}
	p.wipe()
	_, err := to.Write(held[:end+1])
	return err
}
