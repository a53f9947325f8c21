package cli

import (
	"context"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/cluster-version/cvo/pkg/rollout"
)

// statusScreen is the live picture as bubbletea sees it: the last account, moved up by some lines.
type statusScreen struct {
	view statusView
	// snapshot is the last account, nil before the first; instead is what the ClusterVersion says meanwhile.
	snapshot *rollout.Snapshot
	instead  []string
	// trouble is why there is no newer account; empty if this is the newest.
	trouble       string
	now           time.Time
	taken         time.Time
	width, height int
	scrolled      int
	interrupt     context.CancelFunc
}

// statusNews is an answer of the operator, or of the cluster where it has none.
type statusNews struct {
	snapshot *rollout.Snapshot
	instead  []string
	err      error
	at       time.Time
}

// Init implements tea.Model.
func (statusScreen) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (s statusScreen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case statusNews:
		s.now, s.trouble = m.at, ""
		if m.err != nil {
			s.trouble, s.instead = oneLine(m.err.Error()), m.instead
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
	s.scrolled = max(0, min(s.scrolled, len(s.body())-s.room()))
	return s, nil
}

// View implements tea.Model.
func (s statusScreen) View() tea.View {
	v := tea.NewView("")
	v.AltScreen = true
	v.WindowTitle = "cvo status"
	if s.width > 0 {
		v.SetContent(strings.Join(s.lines(), "\n"))
	}
	return v
}

// room is how many lines of the body fit; one is for the foot.
func (s statusScreen) room() int { return max(1, s.height-1) }

func (s statusScreen) body() []string {
	if s.snapshot == nil {
		return s.instead
	}
	moved := *s.snapshot // durations go on while nothing changes
	moved.At = moved.At.Add(max(0, s.now.Sub(s.taken)))
	return s.view.render(&moved)
}

func (s statusScreen) lines() []string {
	body := s.body()
	shown := body[min(s.scrolled, len(body)):]
	shown = append([]string{}, shown[:min(len(shown), s.room())]...)
	palette := newStatusPalette(s.view)
	foot := palette.dim("q ends it, arrows move")
	if s.trouble != "" {
		foot = palette.bad(s.trouble)
	}
	for len(shown) < s.room() {
		shown = append(shown, "")
	}
	shown = append(shown, foot)
	for i := range shown {
		shown[i] = ansi.Truncate(shown[i], s.width, "")
	}
	return shown
}

// watchScreen redraws the account on a terminal until it is interrupted, and leaves the last picture there.
func (o *statusOptions) watchScreen(ctx context.Context, streams Streams, source *statusSource, view statusView) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	program := tea.NewProgram(statusScreen{view: view, interrupt: cancel},
		tea.WithInput(streams.In), tea.WithOutput(streams.Out), tea.WithoutSignalHandler())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer program.Quit()
		for {
			program.Send(o.news(ctx, source))
			if !pauseFor(ctx, statusEvery) {
				return
			}
		}
	}()
	model, err := program.Run()
	cancel()
	<-ended
	if last, ok := model.(statusScreen); ok && err == nil {
		return view.write(streams.Out, last.body())
	}
	return err
}

func (o *statusOptions) news(ctx context.Context, source *statusSource) statusNews {
	snapshot, err := source.rollout(ctx)
	n := statusNews{snapshot: snapshot, err: err, at: source.clock.Now()}
	if err != nil {
		// That it cannot be read is said by the error of the operator, which is of more interest.
		n.instead, _ = clusterVersionLines(ctx, source.cfg, source.name, n.at)
	}
	return n
}
