// Package progress shows the progress of a long command. Flags adds --quiet, and Flags.Start returns a Display. From then on the command
// writes to the streams of the Display, and it defers Close. Events are values: Expect sets the total amount of work, and Report the state
// of one item. A terminal shows bars. Other outputs get a line at intervals and a line for each finished item.
package progress

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

const (
	// redrawInterval is the interval between two pictures on a terminal, lineInterval the interval between two lines elsewhere.
	redrawInterval = 100 * time.Millisecond
	lineInterval   = 5 * time.Second
	// window is the period over which the rate is averaged.
	window = 8 * time.Second
	// maxRows is the maximum number of items shown at once on a terminal.
	maxRows = 8
	// maxNames is the maximum number of unfinished items in a line.
	maxNames = 4
)

// Event reports the progress of one item. The first event of an item adds the item.
type Event struct {
	// Item is the name of the item, such as a component or a layer.
	Item string
	// Done is the number of finished bytes. Total is 0 if it is unknown or if the item is not measured in bytes.
	Done, Total int64
	// Ended marks the item as finished; note is an optional result, such as "mounted".
	Ended bool
	note  string
	// Silent suppresses the line for a finished item that needed no work.
	Silent bool
}

// Flags holds the flag --quiet.
type Flags struct{ quiet bool }

// Add adds the flag.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.quiet, "quiet", false, "do not show progress")
}

// Start begins to show progress under the title what; Close ends it. In between, write only to Streams, and the notices of the context
// appear there too.
func (f Flags) Start(ctx context.Context, streams command.Streams, what string) *Display {
	switch {
	case f.quiet:
		return newDisplay(ctx, streams, what, 0, nil)
	case terminal.Drawable(streams.Err):
		return newDisplay(ctx, streams, what, redrawInterval, newPicture(streams.Err))
	}
	return newDisplay(ctx, streams, what, lineInterval, nil)
}

// newDisplay shows progress at the given interval: as a picture, or as lines if picture is nil. An interval of 0 shows nothing.
func newDisplay(ctx context.Context, streams command.Streams, what string, every time.Duration, picture *picture) *Display {
	p := &Display{
		what: what, out: streams.Err, given: streams, every: every, picture: picture,
		began: time.Now(), items: map[string]*tracked{},
	}
	if every > 0 {
		p.stop, p.stopped = make(chan struct{}), make(chan struct{})
		go p.watch()
	}
	p.restore = redirectNotices(ctx, p.Streams().Err)
	return p
}

// Display shows the progress of work: bars on a terminal, lines at intervals elsewhere, nothing with --quiet. It is safe for concurrent
// use. Flags.Start creates it.
type Display struct {
	what    string
	out     io.Writer
	given   command.Streams
	every   time.Duration // 0 if quiet
	picture *picture      // nil for lines
	began   time.Time

	stop, stopped chan struct{}
	closing       sync.Once
	restore       func() // sends notices where they went before

	mu    sync.Mutex
	items map[string]*tracked
	// running are the unfinished items, oldest first.
	running []*tracked
	// expectedItems is the number of items from the last call of Expect.
	expectedItems int
	endedItems    int
	// moved is the number of finished bytes, announced the total of all items so far.
	moved, announced int64
	marks            []mark
	dirty            bool
	held             []partialLine
}

type tracked struct {
	name        string
	done, total int64
	began       time.Time
	ended       bool
}

type mark struct {
	at    time.Time
	moved int64
}

// partialLine is an incomplete line of one writer.
type partialLine struct {
	to   io.Writer
	text []byte
}

// Expect sets the number of items. Call it again when the number grows.
func (p *Display) Expect(items int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expectedItems, p.dirty = items, true
}

// Report records an event.
func (p *Display) Report(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	item := p.items[e.Item]
	if item == nil {
		item = &tracked{name: e.Item, began: now}
		p.items[e.Item] = item
		p.running = append(p.running, item)
	}
	if item.ended {
		return
	}
	p.moved += e.Done - item.done
	p.announced += max(e.Total, e.Done) - item.total
	item.done, item.total, p.dirty = e.Done, max(e.Total, e.Done), true
	if !e.Ended {
		return
	}
	item.ended = true
	p.endedItems++
	p.running = slices.DeleteFunc(p.running, func(i *tracked) bool { return i == item })
	if p.every != 0 && p.picture == nil && !e.Silent {
		_, _ = io.WriteString(p.out, endLine(item, e.note, now.Sub(item.began)))
	}
}

// Streams returns the streams to write to while progress is shown. Whole lines appear above the bars, or between the lines of progress.
func (p *Display) Streams() command.Streams {
	s := p.given
	if p.every == 0 {
		return s
	}
	s.Err = writer{p, p.given.Err}
	if p.picture != nil && terminal.IsTerminal(s.Out) {
		s.Out = writer{p, p.given.Out}
	}
	return s
}

// Close removes the picture and prints a summary line. Further calls do nothing.
func (p *Display) Close() {
	if p.every == 0 {
		return
	}
	p.closing.Do(func() {
		p.restore()
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
			_, _ = io.WriteString(p.out, p.summaryLine(time.Now()))
		}
	})
}

// watch shows progress at intervals until stop is closed.
func (p *Display) watch() {
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

func (p *Display) show(now time.Time) {
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

// mark records the number of finished bytes, and drops records that are older than window.
func (p *Display) mark(now time.Time) {
	p.marks = append(p.marks, mark{now, p.moved})
	p.marks = slices.DeleteFunc(p.marks, func(m mark) bool { return now.Sub(m.at) > window })
}

// rate returns the bytes per second, or 0 if there is no rate yet.
func (p *Display) rate(now time.Time) float64 {
	from := mark{at: p.began}
	if len(p.marks) > 0 && now.Sub(p.began) > window {
		from = p.marks[0]
	}
	seconds := now.Sub(from.at).Seconds()
	if seconds <= 0 {
		return 0
	}
	return float64(p.moved-from.moved) / seconds
}

// remaining returns the remaining time at the current rate; ok is false if it is unknown.
func (p *Display) remaining(now time.Time) (left time.Duration, ok bool) {
	rate := p.rate(now)
	rest := p.announced - p.moved
	if rate < 1 || rest <= 0 || now.Sub(p.began) < time.Second {
		return 0, false
	}
	return time.Duration(float64(rest)/rate) * time.Second, true
}

// writer writes whole lines above the picture, and not at the same time as Display.
type writer struct {
	p  *Display
	to io.Writer
}

// Write implements io.Writer.
func (w writer) Write(text []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if err := w.p.write(w.to, text); err != nil {
		return 0, err
	}
	return len(text), nil
}

func (p *Display) write(to io.Writer, text []byte) error {
	i := slices.IndexFunc(p.held, func(h partialLine) bool { return h.to == to })
	if i < 0 {
		i, p.held = len(p.held), append(p.held, partialLine{to: to})
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
