package progress

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
)

func TestProgressPrintsALineAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newDisplay(t.Context(), command.Streams{Out: io.Discard, Err: &out}, "Copying", lineInterval, nil)
		p.Expect(3)
		time.Sleep(50 * time.Millisecond) // so that no event coincides with a line
		for i := range 120 {              // twelve seconds, ten events a second
			p.Report(Event{Item: "etcd", Done: int64(i) << 20, Total: 120 << 20})
			time.Sleep(100 * time.Millisecond)
		}
		p.Report(Event{Item: "etcd", Done: 120 << 20, Total: 120 << 20, Ended: true})
		p.Report(Event{Item: "cli", Ended: true, note: "already there"})
		p.Report(Event{Item: "dns", Ended: true, Silent: true})
		p.Report(Event{Item: "etcd", Done: 5, Ended: true})
		p.Close()
		p.Close()
		assert.Equal(t, `info: Copying: 0/3, 49.0 MiB/120.0 MiB, 9.8 MiB/s, 7s left; now etcd 40%
info: Copying: 0/3, 99.0 MiB/120.0 MiB, 10.0 MiB/s, 2s left; now etcd 82%
info: etcd: done, 120.0 MiB in 12.0s
info: cli: already there
info: Copying: 3 done, 120.0 MiB in 12.1s, 10.0 MiB/s
`, out.String())
	})
}

func TestProgressOmitsRepeatedLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newDisplay(t.Context(), command.Streams{Err: &out}, "Copying", lineInterval, nil)
		p.Report(Event{Item: "etcd", Total: 10})
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, "info: Copying: 0 B/10 B; now etcd 0%\n", out.String(), "one line, because nothing happened afterwards")
		p.Close()
	})
}

func TestQuietProgressPrintsOnlyWarnings(t *testing.T) {
	var out bytes.Buffer
	p := Flags{quiet: true}.Start(t.Context(), command.Streams{Err: &out}, "Copying")
	p.Expect(1)
	p.Report(Event{Item: "etcd", Done: 10, Total: 10, Ended: true})
	fmt.Fprint(p.Streams().Err, "warning: this is no progress\n")
	p.Close()
	assert.Equal(t, "warning: this is no progress\n", out.String())
}

// screen emulates the parts of a terminal that progress uses: it prints lines, moves the cursor up, and erases below it.
type screen struct {
	mu     sync.Mutex
	lines  []string
	row    int
	writes int
}

func (s *screen) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	rest := string(text)
	for rest != "" {
		switch {
		case strings.HasPrefix(rest, "\x1b["):
			i := strings.IndexAny(rest, "AJm")
			n, _ := strconv.Atoi(rest[2:i])
			switch rest[i] {
			case 'A':
				s.row = max(0, s.row-max(1, n))
			case 'J':
				s.lines = s.lines[:min(s.row, len(s.lines))]
			}
			rest = rest[i+1:]
		case rest[0] == '\r':
			rest = rest[1:]
		case rest[0] == '\n':
			s.row++
			rest = rest[1:]
		default:
			i := strings.IndexAny(rest, "\n\r\x1b")
			if i < 0 {
				i = len(rest)
			}
			for len(s.lines) <= s.row {
				s.lines = append(s.lines, "")
			}
			s.lines[s.row] += rest[:i]
			rest = rest[i:]
		}
	}
	return len(text), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

func TestNoticesAppearOnTheDisplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{}
		ctx, notify := WithNotices(t.Context(), s)
		notify("info: before")
		p := newDisplay(ctx, command.Streams{Out: io.Discard, Err: s}, "Copying", redrawInterval, testPicture(80, 24))
		p.Report(Event{Item: "etcd", Done: 1 << 20, Total: 10 << 20})
		time.Sleep(time.Second)
		synctest.Wait()
		notify("info: meanwhile")
		time.Sleep(time.Second)
		synctest.Wait()
		lines := strings.Split(s.String(), "\n")
		require.Len(t, lines, 4, s)
		assert.Equal(t, []string{"info: before", "info: meanwhile"}, lines[:2])
		assert.True(t, strings.HasPrefix(lines[2], "Copying  ["), lines[2])
		p.Close()
		notify("info: after")
		assert.Contains(t, s.String(), "\ninfo: after")
		assert.NotContains(t, s.String(), "Copying  [")
	})
}

// TestNoticesDoNotOverlap relies on the race detector.
func TestNoticesDoNotOverlap(t *testing.T) {
	var out bytes.Buffer
	ctx, notify := WithNotices(t.Context(), &out)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				notify("info: a notice")
			}
		})
	}
	p := Flags{}.Start(ctx, command.Streams{Err: &out}, "Copying")
	for range 100 {
		p.Report(Event{Item: "etcd", Done: 1})
		fmt.Fprintln(p.Streams().Err, "warning: a line")
	}
	p.Report(Event{Item: "etcd", Done: 1, Ended: true})
	all.Wait()
	p.Close()
	assert.Equal(t, 400, strings.Count(out.String(), "info: a notice\n"))
	assert.Equal(t, 100, strings.Count(out.String(), "warning: a line\n"))
}

func testPicture(width, height int) *picture {
	return &picture{size: func() (int, int) { return width, height }}
}

func TestProgressRedrawsATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{}
		p := newDisplay(t.Context(), command.Streams{Out: io.Discard, Err: s}, "Copying", redrawInterval, testPicture(80, 24))
		p.Expect(20)
		for i := range 10 {
			p.Report(Event{Item: fmt.Sprintf("component-%d", i), Done: 1 << 20, Total: 10 << 20})
		}
		p.Report(Event{Item: "component-0", Done: 10 << 20, Total: 10 << 20, Ended: true})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, `Copying  [###-----------------]  19%  1/20  19.0 MiB/100.0 MiB  9.5 MiB/s  8s l
  component-1  [##------------------]  10%  1.0 MiB/10.0 MiB
  component-2  [##------------------]  10%  1.0 MiB/10.0 MiB
  component-3  [##------------------]  10%  1.0 MiB/10.0 MiB
  component-4  [##------------------]  10%  1.0 MiB/10.0 MiB
  component-5  [##------------------]  10%  1.0 MiB/10.0 MiB
  component-6  [##------------------]  10%  1.0 MiB/10.0 MiB
  component-7  [##------------------]  10%  1.0 MiB/10.0 MiB
  component-8  [##------------------]  10%  1.0 MiB/10.0 MiB
  and 1 more`, s.String())

		fmt.Fprint(p.Streams().Err, "warning: half a line, ")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.NotContains(t, s.String(), "half a line", "the next picture would overwrite it")
		fmt.Fprint(p.Streams().Err, "and the rest\nwarning: another\n")
		time.Sleep(time.Second)
		synctest.Wait()
		lines := strings.Split(s.String(), "\n")
		require.Greater(t, len(lines), 3)
		assert.Equal(t, "warning: half a line, and the rest", lines[0])
		assert.Equal(t, "warning: another", lines[1])
		assert.True(t, strings.HasPrefix(lines[2], "Copying  ["), lines[2])

		fmt.Fprint(p.Streams().Err, "no end")
		p.Close()
		assert.Equal(t, []string{
			"warning: half a line, and the rest", "warning: another", "no endinfo: Copying: 1 done, 9 unfinished, 19.0 MiB in 4.0s, 4.8 MiB/s",
		}, strings.Split(s.String(), "\n"))
	})
}

func TestProgressLimitsItsRedraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{}
		p := newDisplay(t.Context(), command.Streams{Err: s}, "Copying", redrawInterval, testPicture(60, 10))
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				for i := range 10_000 {
					p.Report(Event{Item: fmt.Sprint(worker), Done: int64(i), Total: 10_000})
					if i%10 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		all.Wait()
		p.Close()
		assert.LessOrEqual(t, s.writes, 12, "at most ten pictures a second")
	})
}
