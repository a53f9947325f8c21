package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

func TestFlagsAreParsed(t *testing.T) {
	o, err := parseFlags([]string{"--scale", "--foreign", "7"})
	require.NoError(t, err)
	assert.Equal(t, defaultObjects, o.objects)
	assert.Equal(t, 7, o.foreign, "an explicit number is kept")
	for _, args := range [][]string{{"x"}, {"--drift", "-1"}, {"-o", "xml"}, {"--runs", "0", "--audit=false"}, {"--plot", "x.svg", "--history", ""}} {
		_, err := parseFlags(args)
		assert.Error(t, err, "%v", args)
	}
}

// TestSyntheticReleaseMeetsTheRules checks a synthetic release against the rules for real releases.
func TestSyntheticReleaseMeetsTheRules(t *testing.T) {
	for _, n := range []int{1, 100, 1050} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, fixture.Synthesize(dir, n))
			files, err := filepath.Glob(filepath.Join(dir, "*", "*.yaml"))
			require.NoError(t, err)
			var all []*manifest.Manifest
			seen := map[manifest.ID]bool{}
			for _, file := range files {
				data, err := os.ReadFile(file)
				require.NoError(t, err)
				list, err := manifest.Parse(file, data, manifest.Limits{})
				require.NoError(t, err)
				for _, m := range list {
					assert.False(t, seen[m.ID()], m.ID())
					assert.Equal(t, filepath.Base(filepath.Dir(file)), m.Component)
					seen[m.ID()] = true
				}
				all = append(all, list...)
			}
			assert.Len(t, all, n)
			g, err := taskgraph.Build(all, release.Updating)
			require.NoError(t, err)
			if n > 1000 {
				assert.Equal(t, []int{10, 20, 30, 40, 50, 60, 70}, g.Runlevels()[:7])
				assert.Len(t, g.Components(), 11)
			}
		})
	}
}

// benchReport returns an example report with two runs.
func benchReport(at time.Time, seconds float64) *Report {
	r := &Report{Time: at, Revision: "v1-" + at.Format("0102"), CPUs: 2, Machine: "a machine", From: Release{"1.0.0", 10}, To: Release{"1.1.0", 12}, Delay: "0s"}
	for run := range 2 {
		r.Timed = append(r.Timed,
			Measurement{Subject: loaderName, Run: run + 1, Phases: []Phase{{Name: phaseInstall, Seconds: 5, Established: 5.2}}},
			Measurement{Subject: "cvo", Run: run + 1, Phases: []Phase{
				{Name: phaseInstall, Seconds: seconds + float64(run), Rollout: seconds, CPU: 2, PeakMiB: 90},
				{Name: phaseDrift, Seconds: 30, Drift: &Drift{Edits: 10, Kinds: 2, Repaired: 9, P50: 0.1, P99: 0.2, Max: 0.2, NotRepaired: map[string]int{"delete Role": 1}}},
			}},
			Measurement{Scenario: "500 objects", Subject: "cvo", Run: run + 1, Phases: []Phase{{Name: phaseInstall, Seconds: 50, PeakMiB: 100}}},
		)
	}
	r.Counted = []Measurement{{Subject: "cvo", Phases: []Phase{{
		Name: phaseInstall, Manifests: 10, Writes: 12, Changed: 11, Failed: 1,
		Requests: map[string]map[string]int{operatorAgent: {"patch": 12, "get": 3}, operatorAgent + "/election": {"update": 2}},
	}}}}
	return r
}

func TestHistoryKeepsAllReports(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history.jsonl")
	day := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.NoError(t, benchReport(day, 6).appendTo(file))
	require.NoError(t, benchReport(day.AddDate(0, 0, 1), 8).appendTo(file))
	entries, err := readHistory(file)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	e := entries[0]
	assert.Equal(t, Entry{
		Time: day, Revision: "v1-0102", CPUs: 2, Machine: "a machine", From: "1.0.0", To: "1.1.0", Delay: "0s", Runs: 2,
	}, Entry{Time: e.Time, Revision: e.Revision, CPUs: e.CPUs, Machine: e.Machine, From: e.From, To: e.To, Delay: e.Delay, Runs: e.Runs})
	for name, want := range map[string]float64{
		"cvo/install/seconds": 6.5, "cvo/install/ratio": 1.3, "cvo/install/rolloutRatio": 1.2, "cvo/install/establishedRatio": 1.25, "cvo/install/peakMiB": 90,
		"cvo/install/requests": 17, "cvo/install/requests.get": 3, "cvo/install/changed": 11, "cvo/install/failed": 1,
		"cvo/drift/p99Seconds": 0.2, "cvo/drift/notRepaired": 1, "plain-loader/install/seconds": 5,
		"500 objects/cvo/install/peakMiB": 100,
	} {
		assert.InDelta(t, want, e.Figures[name], 1e-9, name)
	}
	assert.NotContains(t, e.Figures, "plain-loader/install/ratio")
	assert.InDelta(t, 8.5, entries[1].Figures["cvo/install/seconds"], 1e-9)

	require.NoError(t, os.WriteFile(file, []byte("{}\nno\n"), 0o600))
	_, err = readHistory(file)
	assert.ErrorContains(t, err, "line 2")
}

func TestReportListsEachMeasurement(t *testing.T) {
	var out strings.Builder
	require.NoError(t, benchReport(time.Now(), 6).writeText(&out))
	for _, want := range []string{
		"500 objects, install", "10 edits of 2 kinds by another manager, 9 repaired after 100 ms (p50), 200 ms (p99)",
		"not repaired: delete Role (1)", "1.200",
	} {
		assert.Contains(t, out.String(), want)
	}
}

func TestPlotDrawsTheHistory(t *testing.T) {
	dir := t.TempDir()
	history, picture := filepath.Join(dir, "history.jsonl"), filepath.Join(dir, "history.svg")
	require.Error(t, plot(history, picture), "the history does not exist yet")
	for i := range 30 {
		require.NoError(t, benchReport(time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC), 5+float64(i%7)).appendTo(history))
	}
	require.NoError(t, plot(history, picture))
	data, err := os.ReadFile(picture)
	require.NoError(t, err)
	count, text := map[string]int{}, ""
	for d := xml.NewDecoder(strings.NewReader(string(data))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, "the picture is valid XML")
		switch x := token.(type) {
		case xml.StartElement:
			count[x.Name.Local]++
		case xml.CharData:
			text += string(x)
		}
	}
	assert.Equal(t, 4, count["polyline"], "the measured phases have ratio, requests, memory and repair")
	assert.Equal(t, 4*30, count["circle"])
	assert.Contains(t, text, "install 90")
	assert.Contains(t, text, "2026-01-30 v1-0130")
}

func TestCeilingRoundsUpTheScale(t *testing.T) {
	for value, want := range map[float64]float64{0: 1, 0.9: 1, 1.3: 1.6, 7: 8, 10: 10, 121: 160, 1100: 1200} {
		assert.InDelta(t, want, ceiling(value), 1e-9, "%v", value)
	}
}
