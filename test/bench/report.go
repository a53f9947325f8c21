package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is everything that one call of bench found. Its JSON is what -o json prints, and a line of the history.
type Report struct {
	Time     time.Time `json:"time"`
	Revision string    `json:"revision,omitempty"`
	CPUs     int       `json:"cpus"`
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
	Subject string  `json:"subject"`
	Run     int     `json:"run,omitempty"`
	Phases  []Phase `json:"phases"`
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
	// CPU are seconds of user and system time of cvo, PeakMiB its most resident memory in this phase.
	CPU     float64 `json:"cpuSeconds,omitempty"`
	PeakMiB float64 `json:"peakMiB,omitempty"`
	// Requests by user agent and verb, and of those Failed with a code from 400.
	Requests map[string]map[string]int `json:"requests,omitempty"`
	Failed   int                       `json:"failed,omitempty"`
	// Writes are the requests that ask for a change, Changed those after which the resource version was another; both
	// without the Lease and events.
	Writes  int `json:"writes"`
	Changed int `json:"changed"`

	start, end time.Time
}

func (r *Report) writeJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// appendTo adds the report to a history: a file of JSON lines that only grows.
func (r *Report) appendTo(file string) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("adding to the history: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
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
	return w.Flush()
}

func (r *Report) writeTimes(w io.Writer) {
	fmt.Fprintln(w, "phase\tsubject\truns\ttime\tratio\trollout\tratio\tCPU\tpeak\t")
	for _, phase := range []string{phaseInstall, phaseUpdate, phaseRestart, phaseIdle} {
		for _, subject := range r.subjects() {
			list := r.phases(subject, phase)
			if len(list) == 0 {
				continue
			}
			seconds := func(p Phase) float64 { return p.Seconds }
			rollout := func(p Phase) float64 { return p.Rollout }
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t\n", phase, subject, len(list),
				figure(median(list, seconds), "%.2f s"), figure(r.ratio(subject, phase, seconds), "%.2f"),
				figure(median(list, rollout), "%.2f s"), figure(r.ratio(subject, phase, rollout), "%.2f"),
				figure(median(list, func(p Phase) float64 { return p.CPU }), "%.2f s"),
				figure(median(list, func(p Phase) float64 { return p.PeakMiB }), "%.0f MiB"))
		}
	}
}

func (r *Report) writeRequests(w io.Writer) {
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	fmt.Fprintf(w, "phase\tsubject\tuser agent\t%s\tfailed\twrites\tper manifest\tchanged\t\n", strings.Join(verbs, "\t"))
	for _, m := range r.Counted {
		for _, p := range m.Phases {
			for i, agent := range slices.Sorted(maps.Keys(p.Requests)) {
				fmt.Fprintf(w, "%s\t%s\t%s\t", p.Name, m.Subject, agent)
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

func (r *Report) subjects() []string {
	var names []string
	for _, m := range r.Timed {
		if !slices.Contains(names, m.Subject) {
			names = append(names, m.Subject)
		}
	}
	slices.Sort(names)
	return names
}

func (r *Report) phases(subject, phase string) []Phase {
	var list []Phase
	for _, m := range r.Timed {
		for _, p := range m.Phases {
			if m.Subject == subject && p.Name == phase {
				list = append(list, p)
			}
		}
	}
	return list
}

// ratio is the median over the runs of a figure to the plain loader's time in the same run, 0 where that has none.
func (r *Report) ratio(subject, phase string, value func(Phase) float64) float64 {
	own, plain := r.phases(subject, phase), r.phases(loaderName, phase)
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
