package cli

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
)

func TestProgressInLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(Streams{Out: io.Discard, Err: &out}, "Copying", progressEvery, nil)
		p.expect(3, 300<<20)
		time.Sleep(50 * time.Millisecond) // so that no event coincides with a line
		for i := range 120 {              // twelve seconds, ten events a second
			p.report(progressEvent{item: "etcd", done: int64(i) << 20, total: 120 << 20})
			time.Sleep(100 * time.Millisecond)
		}
		p.report(progressEvent{item: "etcd", done: 120 << 20, total: 120 << 20, ended: true})
		p.report(progressEvent{item: "cli", ended: true, note: "already there"})
		p.report(progressEvent{item: "dns", ended: true, unsaid: true})
		p.report(progressEvent{item: "etcd", done: 5, ended: true})
		p.close()
		p.close()
		assert.Equal(t, `info: Copying: 0/3, 49.0 MiB/300.0 MiB, 9.8 MiB/s, 25s left; now etcd 40%
info: Copying: 0/3, 99.0 MiB/300.0 MiB, 10.0 MiB/s, 20s left; now etcd 82%
info: etcd: done, 120.0 MiB in 12.0s
info: cli: already there
info: Copying: 3 done, 120.0 MiB in 12.1s, 10.0 MiB/s
`, out.String())
	})
}

func TestProgressSaysNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(Streams{Err: &out}, "Copying", progressEvery, nil)
		p.report(progressEvent{item: "etcd", total: 10})
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, "info: Copying: 0 B/10 B; now etcd 0%\n", out.String(), "one line, for nothing happened after it")
		p.close()
	})
}

func TestProgressQuiet(t *testing.T) {
	var out bytes.Buffer
	p := progressFlags{quiet: true}.start(Streams{Err: &out}, "Copying")
	p.expect(1, 10)
	p.report(progressEvent{item: "etcd", done: 10, total: 10, ended: true})
	fmt.Fprint(p.streams().Err, "warning: this is no progress\n")
	p.close()
	assert.Equal(t, "warning: this is no progress\n", out.String())
}

// screen is as much of a terminal as progress uses: lines, the cursor going up, erasing below it.
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

func testPicture(width, height int) *progressPicture {
	return &progressPicture{size: func() (int, int) { return width, height }}
}

func TestProgressOnTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{}
		p := newProgress(Streams{Out: io.Discard, Err: s}, "Copying", progressRedraw, testPicture(80, 24))
		p.expect(20, 200<<20)
		for i := range 10 {
			p.report(progressEvent{item: fmt.Sprintf("component-%d", i), done: 1 << 20, total: 10 << 20})
		}
		p.report(progressEvent{item: "component-0", done: 10 << 20, total: 10 << 20, ended: true})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, `Copying  [#-------------------]   9%  1/20  19.0 MiB/200.0 MiB  9.5 MiB/s  19s 
  component-1  [##------------------]  10%  1.0 MiB/10.0 MiB
  component-2  [##------------------]  10%  1.0 MiB/10.0 MiB
  component-3  [##------------------]  10%  1.0 MiB/10.0 MiB
  component-4  [##------------------]  10%  1.0 MiB/10.0 MiB
  component-5  [##------------------]  10%  1.0 MiB/10.0 MiB
  component-6  [##------------------]  10%  1.0 MiB/10.0 MiB
  component-7  [##------------------]  10%  1.0 MiB/10.0 MiB
  component-8  [##------------------]  10%  1.0 MiB/10.0 MiB
  and 1 more`, s.String())

		fmt.Fprint(p.streams().Err, "warning: half a line, ")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.NotContains(t, s.String(), "half a line", "it would be drawn over")
		fmt.Fprint(p.streams().Err, "and the rest\nwarning: another\n")
		time.Sleep(time.Second)
		synctest.Wait()
		lines := strings.Split(s.String(), "\n")
		require.Greater(t, len(lines), 3)
		assert.Equal(t, "warning: half a line, and the rest", lines[0])
		assert.Equal(t, "warning: another", lines[1])
		assert.True(t, strings.HasPrefix(lines[2], "Copying  ["), lines[2])

		fmt.Fprint(p.streams().Err, "no end")
		p.close()
		assert.Equal(t, []string{
			"warning: half a line, and the rest", "warning: another", "no endinfo: Copying: 1 done, 9 not, 19.0 MiB in 4.0s, 4.8 MiB/s",
		}, strings.Split(s.String(), "\n"))
	})
}

func TestProgressBoundsRedraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{}
		p := newProgress(Streams{Err: s}, "Copying", progressRedraw, testPicture(60, 10))
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				for i := range 10_000 {
					p.report(progressEvent{item: fmt.Sprint(worker), done: int64(i), total: 10_000})
					if i%10 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		all.Wait()
		p.close()
		assert.LessOrEqual(t, s.writes, 12, "one second takes ten pictures, whatever happens in it")
	})
}

func TestBytesText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1000 << 10: "1.0 MiB", 5 << 30: "5.0 GiB", 3 << 50: "3072.0 TiB",
	} {
		assert.Equal(t, want, bytesText(n))
	}
}
