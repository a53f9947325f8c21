package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is everything that one call of bench found. Its JSON is what -o json prints.
type Report struct {
	Time     time.Time `json:"time"`
	Revision string    `json:"revision,omitempty"`
	CPUs     int       `json:"cpus"`
	Machine  string    `json:"machine,omitempty"`
	From     Release   `json:"from"`
	To       Release   `json:"to"`
	// Delay is how long each of the platform's operators took for a new version.
	Delay string `json:"delay"`
	// Counted are runs with an audit log: their requests count, their times do not.
	Counted []Measurement `json:"counted,omitempty"`
	// Timed are runs without.
	Timed []Measurement `json:"timed,omitempty"`
}

// Release is one of the releases, with the number of manifests that the cluster gets.
type Release struct {
	Version   string `json:"version"`
	Manifests int    `json:"manifests"`
}

// Measurement is one turn of the plain loader or of a binary.
type Measurement struct {
	// Scenario is empty for the two releases alone.
	Scenario string  `json:"scenario,omitempty"`
	Subject  string  `json:"subject"`
	Run      int     `json:"run,omitempty"`
	Phases   []Phase `json:"phases"`
}

// Phase is one part of a turn.
type Phase struct {
	Name      string `json:"name"`
	Manifests int    `json:"manifests,omitempty"`
	// Seconds is from the start of the process (install, restart) or the edit of the ClusterVersion (update) to
	// Completed, or to a complete pass (restart).
	Seconds float64 `json:"seconds"`
	// Rollout is the part after the release was accepted, from its entry in the history to Completed: before lie
	// pulling, verifying, loading and, for an install, the start of the process.
	Rollout float64 `json:"rolloutSeconds,omitempty"`
	// CPU are seconds of user and system time of cvo, PeakMiB its most resident memory in this phase, and FileMiB what
	// the binary has of that: it moves by some MiB with how the file lies in the kernel's cache.
	CPU     float64 `json:"cpuSeconds,omitempty"`
	PeakMiB float64 `json:"peakMiB,omitempty"`
	FileMiB float64 `json:"fileMiB,omitempty"`
	// Requests by user agent and verb, and of those Failed with a code from 400.
	Requests map[string]map[string]int `json:"requests,omitempty"`
	Failed   int                       `json:"failed,omitempty"`
	// Writes are the requests that ask for a change, Changed those after which the resource version was another; both
	// without the Lease and events.
	Writes  int `json:"writes"`
	Changed int `json:"changed"`
	// Drift is what became of the edits, in the phase of that name.
	Drift *Drift `json:"drift,omitempty"`

	start, end time.Time
}

func (p Phase) seconds() float64 { return p.Seconds }
func (p Phase) rollout() float64 { return p.Rollout }

func (r *Report) writeJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r *Report) writeText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%s (%d manifests) to %s (%d manifests), revision %s, %d CPUs, operators' delay %s\n",
		r.From.Version, r.From.Manifests, r.To.Version, r.To.Manifests, r.Revision, r.CPUs, r.Delay)
	if len(r.Timed) > 0 {
		fmt.Fprintf(out, "\nTimes, medians; the ratio is to the plain loader of the same run\n")
		r.writeTimes(w)
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(r.Counted) > 0 {
		fmt.Fprintf(out, "\nRequests; writes and changes leave out the Lease and events\n")
		r.writeRequests(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	r.writeDrift(out)
	return nil
}

func (r *Report) writeTimes(w io.Writer) {
	fmt.Fprintln(w, "phase\tsubject\truns\ttime\tratio\trollout\tratio\tCPU\tpeak\tbinary\t")
	for _, scenario := range r.scenarios() {
		for _, phase := range phaseNames() {
			for _, subject := range r.subjects(scenario) {
				list := r.phases(scenario, subject, phase)
				if len(list) == 0 {
					continue
				}
				fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", rowName(scenario, phase), subject, len(list),
					figure(median(list, Phase.seconds), "%.2f s"), figure(r.ratio(scenario, subject, phase, Phase.seconds), "%.2f"),
					figure(median(list, Phase.rollout), "%.2f s"), figure(r.ratio(scenario, subject, phase, Phase.rollout), "%.2f"),
					figure(median(list, func(p Phase) float64 { return p.CPU }), "%.2f s"),
					figure(median(list, func(p Phase) float64 { return p.PeakMiB }), "%.0f MiB"),
					figure(median(list, func(p Phase) float64 { return p.FileMiB }), "%.0f MiB"))
			}
		}
	}
}

// rowName names a phase of a scenario.
func rowName(scenario, phase string) string {
	if scenario == "" {
		return phase
	}
	return scenario + ", " + phase
}

// writeDrift tells what became of the hostile edits of each run.
func (r *Report) writeDrift(out io.Writer) {
	for _, m := range r.all() {
		for _, p := range m.Phases {
			d := p.Drift
			if d == nil {
				continue
			}
			fmt.Fprintf(out, "\nDrift, %s: %d edits of %d kinds by another manager, %d repaired after %s (p50), %s (p99), %s (max)\n",
				m.title(), d.Edits, d.Kinds, d.Repaired, milliseconds(d.P50), milliseconds(d.P99), milliseconds(d.Max))
			if len(p.Requests) > 0 && d.Edits > 0 {
				fmt.Fprintf(out, "  %.2f writes an edit, %.2f of which changed something\n",
					float64(p.Writes)/float64(d.Edits), float64(p.Changed)/float64(d.Edits))
			}
			for _, kind := range slices.Sorted(maps.Keys(d.NotRepaired)) {
				fmt.Fprintf(out, "  not repaired: %s, %d of them\n", kind, d.NotRepaired[kind])
			}
			if d.NotTried > 0 {
				fmt.Fprintf(out, "  %d more were not tried, as others of their kind were not repaired\n", d.NotTried)
			}
		}
	}
}

func milliseconds(seconds float64) string { return fmt.Sprintf("%.0f ms", 1000*seconds) }

// title names a measurement in a sentence.
func (m Measurement) title() string {
	if m.Run == 0 {
		return m.Subject + ", counting run"
	}
	return fmt.Sprintf("%s, run %d", m.Subject, m.Run)
}

func (r *Report) writeRequests(w io.Writer) {
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	fmt.Fprintf(w, "phase\tsubject\tuser agent\t%s\tfailed\twrites\tper manifest\tchanged\t\n", strings.Join(verbs, "\t"))
	for _, m := range r.Counted {
		for _, p := range m.Phases {
			for i, agent := range slices.Sorted(maps.Keys(p.Requests)) {
				fmt.Fprintf(w, "%s\t%s\t%s\t", rowName(m.Scenario, p.Name), m.Subject, agent)
				for _, verb := range verbs {
					fmt.Fprintf(w, "%s\t", figure(float64(p.Requests[agent][verb]), "%.0f"))
				}
				if i > 0 { // the sums stand in the first line of a phase
					fmt.Fprintln(w, "\t\t\t\t")
					continue
				}
				perManifest := 0.0
				if p.Manifests > 0 {
					perManifest = float64(p.Writes) / float64(p.Manifests)
				}
				fmt.Fprintf(w, "%d\t%d\t%s\t%d\t\n", p.Failed, p.Writes, figure(perManifest, "%.3f"), p.Changed)
			}
		}
	}
}

// all are the measurements of counting and timed runs.
func (r *Report) all() []Measurement { return slices.Concat(r.Counted, r.Timed) }

// scenarios are those that were timed, in the order in which they were.
func (r *Report) scenarios() []string {
	var names []string
	for _, m := range r.Timed {
		if !slices.Contains(names, m.Scenario) {
			names = append(names, m.Scenario)
		}
	}
	return names
}

func (r *Report) subjects(scenario string) []string {
	var names []string
	for _, m := range r.Timed {
		if m.Scenario == scenario && !slices.Contains(names, m.Subject) {
			names = append(names, m.Subject)
		}
	}
	slices.Sort(names)
	return names
}

func (r *Report) phases(scenario, subject, phase string) []Phase {
	var list []Phase
	for _, m := range r.Timed {
		for _, p := range m.Phases {
			if m.Scenario == scenario && m.Subject == subject && p.Name == phase {
				list = append(list, p)
			}
		}
	}
	return list
}

// ratio is the median over the runs of a figure to the plain loader's time in the same run, 0 where that has none.
func (r *Report) ratio(scenario, subject, phase string, value func(Phase) float64) float64 {
	own, plain := r.phases(scenario, subject, phase), r.phases(scenario, loaderName, phase)
	if subject == loaderName || len(plain) == 0 || len(plain) != len(own) {
		return 0
	}
	ratios := make([]float64, len(own))
	for i := range own {
		ratios[i] = value(own[i]) / plain[i].Seconds
	}
	return middle(ratios)
}

func median(list []Phase, value func(Phase) float64) float64 {
	values := make([]float64, len(list))
	for i, p := range list {
		values[i] = value(p)
	}
	return middle(values)
}

func middle(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// figure leaves a cell empty where nothing was measured.
func figure(value float64, format string) string {
	if value == 0 {
		return ""
	}
	return fmt.Sprintf(format, value)
}
