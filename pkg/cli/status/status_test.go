package status

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/leader"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/test/snapshots"
)

func TestStatusScreenFitsTheWindow(t *testing.T) {
	interrupted := false
	var screen tea.Model = liveScreen{interrupt: func() { interrupted = true }}
	update := func(msg tea.Msg) []string {
		screen, _ = screen.Update(msg)
		return screen.(liveScreen).lines()
	}
	update(tea.WindowSizeMsg{Width: 60, Height: 8})
	lines := update(response{err: leader.ErrNoRollout, versionLines: []string{"Release  none yet"}, at: snapshots.Time})
	assert.Equal(t, "Release  none yet", lines[0])
	assert.Equal(t, "no rollout has started yet", lines[7])

	lines = update(response{snapshot: snapshots.Updating(), at: snapshots.Time})
	require.Len(t, lines, 8)
	assert.Contains(t, lines[0], "Updating")
	assert.Equal(t, "q quits, arrows scroll", lines[7])
	for _, line := range lines {
		assert.LessOrEqual(t, len(line), 60)
	}
	first := lines[1]
	lines = update(response{at: snapshots.Time.Add(time.Minute)})
	assert.NotEqual(t, first, lines[1], "the time is updated without a change")

	assert.Equal(t, lines[1], update(tea.KeyPressMsg{Code: tea.KeyDown})[0])
	for range 100 {
		lines = update(tea.KeyPressMsg{Code: tea.KeyPgDown})
	}
	assert.NotEmpty(t, strings.TrimSpace(lines[6]), "the view does not scroll beyond the end")
	lines = update(response{err: errors.New("connection refused"), at: snapshots.Time.Add(2 * time.Minute)})
	assert.Equal(t, "connection refused", lines[7], "the last picture is kept, with the error")
	assert.NotEmpty(t, strings.TrimSpace(lines[6]))
	update(tea.KeyPressMsg{Code: 'q', Text: "q"})
	assert.True(t, interrupted)
}

func TestStatusPrintsOneComponentForScripts(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, (&options{output: printing.FormatJSON, component: "network"}).write(&out, snapshots.Updating()))
	var got report.Snapshot
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	assert.Len(t, got.Objects, 2)
	assert.Equal(t, snapshots.Updating().Objects[7], got.Objects[1])

	out.Reset()
	require.NoError(t, (&options{output: printing.FormatJSON, watch: true}).write(&out, snapshots.Updating()))
	assert.Equal(t, 1, strings.Count(out.String(), "\n"), "a snapshot is one line")
	out.Reset()
	require.NoError(t, (&options{output: printing.FormatYAML, watch: true}).write(&out, snapshots.Updating()))
	assert.True(t, strings.HasPrefix(out.String(), "---\nat: "), out.String())
}

func TestStatusRejectsAnUnknownComponent(t *testing.T) {
	require.NoError(t, (&options{}).checkComponent(snapshots.Updating()))
	require.NoError(t, (&options{component: "network"}).checkComponent(snapshots.Updating()))
	require.NoError(t, (&options{component: "network"}).checkComponent(&report.Snapshot{}), "no component is known yet")
	err := (&options{component: "dsn"}).checkComponent(snapshots.Updating())
	require.ErrorContains(t, err, `the release has no component "dsn": its components are `)
	require.ErrorContains(t, err, "dns, ")
	require.ErrorContains(t, (&options{component: "dsn"}).checkComponent(snapshots.Outline()), "no component")
}

func TestStatusNamesTheFlagsToOmit(t *testing.T) {
	for want, o := range map[string]options{
		"--orphans reads the cluster and needs no operator: omit --watch, --all, --component, --server and --server-ca":               {orphans: true},
		"--signatures reads the cluster and needs no operator: omit --orphans, --watch, --all, --component, --server and --server-ca": {signatures: true},
	} {
		o.output, o.server = printing.FormatText, leader.LocalServer
		require.EqualError(t, o.validate(), want)
	}
}
