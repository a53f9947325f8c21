package progress

import (
	"context"
	"io"
	"sync"
)

// notices prints lines that appear at any time, from any goroutine. While a Display is shown, they go to its stream.
type notices struct {
	mu  sync.Mutex
	out io.Writer
}

type noticesKey struct{}

// WithNotices returns a context for a command, and a function that prints a line for people. The line goes to out, or to the Display that
// Flags.Start returned for this context, until it is closed. Calls may overlap.
func WithNotices(ctx context.Context, out io.Writer) (withNotices context.Context, printLine func(string)) {
	n := &notices{out: out}
	return context.WithValue(ctx, noticesKey{}, n), func(line string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		_, _ = io.WriteString(n.out, line+"\n")
	}
}

// redirectNotices sends the notices of a context to out, until restore is called.
func redirectNotices(ctx context.Context, out io.Writer) (restore func()) {
	n, ok := ctx.Value(noticesKey{}).(*notices)
	if !ok {
		return func() {}
	}
	set := func(out io.Writer) (earlier io.Writer) {
		n.mu.Lock()
		defer n.mu.Unlock()
		earlier, n.out = n.out, out
		return earlier
	}
	earlier := set(out)
	return func() { set(earlier) }
}
