package status

import (
	"context"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/leader"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/view/tree"
)

// liveScreen is the bubbletea model of the live view: the last snapshot, scrolled by some lines.
type liveScreen struct {
	view tree.View
	// snapshot is the last snapshot, or nil before the first. Until then, versionLines holds the lines of the ClusterVersion.
	snapshot     *report.Snapshot
	versionLines []string
	// trouble is the reason why there is no newer snapshot; empty if this is the newest.
	trouble       string
	now           time.Time
	taken         time.Time
	width, height int
	scrolled      int
	interrupt     context.CancelFunc
}

// response is the operator's response, or the cluster's if the operator does not respond.
type response struct {
	snapshot     *report.Snapshot
	versionLines []string
	err          error
	at           time.Time
}

// Init implements tea.Model.
func (liveScreen) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (s liveScreen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case response:
		s.now, s.trouble = m.at, ""
		if m.err != nil {
			s.trouble, s.versionLines = terminal.OneLine(m.err.Error()), m.versionLines
		}
		if m.snapshot != nil {
			s.snapshot, s.taken = m.snapshot, m.at
		}
	case tea.WindowSizeMsg:
		s.width, s.height = m.Width, m.Height
	case tea.KeyPressMsg:
		switch m.String() {
		case "ctrl+c", "q":
			s.interrupt()
		case "up", "k":
			s.scrolled--
		case "down", "j":
			s.scrolled++
		case "pgup":
			s.scrolled -= s.height / 2
		case "pgdown", "space":
			s.scrolled += s.height / 2
		case "home":
			s.scrolled = 0
		}
	}
	s.scrolled = max(0, min(s.scrolled, len(s.body())-s.bodyHeight()))
	return s, nil
}

// View implements tea.Model.
func (s liveScreen) View() tea.View {
	v := tea.NewView("")
	v.AltScreen = true
	v.WindowTitle = "cvo status"
	if s.width > 0 {
		v.SetContent(strings.Join(s.lines(), "\n"))
	}
	return v
}

// bodyHeight returns the number of body lines that fit above the foot line.
func (s liveScreen) bodyHeight() int { return max(1, s.height-1) }

func (s liveScreen) body() []string {
	if s.snapshot == nil {
		return s.versionLines
	}
	moved := *s.snapshot // durations grow while nothing changes
	moved.At = moved.At.Add(max(0, s.now.Sub(s.taken)))
	return s.view.Lines(&moved)
}

func (s liveScreen) lines() []string {
	body := s.body()
	shown := body[min(s.scrolled, len(body)):]
	shown = append([]string{}, shown[:min(len(shown), s.bodyHeight())]...)
	colors := terminal.NewPalette(terminal.Style{Unicode: s.view.Unicode, Color: s.view.Color})
	foot := colors.Dim("q quits, arrows scroll")
	if s.trouble != "" {
		foot = colors.Bad(s.trouble)
	}
	for len(shown) < s.bodyHeight() {
		shown = append(shown, "")
	}
	shown = append(shown, foot)
	for i := range shown {
		shown[i] = ansi.Truncate(shown[i], s.width, "")
	}
	return shown
}

// watchScreen redraws the picture on a terminal until it is interrupted, and leaves the last picture there.
func (o *options) watchScreen(ctx context.Context, streams command.Streams, source *leader.Connection, view tree.View) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	program := tea.NewProgram(liveScreen{view: view, interrupt: cancel},
		tea.WithInput(streams.In), tea.WithOutput(streams.Out), tea.WithoutSignalHandler())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer program.Quit()
		for {
			program.Send(o.poll(ctx, source))
			if backoff.Sleep(ctx, pollInterval) != nil {
				return
			}
		}
	}()
	model, err := program.Run()
	cancel()
	<-ended
	if last, ok := model.(liveScreen); ok && err == nil {
		return view.Write(streams.Out, last.body())
	}
	return err
}

func (o *options) poll(ctx context.Context, source *leader.Connection) response {
	snapshot, err := source.Rollout(ctx)
	n := response{snapshot: snapshot, err: err, at: source.Clock.Now()}
	if err != nil {
		n.versionLines, _ = o.versionLines(ctx, source) // the operator's error is more useful
	}
	return n
}
