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

// Report is the result of one call of bench. -o json prints it.
type Report struct {
	Time     time.Time `json:"time"`
	Revision string    `json:"revision,omitempty"`
	CPUs     int       `json:"cpus"`
	Machine  string    `json:"machine,omitempty"`
	From     Release   `json:"from"`
	To       Release   `json:"to"`
	// Delay is the time that each of the platform's operators needed for a new version.
	Delay string `json:"delay"`
	// Counted are the runs with an audit log. Their requests count, their times do not.
	Counted []Measurement `json:"counted,omitempty"`
	// Timed are the runs without an audit log.
	Timed []Measurement `json:"timed,omitempty"`
}

// Release is a release with the number of its manifests for the cluster.
type Release struct {
	Version   string `json:"version"`
	Manifests int    `json:"manifests"`
}

// Measurement is a run of the plain loader or of a binary.
type Measurement struct {
	// Scenario is empty for the pair of releases.
	Scenario string  `json:"scenario,omitempty"`
	Subject  string  `json:"subject"`
	Run      int     `json:"run,omitempty"`
	Phases   []Phase `json:"phases"`
}

// Phase is a part of a run.
type Phase struct {
	Name      string `json:"name"`
	Manifests int    `json:"manifests,omitempty"`
	// Seconds is the duration of the phase. It starts with the process (install, restart) or the edit of the ClusterVersion (update), and
	// ends with Completed (install, update) or a complete pass (restart).
	Seconds float64 `json:"seconds"`
	// Rollout is the part after the release was accepted, from its history entry to Completed. The part before contains pulling, verifying
	// and loading and, for an install, the start of the process.
	Rollout float64 `json:"rolloutSeconds,omitempty"`
	// Established is, for the plain loader, the time until every CRD is established too. A rollout waits for this.
	Established float64 `json:"establishedSeconds,omitempty"`
	// CPU is the user and system time of cvo in seconds. PeakMiB is its largest resident memory in this phase. FileMiB is the binary's
	// share of that, which varies by some MiB with the kernel's file cache.
	CPU     float64 `json:"cpuSeconds,omitempty"`
	PeakMiB float64 `json:"peakMiB,omitempty"`
	FileMiB float64 `json:"fileMiB,omitempty"`
	// ServerCPU is the user and system time of kube-apiserver and etcd in seconds. It limits the speed of a rollout. For the plain loader, it
	// ends when every CRD is established.
	ServerCPU float64 `json:"serverCPUSeconds,omitempty"`
	// Requests counts by user agent and verb. Failed counts those with a code of at least 400.
	Requests map[string]map[string]int `json:"requests,omitempty"`
	Failed   int                       `json:"failed,omitempty"`
	// Writes counts the requests that would change something, and Changed those that changed the resource version. Both exclude the Lease
	// and events.
	Writes  int `json:"writes"`
	Changed int `json:"changed"`
	// Drift is the result of the edits in the drift phase.
	Drift *Drift `json:"drift,omitempty"`

	start, end time.Time
}

func (p Phase) seconds() float64     { return p.Seconds }
func (p Phase) rollout() float64     { return p.Rollout }
func (p Phase) established() float64 { return p.Established }

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
		fmt.Fprintf(out, "\nMedian times; the ratios compare with the plain loader of the same run: with its applies, and until every CRD is established too\n")
		r.writeTimes(w)
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(r.Counted) > 0 {
		fmt.Fprintf(out, "\nRequests; writes and changes exclude the Lease and events\n")
		r.writeRequests(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	r.writeDrift(out)
	return nil
}

func (r *Report) writeTimes(w io.Writer) {
	fmt.Fprintln(w, "phase\tsubject\truns\ttime\tratio\trollout\tratio\testablished\tratio\tserver CPU\tCPU\tpeak\tbinary\t")
	for _, scenario := range r.scenarios() {
		for _, phase := range phaseNames() {
			for _, subject := range r.subjects(scenario) {
				list := r.phases(scenario, subject, phase)
				if len(list) == 0 {
					continue
				}
				ratio := func(own, plain func(Phase) float64) string {
					return figure(r.ratio(scenario, subject, phase, own, plain), "%.2f")
				}
				fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", rowName(scenario, phase), subject, len(list),
					figure(median(list, Phase.seconds), "%.2f s"), ratio(Phase.seconds, Phase.seconds),
					figure(median(list, Phase.rollout), "%.2f s"), ratio(Phase.rollout, Phase.seconds),
					figure(median(list, Phase.established), "%.2f s"), ratio(Phase.seconds, Phase.established),
					figure(median(list, func(p Phase) float64 { return p.ServerCPU }), "%.2f s"),
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

// writeDrift writes the result of the hostile edits in each run.
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
				fmt.Fprintf(out, "  %.2f writes per edit, %.2f of which changed something\n",
					float64(p.Writes)/float64(d.Edits), float64(p.Changed)/float64(d.Edits))
			}
			for _, kind := range slices.Sorted(maps.Keys(d.NotRepaired)) {
				fmt.Fprintf(out, "  not repaired: %s (%d)\n", kind, d.NotRepaired[kind])
			}
			if d.NotTried > 0 {
				fmt.Fprintf(out, "  %d more were not tried, because others of their kind were not repaired\n", d.NotTried)
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
				if i > 0 { // only the first line of a phase has the sums
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

// all returns the measurements of the counting and timed runs.
func (r *Report) all() []Measurement { return slices.Concat(r.Counted, r.Timed) }

// scenarios returns the timed scenarios in order.
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

// ratio returns the median ratio of a figure to one of the plain loader in the same run, 0 without the loader.
func (r *Report) ratio(scenario, subject, phase string, value, loader func(Phase) float64) float64 {
	own, plain := r.phases(scenario, subject, phase), r.phases(scenario, loaderName, phase)
	if subject == loaderName || len(plain) == 0 || len(plain) != len(own) {
		return 0
	}
	ratios := make([]float64, len(own))
	for i := range own {
		ratios[i] = value(own[i]) / loader(plain[i])
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

// figure returns an empty cell for a missing measurement.
func figure(value float64, format string) string {
	if value == 0 {
		return ""
	}
	return fmt.Sprintf(format, value)
}
