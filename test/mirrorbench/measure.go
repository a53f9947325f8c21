package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// Report is the result of one call.
type Report struct {
	CPUs    int       `json:"cpus"`
	Images  int       `json:"images"`
	Blobs   int       `json:"blobs"`
	Bytes   int64     `json:"bytes"`
	Latency string    `json:"latency"`
	Turns   []Turn    `json:"turns"`
	Medians []Summary `json:"medians"`
}

// Turn is one process and its cost.
type Turn struct {
	Subject string  `json:"subject"`
	Seconds float64 `json:"seconds"`
	// CPU is the user and system time in seconds. PeakMiB is the peak of resident memory.
	CPU     float64 `json:"cpuSeconds"`
	PeakMiB float64 `json:"peakMiB"`
	// Source and Target are the traffic of the registries.
	Source traffic `json:"source"`
	Target traffic `json:"target"`
}

// Summary has the medians of a tool's turns and the ratio of its time to the time of the plain copy.
type Summary struct {
	Turn
	Ratio float64 `json:"ratio"`
}

const (
	subjectPlain  = "plain copy"
	subjectMirror = "cvo release mirror"
	subjectAgain  = "cvo release mirror, again"
)

// measure runs all turns of every tool.
func measure(ctx context.Context, o options) (*Report, error) {
	fmt.Fprintln(os.Stderr, "info: filling the source registry")
	p, err := prepare(ctx, o)
	if p != nil {
		defer p.remove()
	}
	if err != nil {
		return nil, err
	}
	report := &Report{CPUs: runtime.NumCPU(), Images: o.images, Blobs: p.Blobs, Bytes: p.Bytes, Latency: o.latency.String()}
	subjects := append([]string{subjectPlain, subjectMirror}, o.compare...)
	for run := range o.runs {
		for i := range subjects {
			subject := subjects[(run+i)%len(subjects)]
			turns, err := p.turn(ctx, o, subject)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", subject, err)
			}
			for _, t := range turns {
				fmt.Fprintf(os.Stderr, "info: run %d: %s: %.2fs\n", run+1, t.Subject, t.Seconds)
			}
			report.Turns = append(report.Turns, turns...)
		}
	}
	report.summarize(append(subjects, subjectAgain))
	return report, nil
}

// turn runs a tool with a fresh target.
func (p *prepared) turn(ctx context.Context, o options, subject string) (turns []Turn, err error) {
	target, err := startRegistry(ctx, o.latency)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, target.stop()) }()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	to := target.host + "/" + targetRepository
	width := fmt.Sprint(o.parallel)
	mirror := []string{self, "cvo", "release", "mirror", p.Release, "--to", to, "--trust", p.trust, "--max-per-registry", width, "--quiet"}
	switch subject {
	case subjectPlain:
		t, err := p.timed(ctx, subject, target, []string{self, "plain", p.list, to, width})
		return []Turn{t}, err
	case subjectMirror:
		t, err := p.timed(ctx, subject, target, mirror)
		if err != nil {
			return nil, err
		}
		again, err := p.timed(ctx, subjectAgain, target, mirror)
		return []Turn{t, again}, err
	}
	words := strings.Fields(subject)
	for i := range words {
		words[i] = strings.NewReplacer("{release}", p.Release, "{components}", p.source.host+"/"+componentsRepository, "{to}", to).Replace(words[i])
	}
	t, err := p.timed(ctx, subject, target, words)
	return []Turn{t}, err
}

// timed runs a command and measures it.
func (p *prepared) timed(ctx context.Context, subject string, target *running, command []string) (Turn, error) {
	t := Turn{Subject: subject}
	for _, r := range []*running{p.source, target} {
		if _, err := r.stats(ctx); err != nil {
			return t, err
		}
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return t, fmt.Errorf("%w: %s", err, &out)
	}
	t.Seconds = time.Since(begin).Seconds()
	t.CPU = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		t.PeakMiB = float64(usage.Maxrss) / 1024
	}
	var err error
	if t.Source, err = p.source.stats(ctx); err != nil {
		return t, err
	}
	t.Target, err = target.stats(ctx)
	return t, err
}

func (r *Report) summarize(subjects []string) {
	var plain float64
	for _, subject := range subjects {
		turns := slices.DeleteFunc(slices.Clone(r.Turns), func(t Turn) bool { return t.Subject != subject })
		if len(turns) == 0 {
			continue
		}
		slices.SortFunc(turns, func(a, b Turn) int { return cmp.Compare(a.Seconds, b.Seconds) })
		s := Summary{Turn: turns[len(turns)/2]}
		if subject == subjectPlain {
			plain = s.Seconds
		}
		s.Ratio = s.Seconds / plain
		r.Medians = append(r.Medians, s)
	}
}

func (r *Report) print(out io.Writer) error {
	fmt.Fprintf(out, "%d images, %d blobs, %.0f MiB, latency %s, %d CPUs shared with both registries\n\n",
		r.Images, r.Blobs, mib(r.Bytes), r.Latency, r.CPUs)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "subject\tseconds\tratio\tCPU s\tpeak MiB\trequests source\ttarget\tMiB read\twritten\t")
	for _, s := range r.Medians {
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t%.0f\t%d\t%d\t%.0f\t%.0f\t\n", short(s.Subject), s.Seconds, s.Ratio, s.CPU, s.PeakMiB,
			s.Source.Requests, s.Target.Requests, mib(s.Source.Sent), mib(s.Target.Received))
	}
	return w.Flush()
}

// short shortens another tool's command to its name and verb.
func short(subject string) string {
	if words := strings.Fields(subject); filepath.IsAbs(words[0]) && len(words) > 1 {
		return filepath.Base(words[0]) + " " + words[1]
	}
	return subject
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }
