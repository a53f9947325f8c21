// Package finding contains the linting rules and findings. A List collects a limited number of findings. A Report sorts the findings of
// several lists, adds severities and remedies from the rules, and can be written as text or SARIF. Other packages check the release.
package finding

import (
	"fmt"
	"slices"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Severity is the severity of a finding.
type Severity string

const (
	// Error means that some or all clusters cannot apply the release.
	Error Severity = "error"
	// Warning means that the release can be applied, but probably not as its author intended.
	Warning Severity = "warning"
	// Info means that no action is needed.
	Info Severity = "info"
)

// rank orders severities, the worst first.
func (s Severity) rank() int { return slices.Index([]Severity{Error, Warning, Info}, s) }

// Finding is a mistake in a release. Its JSON is for scripts. Fields may be added, but are never renamed or removed.
type Finding struct {
	// Severity is the rule's severity, unless the finding has its own.
	Severity Severity `json:"severity"`
	// Rule is the ID of the rule; see Rules.
	Rule string `json:"rule"`
	// File is the path from the root of the release.
	File string `json:"file"`
	// Line is the line number from 1; 0 means the whole file. In a template, it is a line of the rendered text; 0 if rendering changes the
	// number of lines.
	Line int `json:"line,omitempty"`
	// Document is the document number from 1; 0 means the whole file.
	Document int `json:"document,omitempty"`
	// Object is the object in the document; nil if unknown.
	Object *manifest.ID `json:"object,omitempty"`
	// Field is the path of a field in the object, such as spec.selector.
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	// Remedy is advice for the author.
	Remedy string `json:"remedy"`

	// Unused is set if no profile includes the object. An error is then downgraded to a warning.
	Unused bool `json:"-"`
}

// maxFindings is the maximum number of stored findings for a rule in a file.
const maxFindings = 50

// List collects findings. The zero value is an empty list. It is not safe for concurrent use.
type List struct {
	findings []Finding
	// count is the number of findings by rule and file, including findings beyond maxFindings.
	count map[place]int
}

type place struct{ rule, file string }

// Add stores the first findings of a rule in a file. It counts further findings without calling the function.
func (l *List) Add(rule, file string, finding func() Finding) {
	if l.count == nil {
		l.count = map[place]int{}
	}
	p := place{rule, file}
	l.count[p]++
	if l.count[p] > maxFindings {
		return
	}
	f := finding()
	f.Rule, f.File = rule, file
	l.findings = append(l.findings, f)
}

// File adds a finding about a file or a line in a file.
func (l *List) File(rule, name string, line int, format string, args ...any) {
	l.Add(rule, name, func() Finding {
		return Finding{Line: line, Message: fmt.Sprintf(format, args...)}
	})
}

// all returns the stored findings, and one finding for each rule and file with the number of further findings.
func (l *List) all() []Finding {
	out := slices.Clone(l.findings)
	for p, n := range l.count {
		if n > maxFindings {
			out = append(out, Finding{
				Rule: p.rule, File: p.file, Message: fmt.Sprintf("%d more findings of this rule in this file", n-maxFindings),
			})
		}
	}
	return out
}
