//go:build linux

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

// Report is the result of one call of nodebench. -o json prints it.
type Report struct {
	Time time.Time `json:"time"`
	// Measurements has one for each cluster, the smaller one first.
	Measurements []Measurement `json:"measurements"`
	// Missed names the figures that miss their budgets.
	Missed []string `json:"missed,omitempty"`
}

// Measurement has the figures of one cluster.
type Measurement struct {
	Nodes int `json:"nodes"`
	// Slots is the pool's maxUnavailable.
	Slots   int `json:"slots"`
	Pods    int `json:"pods"`
	Budgets int `json:"budgets"`
	// Idle counts the idle stage's requests by kind, without watches and those for the Lease.
	Idle map[string]int `json:"idle"`
	// QuickDone has the times from desiredConfig to Done of a config that requires neither a drain nor a reboot, and Quick its requests.
	QuickDone Latencies `json:"quickDone"`
	Quick     Requests  `json:"quick"`
	// Roll has the requests of a config that requires both, and RollSeconds the duration from the MachineConfig to the last node.
	Roll        Requests `json:"roll"`
	RollSeconds float64  `json:"rollSeconds"`
	// SlotFilled has the times from the end of a node's update to the cordon of the next node. SlotsWithheld is the number of nodes without such a
	// time, because the pool reported meanwhile why a slot stayed empty, such as a budget.
	SlotFilled    Latencies `json:"slotFilled"`
	SlotsWithheld int       `json:"slotsWithheld"`
	// MostCordoned is the maximum number of nodes that were cordoned at the same time.
	MostCordoned int `json:"mostCordoned"`
	// Violations says when a budget was violated, and LowestMargin how many healthy pods more than needed a budget had at least.
	Violations   []string `json:"violations"`
	LowestMargin int      `json:"lowestMargin"`
	// ControllerMiB is the controller's peak of resident memory, and ControllerCPU its processor time in seconds.
	ControllerMiB float64 `json:"controllerPeakMiB"`
	ControllerCPU float64 `json:"controllerCPUSeconds"`
}

// Latencies are percentiles in seconds.
type Latencies struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50Seconds"`
	P99   float64 `json:"p99Seconds"`
	Max   float64 `json:"maxSeconds"`
}

func latencies(list []time.Duration) Latencies {
	if len(list) == 0 {
		return Latencies{}
	}
	slices.Sort(list)
	at := func(percent int) float64 { return list[(len(list)*percent+99)/100-1].Seconds() }
	return Latencies{Count: len(list), P50: at(50), P99: at(99), Max: at(100)}
}

// figure is a row of the report.
type figure struct {
	name, format string
	value        func(Measurement) float64
	// most is the budget; negative for none.
	most float64
	// isTimed reports whether the figure depends on the speed of the machine. On a slow one, the stage joins more writes of a pool's status.
	isTimed bool
}

// noBudget is the budget of a figure without one.
const noBudget = -1

// figures returns the rows of the report with the budgets in docs/dev/testing.md.
func figures() []figure {
	count := func(n int) float64 { return float64(n) }
	return []figure{
		{"pods", "%.0f", func(m Measurement) float64 { return count(m.Pods) }, noBudget, false},
		{"idle: requests besides watches and the Lease", "%.0f", func(m Measurement) float64 { return count(sum(m.Idle)) }, 0, false},
		{"desiredConfig to Done without drain and reboot, p50", "%.2f s", func(m Measurement) float64 { return m.QuickDone.P50 }, noBudget, true},
		{"desiredConfig to Done without drain and reboot, p99", "%.2f s", func(m Measurement) float64 { return m.QuickDone.P99 }, 2, true},
		{"  writes per node", "%.1f", func(m Measurement) float64 { return m.Quick.Writes }, 24, true},
		{"  reads per node", "%.2f", func(m Measurement) float64 { return m.Quick.Reads }, 1, false},
		{"update with drain and reboot", "%.0f s", func(m Measurement) float64 { return m.RollSeconds }, noBudget, true},
		{"  writes per node", "%.1f", func(m Measurement) float64 { return m.Roll.Writes }, 24, true},
		{"  writes of one node, maximum", "%.0f", func(m Measurement) float64 { return count(m.Roll.MostWrites) }, 24, false},
		{"  rejected writes per node", "%.1f", func(m Measurement) float64 { return m.Roll.Rejected }, noBudget, false},
		{"  reads per node", "%.2f", func(m Measurement) float64 { return m.Roll.Reads }, 2.5, false}, // a write that meets a heartbeat repeats one
		{"  evictions", "%.0f", func(m Measurement) float64 { return count(m.Roll.Evictions) }, noBudget, false},
		{"  refused evictions", "%.0f", func(m Measurement) float64 { return count(m.Roll.Refused) }, noBudget, false},
		{"  free slot to next cordon, p50", "%.2f s", func(m Measurement) float64 { return m.SlotFilled.P50 }, noBudget, true},
		{"  free slot to next cordon, p99", "%.2f s", func(m Measurement) float64 { return m.SlotFilled.P99 }, 1, true},
		{"  slots that stayed empty for a reported reason", "%.0f", func(m Measurement) float64 { return count(m.SlotsWithheld) }, noBudget, false},
		{"  nodes cordoned at once beyond maxUnavailable", "%.0f", func(m Measurement) float64 { return count(max(0, m.MostCordoned-m.Slots)) }, 0, false},
		{"violated budgets of pods", "%.0f", func(m Measurement) float64 { return count(len(m.Violations)) }, 0, false},
		{"peak memory of the controller", "%.0f MiB", func(m Measurement) float64 { return m.ControllerMiB }, 300, false},
		{"processor time of the controller", "%.1f s", func(m Measurement) float64 { return m.ControllerCPU }, noBudget, true},
	}
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// isMissed reports whether a figure misses its budget.
func (f figure) isMissed(m Measurement) bool { return f.most != noBudget && f.value(m) > f.most }

// add adds a measurement and the figures that miss their budgets.
func (r *Report) add(m Measurement) {
	r.Measurements = append(r.Measurements, m)
	for _, f := range figures() {
		if f.isMissed(m) {
			r.Missed = append(r.Missed, fmt.Sprintf("%d nodes: %s: "+f.format+" instead of "+f.format, m.Nodes, strings.TrimSpace(f.name), f.value(m), f.most))
		}
	}
}

// err returns an error that names the figures that miss their budgets, nil if none does.
func (r *Report) err() error {
	if len(r.Missed) == 0 {
		return nil
	}
	return fmt.Errorf("%d figures miss their budgets:\n  %s", len(r.Missed), strings.Join(r.Missed, "\n  "))
}

func (r *Report) writeJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r *Report) writeText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\tbudget")
	for _, m := range r.Measurements {
		fmt.Fprintf(w, "\t%d nodes", m.Nodes)
	}
	fmt.Fprintln(w)
	for _, f := range figures() {
		budget := ""
		if f.most != noBudget {
			budget = fmt.Sprintf(f.format, f.most)
		}
		fmt.Fprintf(w, "%s\t%s", f.name, budget)
		for _, m := range r.Measurements {
			fmt.Fprintf(w, "\t"+f.format, f.value(m))
			if f.isMissed(m) {
				fmt.Fprint(w, " (missed)")
			}
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, m := range r.Measurements {
		for _, part := range []struct {
			name   string
			counts map[string]int
		}{{"idle", m.Idle}, {"without drain and reboot", m.Quick.ByKind}, {"with drain and reboot", m.Roll.ByKind}} {
			if len(part.counts) == 0 {
				continue
			}
			fmt.Fprintf(out, "\n%d nodes, requests %s:\n", m.Nodes, part.name)
			for _, kind := range slices.Sorted(maps.Keys(part.counts)) {
				fmt.Fprintf(out, "%8d %s\n", part.counts[kind], kind)
			}
		}
		for _, v := range m.Violations {
			fmt.Fprintln(out, v)
		}
	}
	return nil
}
