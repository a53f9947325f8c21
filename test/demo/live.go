package main

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"
)

// screen is the live view as a bubbletea model.
type screen struct {
	story         story
	now           time.Time
	width, height int
	interrupt     context.CancelFunc
}

type tick time.Time

// redraw is the interval at which durations are updated.
const redraw = 100 * time.Millisecond

// linger is how long the last picture stays. It is short after a success, because a table follows.
const (
	lingerDone  = 1500 * time.Millisecond
	lingerStuck = 12 * time.Second
)

func next() tea.Cmd { return tea.Tick(redraw, func(t time.Time) tea.Msg { return tick(t) }) }

// Init implements tea.Model.
func (s screen) Init() tea.Cmd { return next() }

// Update implements tea.Model.
func (s screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tick:
		s.now = time.Time(m)
		return s, next()
	case story:
		s.story = m
	case tea.WindowSizeMsg:
		s.width, s.height = m.Width, m.Height
	case tea.KeyPressMsg:
		if key := m.String(); key == "ctrl+c" || key == "q" {
			s.interrupt()
		}
	}
	return s, nil
}

// View implements tea.Model.
func (s screen) View() tea.View {
	v := tea.NewView("")
	v.AltScreen = true
	v.WindowTitle = "cvo demo"
	if s.width > 0 {
		v.SetContent(render(s.story, s.now, s.width, s.height))
	}
	return v
}

// stage sends the story to the screen.
type stage struct{ program *tea.Program }

func (s stage) show(story story) { s.program.Send(story) }

// live shows the progress of play on a terminal. It restores the terminal before it returns.
func live(ctx context.Context, d *demo, play func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	program := tea.NewProgram(screen{now: time.Now(), interrupt: cancel, story: d.teller.snapshot()}, tea.WithoutSignalHandler())
	d.teller.address(stage{program})
	played := make(chan error, 1)
	go func() {
		err := play(ctx)
		if err == nil {
			linger := lingerDone
			if !d.teller.snapshot().stuck.IsZero() {
				linger = lingerStuck
			}
			pause(ctx, linger)
		}
		if ctx.Err() != nil {
			err = errInterrupted
		}
		program.Quit()
		played <- err
	}()
	_, err := program.Run()
	cancel() // nothing to play for without a screen
	d.teller.address(noAudience{})
	if e := <-played; e != nil && err == nil {
		err = e
	}
	return err
}
