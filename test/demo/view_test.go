package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/test/golden"
)

func TestViewMatchesTheGoldenFiles(t *testing.T) {
	for _, test := range []struct {
		name   string
		story  story
		now    float64
		cols   int
		height int
	}{
		{"preparing", preparing(), 1.5, 80, 24},
		{"installing", installing(), 7, 80, 24},
		{"installing-wide", installing(), 7, 120, 40},
		{"updating", updating(""), 12.3, 80, 24},
		{"updating-wide", updating(""), 12.3, 120, 40},
		{"updating-low", updating(""), 12.3, 80, 16},
		{"stuck", stuck(), 16, 80, 24},
		{"updated", updated(), 18, 80, 24},
		{"nodes", nodesUpdating(), 18, 80, 24},
		{"nodes-wide", nodesUpdating(), 18, 120, 40},
	} {
		t.Run(test.name, func(t *testing.T) {
			golden.Assert(t, "view-"+test.name, plainText(render(test.story, at(test.now), test.cols, test.height)))
		})
	}
}

func TestClosingTextMatchesTheGoldenFiles(t *testing.T) {
	for _, test := range []struct {
		name  string
		story story
		cols  int
		kept  bool
	}{
		{"updated", updated(), 80, false},
		{"nodes", nodesUpdated(), 80, false},
		{"updated-wide", updated(), 120, false},
		{"stuck", stuck(), 80, true},
		{"stuck-removed", stuck(), 80, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			golden.Assert(t, "closing-"+test.name, plainText(closing(test.story, test.cols, test.kept)))
		})
	}
}

// TestViewFitsTheScreen draws every story on screens of many sizes. No line may be too long and no screen too high.
func TestViewFitsTheScreen(t *testing.T) {
	stories := map[string]story{
		"preparing": preparing(), "installing": installing(), "installed": installed(), "updating": updating(""),
		"stuck": stuck(), "updated": updated(), "nodes": nodesUpdating(), "nothing": {began: epoch()},
	}
	for name, s := range stories {
		for _, width := range []int{1, 20, 60, 79, 80, 81, 100, 120, 200} {
			for _, height := range []int{1, 5, 10, 16, 24, 25, 40, 80} {
				out := render(s, at(20), width, height)
				lines := strings.Split(out, "\n")
				assert.LessOrEqual(t, len(lines), height, "%s at %dx%d", name, width, height)
				for _, line := range lines {
					assert.LessOrEqual(t, lipgloss.Width(line), width, "%s at %dx%d: %q", name, width, height, line)
				}
			}
		}
	}
}

// TestConditionsKeepTheirPositions draws several moments of a phase. The conditions stay at their positions.
func TestConditionsKeepTheirPositions(t *testing.T) {
	line := func(s story) int {
		for i, l := range strings.Split(plainText(render(s, at(20), 80, 24)), "\n") {
			if strings.HasPrefix(l, " ReleaseAccepted") {
				return i
			}
		}
		return -1
	}
	assert.Equal(t, line(updating("")), line(stuck()))
	assert.Equal(t, line(updating("")), line(updated()))
	assert.Equal(t, line(updating("")), line(nodesUpdating()))
	assert.Equal(t, line(installing()), line(installed()))
}

func TestLinesReplaceTheViewWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	l := &lines{out: &out}
	l.show(installing())
	l.show(installed())
	l.show(updating("dns"))
	l.show(stuck())
	golden.Assert(t, "lines", out.String())
}

func TestSecondsAreRounded(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0.0 s", 0: "0.0 s", 1540 * time.Millisecond: "1.5 s", 59 * time.Second: "59.0 s", 61 * time.Second: "1:01 min",
	} {
		assert.Equal(t, want, seconds(d))
	}
}

// plainText returns the visible text, without colors and trailing spaces.
func plainText(s string) string {
	lines := strings.Split(ansi.Strip(s), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return fmt.Sprintln(strings.TrimRight(strings.Join(lines, "\n"), "\n"))
}
