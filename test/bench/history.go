package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"
)

// Entry is a line of the history: the releases, the machine and all figures by name.
type Entry struct {
	Time     time.Time `json:"time"`
	Revision string    `json:"revision"`
	CPUs     int       `json:"cpus"`
	// Machine is the processor model.
	Machine string `json:"machine"`
	From    string `json:"from"`
	To      string `json:"to"`
	Delay   string `json:"delay"`
	Runs    int    `json:"runs"`
	// Figures are named scenario/subject/phase/figure, without the scenario for the pair of releases. They are medians of the timed runs
	// and counts of the counting run.
	Figures map[string]float64 `json:"figures"`
}

// entry flattens a report.
func (r *Report) entry() Entry {
	e := Entry{
		Time: r.Time, Revision: r.Revision, CPUs: r.CPUs, Machine: r.Machine, From: r.From.Version, To: r.To.Version,
		Delay: r.Delay, Figures: map[string]float64{},
	}
	for _, m := range r.Timed {
		e.Runs = max(e.Runs, m.Run)
	}
	for _, scenario := range r.scenarios() {
		for _, subject := range r.subjects(scenario) {
			for _, phase := range phaseNames() {
				list := r.phases(scenario, subject, phase)
				if len(list) == 0 {
					continue
				}
				set := func(figure string, value float64) {
					if value != 0 {
						e.Figures[figureName(scenario, subject, phase, figure)] = math.Round(value*1e4) / 1e4
					}
				}
				for _, f := range timedFigures() {
					set(f.name, median(list, f.value))
				}
				set("ratio", r.ratio(scenario, subject, phase, Phase.seconds, Phase.seconds))
				set("rolloutRatio", r.ratio(scenario, subject, phase, Phase.rollout, Phase.seconds))
				set("establishedRatio", r.ratio(scenario, subject, phase, Phase.seconds, Phase.established))
			}
		}
	}
	for _, m := range r.Counted {
		for _, p := range m.Phases {
			name := func(figure string) string { return figureName(m.Scenario, m.Subject, p.Name, figure) }
			total := 0
			for _, verbs := range p.Requests {
				for verb, n := range verbs {
					total += n
					e.Figures[name("requests."+verb)] += float64(n)
				}
			}
			e.Figures[name("requests")] = float64(total)
			e.Figures[name("writes")] = float64(p.Writes)
			e.Figures[name("changed")] = float64(p.Changed)
			e.Figures[name("failed")] = float64(p.Failed)
		}
	}
	return e
}

func figureName(scenario, subject, phase, figure string) string {
	name := subject + "/" + phase + "/" + figure
	if scenario != "" {
		name = scenario + "/" + name
	}
	return name
}

// timedFigure is a figure of a phase in a timed run.
type timedFigure struct {
	name  string
	value func(Phase) float64
}

func timedFigures() []timedFigure {
	drift := func(value func(Drift) float64) func(Phase) float64 {
		return func(p Phase) float64 {
			if p.Drift == nil {
				return 0
			}
			return value(*p.Drift)
		}
	}
	return []timedFigure{
		{"manifests", func(p Phase) float64 { return float64(p.Manifests) }},
		{"seconds", Phase.seconds},
		{"rolloutSeconds", Phase.rollout},
		{"cpuSeconds", func(p Phase) float64 { return p.CPU }},
		{"serverCPUSeconds", func(p Phase) float64 { return p.ServerCPU }},
		{"peakMiB", func(p Phase) float64 { return p.PeakMiB }},
		{"fileMiB", func(p Phase) float64 { return p.FileMiB }},
		{"edits", drift(func(d Drift) float64 { return float64(d.Edits) })},
		{"notRepaired", drift(func(d Drift) float64 { return float64(d.Edits - d.Repaired) })},
		{"notTried", drift(func(d Drift) float64 { return float64(d.NotTried) })},
		{"p50Seconds", drift(func(d Drift) float64 { return d.P50 })},
		{"p99Seconds", drift(func(d Drift) float64 { return d.P99 })},
		{"maxSeconds", drift(func(d Drift) float64 { return d.Max })},
	}
}

// appendTo appends the report to a history, a file of JSON lines.
func (r *Report) appendTo(file string) error {
	line, err := json.Marshal(r.entry())
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("appending to the history: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// readHistory reads all lines of a history.
func readHistory(file string) ([]Entry, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the history: %w", err)
	}
	var entries []Entry
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("reading the history %s: line %d: %w", file, n, err)
		}
		entries = append(entries, e)
	}
	return entries, lines.Err()
}

// machine returns the kernel's name for the processors, empty if unknown.
func machine() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
