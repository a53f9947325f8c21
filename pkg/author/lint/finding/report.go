package finding

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/internal/sorted"
)

// Report is the result of linting.
type Report struct {
	// Findings are sorted by file, line, rule and message.
	Findings []Finding `json:"findings"`
	// Files and Objects are the numbers of checked files and objects.
	Files   int `json:"files"`
	Objects int `json:"objects"`
	// Totals are the numbers of findings by severity.
	Totals Totals `json:"totals"`
}

// Totals are the numbers of findings by severity.
type Totals struct {
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	Infos    int `json:"infos"`
}

// NewReport returns a report with the findings in the lists, except those of disabled rules. It sorts them and adds severities and
// remedies. The caller sets the numbers of files and objects.
func NewReport(disable []string, lists ...*List) *Report {
	r := &Report{Findings: []Finding{}}
	rules := rulesByID()
	for _, l := range lists {
		for _, f := range l.all() {
			if !slices.Contains(disable, f.Rule) {
				r.Findings = append(r.Findings, rules[f.Rule].complete(f))
			}
		}
	}
	sorted.By(r.Findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Document, b.Document),
			cmp.Compare(a.Severity.rank(), b.Severity.rank()), strings.Compare(a.Rule, b.Rule), strings.Compare(a.Message, b.Message))
	})
	r.Findings = slices.CompactFunc(r.Findings, func(a, b Finding) bool {
		return a.File == b.File && a.Line == b.Line && a.Document == b.Document && a.Rule == b.Rule && a.Message == b.Message
	})
	for _, f := range r.Findings {
		switch f.Severity {
		case Error:
			r.Totals.Errors++
		case Warning:
			r.Totals.Warnings++
		case Info:
			r.Totals.Infos++
		}
	}
	return r
}

// complete adds the rule's severity and remedy to a finding, unless the finding already has them.
func (r Rule) complete(f Finding) Finding {
	f.Severity, f.Remedy = cmp.Or(f.Severity, r.Severity), cmp.Or(f.Remedy, r.Remedy)
	if f.Unused && f.Severity == Error {
		f.Severity = Warning
		f.Message += "; no profile applies it"
	}
	return f
}

// Locate changes the findings in a file: they name the author's file, and its lines. Added are the numbers of the lines that the author's
// file lacks, from 1 and sorted.
func (r *Report) Locate(file, origin string, added []int) {
	for i := range r.Findings {
		if f := &r.Findings[i]; f.File == file {
			f.File = origin
			skipped, _ := slices.BinarySearch(added, f.Line)
			f.Line = max(f.Line-skipped, min(f.Line, 1))
		}
	}
}
